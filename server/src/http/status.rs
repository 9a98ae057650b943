//! The statuses that this server answers with (RFC 9110 section 15).

/// A response status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    MovedPermanently,
    NotModified,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    PreconditionFailed,
    ContentTooLarge,
    UriTooLong,
    ExpectationFailed,
    HeaderFieldsTooLarge,
    NotImplemented,
    ServiceUnavailable,
    VersionNotSupported,
}

impl Status {
    /// Code and reason, as they stand in the status line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::MovedPermanently => "301 Moved Permanently",
            Self::NotModified => "304 Not Modified",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::PreconditionFailed => "412 Precondition Failed",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::ExpectationFailed => "417 Expectation Failed",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::NotImplemented => "501 Not Implemented",
            Self::ServiceUnavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// The class that the request is counted in.
    pub(crate) const fn class(self) -> StatusClass {
        match self.text().as_bytes()[0] {
            b'2' => StatusClass::Success,
            b'3' => StatusClass::Redirection,
            b'4' => StatusClass::ClientError,
            _ => StatusClass::ServerError,
        }
    }
}

/// The first digit of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusClass {
    Success,
    Redirection,
    ClientError,
    ServerError,
}

impl StatusClass {
    pub(crate) const ALL: [Self; 4] = [
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
    ];

    /// Value of the metric's label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
        }
    }
}
