//! The head of a request (RFC 9112 sections 2 to 5): request line and fields.

use std::mem::MaybeUninit;

use httparse::{Error, Header};

use super::facts::{Facts, Version};
use super::status::Status;

/// Longest head. Twice the longest target leaves as much again for cookies and the like.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest target: what nginx and Apache take; RFC 9110 section 4.1 asks for 8000 at least.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Most fields. Browsers send about 20, long chains of proxies some more.
pub(crate) const FIELDS_MAX: usize = 100;

/// Room for the fields of one request; on the stack, never initialised beyond what is used.
pub(crate) type Fields<'b> = [MaybeUninit<Header<'b>>; FIELDS_MAX];

/// Room for the fields of one request.
pub(crate) const fn fields<'b>() -> Fields<'b> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

/// What stands at the start of the input.
#[derive(Debug)]
pub(crate) enum Parsed<'b, 'h> {
    /// The beginning of a head.
    Partial,
    /// A head, and the number of its bytes.
    Complete(Request<'b, 'h>, usize),
    /// A request for a version 1.x above 1.1: see [`lower_minor_version`].
    HigherMinorVersion,
    /// Nothing that can be served; the connection ends after the answer.
    Refused(Status),
}

/// A request that is well-formed.
#[derive(Debug)]
pub(crate) struct Request<'b, 'h> {
    pub(crate) method: Method,
    pub(crate) target: &'b [u8],
    pub(crate) version: Version,
    pub(crate) fields: &'h [Header<'b>],
    pub(crate) facts: Facts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    /// Known, but not for static files: 405.
    NotAllowed,
    /// Unknown: 501 (RFC 9110 section 9.1).
    Unknown,
}

/// Reads one head from the start of `input`.
pub(crate) fn parse<'b, 'h>(input: &'b [u8], fields: &'h mut Fields<'b>) -> Parsed<'b, 'h> {
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(input, fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return partial(input),
        Err(Error::TooManyHeaders) => return Parsed::Refused(Status::HeaderFieldsTooLarge),
        Err(Error::Version) => return other_version(input),
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Parsed::Refused(Status::BadRequest);
    };
    if target.len() > TARGET_BYTES_MAX {
        return Parsed::Refused(Status::UriTooLong);
    }
    if length > HEAD_BYTES_MAX {
        return Parsed::Refused(Status::HeaderFieldsTooLarge);
    }
    if !lines_end_with_cr_lf(&input[..length]) {
        return Parsed::Refused(Status::BadRequest);
    }
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    match Facts::gather(request.headers, version) {
        Ok(facts) => {
            let (method, target) = (Method::of(method), target.as_bytes());
            let fields = request.headers;
            Parsed::Complete(
                Request {
                    method,
                    target,
                    version,
                    fields,
                    facts,
                },
                length,
            )
        }
        Err(status) => Parsed::Refused(status),
    }
}

/// Turns `HTTP/1.2` to `HTTP/1.9` at the end of the request line into `HTTP/1.1`: a higher minor
/// version is read as the highest that is known (RFC 9110 section 2.5).
pub(crate) fn lower_minor_version(input: &mut [u8]) {
    let line = input.iter().position(|&byte| byte == b'\r').unwrap_or(0);
    if let Some(minor) = input[..line].last_mut() {
        *minor = b'1';
    }
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => {
                Self::NotAllowed
            }
            _ => Self::Unknown,
        }
    }
}

/// More may come, unless what is there is too long already.
fn partial<'h>(input: &[u8]) -> Parsed<'_, 'h> {
    if input.len() > TARGET_BYTES_MAX + "OPTIONS  HTTP/1.1".len() && !input.contains(&b'\n') {
        return Parsed::Refused(Status::UriTooLong);
    }
    if input.len() >= HEAD_BYTES_MAX {
        return Parsed::Refused(Status::HeaderFieldsTooLarge);
    }
    Parsed::Partial
}

/// The parser knows 1.0 and 1.1 only; tell the rest apart by the end of the request line.
fn other_version<'h>(input: &[u8]) -> Parsed<'_, 'h> {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        return if input.len() < HEAD_BYTES_MAX {
            Parsed::Partial
        } else {
            Parsed::Refused(Status::BadRequest)
        };
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let version = match (words.next(), words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some(version), None) => version.strip_prefix(b"HTTP/"),
        _ => None,
    };
    match version {
        Some([b'1', b'.', b'2'..=b'9']) => Parsed::HigherMinorVersion,
        Some([b'2'..=b'9', b'.', b'0'..=b'9']) => Parsed::Refused(Status::VersionNotSupported),
        _ => Parsed::Refused(Status::BadRequest),
    }
}

