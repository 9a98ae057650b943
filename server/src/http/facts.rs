//! What the fields of a request say of its connection, its host and its body (RFC 9112 sections 3.2,
//! 6 and 9.3).

use httparse::Header;

use super::condition;
use super::discard::{BODY_BYTES_MAX, Discard};
use super::host;
use super::status::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

/// The field `Expect` (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    None,
    Continue,
    /// 417.
    Unknown,
}

/// What the fields say.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Whether the client wants the connection to be kept.
    pub(crate) persistent: bool,
    /// Whether a precondition is among the fields.
    pub(crate) has_preconditions: bool,
    pub(crate) expects: Expectation,
    /// The body that follows.
    pub(crate) body: Option<Discard>,
    hosts: u32,
    length: Option<u64>,
    transfer_codings: u32,
}

impl Facts {
    /// Reads the fields and checks what they say together.
    pub(crate) fn gather(fields: &[Header<'_>], version: Version) -> Result<Self, Status> {
        let mut facts = Self {
            hosts: 0,
            persistent: version == Version::Http11,
            has_preconditions: false,
            expects: Expectation::None,
            length: None,
            transfer_codings: 0,
            body: None,
        };
        for field in fields {
            facts.add(field)?;
        }
        facts.check(version)
    }

    /// Lengths tell most fields apart without comparing them.
    fn add(&mut self, field: &Header<'_>) -> Result<(), Status> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("Host") => {
                self.hosts += 1;
                if !host::is_valid(field.value) {
                    return Err(Status::BadRequest);
                }
            }
            6 if is("Expect") => {
                self.expects = if field.value.eq_ignore_ascii_case(b"100-continue") {
                    Expectation::Continue
                } else {
                    Expectation::Unknown
                };
            }
            10 if is("Connection") => self.add_connection(field.value),
            14 if is("Content-Length") => self.add_length(field.value)?,
            17 if is("Transfer-Encoding") => {
                self.transfer_codings += 1;
                if !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Status::NotImplemented);
                }
            }
            8 | 13 | 17 | 19 if condition::is_precondition(field.name) => {
                self.has_preconditions = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// A second length is refused even if equal: a proxy may have read only the first.
    fn add_length(&mut self, value: &[u8]) -> Result<(), Status> {
        let first = self.length.replace(length(value)?).is_none();
        if first {
            Ok(())
        } else {
            Err(Status::BadRequest)
        }
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                self.persistent = false;
                return;
            }
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.persistent = true;
            }
        }
    }

    /// RFC 9112 sections 3.2 (Host) and 6.3 (body). A transfer coding beside a length, twice, or in
    /// HTTP/1.0 is how requests are smuggled.
    fn check(mut self, version: Version) -> Result<Self, Status> {
        let hosts_permitted = match version {
            Version::Http10 => self.hosts <= 1,
            Version::Http11 => self.hosts == 1,
        };
        let smuggled = self.transfer_codings > 1
            || (self.transfer_codings == 1
                && (self.length.is_some() || version == Version::Http10));
        if !hosts_permitted || smuggled {
            return Err(Status::BadRequest);
        }
        if version == Version::Http10 {
            // RFC 9110 section 10.1.1
            self.expects = Expectation::None;
        }
        self.body = match self.length {
            _ if self.transfer_codings == 1 => Some(Discard::chunked()),
            None | Some(0) => None,
            Some(length) if length > BODY_BYTES_MAX => return Err(Status::ContentTooLarge),
            Some(length) => Some(Discard::Length(length)),
        };
        Ok(self)
    }
}

/// `1*DIGIT` that fits (RFC 9110 section 8.6).
fn length(value: &[u8]) -> Result<u64, Status> {
    let text = std::str::from_utf8(value).map_err(|_| Status::BadRequest)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    text.parse().map_err(|_| Status::BadRequest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Method;
    use crate::http::head::tests::{parsed, with_fields};

    #[test]
    fn the_version_decides_whether_the_connection_is_kept() {
        assert_eq!(with_fields(""), Ok((Method::Get, true, false)));
        assert_eq!(
            with_fields("Connection: Close\r\n"),
            Ok((Method::Get, false, false))
        );
        assert_eq!(
            with_fields("Connection: x, close\r\n"),
            Ok((Method::Get, false, false))
        );
        assert_eq!(
            parsed("HEAD / HTTP/1.0\r\n\r\n"),
            Ok((Method::Head, false, false))
        );
        assert_eq!(
            parsed("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
            Ok((Method::Get, true, false))
        );
    }

    #[test]
    fn host_is_required_once_in_http_1_1() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(parsed(head), Err(Status::BadRequest), "{head:?}");
        }
        assert!(parsed("GET / HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn unknown_transfer_codings_are_not_implemented() {
        for value in ["gzip, chunked", "xchunked", "identity"] {
            let fields = format!("Transfer-Encoding: {value}\r\n");
            assert_eq!(with_fields(&fields), Err(Status::NotImplemented), "{value}");
        }
        assert_eq!(
            with_fields("Transfer-Encoding: Chunked\r\n").map(|p| p.2),
            Ok(true)
        );
    }

    #[test]
    fn bodies_are_bounded() {
        assert_eq!(with_fields("Content-Length: 0\r\n").map(|p| p.2), Ok(false));
        assert_eq!(
            with_fields("Content-Length: 65536\r\n").map(|p| p.2),
            Ok(true)
        );
        assert_eq!(
            with_fields("Content-Length: 65537\r\n"),
            Err(Status::ContentTooLarge)
        );
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 5,5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
        ] {
            assert_eq!(with_fields(fields), Err(Status::BadRequest), "{fields:?}");
        }
        assert_eq!(
            parsed("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Err(Status::BadRequest)
        );
        assert_eq!(
            parsed("GET / HTTP/1.1\nHost: a\n\n"),
            Err(Status::BadRequest)
        );
    }
}
