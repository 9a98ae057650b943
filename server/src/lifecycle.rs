//! The stages that the server goes through, in one direction only.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Ready.
    Serving,
    /// Not ready any more, so that no new client is sent here; those that come are still served.
    Leaving,
    /// Accepts nothing; answers what is under way and closes each connection after its response.
    Draining,
    /// What is still under way is cut off.
    Ended,
}

const STAGES: [Stage; 4] = [
    Stage::Serving,
    Stage::Leaving,
    Stage::Draining,
    Stage::Ended,
];

/// How the server is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By a supervisor (SIGTERM): the whole of `drainSeconds`.
    Graceful,
    /// By a person at a terminal (SIGINT): as quick as may be without cutting responses short.
    Quick,
}

/// The stage of one server, known to all its threads.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle(AtomicU8);

impl Lifecycle {
    pub(crate) fn stage(&self) -> Stage {
        STAGES[usize::from(self.0.load(Ordering::Acquire)).min(STAGES.len() - 1)]
    }

    /// Never goes back.
    pub(crate) fn advance(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Release);
    }
}

/// How long the server accepts connections after it was asked to end, and how long it then waits
/// for responses under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    pub(crate) leaving: Duration,
    pub(crate) draining: Duration,
}

impl Farewell {
    pub(crate) fn new(stop: Stop, drain: Duration) -> Self {
        /// Kubernetes takes a pod out of its endpoints, and kube-proxy out of its rules, in about a
        /// second; a busy control plane takes longer.
        const LEAVING_MAX: Duration = Duration::from_secs(5);
        /// What a person waits for without a second Ctrl-C.
        const QUICK: Duration = Duration::from_secs(2);
        match stop {
            Stop::Graceful => {
                let leaving = (drain / 3).min(LEAVING_MAX);
                Self {
                    leaving,
                    draining: drain.saturating_sub(leaving),
                }
            }
            Stop::Quick => Self {
                leaving: Duration::ZERO,
                draining: drain.min(QUICK),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_never_taken_back() {
        let lifecycle = Lifecycle::default();
        assert_eq!(lifecycle.stage(), Stage::Serving);
        lifecycle.advance(Stage::Draining);
        lifecycle.advance(Stage::Leaving);
        assert_eq!(lifecycle.stage(), Stage::Draining);
    }

    #[test]
    fn a_farewell_takes_the_time_that_is_set() {
        let seconds = Duration::from_secs;
        let farewell = |stop, drain| Farewell::new(stop, seconds(drain));
        assert_eq!(
            farewell(Stop::Graceful, 30),
            Farewell {
                leaving: seconds(5),
                draining: seconds(25)
            }
        );
        assert_eq!(
            farewell(Stop::Graceful, 3),
            Farewell {
                leaving: seconds(1),
                draining: seconds(2)
            }
        );
        assert_eq!(farewell(Stop::Quick, 30).draining, seconds(2));
    }
}
