//! Whether a result is what was wanted.

use crate::load::Objectives;
use crate::result::{LoadSummary, Objective, Validity, ValidityState, Verdict, VerdictState};

/// Judges a result by its objectives. An `Invalid` result is not judged.
pub fn verdict(summary: &LoadSummary, objectives: &Objectives, validity: &Validity) -> Verdict {
    let Objectives {
        min_requests_per_second,
        max_p99_microseconds,
        max_errors,
    } = objectives;
    if *objectives == Objectives::default() {
        return Verdict::bare(VerdictState::NoObjectives);
    }
    if validity.state == ValidityState::Invalid {
        return Verdict::bare(VerdictState::Unknown);
    }
    let failed: Vec<Objective> = [
        at_least(
            "minRequestsPerSecond",
            summary.requests_per_second,
            *min_requests_per_second,
        ),
        at_most(
            "maxP99Microseconds",
            summary.p99_microseconds,
            *max_p99_microseconds,
        ),
        at_most("maxErrors", summary.errors.total(), *max_errors),
    ]
    .into_iter()
    .flatten()
    .collect();
    let state = if failed.is_empty() {
        VerdictState::Passed
    } else {
        VerdictState::Failed
    };
    Verdict { state, failed }
}

impl Verdict {
    fn bare(state: VerdictState) -> Self {
        Self {
            state,
            failed: Vec::new(),
        }
    }
}

fn at_least(name: &str, value: u64, limit: Option<u64>) -> Option<Objective> {
    missed(name, value, limit.filter(|limit| value < *limit))
}

fn at_most(name: &str, value: u64, limit: Option<u64>) -> Option<Objective> {
    missed(name, value, limit.filter(|limit| value > *limit))
}

fn missed(name: &str, value: u64, limit: Option<u64>) -> Option<Objective> {
    limit.map(|limit| Objective {
        name: name.to_owned(),
        value,
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Errors;

    const VALID: Validity = Validity {
        state: ValidityState::Valid,
        reasons: Vec::new(),
    };

    fn summary() -> LoadSummary {
        LoadSummary {
            requests_per_second: 100_000,
            p99_microseconds: 5_000,
            requests: 1_000_000,
            errors: Errors {
                timeout: 2,
                status: 1,
                ..Errors::default()
            },
            ..LoadSummary::default()
        }
    }

    #[test]
    fn a_value_on_the_limit_passes() {
        let objectives = Objectives {
            min_requests_per_second: Some(100_000),
            max_p99_microseconds: Some(5_000),
            max_errors: Some(3),
        };
        let found = verdict(&summary(), &objectives, &VALID);
        assert_eq!(found, Verdict::bare(VerdictState::Passed));
    }

    #[test]
    fn every_missed_objective_is_named_with_value_and_limit() {
        let objectives = Objectives {
            min_requests_per_second: Some(100_001),
            max_p99_microseconds: Some(4_999),
            max_errors: Some(2),
        };
        let found = verdict(&summary(), &objectives, &VALID);
        assert_eq!(found.state, VerdictState::Failed);
        let named: Vec<(&str, u64, u64)> = found
            .failed
            .iter()
            .map(|missed| (missed.name.as_str(), missed.value, missed.limit))
            .collect();
        let expected = [
            ("minRequestsPerSecond", 100_000, 100_001),
            ("maxP99Microseconds", 5_000, 4_999),
            ("maxErrors", 3, 2),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn without_objectives_there_is_nothing_to_pass() {
        let found = verdict(&summary(), &Objectives::default(), &VALID);
        assert_eq!(found, Verdict::bare(VerdictState::NoObjectives));
    }

    /// No answer means a 99th percentile of 0, which must not pass for a fast one.
    #[test]
    fn an_invalid_result_is_not_judged() {
        let objectives = Objectives {
            max_p99_microseconds: Some(5_000),
            ..Objectives::default()
        };
        let invalid = Validity {
            state: ValidityState::Invalid,
            reasons: vec![crate::ValidityReason::NoRequests],
        };
        let found = verdict(&LoadSummary::default(), &objectives, &invalid);
        assert_eq!(found, Verdict::bare(VerdictState::Unknown));
    }

    #[test]
    fn a_qualified_result_is_judged() {
        let objectives = Objectives {
            max_errors: Some(0),
            ..Objectives::default()
        };
        let qualified = Validity {
            state: ValidityState::Qualified,
            reasons: vec![crate::ValidityReason::SharedNode],
        };
        let found = verdict(&summary(), &objectives, &qualified);
        assert_eq!(found.state, VerdictState::Failed);
    }
}
