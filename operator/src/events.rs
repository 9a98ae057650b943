//! Events on transitions: few, and never in the way.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::warn;
use tunedweb_api::condition::{ConditionType, Reason, find};

use crate::conditions::clipped;
use crate::metrics::Metrics;

/// The API server takes notes of at most 1 KiB.
const NOTE_BYTES_MAX: usize = 1024;

/// An event is worth waiting this long for; a reconciliation has 60 s.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);

/// Publishes events and counts those that were lost.
pub(crate) struct Events {
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// Something worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) reason: String,
    pub(crate) note: String,
    pub(crate) warning: bool,
}

impl Events {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        let reporter = Reporter {
            controller: "tunedweb-operator".to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(client, reporter),
            metrics,
        }
    }

    /// Publishes each transition. A lost one is counted and changes nothing.
    pub(crate) async fn publish(&self, about: &ObjectReference, transitions: Vec<Transition>) {
        for Transition {
            reason,
            note,
            warning,
        } in transitions
        {
            let event = Event {
                type_: if warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                action: "Reconcile".to_owned(),
                note: Some(clipped(note, NOTE_BYTES_MAX)),
                reason,
                secondary: None,
            };
            let published = self.recorder.publish(&event, about);
            match tokio::time::timeout(PUBLISH_TIMEOUT, published).await {
                Ok(Ok(())) => {
                    self.metrics.events_published.inc();
                }
                Ok(Err(error)) => self.dropped(&event.reason, &error),
                Err(elapsed) => self.dropped(&event.reason, &elapsed),
            }
        }
    }

    fn dropped(&self, reason: &str, error: &(dyn std::error::Error + 'static)) {
        self.metrics.events_dropped.inc();
        warn!(reason, error, "event lost");
    }
}

/// What changed in status or reason among these types of conditions.
pub(crate) fn transitions(
    kinds: &[ConditionType],
    old: &[Condition],
    new: &[Condition],
) -> Vec<Transition> {
    let transition = |kind: &ConditionType| {
        let after = find(new, *kind)?;
        let before = find(old, *kind);
        let same = before.is_some_and(|b| b.status == after.status && b.reason == after.reason);
        // "nothing is known yet" is no news
        let news = !same && after.reason != Reason::Pending.as_str();
        news.then(|| Transition {
            reason: after.reason.clone(),
            note: if after.message.is_empty() {
                format!("{} is {}", after.type_, after.status)
            } else {
                after.message.clone()
            },
            warning: is_warning(after),
        })
    };
    kinds.iter().filter_map(transition).collect()
}

/// A condition that is false because something is wrong, not because something is under way.
fn is_warning(condition: &Condition) -> bool {
    let under_way = [
        Reason::Pending,
        Reason::RollingOut,
        Reason::Deleting,
        Reason::Draining,
        Reason::NotRequested,
        Reason::Running,
    ];
    condition.status != "True"
        && !under_way
            .iter()
            .any(|reason| reason.as_str() == condition.reason)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::conditions::{Draft, Status, settle};

    fn ready(status: Status, reason: Reason, message: &str) -> Vec<Condition> {
        let draft = Draft::new(ConditionType::Ready, status, reason, message);
        settle(&[], vec![draft], Some(1), Timestamp::UNIX_EPOCH)
    }

    fn between(old: &[Condition], new: &[Condition]) -> Vec<Transition> {
        transitions(&[ConditionType::Ready], old, new)
    }

    #[test]
    fn another_message_alone_is_no_event() {
        let old = ready(Status::False, Reason::RollingOut, "1 of 3");
        let new = ready(Status::False, Reason::RollingOut, "2 of 3");
        assert_eq!(between(&old, &new), []);
    }

    #[test]
    fn a_failure_is_a_warning_and_progress_is_not() {
        let pending = ready(Status::Unknown, Reason::Pending, "");
        assert_eq!(between(&[], &pending), []);
        let failed = ready(Status::False, Reason::TuningFailed, "node a");
        assert!(between(&pending, &failed)[0].warning);
        let rolling = ready(Status::False, Reason::RollingOut, "1 of 3");
        assert!(!between(&failed, &rolling)[0].warning);
        let done = ready(Status::True, Reason::AsSpecified, "");
        assert_eq!(between(&rolling, &done)[0].note, "Ready is True");
    }
}