/// The parser also takes a bare LF as the end of a line; a proxy in front may not.
fn lines_end_with_cr_lf(head: &[u8]) -> bool {
    let bare = head
        .windows(2)
        .filter(|pair| pair[1] == b'\n' && pair[0] != b'\r')
        .count();
    bare == 0 && head.first() != Some(&b'\n')
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::http::facts::Expectation;

    /// What became of the head: `Ok(method, persistent, whether a body follows)`.
    pub(in crate::http) fn parsed(head: &str) -> Result<(Method, bool, bool), Status> {
        let mut fields = fields();
        match parse(head.as_bytes(), &mut fields) {
            Parsed::Complete(request, length) => {
                assert_eq!(length, head.len(), "{head:?}");
                Ok((
                    request.method,
                    request.facts.persistent,
                    request.facts.body.is_some(),
                ))
            }
            Parsed::Refused(status) => Err(status),
            other => panic!("{head:?}: {other:?}"),
        }
    }

    pub(in crate::http) fn with_fields(fields: &str) -> Result<(Method, bool, bool), Status> {
        parsed(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for fields in [
            "X\r\n",
            "X : y\r\n",
            ": y\r\n",
            "X: a\r\n b\r\n",
            "X: \u{1}\r\n",
            "X(: y\r\n",
            "X: y\n",
            "X: a\rb\r\n",
            "X: a\0b\r\n",
        ] {
            assert_eq!(with_fields(fields), Err(Status::BadRequest), "{fields:?}");
        }
        assert_eq!(
            parsed("GET / HTTP/1.1\nHost: a\n\n"),
            Err(Status::BadRequest)
        );
    }

    #[test]
    fn methods_are_known_not_allowed_or_unknown() {
        let method =
            |name: &str| parsed(&format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n")).map(|p| p.0);
        assert_eq!(method("OPTIONS"), Ok(Method::NotAllowed));
        assert_eq!(method("TRACE"), Ok(Method::NotAllowed));
        assert_eq!(method("get"), Ok(Method::Unknown));
    }

    #[test]
    fn versions_are_told_apart() {
        for (version, expected) in [
            ("HTTP/2.0", Status::VersionNotSupported),
            ("HTTP/1.10", Status::BadRequest),
            ("HTTP/01.1", Status::BadRequest),
            ("http/1.1", Status::BadRequest),
            ("HTTP/1.1 ", Status::BadRequest),
            ("x HTTP/1.1", Status::BadRequest),
        ] {
            let head = format!("GET / {version}\r\nHost: a\r\n\r\n");
            assert_eq!(parsed(&head), Err(expected), "{version}");
        }
        assert_eq!(parsed("GET /\r\n"), Err(Status::BadRequest));
    }

    #[test]
    fn a_higher_minor_version_is_read_as_1_1() {
        let mut head = b"GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_vec();
        assert!(matches!(
            parse(&head, &mut fields()),
            Parsed::HigherMinorVersion
        ));
        lower_minor_version(&mut head);
        assert!(matches!(parse(&head, &mut fields()), Parsed::Complete(..)));
    }

    #[test]
    fn what_is_too_long_is_refused_whole_or_in_part() {
        let long = "a".repeat(8_192);
        for (head, expected) in [
            (
                format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
                Status::UriTooLong,
            ),
            (format!("GET /{long}{long}"), Status::UriTooLong),
            (
                format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}{long}\r\n\r\n"),
                Status::HeaderFieldsTooLarge,
            ),
            (
                format!("GET / HTTP/1.1\r\nX: {long}{long}"),
                Status::HeaderFieldsTooLarge,
            ),
            (
                format!(
                    "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                    "X: y\r\n".repeat(100)
                ),
                Status::HeaderFieldsTooLarge,
            ),
        ] {
            assert_eq!(parsed(&head), Err(expected), "{}", &head[..20]);
        }
    }

    #[test]
    fn preconditions_and_expectations_are_noticed() {
        let mut room = fields();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nif-none-match: *\r\nExpect: 100-Continue\r\n\r\n";
        let Parsed::Complete(request, _) = parse(head, &mut room) else {
            panic!()
        };
        assert!(request.facts.has_preconditions);
        assert_eq!(request.facts.expects, Expectation::Continue);
    }
}
