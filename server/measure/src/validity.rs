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
            // MissingPods: the sum lacks a part of unknown size. ErrorShare: what is left are the
            // requests that a failing server found easy. LittlesLaw: arithmetically impossible,
            // so the generator or the merge is at fault.
            Self::MissingPods | Self::ErrorShare | Self::LittlesLaw | Self::NoRequests => {
                ValidityState::Invalid
            }
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
    rate.saturating_mul(half_microseconds).saturating_mul(100) > connections * 101 * 2_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Errors;

    fn load(connections: u32) -> Load {
        serde_json::from_value(serde_json::json!({ "connections": connections })).unwrap()
    }

    fn summary(requests_per_second: u64, mean_microseconds: u64) -> LoadSummary {
        LoadSummary {
            requests_per_second,
            mean_microseconds,
            requests: requests_per_second * 10,
            ..LoadSummary::default()
        }
    }

    fn judge(load: &Load, summary: &LoadSummary) -> Validity {
        validity(&ValidityInputs {
            load,
            summary,
            pods_expected: 1,
            pods_reported: 1,
            shared_node: false,
        })
    }

    #[test]
    fn a_plausible_result_is_valid() {
        let found = judge(&load(100), &summary(100_000, 950));
        assert_eq!(found.state, ValidityState::Valid);
        assert_eq!(found.reasons, []);
    }

    /// Published: ab with 10,000 connections, 7,818 requests a second, 1,168 ms mean. 9,132 of the
    /// connections were busy.
    #[test]
    fn the_published_ab_run_obeys_littles_law() {
        let found = judge(&load(10_000), &summary(7_818, 1_168_000));
        assert_eq!(found.state, ValidityState::Valid);
    }

    /// Published: wrk with 100 connections, 220,337 requests a second, 1.51 ms mean: 333 busy
    /// connections of 100, as its after-the-fact correction inflates the mean.
    #[test]
    fn the_published_wrk_run_breaks_littles_law() {
        let found = judge(&load(100), &summary(220_337, 1_510));
        assert_eq!(found.state, ValidityState::Invalid);
        assert_eq!(found.reasons, [ValidityReason::LittlesLaw]);
        assert_eq!(220_337 * 1_510 / 1_000_000, 332);
    }

    #[test]
    fn littles_law_counts_the_connections_of_all_pods() {
        let (load, summary) = (load(100), summary(200_000, 980));
        let mut inputs = ValidityInputs {
            load: &load,
            summary: &summary,
            pods_expected: 2,
            pods_reported: 2,
            shared_node: false,
        };
        assert_eq!(validity(&inputs).state, ValidityState::Valid);
        inputs.pods_expected = 1;
        inputs.pods_reported = 1;
        assert_eq!(validity(&inputs).reasons, [ValidityReason::LittlesLaw]);
    }

    /// One connection at 150,000 requests a second has a mean of 6.67 µs, which rounds to 7.
    #[test]
    fn rounding_of_a_short_mean_is_not_taken_for_a_broken_law() {
        let found = judge(&load(1), &summary(150_000, 7));
        assert_eq!(found.state, ValidityState::Valid);
    }

    #[test]
    fn one_failure_in_a_hundred_is_borne_and_one_more_is_not() {
        let mut summary = summary(99, 10);
        summary.requests = 9_900;
        summary.errors = Errors {
            timeout: 60,
            status: 40,
            ..Errors::default()
        };
        assert_eq!(judge(&load(1), &summary).state, ValidityState::Valid);
        summary.errors.closed = 1;
        let found = judge(&load(1), &summary);
        assert_eq!(found.state, ValidityState::Invalid);
        assert_eq!(found.reasons, [ValidityReason::ErrorShare]);
    }

    #[test]
    fn a_shared_node_qualifies_and_a_missing_pod_invalidates() {
        let (load, summary) = (load(100), summary(1_000, 10));
        let mut inputs = ValidityInputs {
            load: &load,
            summary: &summary,
            pods_expected: 3,
            pods_reported: 3,
            shared_node: true,
        };
        let found = validity(&inputs);
        assert_eq!(found.state, ValidityState::Qualified);
        assert_eq!(found.reasons, [ValidityReason::SharedNode]);
        inputs.pods_reported = 2;
        let found = validity(&inputs);
        assert_eq!(found.state, ValidityState::Invalid);
        assert_eq!(
            found.reasons,
            [ValidityReason::SharedNode, ValidityReason::MissingPods]
        );
    }

    #[test]
    fn a_run_without_an_answer_is_invalid() {
        let mut summary = LoadSummary::default();
        let found = judge(&load(1), &summary);
        assert_eq!(found.reasons, [ValidityReason::NoRequests]);
        assert_eq!(found.state, ValidityState::Invalid);
        summary.errors.connect = 5;
        let found = judge(&load(1), &summary);
        let both = [ValidityReason::ErrorShare, ValidityReason::NoRequests];
        assert_eq!(found.reasons, both);
    }

    #[test]
    fn absurd_figures_are_judged_without_overflow() {
        let found = judge(&load(u32::MAX), &{
            let mut absurd = summary(0, u64::MAX);
            absurd.requests_per_second = u64::MAX;
            absurd.errors.status = u64::MAX;
            absurd
        });
        assert_eq!(found.state, ValidityState::Invalid);
    }
}
