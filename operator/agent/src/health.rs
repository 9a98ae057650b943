//! Whether the agent is alive and ready, as the kubelet asks.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest that one round takes without being stuck: half a minute for the node's lock, as much for
/// the API server, and as much again for slack.
const ROUND_MAX: Duration = Duration::from_secs(90);

/// What the loop says of itself and the admin port asks.
#[derive(Debug)]
pub(crate) struct Health {
    state: Mutex<State>,
    silence_max: Duration,
}

#[derive(Debug)]
struct State {
    heartbeat: Instant,
    watching: bool,
}

impl Health {
    /// For a loop that comes round at least once in `interval`.
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                heartbeat: now,
                watching: false,
            }),
            silence_max: interval.saturating_mul(2) + ROUND_MAX,
        }
    }

    /// The loop came round.
    pub(crate) fn beat(&self, now: Instant) {
        self.locked().heartbeat = now;
    }

    /// The API server said whether this node has a `NodeTuning`.
    pub(crate) fn watching(&self) {
        self.locked().watching = true;
    }

    /// False where the loop is stuck, so that the kubelet starts the agent again.
    pub(crate) fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.locked().heartbeat) <= self.silence_max
    }

    /// True from the first answer of the API server on. A later loss of the connection does not
    /// count: the keys are kept all the same.
    pub(crate) fn is_ready(&self) -> bool {
        self.locked().watching
    }

    /// The state is two plain values, whole whatever happened to a former holder of the lock.
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_does_not_come_round_is_not_alive() {
        let start = Instant::now();
        let health = Health::new(Duration::from_mins(1), start);
        assert!(health.is_alive(start + Duration::from_secs(210)));
        assert!(!health.is_alive(start + Duration::from_secs(211)));
        health.beat(start + Duration::from_secs(200));
        assert!(health.is_alive(start + Duration::from_secs(410)));
    }

    #[test]
    fn the_first_answer_of_the_api_server_makes_it_ready() {
        let health = Health::new(Duration::from_mins(1), Instant::now());
        assert!(!health.is_ready());
        health.watching();
        assert!(health.is_ready());
    }
}
