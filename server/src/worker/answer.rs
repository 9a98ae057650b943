//! The response to one request for a file.

use super::Worker;
use crate::files::{Body, Found, Lookup, Missing};
use crate::http::condition::{self, Outcome};
use crate::http::head::{Method, Request};
use crate::http::status::Status;
use crate::http::target::{Target, TargetError};
use crate::respond::Responder;

/// A response that is written: its status, and the file whose bytes follow.
pub(super) type Answer = (Status, Option<Found>);

/// Writes the response. An error is a status after which the connection ends.
pub(super) fn answer(
    worker: &Worker,
    request: &Request<'_, '_>,
    responder: &mut Responder<'_>,
) -> Result<Answer, Status> {
    match request.method {
        Method::Get | Method::Head => respond_with_file(worker, request, responder),
        Method::NotAllowed => Ok(responder.only(Status::MethodNotAllowed)),
        Method::Unknown => Ok(responder.only(Status::NotImplemented)),
    }
}

fn respond_with_file(
    worker: &Worker,
    request: &Request<'_, '_>,
    responder: &mut Responder<'_>,
) -> Result<Answer, Status> {
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
) -> Answer {
    let outcome = if request.facts.has_preconditions {
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

impl Responder<'_> {
    fn only(&mut self, status: Status) -> Answer {
        self.status(status);
        (status, None)
    }
}
