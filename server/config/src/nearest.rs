//! The known name that an unknown one was probably meant to be.

/// The candidate with the fewest edits from `unknown`, if that is few enough to be a slip.
///
/// Upper and lower case, `_` and `-` do not count, so `idle_timeout_seconds` finds
/// `idleTimeoutSeconds`; nor does an ending that was left out, such as a unit. Up to a third of the
/// letters may differ: beyond that a suggestion misleads more often than it helps.
pub(crate) fn nearest<'a>(
    unknown: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = folded(unknown);
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &folded(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= candidate.len() / 3)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

fn folded(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// A beginning of at least four letters counts as one edit, shorter ones fit too much.
fn distance(unknown: &[char], candidate: &[char]) -> usize {
    if unknown.len() >= 4 && candidate.len() > unknown.len() && candidate.starts_with(unknown) {
        return 1;
    }
    edits(unknown, candidate)
}

/// Levenshtein distance by rows: inserted, removed and replaced characters.
fn edits(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_meant() {
        let names = ["backlog", "idleTimeoutSeconds", "maxRequests"];
        assert_eq!(nearest("backlogg", names), Some("backlog"));
        assert_eq!(
            nearest("idle_timeout_seconds", names),
            Some("idleTimeoutSeconds")
        );
        assert_eq!(nearest("maxRequest", names), Some("maxRequests"));
        assert_eq!(nearest("idleTimeout", names), Some("idleTimeoutSeconds"));
    }

    #[test]
    fn a_name_that_resembles_nothing_gets_no_suggestion() {
        assert_eq!(nearest("gzip", ["backlog", "maxRequests"]), None);
    }

    #[test]
    fn edits_are_counted_one_by_one() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(edits(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(edits(&chars(""), &chars("abc")), 3);
    }
}
