//! Waiting for a condition.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::{self, Instant};

/// Between two looks: short beside what a cluster does in a step, long beside what a look costs.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The condition was not met in time.
#[derive(Debug, thiserror::Error)]
#[error("not within {} s: {what}; last seen: {seen}", limit.as_secs())]
pub struct WaitError {
    /// How long was waited.
    pub limit: Duration,
    /// The condition.
    pub what: String,
    /// What the last look saw instead.
    pub seen: String,
}

/// Looks until `look` returns a value, at most for `limit`. While the condition is not met, `look`
/// returns what it sees instead, for the person who reads the failure.
pub async fn eventually<T, E, F>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<T, WaitError>
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + limit;
    let mut seen = "nothing: the first look did not end".to_owned();
    loop {
        match time::timeout_at(deadline, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(instead)) => seen = format!("{instead:#}"),
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(WaitError {
                limit,
                what: what.to_owned(),
                seen,
            });
        }
        time::sleep(LOOK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_value_comes_with_the_first_look_that_has_it() {
        let looks = Cell::new(0);
        let value = eventually(Duration::from_secs(10), "three looks", async || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                Ok("done")
            } else {
                Err("not yet")
            }
        })
        .await;
        assert_eq!(value.unwrap(), "done");
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_failure_says_what_was_seen_last() {
        let looks = Cell::new(0);
        let error = eventually(Duration::from_secs(1), "a pod", async || {
            looks.set(looks.get() + 1);
            Err::<(), _>(format!("look {}", looks.get()))
        })
        .await
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("not within 1 s: a pod; last seen: look {}", looks.get())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_does_not_outlast_the_limit() {
        let error = eventually(
            Duration::from_secs(5),
            "an answer",
            std::future::pending::<Result<(), String>>,
        )
        .await
        .unwrap_err();
        assert_eq!(error.seen, "nothing: the first look did not end");
    }
}
