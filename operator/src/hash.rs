//! Names and marks from contents.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// SHA-256 over parts, each with its length, so that no two lists of parts look the same.
pub(crate) fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The first digits of a hash: enough that no two of the few objects with one prefix share it.
pub(crate) fn short(hash: &str) -> &str {
    hash.get(..10).unwrap_or(hash)
}

/// A name of at most `max` characters: itself, or its beginning and a hash of all of it.
pub(crate) fn bounded_name(name: &str, max: usize) -> String {
    const DIGITS: usize = 8;
    if name.len() <= max {
        return name.to_owned();
    }
    let hash = of_parts([name.as_bytes()]);
    let head = name
        .get(..max.saturating_sub(DIGITS + 1))
        .unwrap_or_default();
    format!("{}-{}", head.trim_end_matches('-'), &hash[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        let together = of_parts([b"ab".as_slice()]);
        let apart = of_parts([b"a".as_slice(), b"b".as_slice()]);
        assert_ne!(together, apart);
        assert_eq!(together.len(), 64);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        let (one, two) = (
            format!("{}-1", "a".repeat(60)),
            format!("{}-2", "a".repeat(60)),
        );
        assert_eq!(bounded_name("short", 20), "short");
        assert_eq!(bounded_name(&one, 20).len(), 20);
        assert_ne!(bounded_name(&one, 20), bounded_name(&two, 20));
        assert!(!bounded_name("aaaaaaaaaa-bbbbbbbbbb", 20).contains("--"));
    }
}
