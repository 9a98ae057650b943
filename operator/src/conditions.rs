//! Conditions that change only when something changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tunedweb_api::condition::{ConditionType, Reason, find};

/// Longest message. A status holds a dozen of them, and an object of etcd 1.5 MiB.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A condition before it is known whether it differs from the one that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) kind: ConditionType,
    pub(crate) status: Status,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub(crate) const fn of(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Draft {
    pub(crate) fn new(
        kind: ConditionType,
        status: Status,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// The conditions of `drafts` in their order. The time is that of the last change of status.
pub(crate) fn settle(
    old: &[Condition],
    drafts: Vec<Draft>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let settle_one = |draft: Draft| {
        let since = find(old, draft.kind)
            .filter(|found| found.status == draft.status.as_str())
            .map_or_else(
                || Time(whole_seconds(now)),
                |found| found.last_transition_time.clone(),
            );
        Condition {
            type_: draft.kind.as_str().to_owned(),
            status: draft.status.as_str().to_owned(),
            reason: draft.reason.as_str().to_owned(),
            message: clipped(draft.message, MESSAGE_BYTES_MAX),
            observed_generation: generation,
            last_transition_time: since,
        }
    };
    drafts.into_iter().map(settle_one).collect()
}

/// What the API server keeps of a time.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The text, cut at a character so that it fits with a mark that something is missing.
pub(crate) fn clipped(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = " …";
    if text.len() > bytes_max {
        let end = text.floor_char_boundary(bytes_max.saturating_sub(MARK.len()));
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: ConditionType = ConditionType::Ready;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn draft(status: Status, message: &str) -> Draft {
        Draft::new(READY, status, Reason::RollingOut, message)
    }

    #[test]
    fn the_time_is_that_of_the_last_change_of_status_only() {
        let first = settle(&[], vec![draft(Status::False, "a")], Some(1), at(10));
        let second = settle(&first, vec![draft(Status::False, "b")], Some(2), at(20));
        assert_eq!(second[0].last_transition_time, Time(at(10)));
        assert_eq!(second[0].message, "b");
        assert_eq!(second[0].observed_generation, Some(2));
        let third = settle(&second, vec![draft(Status::True, "b")], Some(2), at(30));
        assert_eq!(third[0].last_transition_time, Time(at(30)));
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = clipped("é".repeat(5_000), MESSAGE_BYTES_MAX);
        assert!(text.len() <= MESSAGE_BYTES_MAX && text.ends_with('…'));
        assert_eq!(clipped("short".to_owned(), 5), "short");
    }
}
