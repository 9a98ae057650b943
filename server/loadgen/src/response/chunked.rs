//! A chunked body: where it ends (RFC 9112 section 7.1).

use super::{HEAD_BYTES_MAX, Malformed};

/// Reads a chunked body piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked {
    at: At,
    /// Bytes of chunk extensions and trailers so far: they carry nothing, so they get no more room
    /// than a head.
    extra: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The size, of which so many digits were read.
    Size {
        value: u64,
        digits: u8,
    },
    /// An extension of the size.
    Extension {
        value: u64,
    },
    /// The LF after the size.
    SizeEnd {
        value: u64,
    },
    /// The data, of which so much is missing.
    Data {
        left: u64,
    },
    /// The CR and the LF after the data.
    DataCr,
    DataLf,
    /// The first byte of a trailer line, the rest of it, its LF.
    LineStart,
    Line,
    LineEnd,
    /// The LF of the empty line.
    End,
}

impl Chunked {
    pub(crate) fn new() -> Self {
        Self {
            at: At::size(),
            extra: 0,
        }
    }

    /// Takes the next piece. Answers how much of it belongs to the body when the body ends in it.
    pub(crate) fn consume(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut used = 0;
        while let Some(byte) = bytes.get(used) {
            if let At::Data { left } = &mut self.at {
                let here = (bytes.len() - used).min(usize::try_from(*left).unwrap_or(usize::MAX));
                used += here;
                *left -= here as u64;
                if *left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            used += 1;
            if matches!(self.at, At::End) && *byte == b'\n' {
                return Ok(Some(used));
            }
            self.at = self.step(*byte)?;
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) -> Result<At, Malformed> {
        if matches!(self.at, At::Extension { .. } | At::LineStart | At::Line) {
            self.extra += 1;
            if self.extra > HEAD_BYTES_MAX {
                return Err(Malformed::TooLong);
            }
        }
        match (self.at, byte) {
            (At::Size { value, digits }, _) => size(value, digits, byte),
            (At::Extension { value }, b'\r') => Ok(At::SizeEnd { value }),
            (At::Extension { value }, _) if byte != b'\n' => Ok(At::Extension { value }),
            (At::SizeEnd { value: 0 } | At::LineEnd, b'\n') => Ok(At::LineStart),
            (At::SizeEnd { value }, b'\n') => Ok(At::Data { left: value }),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::size()),
            (At::LineStart, b'\r') => Ok(At::End),
            (At::Line, b'\r') => Ok(At::LineEnd),
            (At::LineStart | At::Line, _) if byte != b'\n' => Ok(At::Line),
            _ => Err(Malformed::Chunk),
        }
    }
}

impl At {
    const fn size() -> Self {
        Self::Size {
            value: 0,
            digits: 0,
        }
    }
}

fn size(value: u64, digits: u8, byte: u8) -> Result<At, Malformed> {
    /// So many hexadecimal digits fit in 64 bits.
    const DIGITS_MAX: u8 = 16;
    let digit = match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        b'\r' if digits > 0 => return Ok(At::SizeEnd { value }),
        b';' | b' ' | b'\t' if digits > 0 => return Ok(At::Extension { value }),
        _ => return Err(Malformed::Chunk),
    };
    if digits == DIGITS_MAX {
        return Err(Malformed::Chunk);
    }
    Ok(At::Size {
        value: value << 4 | u64::from(digit),
        digits: digits + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the text in pieces of this many bytes; answers what was used when the body ended.
    fn end(text: &[u8], piece: usize) -> Result<Option<usize>, Malformed> {
        let mut body = Chunked::new();
        for (number, piece_bytes) in text.chunks(piece).enumerate() {
            if let Some(used) = body.consume(piece_bytes)? {
                return Ok(Some(number * piece + used));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_body_ends_at_the_same_byte_however_it_is_cut() {
        let body = b"4\r\nWiki\r\nA;ext=\"1\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        let mut text = body.to_vec();
        text.extend(b"HTTP/1.1");
        for piece in 1..=text.len() {
            assert_eq!(end(&text, piece), Ok(Some(body.len())), "pieces of {piece}");
        }
    }

    #[test]
    fn an_unfinished_body_does_not_end() {
        let body = b"4\r\nWiki\r\n0\r\n\r\n";
        for length in 0..body.len() {
            assert_eq!(end(&body[..length], 3), Ok(None), "{length} bytes");
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let broken: [&[u8]; 7] = [
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"4\n",
            b"1\r\nab\r\n",
            b"11111111111111111\r\n",
            b"0\r\nTrailer: x\n",
        ];
        for text in broken {
            assert_eq!(end(text, 100), Err(Malformed::Chunk), "{text:?}");
        }
    }

    #[test]
    fn endless_extensions_and_trailers_are_refused() {
        let long = vec![b'x'; HEAD_BYTES_MAX + 1];
        for start in [&b"4;"[..], &b"0\r\n"[..]] {
            let mut text = start.to_vec();
            text.extend(&long);
            assert_eq!(end(&text, 1_000), Err(Malformed::TooLong));
        }
        // a little in each of very many chunks is no less endless
        let many = b"1;xxxxxxx\r\nx\r\n".repeat(HEAD_BYTES_MAX);
        assert_eq!(end(&many, 1_000), Err(Malformed::TooLong));
    }
}
