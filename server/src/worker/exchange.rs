//! From the bytes of requests to the bytes of responses: what a connection remembers between two
//! reads, without the socket.

use std::io;
use std::ops::ControlFlow;

use rustix::net::SendFlags;

use super::Worker;
use super::answer::answer;
use crate::files::Found;
use crate::http::discard::{Discard, Fed};
use crate::http::facts::{Expectation, Version};
use crate::http::head::{self, Method, Parsed, Request};
use crate::http::status::Status;
use crate::respond::{Persistence, Responder};

/// Responses gathered before they are sent; pipelined requests beyond it wait. With the input it
/// bounds what a client that pipelines and does not read can make a connection hold.
const BATCH_BYTES: usize = 32 * 1024;

/// The conversation on one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Input that was not used yet: the beginning of a request, or requests that wait their turn.
    pub(super) kept: Vec<u8>,
    /// What is kept may hold whole requests.
    pub(super) more: bool,
    /// Responses that the kernel had no room for.
    pub(super) unsent: Vec<u8>,
    /// What follows when they are sent.
    pub(super) then: Then,
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
struct Batch {
    /// Bytes used.
    used: usize,
    /// Responses written.
    answered: u32,
    /// The rest of the input may hold whole requests: it stopped for another reason than that.
    more: bool,
    then: Then,
}

impl Exchange {
    /// Answers what is in `input`, and gives the responses to `send`, which returns how many bytes
    /// the kernel took. Returns whether a request was answered.
    pub(super) fn advance(
        &mut self,
        worker: &Worker,
        input: &mut [u8],
        send: impl FnOnce(&[u8], SendFlags) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut output = worker.output.borrow_mut();
        output.clear();
        let batch = self.answer_all(worker, input, &mut output);
        self.keep(&input[batch.used..]);
        self.more = batch.more && !self.kept.is_empty();
        self.then = batch.then;
        if self.then.ending == Ending::AtOnce && !self.kept.is_empty() {
            // it said that it sends nothing more, and does
            self.then.ending = Ending::Gently;
        }
        if output.is_empty() {
            return Ok(false);
        }
        let taken = match send(&output, self.send_flags()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result.inspect_err(|_| worker.counters.aborted.increment())?,
        };
        worker.counters.sent_bytes.add(taken as u64);
        self.unsent.extend_from_slice(&output[taken..]);
        Ok(batch.answered > 0)
    }

    /// Head and file share packets (`MSG_MORE`) where a file follows.
    pub(super) fn send_flags(&self) -> SendFlags {
        let more = if self.then.file.is_some() {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        more | SendFlags::NOSIGNAL
    }

    /// Whether there is something to send still.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.then.file.is_some()
    }

    /// Whether a request is in the middle of arriving.
    pub(super) fn is_midway(&self) -> bool {
        !self.kept.is_empty() || self.body.is_some()
    }

    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.kept.clear();
            self.kept.extend_from_slice(rest);
        } else if self.kept.capacity() > 0 {
            // gives the memory back: most connections wait without a part of a request
            self.kept = Vec::new();
        }
    }

    /// Answers the requests in `input` into `output`, until one needs more than bytes, the batch is
    /// full, or the input ends.
    fn answer_all(&mut self, worker: &Worker, input: &mut [u8], output: &mut Vec<u8>) -> Batch {
        let mut batch = Batch::default();
        while batch.used < input.len() {
            batch.more = output.len() >= BATCH_BYTES;
            if batch.more || self.answer(worker, input, output, &mut batch).is_break() {
                break;
            }
        }
        batch
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
        if let Some(discard) = request.facts.body
            && request.facts.expects == Expectation::None
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
        if request.facts.expects == Expectation::Unknown {
            return Err(Status::ExpectationFailed);
        }
        self.served += 1;
        // who waits for "100 Continue" may or may not send the body once it sees another status
        let body_is_uncertain =
            request.facts.body.is_some() && request.facts.expects != Expectation::None;
        let ending = match (
            request.facts.persistent,
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
        let (status, file) = answer(worker, request, &mut responder)?;
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
