//! The address of the load: `http://HOST[:PORT][/PATH][?QUERY]`.

use std::str::FromStr;

/// Longest path and query that is asked for: the same as in a `BenchmarkRun`.
const PATH_CHARS_MAX: usize = 1024;

/// Longest host name (RFC 1035 section 2.3.4).
const HOST_CHARS_MAX: usize = 253;

/// A checked URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Name or address, an IPv6 address without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query, as in the request line.
    pub(crate) path: String,
    /// Host and port as typed, for the `Host` field.
    pub(crate) authority: String,
}

/// Why a text is not a URL that can be loaded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme or none.
    #[error("must begin with http:// (TLS is not supported)")]
    Scheme,
    /// User and password have no place in a load.
    #[error("must not contain a user name")]
    User,
    /// The host is missing or cannot be one.
    #[error(
        "the host must be a name of at most {HOST_CHARS_MAX} letters, digits, '-', '_' and '.', \
         an IPv4 address, or an IPv6 address in brackets"
    )]
    Host,
    /// The port is not one.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The path has other characters than a request line may carry.
    #[error(
        "path and query must be at most {PATH_CHARS_MAX} visible ASCII characters; encode others \
         as %XX"
    )]
    Path,
    /// A fragment is never sent.
    #[error("must not contain a fragment ('#'): it is not sent to a server")]
    Fragment,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        const SCHEME: &str = "http://";
        let (scheme, rest) = text
            .split_at_checked(SCHEME.len())
            .ok_or(UrlError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(UrlError::Scheme);
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = split_port(authority)?;
        Ok(Self {
            host: parse_host(host)?,
            port: port.map_or(Ok(80), parse_port)?,
            path: parse_path(path)?,
            authority: authority.to_owned(),
        })
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let end_of_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[end_of_host..].split_once(':') {
        Some((before, port)) => Ok((&authority[..end_of_host + before.len()], Some(port))),
        None if authority.is_empty() => Err(UrlError::Host),
        None => Ok((authority, None)),
    }
}

fn parse_host(host: &str) -> Result<String, UrlError> {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').ok_or(UrlError::Host)?;
        let address: std::net::Ipv6Addr = address.parse().map_err(|_| UrlError::Host)?;
        return Ok(address.to_string());
    }
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if host.is_empty() || host.len() > HOST_CHARS_MAX || !host.bytes().all(permitted) {
        return Err(UrlError::Host);
    }
    Ok(host.to_owned())
}

fn parse_port(port: &str) -> Result<u16, UrlError> {
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(port @ 1..) if digits => Ok(port),
        _ => Err(UrlError::Port),
    }
}

fn parse_path(path: &str) -> Result<String, UrlError> {
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    if path.len() > PATH_CHARS_MAX || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(UrlError::Path);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, u16, String, String) {
        let url: Url = text.parse().unwrap();
        (url.host, url.port, url.path, url.authority)
    }

    #[test]
    fn what_is_left_out_is_port_80_and_the_root() {
        let expected = ("site.web".into(), 80, "/".into(), "site.web".into());
        assert_eq!(parts("http://site.web"), expected);
        assert_eq!(parts("HTTP://site.web/").0, "site.web");
    }

    #[test]
    fn port_path_query_and_bracketed_addresses_are_taken_apart() {
        let expected = ("::1".into(), 8080, "/a/b?c=d".into(), "[::1]:8080".into());
        assert_eq!(parts("http://[::1]:8080/a/b?c=d"), expected);
        assert_eq!(parts("http://h?x").2, "/?x");
        assert_eq!(parts("http://[::1]").1, 80);
    }

    #[test]
    fn each_wrong_part_has_its_own_reason() {
        let long = format!("http://h/{}", "x".repeat(PATH_CHARS_MAX));
        for (text, reason) in [
            ("", UrlError::Scheme),
            ("https://h/", UrlError::Scheme),
            ("h:80/", UrlError::Scheme),
            ("http://", UrlError::Host),
            ("http:///x", UrlError::Host),
            ("http://a b/", UrlError::Host),
            ("http://[::1/", UrlError::Host),
            ("http://[x]/", UrlError::Host),
            ("http://::1/", UrlError::Host),
            ("http://h:0/", UrlError::Port),
            ("http://h:/", UrlError::Port),
            ("http://h:+80/", UrlError::Port),
            ("http://h:65536/", UrlError::Port),
            ("http://u@h/", UrlError::User),
            ("http://h/#x", UrlError::Fragment),
            ("http://h/a b", UrlError::Path),
            ("http://h/é", UrlError::Path),
            ("http://h/\r\nX: y", UrlError::Path),
            (&long, UrlError::Path),
        ] {
            assert_eq!(text.parse::<Url>(), Err(reason), "{text}");
        }
    }
}
