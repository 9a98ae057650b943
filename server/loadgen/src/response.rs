//! Follows a response to its end without keeping its body.

mod chunked;
mod head;

use chunked::Chunked;
use head::{Framing, Head};

/// Longest head, and longest sum of chunk extensions and trailers. Servers that are measured send
/// a few hundred bytes; common clients and proxies stop between 8 and 100 KiB.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Why a response cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("not an HTTP/1.1 response")]
    Version,
    #[error("a status that is none, or that was not asked for")]
    Status,
    #[error("a line of the head that is no field")]
    Line,
    #[error("a Content-Length that is no length, or is not alone")]
    Length,
    #[error("a transfer coding other than chunked")]
    Coding,
    #[error("a chunk that cannot be followed")]
    Chunk,
    #[error("head or trailers longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("more bytes than the response has")]
    Excess,
}

/// One response, as far as it was read.
#[derive(Debug)]
pub(crate) struct Response {
    at: At,
    status: u16,
    persistent: bool,
    /// A head that came in several pieces, so far.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum At {
    Head,
    Sized { left: u64 },
    Chunked(Chunked),
    UntilClose,
}

impl Response {
    pub(crate) const fn new() -> Self {
        Self {
            at: At::Head,
            status: 0,
            persistent: false,
            partial: Vec::new(),
        }
    }

    /// Forgets everything, for the next response.
    pub(crate) fn reset(&mut self) {
        self.at = At::Head;
        self.partial.clear();
    }

    /// Takes the next piece; answers whether the response is complete.
    #[inline]
    pub(crate) fn consume(
        &mut self,
        bytes: &[u8],
        former: &mut FormerHead,
    ) -> Result<bool, Malformed> {
        match self.at {
            At::Head => self.consume_head(bytes, former),
            _ => self.consume_body(bytes),
        }
    }

    /// Takes so many bytes of a body of known size, whatever they are.
    pub(crate) fn skip(&mut self, count: u64) -> Result<bool, Malformed> {
        let At::Sized { left } = &mut self.at else {
            return Err(Malformed::Excess);
        };
        *left = left.checked_sub(count).ok_or(Malformed::Excess)?;
        Ok(*left == 0)
    }

    /// How many bytes are missing, if that is known.
    #[inline]
    pub(crate) fn left(&self) -> Option<u64> {
        match self.at {
            At::Sized { left } => Some(left),
            _ => None,
        }
    }

    /// Whether the end of the connection is the end of this response.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self.at, At::UntilClose)
    }

    /// The status, once the head was read.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request, once the head was read.
    pub(crate) fn persistent(&self) -> bool {
        self.persistent
    }

    fn consume_head(&mut self, bytes: &[u8], former: &mut FormerHead) -> Result<bool, Malformed> {
        let mut rest = bytes;
        loop {
            let Some((head, used)) = self.find_head(rest, former)? else {
                return Ok(false);
            };
            rest = &rest[used..];
            if !head.is_interim() {
                self.status = head.status;
                self.persistent = head.persistent;
                self.at = At::start(head.framing);
                return self.consume_body(rest);
            }
        }
    }

    fn consume_body(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        match &mut self.at {
            At::Sized { .. } => self.skip(bytes.len() as u64),
            At::UntilClose => Ok(false),
            At::Chunked(body) => match body.consume(bytes)? {
                Some(used) if used < bytes.len() => Err(Malformed::Excess),
                end => Ok(end.is_some()),
            },
            At::Head => Err(Malformed::Excess),
        }
    }

    /// The head that ends in this piece, and how much of the piece it takes.
    fn find_head(
        &mut self,
        bytes: &[u8],
        former: &mut FormerHead,
    ) -> Result<Option<(Head, usize)>, Malformed> {
        if self.partial.is_empty() {
            if let Some(found) = former.at_start_of(bytes) {
                return Ok(Some(found));
            }
            if let Some(end) = head_end(&bytes[..bytes.len().min(HEAD_BYTES_MAX)], 0) {
                let head = Head::parse(&bytes[..end])?;
                former.remember(head, &bytes[..end]);
                return Ok(Some((head, end)));
            }
        }
        let before = self.partial.len();
        let room = HEAD_BYTES_MAX - before;
        self.partial.extend(&bytes[..bytes.len().min(room)]);
        let Some(end) = head_end(&self.partial, before.saturating_sub(3)) else {
            return if bytes.len() >= room {
                Err(Malformed::TooLong)
            } else {
                Ok(None)
            };
        };
        let head = Head::parse(&self.partial[..end])?;
        self.partial.clear();
        Ok(Some((head, end - before)))
    }
}

