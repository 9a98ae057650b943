//! From the bytes of requests to the bytes of responses: what a connection remembers between two
//! reads, without the socket.

use std::ops::ControlFlow;

use super::Worker;
use crate::files::{Body, Found, Lookup, Missing};
use crate::http::condition::{self, Outcome};
use crate::http::discard::{Discard, Fed};
use crate::http::head::{self, Expectation, Method, Parsed, Request, Version};
use crate::http::status::Status;
use crate::http::target::{Target, TargetError};
use crate::respond::{Persistence, Responder};

/// Responses gathered before they are sent; pipelined requests beyond it wait.
const BATCH_BYTES: usize = 64 * 1024;

/// The conversation on one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Input that was not used yet: the beginning of a request, or requests that wait their turn.
    pub(super) kept: Vec<u8>,
    /// The body of a request that is still arriving, and the response that waits for its end.
    body: Option<Arriving>,
    /// Requests answered.
    served: u32,
}

#[derive(Debug)]
struct Arriving {
    discard: Discard,
    response: Vec<u8>,
    then: Then,
}

/// What is to be done after the bytes of a response are sent.
#[derive(Debug, Default)]
pub(super) struct Then {
    /// The file whose bytes follow.
    pub(super) file: Option<Found>,
    pub(super) ending: Ending,
}

/// Whether the connection ends after a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    #[default]
    No,
    /// The client asked for it, so it sends nothing more.
    AtOnce,
    /// The client may be sending still; see [`super::slot::Slot::close_gently`].
    Gently,
}

/// What became of the input.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Bytes used.
    pub(super) used: usize,
    /// Responses written.
    pub(super) answered: u32,
    /// The rest of the input may hold whole requests: it stopped for another reason than that.
    pub(super) more: bool,
    pub(super) then: Then,
}

