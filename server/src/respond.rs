//! Responses as bytes: head and body in one piece, so that one system call sends them.

use crate::files::{Body, Entry};
use crate::http::status::Status;
use crate::http::target;
use crate::worker::clock::Clock;

/// What the response says of the connection (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Kept; HTTP/1.1 does not need to be told.
    Implied,
    /// Kept; an HTTP/1.0 client asked for it.
    KeepAlive,
    Close,
}

/// Writes responses into a buffer.
#[derive(Debug)]
pub(crate) struct Responder<'a> {
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) clock: &'a Clock,
    pub(crate) persistence: Persistence,
    /// A HEAD request: everything but the body.
    pub(crate) head_only: bool,
}

impl Responder<'_> {
    /// 200. The body of a large file is not written: the caller sends it from the file.
    pub(crate) fn content(&mut self, entry: &Entry) {
        self.start(Status::Ok);
        self.output.extend_from_slice(&entry.fields);
        if let (Body::Memory(bytes), false) = (&entry.body, self.head_only) {
            self.output.extend_from_slice(bytes);
        }
    }

    /// 304.
    pub(crate) fn not_modified(&mut self, entry: &Entry) {
        self.start(Status::NotModified);
        self.output.extend_from_slice(&entry.validators);
    }

    /// 301 to the same path with a slash at its end. The location has no scheme and no host, so it
    /// stays on whatever origin the client knows.
    pub(crate) fn redirect(&mut self, path: &[u8], query: Option<&[u8]>) {
        self.start(Status::MovedPermanently);
        self.output.extend_from_slice(b"Location: ");
        target::encode(path, self.output);
        self.output.push(b'/');
        if let Some(query) = query {
            self.output.push(b'?');
            // what the client sent, without what no field may hold
            self.output
                .extend(query.iter().filter(|byte| byte.is_ascii_graphic()));
        }
        self.output.extend_from_slice(b"\r\n");
        self.finish(Status::MovedPermanently);
    }

    /// Any other status, with its name as the body.
    pub(crate) fn status(&mut self, status: Status) {
        self.start(status);
        match status {
            Status::MethodNotAllowed => self.output.extend_from_slice(b"Allow: GET, HEAD\r\n"),
            Status::ServiceUnavailable => self.output.extend_from_slice(b"Retry-After: 1\r\n"),
            _ => {}
        }
        self.finish(status);
    }

    fn start(&mut self, status: Status) {
        self.output.extend_from_slice(b"HTTP/1.1 ");
        self.output.extend_from_slice(status.text().as_bytes());
        self.clock.append_fields(self.output);
        match self.persistence {
            Persistence::Implied => {}
            Persistence::KeepAlive => {
                self.output.extend_from_slice(b"Connection: keep-alive\r\n");
            }
            Persistence::Close => self.output.extend_from_slice(b"Connection: close\r\n"),
        }
    }

    fn finish(&mut self, status: Status) {
        let text = status.text();
        let fields = format!(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
            text.len() + 1
        );
        self.output.extend_from_slice(fields.as_bytes());
        if !self.head_only {
            self.output.extend_from_slice(text.as_bytes());
            self.output.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn rendered(write: impl FnOnce(&mut Responder<'_>)) -> String {
        let mut output = Vec::new();
        let clock = Clock::new(Instant::now());
        write(&mut Responder {
            output: &mut output,
            clock: &clock,
            persistence: Persistence::Implied,
            head_only: false,
        });
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_redirect_cannot_leave_the_origin_or_split_the_head() {
        let response = rendered(|responder| {
            responder.redirect(b"/a\\b\r\nX: y", Some(b"q=1\r\nX: y"));
        });
        assert!(
            response.contains("\r\nLocation: /a%5Cb%0D%0AX:%20y/?q=1X:y\r\n"),
            "{response}"
        );
    }

    #[test]
    fn a_status_says_its_name_and_what_is_allowed() {
        let response = rendered(|responder| responder.status(Status::MethodNotAllowed));
        assert!(response.starts_with("HTTP/1.1 405 Method Not Allowed\r\nServer: tunedweb\r\n"));
        assert!(response.contains("\r\nAllow: GET, HEAD\r\n"));
        assert!(response.ends_with("Content-Length: 23\r\n\r\n405 Method Not Allowed\n"));
    }

    #[test]
    fn a_head_response_has_no_body() {
        let response = rendered(|responder| {
            responder.head_only = true;
            responder.status(Status::NotFound);
        });
        assert!(
            response.ends_with("Content-Length: 14\r\n\r\n"),
            "{response}"
        );
    }
}