impl At {
    fn start(framing: Framing) -> Self {
        match framing {
            Framing::Sized(left) => Self::Sized { left },
            Framing::Chunked => Self::Chunked(Chunked::new()),
            Framing::UntilClose => Self::UntilClose,
        }
    }
}

/// The last head that came in one piece, and what it means. Until the `Date` changes, a server's
/// answers to the same request have the same head: equal bytes mean the same, and comparing them
/// is much cheaper than reading them.
#[derive(Debug, Default)]
pub(crate) struct FormerHead {
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl FormerHead {
    #[inline]
    fn at_start_of(&self, bytes: &[u8]) -> Option<(Head, usize)> {
        let head = self.head?;
        bytes
            .starts_with(&self.bytes)
            .then_some((head, self.bytes.len()))
    }

    fn remember(&mut self, head: Head, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend(bytes);
        self.head = Some(head);
    }
}

/// Where the first empty line ends, looking at the end of what was looked through before.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let empty_line = bytes[from..].windows(4).position(|end| end == b"\r\n\r\n");
    empty_line.map(|start| from + start + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    /// Reads a text cut into pieces of this size; answers after which byte the response was
    /// complete.
    fn complete_after(text: &[u8], piece: usize) -> Result<Option<usize>, Malformed> {
        let (mut response, mut former) = (Response::new(), FormerHead::default());
        let mut read = 0;
        for bytes in text.chunks(piece) {
            read += bytes.len();
            if response.consume(bytes, &mut former)? {
                return Ok(Some(read));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_response_is_complete_at_its_last_byte_however_it_is_cut() {
        let chunked =
            b"HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        let mut interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".to_vec();
        interim.extend(PLAIN);
        for text in [PLAIN, &chunked[..], &empty[..], &interim[..]] {
            for piece in 1..=text.len() {
                let found = complete_after(text, piece);
                assert_eq!(found, Ok(Some(text.len())), "pieces of {piece}");
            }
        }
    }

    #[test]
    fn bytes_after_the_response_are_refused() {
        for text in [
            PLAIN,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            let mut longer = text.to_vec();
            longer.push(b'x');
            let found = complete_after(&longer, longer.len());
            assert_eq!(found, Err(Malformed::Excess));
        }
    }

    #[test]
    fn without_framing_the_response_ends_with_the_connection() {
        let (mut response, mut former) = (Response::new(), FormerHead::default());
        assert!(!response.ends_with_connection());
        let found = response.consume(b"HTTP/1.1 200 OK\r\n\r\nhello", &mut former);
        assert_eq!(found, Ok(false));
        assert!(response.ends_with_connection());
        assert!(!response.persistent());
    }

    #[test]
    fn a_head_seen_before_means_the_same_and_another_one_is_read() {
        let (mut response, mut former) = (Response::new(), FormerHead::default());
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello";
        for (text, status) in [(PLAIN, 200), (PLAIN, 200), (missing, 404), (PLAIN, 200)] {
            response.reset();
            assert_eq!(response.consume(text, &mut former), Ok(true));
            assert_eq!(response.status(), status);
        }
    }

    #[test]
    fn a_head_is_read_up_to_the_limit_and_no_further() {
        for (length, expected) in [
            (HEAD_BYTES_MAX, Ok(Some(HEAD_BYTES_MAX))),
            (HEAD_BYTES_MAX + 1, Err(Malformed::TooLong)),
        ] {
            let start = b"HTTP/1.1 204 No Content\r\nFiller: ";
            let mut text = start.to_vec();
            text.resize(length - 4, b'x');
            text.extend(b"\r\n\r\n");
            assert_eq!(complete_after(&text, 1_000), expected);
            assert_eq!(complete_after(&text, length), expected);
        }
    }

    #[test]
    fn an_endless_head_takes_no_more_memory_than_the_limit() {
        let (mut response, mut former) = (Response::new(), FormerHead::default());
        let piece = vec![b'x'; 60_000];
        assert_eq!(
            response.consume(&piece, &mut former),
            Err(Malformed::TooLong)
        );
        assert!(response.partial.capacity() <= HEAD_BYTES_MAX);
    }

    #[test]
    fn a_skipped_body_ends_like_one_that_was_read() {
        let (mut response, mut former) = (Response::new(), FormerHead::default());
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
        assert_eq!(response.consume(head, &mut former), Ok(false));
        assert_eq!(response.left(), Some(100));
        assert_eq!(response.skip(99), Ok(false));
        assert_eq!(response.skip(1), Ok(true));
        assert_eq!(response.skip(1), Err(Malformed::Excess));
    }
}
