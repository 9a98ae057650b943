//! Request bodies. No method that is served has a use for one: they are read, checked and thrown
//! away, so that the next request on the connection is found where it begins.

/// Largest body that is read only to be thrown away; reading more costs more than a new connection.
pub(crate) const BODY_BYTES_MAX: u64 = 64 * 1024;

/// Chunk extensions and trailers of one body together; they carry nothing for us.
const OVERHEAD_BYTES_MAX: u32 = 16 * 1024;

/// A body of which a part is still to come.
#[derive(Debug)]
pub(crate) enum Discard {
    Length(u64),
    Chunked(Chunked),
}

/// What became of the bytes given to [`Discard::feed`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// All are part of the body, and more is to come.
    More,
    /// The body ended after this many bytes.
    Done(usize),
    /// Not a chunked body (RFC 9112 section 7.1): 400.
    Malformed,
    /// Beyond [`BODY_BYTES_MAX`]: 413.
    TooLarge,
}

impl Discard {
    pub(crate) fn chunked() -> Self {
        Self::Chunked(Chunked {
            state: State::SizeStart,
            left: 0,
            total: 0,
            overhead: 0,
        })
    }

    pub(crate) fn feed(&mut self, input: &[u8]) -> Fed {
        match self {
            Self::Length(left) => match usize::try_from(*left) {
                Ok(end) if end <= input.len() => Fed::Done(end),
                _ => {
                    *left -= input.len() as u64;
                    Fed::More
                }
            },
            Self::Chunked(chunked) => chunked.feed(input),
        }
    }
}

/// A chunked body, read byte by byte except for the data.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    /// Of the chunk: its size while that is read, then what is left of it.
    left: u64,
    total: u64,
    overhead: u32,
}

/// Which byte comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeStart,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Chunked {
    fn feed(&mut self, input: &[u8]) -> Fed {
        let mut at = 0;
        while at < input.len() {
            if self.state == State::Data {
                let part = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(input.len() - at);
                self.left -= part as u64;
                at += part;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            let Some(state) = self.step(input[at]) else {
                return Fed::Malformed;
            };
            self.state = state;
            at += 1;
            if self.total > BODY_BYTES_MAX || self.overhead > OVERHEAD_BYTES_MAX {
                return Fed::TooLarge;
            }
            if self.state == State::End {
                return Fed::Done(at);
            }
        }
        Fed::More
    }

    /// The state after `byte`; none: it may not stand there. A line ends with CR LF, never LF alone.
    fn step(&mut self, byte: u8) -> Option<State> {
        match (self.state, byte) {
            (State::SizeStart | State::Size, byte) if byte.is_ascii_hexdigit() => {
                let digit = u64::from(char::from(byte).to_digit(16)?);
                // the shift cannot lose bits that matter: a size near 2^60 is refused at once
                self.left = self.left.checked_mul(16)?.checked_add(digit)?;
                Some(State::Size)
            }
            (State::Size, b';') => Some(State::Extension),
            (State::Size | State::Extension, b'\r') => Some(State::SizeLf),
            (State::SizeLf, b'\n') if self.left == 0 => Some(State::TrailerStart),
            (State::SizeLf, b'\n') => {
                self.total = self.total.saturating_add(self.left);
                Some(State::Data)
            }
            (State::DataCr, b'\r') => Some(State::DataLf),
            (State::DataLf, b'\n') => Some(State::SizeStart),
            (State::TrailerStart, b'\r') => Some(State::EndLf),
            (State::EndLf, b'\n') => Some(State::End),
            (State::Trailer, b'\r') => Some(State::TrailerLf),
            (State::TrailerLf, b'\n') => Some(State::TrailerStart),
            (state @ (State::Extension | State::TrailerStart | State::Trailer), byte)
                if byte == b'\t' || (byte >= b' ' && byte != 0x7f) =>
            {
                self.overhead += 1;
                Some(if state == State::TrailerStart {
                    State::Trailer
                } else {
                    state
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(body: &str) -> Fed {
        Discard::chunked().feed(body.as_bytes())
    }

    #[test]
    fn whole_bodies_end_where_they_end() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "005;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
            "A\r\n0123456789\r\n0;x\r\n\r\n",
        ] {
            assert_eq!(
                fed(&format!("{body}GET /")),
                Fed::Done(body.len()),
                "{body:?}"
            );
        }
        assert_eq!(Discard::Length(3).feed(b"abcGET"), Fed::Done(3));
    }

    #[test]
    fn a_body_may_come_a_byte_at_a_time() {
        let body = b"5;a\r\nhello\r\n0\r\nX: y\r\n\r\n";
        let mut discard = Discard::chunked();
        for byte in &body[..body.len() - 1] {
            assert_eq!(discard.feed(&[*byte]), Fed::More);
        }
        assert_eq!(discard.feed(&body[body.len() - 1..]), Fed::Done(1));
        let mut discard = Discard::Length(2);
        assert_eq!(
            [discard.feed(b"a"), discard.feed(b"b")],
            [Fed::More, Fed::Done(1)]
        );
    }

    #[test]
    fn what_two_parsers_may_read_in_two_ways_is_malformed() {
        for body in [
            "5\nhello\r\n",
            "5;a\nb\r\nhello",
            "0x5\r\nhello",
            "-5\r\nhello",
            "5 \r\nhello",
            " 5\r\nhello",
            "\r\n",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "0\r\n\n",
            "0\r\nX: y\n\r\n",
            "ffffffffffffffffff\r\n",
            "5;\0\r\n",
        ] {
            assert_eq!(fed(body), Fed::Malformed, "{body:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_is_read() {
        assert_eq!(fed("10001\r\n"), Fed::TooLarge);
        assert_eq!(fed(&format!("1;{}", "x".repeat(17_000))), Fed::TooLarge);
        assert_eq!(
            fed(&format!("0\r\n{}", "X: y\r\n".repeat(5_000))),
            Fed::TooLarge
        );
    }
}
