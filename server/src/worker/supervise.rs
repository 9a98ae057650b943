//! The thread of a worker, and what happens should the worker panic.

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::{Listener, Shared};
use crate::counters::Counters;

/// Panics in a row after which a worker is given up, and with it the process: whatever is wrong then
/// is not a matter of chance, and a supervisor starts a process anew with a back-off.
const PANICS_MAX: u64 = 10;

/// A worker that ran for so long does not panic in a row.
const RECOVERED: Duration = Duration::from_mins(1);

/// Why a worker ended before the server did.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The runtime or the listener failed.
    #[error("worker {0} cannot go on")]
    Run(usize, #[source] io::Error),
    /// It panicked again and again.
    #[error("worker {0} has panicked {PANICS_MAX} times in a row")]
    Panic(usize),
}

/// Starts worker `number`. What it ends with goes to `ends`.
pub(crate) fn spawn(
    number: usize,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    listener: TcpListener,
    ends: UnboundedSender<Result<(), WorkerError>>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            // held here, outside of what may panic: its queue outlives the worker
            let listener = Rc::new(Listener::new(listener));
            let end = supervise(number, &counters, || {
                super::run(&shared, &counters, &listener)
            });
            if ends.send(end).is_err() {
                tracing::debug!(number, "nobody waits for this worker any more");
            }
        })
}

/// Runs `worker` again when it panics: its connections are lost, those of other workers and those
/// that wait in its listener's queue are not.
fn supervise(
    number: usize,
    counters: &Counters,
    mut worker: impl FnMut() -> io::Result<()>,
) -> Result<(), WorkerError> {
    let mut in_a_row = 0;
    while in_a_row < PANICS_MAX {
        let started = Instant::now();
        if let Ok(result) = catch_unwind(AssertUnwindSafe(&mut worker)) {
            return result.map_err(|error| WorkerError::Run(number, error));
        }
        in_a_row = if started.elapsed() > RECOVERED {
            1
        } else {
            in_a_row + 1
        };
        counters.panics.increment();
        tracing::error!(number, "a worker has panicked and is started again");
    }
    Err(WorkerError::Panic(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_is_started_again() {
        let counters = Counters::default();
        let mut runs = 0;
        let end = supervise(0, &counters, || {
            runs += 1;
            assert!(runs > 2, "this panic is part of the test");
            Ok(())
        });
        assert!(end.is_ok());
        assert_eq!((runs, counters.panics.value()), (3, 2));
    }

    #[test]
    fn a_worker_that_always_panics_is_given_up() {
        let counters = Counters::default();
        let end = supervise(3, &counters, || panic!("this panic is part of the test"));
        assert!(matches!(end, Err(WorkerError::Panic(3))));
        assert_eq!(counters.panics.value(), PANICS_MAX);
    }

    #[test]
    fn a_worker_that_fails_says_why() {
        let end = supervise(1, &Counters::default(), || Err(io::ErrorKind::Other.into()));
        assert!(matches!(end, Err(WorkerError::Run(1, _))));
    }
}
