//! Conditional requests (RFC 9110 section 13).

use std::time::{Duration, SystemTime};

use httparse::Header;

/// What the preconditions of a GET or HEAD ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answer as if there were none.
    Send,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Whether this field has a say in [`evaluate`].
pub(crate) fn is_precondition(name: &str) -> bool {
    [
        "If-None-Match",
        "If-Modified-Since",
        "If-Match",
        "If-Unmodified-Since",
    ]
    .iter()
    .any(|field| field.eq_ignore_ascii_case(name))
}

/// Evaluates in the order of RFC 9110 section 13.2.2. `modified` is in seconds since 1970.
pub(crate) fn evaluate(fields: &[Header<'_>], etag: Option<&str>, modified: u64) -> Outcome {
    let has = |name: &str| {
        fields
            .iter()
            .any(|field| field.name.eq_ignore_ascii_case(name))
    };
    if has("If-Match") {
        if !any_tag_matches(fields, "If-Match", etag, Comparison::Strong) {
            return Outcome::Failed;
        }
    } else if date(fields, "If-Unmodified-Since").is_some_and(|date| modified > date) {
        return Outcome::Failed;
    }
    let not_modified = if has("If-None-Match") {
        any_tag_matches(fields, "If-None-Match", etag, Comparison::Weak)
    } else {
        date(fields, "If-Modified-Since").is_some_and(|date| modified <= date)
    };
    if not_modified {
        Outcome::NotModified
    } else {
        Outcome::Send
    }
}

/// RFC 9110 section 8.8.3.2. Our own tags are strong, so only the client's weakness matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn any_tag_matches(
    fields: &[Header<'_>],
    name: &str,
    etag: Option<&str>,
    comparison: Comparison,
) -> bool {
    fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case(name))
        .any(|field| list_matches(field.value, etag, comparison))
}

/// `*`, or a comma-separated list of tags. A malformed element ends the list.
fn list_matches(list: &[u8], etag: Option<&str>, comparison: Comparison) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after;
            continue;
        }
        let (weak, quoted) = match rest.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        if quoted.first() != Some(&b'"') {
            return false;
        }
        let Some(end) = quoted[1..].iter().position(|&byte| byte == b'"') else {
            return false;
        };
        let (tag, after) = quoted.split_at(end + 2);
        let counts = !weak || comparison == Comparison::Weak;
        if counts && etag.is_some_and(|etag| etag.as_bytes() == tag) {
            return true;
        }
        rest = after;
    }
}

/// The date of a field that occurs once, in any of the three formats of RFC 9110 section 5.6.7;
/// anything else is ignored (sections 13.1.3 and 13.1.4).
fn date(fields: &[Header<'_>], name: &str) -> Option<u64> {
    let mut values = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case(name));
    let value = values.next()?.value;
    if values.next().is_some() {
        return None;
    }
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .as_ref()
        .map(Duration::as_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: Option<&str> = Some("\"abc\"");
    const MODIFIED: u64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn outcome(fields: &[(&str, &str)]) -> Outcome {
        let fields: Vec<Header<'_>> = fields
            .iter()
            .map(|(name, value)| Header {
                name,
                value: value.as_bytes(),
            })
            .collect();
        evaluate(&fields, ETAG, MODIFIED)
    }

    #[test]
    fn if_none_match_compares_weakly_in_a_list() {
        for value in [
            "\"abc\"",
            "W/\"abc\"",
            "\"x\", \"abc\"",
            ", ,\"x\" ,W/\"abc\"",
            "*",
            " * ",
        ] {
            assert_eq!(
                outcome(&[("If-None-Match", value)]),
                Outcome::NotModified,
                "{value}"
            );
        }
        for value in [
            "\"x\"",
            "abc",
            "\"abc",
            "",
            "\"x\" \"y\"",
            "w/\"abc\"",
            "\"ABC\"",
        ] {
            assert_eq!(
                outcome(&[("if-none-match", value)]),
                Outcome::Send,
                "{value}"
            );
        }
    }

    #[test]
    fn if_none_match_wins_over_if_modified_since() {
        assert_eq!(
            outcome(&[("If-None-Match", "\"abc\""), ("If-Modified-Since", BEFORE)]),
            Outcome::NotModified
        );
        assert_eq!(
            outcome(&[("If-None-Match", "\"x\""), ("If-Modified-Since", SAME)]),
            Outcome::Send
        );
    }

    #[test]
    fn if_modified_since_permits_the_same_second_and_later() {
        for (value, expected) in [
            (BEFORE, Outcome::Send),
            (SAME, Outcome::NotModified),
            (AFTER, Outcome::NotModified),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Outcome::NotModified),
            ("Sun Nov  6 08:49:37 1994", Outcome::NotModified),
            ("yesterday", Outcome::Send),
        ] {
            assert_eq!(
                outcome(&[("If-Modified-Since", value)]),
                expected,
                "{value}"
            );
        }
        let twice = [("If-Modified-Since", SAME), ("If-Modified-Since", SAME)];
        assert_eq!(outcome(&twice), Outcome::Send);
    }

    #[test]
    fn if_match_compares_strongly_and_wins_over_if_unmodified_since() {
        assert_eq!(outcome(&[("If-Match", "\"x\"")]), Outcome::Failed);
        assert_eq!(outcome(&[("If-Match", "W/\"abc\"")]), Outcome::Failed);
        assert_eq!(outcome(&[("If-Match", "*")]), Outcome::Send);
        assert_eq!(
            outcome(&[("If-Match", "\"abc\""), ("If-Unmodified-Since", BEFORE)]),
            Outcome::Send
        );
        assert_eq!(outcome(&[("If-Unmodified-Since", BEFORE)]), Outcome::Failed);
        assert_eq!(outcome(&[("If-Unmodified-Since", SAME)]), Outcome::Send);
    }

    #[test]
    fn without_a_tag_of_ours_only_the_asterisk_matches() {
        let field = |value: &'static str| {
            [Header {
                name: "If-None-Match",
                value: value.as_bytes(),
            }]
        };
        assert_eq!(evaluate(&field("\"abc\""), None, MODIFIED), Outcome::Send);
        assert_eq!(evaluate(&field("*"), None, MODIFIED), Outcome::NotModified);
    }
}