impl Exchange {
    /// Answers the requests in `input` into `output`, until one needs more than bytes, the batch is
    /// full, or the input ends.
    pub(super) fn answer_all(
        &mut self,
        worker: &Worker,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Batch {
        let mut batch = Batch::default();
        while batch.used < input.len() {
            batch.more = output.len() >= BATCH_BYTES;
            if batch.more || self.answer(worker, input, output, &mut batch).is_break() {
                break;
            }
        }
        batch
    }

    /// Whether a request is in the middle of arriving.
    pub(super) fn is_midway(&self) -> bool {
        !self.kept.is_empty() || self.body.is_some()
    }

    fn answer(
        &mut self,
        worker: &Worker,
        input: &mut [u8],
        output: &mut Vec<u8>,
        batch: &mut Batch,
    ) -> ControlFlow<()> {
        if self.body.is_some() {
            return self.read_body(worker, input, output, batch);
        }
        let mut fields = head::fields();
        let (request, length) = match head::parse(&input[batch.used..], &mut fields) {
            Parsed::Complete(request, length) => (request, length),
            Parsed::Partial => return ControlFlow::Break(()),
            Parsed::HigherMinorVersion => {
                head::lower_minor_version(&mut input[batch.used..]);
                return ControlFlow::Continue(());
            }
            Parsed::Refused(status) => return refuse(worker, status, output, batch),
        };
        batch.used += length;
        let start = output.len();
        let then = match self.respond(worker, &request, output) {
            Ok(then) => then,
            Err(status) => return refuse(worker, status, output, batch),
        };
        if let Some(discard) = request.body
            && request.expects == Expectation::None
        {
            let response = output.split_off(start);
            self.body = Some(Arriving {
                discard,
                response,
                then,
            });
            return ControlFlow::Continue(());
        }
        batch.deliver(then)
    }

    /// Skips the body of a request whose response is ready.
    fn read_body(
        &mut self,
        worker: &Worker,
        input: &[u8],
        output: &mut Vec<u8>,
        batch: &mut Batch,
    ) -> ControlFlow<()> {
        let Some(mut arriving) = self.body.take() else {
            return ControlFlow::Continue(());
        };
        match arriving.discard.feed(&input[batch.used..]) {
            Fed::More => {
                batch.used = input.len();
                self.body = Some(arriving);
                ControlFlow::Break(())
            }
            Fed::Done(length) => {
                batch.used += length;
                output.append(&mut arriving.response);
                batch.deliver(arriving.then)
            }
            Fed::Malformed => refuse(worker, Status::BadRequest, output, batch),
            Fed::TooLarge => refuse(worker, Status::ContentTooLarge, output, batch),
        }
    }

    /// Writes the response to one request. An error is a status after which the connection ends.
    fn respond(
        &mut self,
        worker: &Worker,
        request: &Request<'_, '_>,
        output: &mut Vec<u8>,
    ) -> Result<Then, Status> {
        if request.expects == Expectation::Unknown {
            return Err(Status::ExpectationFailed);
        }
        self.served += 1;
        // who waits for "100 Continue" may or may not send the body once it sees another status
        let body_is_uncertain = request.body.is_some() && request.expects != Expectation::None;
        let ending = match (
            request.persistent,
            self.may_go_on(worker) && !body_is_uncertain,
        ) {
            (true, true) => Ending::No,
            (false, true) => Ending::AtOnce,
            (_, false) => Ending::Gently,
        };
        let mut responder = Responder {
            output,
            clock: &worker.clock,
            persistence: match (ending, request.version) {
                (Ending::No, Version::Http11) => Persistence::Implied,
                (Ending::No, Version::Http10) => Persistence::KeepAlive,
                _ => Persistence::Close,
            },
            head_only: request.method == Method::Head,
        };
        let (status, file) = match request.method {
            Method::Get | Method::Head => respond_with_file(worker, request, &mut responder)?,
            Method::NotAllowed => responder.only(Status::MethodNotAllowed),
            Method::Unknown => responder.only(Status::NotImplemented),
        };
        worker.counters.count_request(status.class());
        Ok(Then { file, ending })
    }

    fn may_go_on(&self, worker: &Worker) -> bool {
        let keep_alive = &worker.shared.keep_alive;
        self.served < keep_alive.requests_max
            && !keep_alive.idle_timeout.is_zero()
            && !worker.draining.get()
    }
}

impl Batch {
    /// Notes a response that is written; goes on to the next request unless something must happen
    /// before that.
    fn deliver(&mut self, then: Then) -> ControlFlow<()> {
        self.answered += 1;
        self.then = then;
        if self.then.file.is_some() || self.then.ending != Ending::No {
            self.more = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Responder<'_> {
    fn only(&mut self, status: Status) -> (Status, Option<Found>) {
        self.status(status);
        (status, None)
    }
}

/// Answers what cannot be a request, or the beginning of one, for the last time.
fn refuse(
    worker: &Worker,
    status: Status,
    output: &mut Vec<u8>,
    batch: &mut Batch,
) -> ControlFlow<()> {
    worker.responder(output).status(status);
    worker.counters.count_request(status.class());
    batch.deliver(Then {
        file: None,
        ending: Ending::Gently,
    })
}

fn respond_with_file(
    worker: &Worker,
    request: &Request<'_, '_>,
    responder: &mut Responder<'_>,
) -> Result<(Status, Option<Found>), Status> {
    let target = match Target::parse(request.target) {
        Ok(target) => target,
        Err(TargetError::Malformed) => return Err(Status::BadRequest),
        Err(TargetError::Hidden) => return Ok(responder.only(Status::NotFound)),
    };
    let (lookup, found) = worker.view.find(&target.path, worker.clock.now_ms());
    match lookup {
        Lookup::Hit => worker.counters.cache_hits.increment(),
        Lookup::Miss => worker.counters.cache_misses.increment(),
    }
    Ok(match found {
        Ok(found) => respond_with_entry(request, found, responder),
        Err(Missing::NotFound) => responder.only(Status::NotFound),
        Err(Missing::Forbidden) => responder.only(Status::Forbidden),
        Err(Missing::Unavailable) => responder.only(Status::ServiceUnavailable),
        Err(Missing::Redirect) => {
            responder.redirect(&target.path, target.query);
            (Status::MovedPermanently, None)
        }
    })
}

fn respond_with_entry(
    request: &Request<'_, '_>,
    found: Found,
    responder: &mut Responder<'_>,
) -> (Status, Option<Found>) {
    let outcome = if request.has_preconditions {
        condition::evaluate(request.fields, found.etag.as_deref(), found.modified)
    } else {
        Outcome::Send
    };
    match outcome {
        Outcome::NotModified => {
            responder.not_modified(&found);
            (Status::NotModified, None)
        }
        Outcome::Failed => responder.only(Status::PreconditionFailed),
        Outcome::Send => {
            responder.content(&found);
            let sends_file = matches!(found.body, Body::File(_)) && !responder.head_only;
            (Status::Ok, sends_file.then_some(found))
        }
    }
}
