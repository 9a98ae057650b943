//! What a run answered and what may be concluded from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one load pod reports: its termination message (JSON, under 4 KiB). The histogram travels
/// beside it, in log lines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSummary {
    /// Format: 1.
    pub version: u32,
    /// Name of the run, as given with `--run`; empty outside a cluster.
    pub run: String,
    /// Index of the pod within the run, from 0.
    pub index: u32,
    /// Start of the load, microseconds since the Unix epoch.
    pub started_at_microseconds: u64,
    /// Whether the load was stopped before its planned end, so that it is not a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_early: bool,
    /// The figures.
    pub summary: LoadSummary,
}

/// The figures of a run, of one pod or merged over all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadSummary {
    /// Answered requests a second, rounded down.
    pub requests_per_second: u64,
    /// Bytes a second read from the sockets, heads included, rounded down.
    pub bytes_per_second: u64,
    /// Median response time.
    pub p50_microseconds: u64,
    /// 90th percentile of the response time.
    pub p90_microseconds: u64,
    /// 99th percentile of the response time.
    pub p99_microseconds: u64,
    /// 99.9th percentile of the response time.
    pub p999_microseconds: u64,
    /// Longest response time.
    pub max_microseconds: u64,
    /// Mean response time, rounded.
    pub mean_microseconds: u64,
    /// Requests answered in full with a status below 400.
    pub requests: u64,
    /// Bytes read from the sockets.
    pub bytes: u64,
    /// Requests that failed, by kind.
    pub errors: Errors,
    /// Connections really opened.
    pub connections_opened: u64,
    /// Length of the run as measured.
    pub duration_microseconds: u64,
}

/// So much a second, rounded down; 0 for no time at all.
pub fn per_second(count: u64, microseconds: u64) -> u64 {
    const MICROSECONDS_IN_A_SECOND: u128 = 1_000_000;
    let scaled = u128::from(count) * MICROSECONDS_IN_A_SECOND;
    scaled
        .checked_div(u128::from(microseconds))
        .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// Requests that failed, by kind. A response counts in one of them only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Errors {
    /// `connect` failed (refused, unreachable, no free port).
    pub connect: u64,
    /// The connection ended or was reset before the response was complete.
    pub closed: u64,
    /// No complete response within the time limit.
    pub timeout: u64,
    /// Not HTTP/1.1, or framing that cannot be followed.
    pub protocol: u64,
    /// A complete response with a status of 400 or above.
    pub status: u64,
}

/// Whether a result can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validity {
    /// `Invalid` results are recorded and never compared.
    pub state: ValidityState,
    /// Why it is not `Valid`.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub reasons: Vec<ValidityReason>,
}

/// Whether a result can be trusted, from best to worst.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum ValidityState {
    /// Nothing known speaks against it.
    Valid,
    /// Comparable only with results of the same reasons.
    Qualified,
    /// Not a measurement of the server.
    Invalid,
}

/// Why a result is not simply valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum ValidityReason {
    /// Load and server shared a node's CPUs.
    SharedNode,
    /// Not every load pod reported.
    MissingPods,
    /// More than one request in a hundred failed.
    ErrorShare,
    /// Rate times mean response time exceeds the number of connections (Little's law).
    LittlesLaw,
    /// No request was answered.
    NoRequests,
}

/// Whether the objectives were reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The answer in one word.
    pub state: VerdictState,
    /// Objectives missed, each with value and limit.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub failed: Vec<Objective>,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum VerdictState {
    /// Every objective was reached.
    Passed,
    /// At least one was missed.
    Failed,
    /// There was no objective.
    NoObjectives,
    /// The result is `Invalid`, so nothing was judged.
    Unknown,
}

/// An objective that was missed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Objective {
    /// Its name in the resource, such as `maxP99Microseconds`.
    #[schemars(length(max = 64))]
    pub name: String,
    /// What was measured.
    pub value: u64,
    /// What was asked for.
    pub limit: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published push rates, in messages a millisecond, truncated: messages, milliseconds, rate.
    #[test]
    fn published_rates_are_reproduced() {
        let published = [
            (10_000, 585, 17),
            (50_000, 2_884, 17),
            (100_000, 3_204, 31),
            (150_000, 14_194, 10),
            (200_000, 4_909, 40),
            (1_000_000, 44_699, 22),
        ];
        for (messages, milliseconds, rate) in published {
            let found = per_second(messages, milliseconds * 1_000) / 1_000;
            assert_eq!(found, rate, "{messages} in {milliseconds} ms");
        }
    }

    #[test]
    fn a_rate_over_no_time_is_none_and_a_huge_one_saturates() {
        assert_eq!(per_second(5, 0), 0);
        assert_eq!(per_second(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn a_result_is_written_in_the_words_of_the_resource() {
        let written = serde_json::to_value(LoadSummary::default()).unwrap();
        let mut words: Vec<&str> = written
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        words.sort_unstable();
        let expected = [
            "bytes",
            "bytesPerSecond",
            "connectionsOpened",
            "durationMicroseconds",
            "errors",
            "maxMicroseconds",
            "meanMicroseconds",
            "p50Microseconds",
            "p90Microseconds",
            "p999Microseconds",
            "p99Microseconds",
            "requests",
            "requestsPerSecond",
        ];
        assert_eq!(words, expected);
    }
}
