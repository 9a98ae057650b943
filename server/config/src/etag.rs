//! The name of a file's version, as the server gives it and others expect it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The strong entity tag (RFC 9110 section 8.8.3) that the server sends with these bytes: the first
/// 128 bits of their SHA-256, beyond any chance of two contents sharing one.
///
/// Whoever has the bytes can tell whether a server has them too.
pub fn content_etag(bytes: &[u8]) -> String {
    digest_etag(&Sha256::digest(bytes).into())
}

/// The same, where the SHA-256 of the bytes is known already.
pub fn digest_etag(digest: &[u8; 32]) -> String {
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in &digest[..16] {
        // Writing to a String does not fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf x | sha256sum`; a test of the server has the same.
    #[test]
    fn a_tag_is_half_a_digest_in_quotes() {
        assert_eq!(content_etag(b"x"), "\"2d711642b726b04401627ca9fbac32f5\"");
    }
}
