//! The closing summary of `e2e/test`.

use std::fmt::Write as _;

/// How a test's output names a test that this machine cannot run.
pub const SKIP: &str = "SKIP ";

/// One check of `e2e/test`, as it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it exited with 0.
    pub succeeded: bool,
    /// What it printed.
    pub output: String,
}

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that did what they claim.
    pub passed: usize,
    /// Those that did not.
    pub failed: usize,
    /// Those that this machine cannot run.
    pub skipped: usize,
}

/// The summary in full; its last line is the one that counts.
pub fn summary(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut total = Counts::default();
    for check in checks {
        let Counts {
            passed,
            failed,
            skipped,
        } = counts(check);
        total.passed += passed;
        total.failed += failed;
        total.skipped += skipped;
        let name = &check.name;
        let _ = writeln!(
            text,
            "{name:<32} {passed:>5} passed {failed:>3} failed {skipped:>3} skipped"
        );
    }
    for check in checks {
        for reason in skips(&check.output) {
            let _ = writeln!(text, "skipped: {reason}");
        }
        for test in failures(&check.output) {
            let _ = writeln!(text, "failed: {test}");
        }
    }
    let Counts {
        passed,
        failed,
        skipped,
    } = total;
    let _ = writeln!(
        text,
        "\n{passed} passed, {failed} failed, {skipped} skipped"
    );
    text
}

/// A check that ran tests counts as many as it ran, any other one as itself. What failed without
/// saying so (a test that does not compile, a runner that died) counts as one failure.
pub fn counts(check: &Check) -> Counts {
    let results: Vec<_> = check.output.lines().filter_map(test_result).collect();
    let skipped = skips(&check.output).count();
    let mut counts = Counts {
        skipped,
        ..Counts::default()
    };
    for (passed, failed, ignored) in &results {
        counts.passed += passed;
        counts.failed += failed;
        counts.skipped += ignored;
    }
    // The runner knows nothing of skips: to it these passed.
    counts.passed = counts.passed.saturating_sub(skipped);
    if !check.succeeded && counts.failed == 0 {
        counts.failed = 1;
    } else if check.succeeded && results.is_empty() && skipped == 0 {
        counts.passed = 1;
    }
    counts
}

fn skips(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.strip_prefix(SKIP))
}

/// The runner prints `test NAME ... FAILED` for each.
fn failures(output: &str) -> impl Iterator<Item = &str> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn test_result(line: &str) -> Option<(usize, usize, usize)> {
    let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut numbers = figures
        .split("; ")
        .map(|part| part.split(' ').next()?.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(succeeded: bool, output: &str) -> Check {
        Check {
            name: "unit and local tests".into(),
            succeeded,
            output: output.into(),
        }
    }

    const TESTS: &str = "\
running 3 tests
test a::b ... ok
test a::c ... FAILED
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
---- d stdout ----
SKIP raising_a_hard_limit: this host lacks CAP_SYS_RESOURCE
test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 9 filtered out; finished in 3.01s
";

    #[test]
    fn tests_are_counted_over_all_binaries_and_skips_are_not_passes() {
        let counts = counts(&check(false, TESTS));
        assert_eq!(
            counts,
            Counts {
                passed: 41,
                failed: 1,
                skipped: 3
            }
        );
    }

    #[test]
    fn a_check_without_tests_counts_as_itself() {
        let passed = counts(&check(true, "   Checking tunedweb-api\n"));
        assert_eq!(
            passed,
            Counts {
                passed: 1,
                ..Counts::default()
            }
        );
        let failed = counts(&check(false, "error: could not compile\n"));
        assert_eq!(
            failed,
            Counts {
                failed: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn a_skipped_check_is_only_skipped() {
        let skipped = counts(&check(
            true,
            "SKIP dependencies: cargo-deny is not installed\n",
        ));
        assert_eq!(
            skipped,
            Counts {
                skipped: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn a_runner_that_died_after_its_last_success_is_a_failure() {
        let ok = "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(
            counts(&check(false, ok)),
            Counts {
                passed: 5,
                failed: 1,
                skipped: 0
            }
        );
    }

    #[test]
    fn the_last_line_stands_alone_and_skips_and_failures_are_named() {
        let text = summary(&[check(true, ""), check(false, TESTS)]);
        assert!(
            text.ends_with("\n\n42 passed, 1 failed, 3 skipped\n"),
            "{text}"
        );
        assert!(
            text.contains("skipped: raising_a_hard_limit: this host lacks"),
            "{text}"
        );
        assert!(text.contains("failed: a::c\n"), "{text}");
    }
}
