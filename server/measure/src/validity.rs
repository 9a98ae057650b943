//! Whether a result can be trusted.

use crate::load::Load;
use crate::result::{LoadSummary, Validity, ValidityReason, ValidityState};

/// What is known of a run besides its figures.
#[derive(Clone, Copy, Debug)]
pub struct ValidityInputs<'a> {
    /// What each pod was asked to do.
    pub load: &'a Load,
    /// The merged result.
    pub summary: &'a LoadSummary,
    /// Load pods of the run.
    pub pods_expected: u32,
    /// Load pods whose result was read.
    pub pods_reported: u32,
    /// Whether a load pod and a server under load shared a node.
    pub shared_node: bool,
}

/// Everything that speaks against a result, and how much.
pub fn validity(inputs: &ValidityInputs) -> Validity {
    let reasons: Vec<ValidityReason> = [
        (inputs.shared_node, ValidityReason::SharedNode),
        (
            inputs.pods_reported < inputs.pods_expected,
            ValidityReason::MissingPods,
        ),
        (
            error_share_exceeded(inputs.summary),
            ValidityReason::ErrorShare,
        ),
        (littles_law_broken(inputs), ValidityReason::LittlesLaw),
        (inputs.summary.requests == 0, ValidityReason::NoRequests),
    ]
    .into_iter()
    .filter_map(|(found, reason)| found.then_some(reason))
    .collect();
    let state = reasons
        .iter()
        .map(|reason| reason.weight())
        .max()
        .unwrap_or(ValidityState::Valid);
    Validity { state, reasons }
}

impl ValidityReason {
    /// How much the reason speaks against a result.
    fn weight(self) -> ValidityState {
        match self {
            // the figures are right for this placement and wrong for any other
            Self::SharedNode => ValidityState::Qualified,
            // the sum lacks a part of unknown size
            Self::MissingPods => ValidityState::Invalid,
            // what is left is the share of requests that a failing server found easy
            Self::ErrorShare => ValidityState::Invalid,
            // arithmetically impossible: the generator or the merge is at fault
            Self::LittlesLaw => ValidityState::Invalid,
            Self::NoRequests => ValidityState::Invalid,
        }
    }
}

/// More than one request in a hundred failed. Load testing practice judges no step whose achieved
/// share is below 0.99: what it shows is the backlog, not the server.
fn error_share_exceeded(summary: &LoadSummary) -> bool {
    let failed = u128::from(summary.errors.total());
    let attempted = failed + u128::from(summary.requests);
    failed * 100 > attempted
}

/// Little's law: the mean number of requests under way is rate times mean response time, and in a
/// closed loop a connection has at most one under way.
///
/// Two inaccuracies are allowed for. The mean is rounded to a microsecond, so half of one is taken
/// off. One per cent covers the histogram (one part in a thousand) and the measured lengths of the
/// pods, which end up to 10 ms after the second that they were asked for at the least.
fn littles_law_broken(inputs: &ValidityInputs) -> bool {
    let rate = u128::from(inputs.summary.requests_per_second);
    let half_microseconds = u128::from(inputs.summary.mean_microseconds)
        .saturating_mul(2)
        .saturating_sub(1);
    let connections = u128::from(inputs.load.connections) * u128::from(inputs.pods_reported);
    // rate × mean > connections × 1.01, in units of a hundredth of half a microsecond a second
    rate * half_microseconds * 100 > connections * 101 * 2_000_000
}
