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
