//! The head of a response: what it says about the end of its body.

use super::Malformed;

/// What a head says that matters to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// Whether the connection may carry another request (RFC 9112 section 9.3).
    pub(crate) persistent: bool,
}

/// How the end of a body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Sized(u64),
    /// After the last chunk.
    Chunked,
    /// Where the connection ends.
    UntilClose,
}

impl Head {
    /// Reads a head, its empty line included.
    ///
    /// Lines end in CR LF. Folded lines, a repeated or listed `Content-Length`, and transfer
    /// codings other than `chunked` are refused: none of them is in use, and each has been a way
    /// of making two readers disagree about where a response ends.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes = bytes.strip_suffix(b"\r\n\r\n").ok_or(Malformed::Line)?;
        let (status_line, mut rest) = split_line(bytes);
        let (minor, status) = parse_status_line(status_line)?;
        let mut fields = Fields::default();
        while let Some(lines) = rest {
            let (line, more) = split_line(lines);
            fields.read(line)?;
            rest = more;
        }
        let framing = fields.framing(status)?;
        let persistent = if minor == 0 {
            fields.keep_alive && !fields.close
        } else {
            !fields.close
        };
        Ok(Self {
            status,
            framing,
            persistent: persistent && framing != Framing::UntilClose,
        })
    }

    /// Whether the head is an interim one, which another one follows (RFC 9110 section 15.2).
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// The fields that decide where the response ends.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    fn read(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or(Malformed::Line)?);
        // a name cannot be empty or hold white space: that would be a folded line
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return Err(Malformed::Line);
        }
        let value = value[1..].trim_ascii();
        if value.contains(&b'\n') || value.contains(&b'\r') {
            return Err(Malformed::Line);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return Err(Malformed::Length);
            }
            self.length = Some(parse_length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Coding);
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    fn framing(&self, status: u16) -> Result<Framing, Malformed> {
        match (status, self.chunked, self.length) {
            // nobody asked for another protocol
            (101, ..) => Err(Malformed::Status),
            (100..=199 | 204 | 304, ..) => Ok(Framing::Sized(0)),
            (_, true, Some(_)) => Err(Malformed::Length),
            (_, true, None) => Ok(Framing::Chunked),
            (_, false, Some(length)) => Ok(Framing::Sized(length)),
            (_, false, None) => Ok(Framing::UntilClose),
        }
    }
}

/// The line up to CR LF, and what follows it.
fn split_line(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    match end {
        Some(end) => (&bytes[..end], Some(&bytes[end + 2..])),
        None => (bytes, None),
    }
}

/// `HTTP/1.1 200 OK` to (1, 200). The reason is optional and means nothing.
fn parse_status_line(line: &[u8]) -> Result<(u8, u16), Malformed> {
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(Malformed::Version)?;
    let [minor @ b'0'..=b'9', b' ', digits @ ..] = rest else {
        return Err(Malformed::Version);
    };
    let (digits, reason) = digits.split_at_checked(3).ok_or(Malformed::Status)?;
    if !reason.is_empty() && reason[0] != b' ' {
        return Err(Malformed::Status);
    }
    let status = digits.iter().try_fold(0, |status, digit| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        Some(status * 10 + digit)
    });
    match status {
        Some(status @ 100..=599) => Ok((minor - b'0', status)),
        _ => Err(Malformed::Status),
    }
}

/// Digits only; the type's limit is the limit.
fn parse_length(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() {
        return Err(Malformed::Length);
    }
    let length = value.iter().try_fold(0_u64, |length, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    });
    length.ok_or(Malformed::Length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<Head, Malformed> {
        Head::parse(format!("{head}\r\n\r\n").as_bytes())
    }

    #[test]
    fn a_length_a_chunked_body_and_neither_are_told_apart() {
        let framing = |head| parse(head).map(|head| head.framing);
        let sized = framing("HTTP/1.1 200 OK\r\ncontent-LENGTH: 12");
        assert_eq!(sized, Ok(Framing::Sized(12)));
        let chunked = framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked");
        assert_eq!(chunked, Ok(Framing::Chunked));
        assert_eq!(framing("HTTP/1.1 200"), Ok(Framing::UntilClose));
    }

    #[test]
    fn a_status_without_body_has_none_whatever_its_fields_say() {
        for status in ["100 Continue", "103 Early Hints", "204 No Content", "304 x"] {
            let head = parse(&format!("HTTP/1.1 {status}\r\nContent-Length: 5")).unwrap();
            assert_eq!(head.framing, Framing::Sized(0), "{status}");
        }
    }

    #[test]
    fn a_connection_persists_unless_version_or_option_say_otherwise() {
        let persistent = |head: &str| {
            let head = format!("{head}\r\nContent-Length: 0");
            parse(&head).unwrap().persistent
        };
        assert!(persistent("HTTP/1.1 200 OK"));
        assert!(persistent("HTTP/1.0 200 OK\r\nConnection: Keep-Alive"));
        assert!(!persistent("HTTP/1.0 200 OK"));
        assert!(!persistent("HTTP/1.1 200 OK\r\nConnection: foo , CLOSE"));
        assert!(!parse("HTTP/1.1 200 OK").unwrap().persistent);
    }

    #[test]
    fn a_length_that_is_no_number_or_too_large_is_refused() {
        let too_large = "18446744073709551616";
        for length in ["", "-1", "+1", "1 2", "5, 5", "0x10", too_large] {
            let head = parse(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}"));
            assert_eq!(head, Err(Malformed::Length), "{length}");
        }
        let largest = parse("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615");
        assert_eq!(largest.unwrap().framing, Framing::Sized(u64::MAX));
    }

    #[test]
    fn framing_that_two_readers_could_read_differently_is_refused() {
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked";
        assert_eq!(parse(both), Err(Malformed::Length));
        let twice = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5";
        assert_eq!(parse(twice), Err(Malformed::Length));
        for coding in ["gzip", "gzip, chunked", "chunked, chunked", "xchunked"] {
            let head = parse(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}"));
            assert_eq!(head, Err(Malformed::Coding), "{coding}");
        }
    }

    #[test]
    fn lines_that_are_no_fields_are_refused() {
        for line in [
            "no colon",
            ": no name",
            "a b: c",
            " folded: x",
            "a: b\nc: d",
            "a\n: x",
        ] {
            let head = parse(&format!("HTTP/1.1 200 OK\r\n{line}"));
            assert_eq!(head, Err(Malformed::Line), "{line:?}");
        }
    }

    #[test]
    fn a_status_line_of_another_protocol_is_refused() {
        for line in [
            "",
            "SSH-2.0-x",
            "HTTP/2 200",
            "HTTP/1.x 200",
            "http/1.1 200 OK",
        ] {
            assert_eq!(parse(line), Err(Malformed::Version), "{line}");
        }
        for line in [
            "HTTP/1.1 20",
            "HTTP/1.1 2000",
            "HTTP/1.1 099",
            "HTTP/1.1 600",
            "HTTP/1.1 2 0",
        ] {
            assert_eq!(parse(line), Err(Malformed::Status), "{line}");
        }
        let switching = parse("HTTP/1.1 101 Switching Protocols");
        assert_eq!(switching, Err(Malformed::Status));
    }
}
