//! Makes a load on all threads and puts what they counted together.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tunedweb_measure::{LoadSummary, per_second};

use crate::duration::microseconds;
use crate::plan::Plan;
use crate::worker::{Counts, Live, Worker};

/// Between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// What a load gave.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) counts: Counts,
    /// Microseconds since the Unix epoch.
    pub(crate) started_at: u64,
    pub(crate) duration: Duration,
    /// Whether it was stopped before its end.
    pub(crate) ended_early: bool,
    /// CPU time of this process during the load.
    pub(crate) cpu: Duration,
}

/// What can be seen of a load while it runs; counts are since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) connections: u64,
}

impl Measurement {
    /// Makes the load. `observe` is called once a second.
    pub(crate) fn make(
        plan: &Plan,
        stop: &AtomicBool,
        mut observe: impl FnMut(Progress),
    ) -> io::Result<Self> {
        let workers: Vec<Worker> = plan
            .shares()
            .map(|share| Worker::new(plan, share))
            .collect::<io::Result<_>>()?;
        let live: Vec<Live> = workers.iter().map(|_| Live::default()).collect();
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH);
        let cpu_before = cpu_time();
        let start = Instant::now();
        let results = thread::scope(|scope| {
            // the channel closes when the last worker has ended
            let (alive, all_ended) = channel::<()>();
            let threads: Vec<_> = workers
                .into_iter()
                .zip(&live)
                .map(|(worker, live)| {
                    let alive = alive.clone();
                    scope.spawn(move || {
                        let _alive = alive;
                        worker.run(start, stop, live)
                    })
                })
                .collect();
            drop(alive);
            let mut next = start + PROGRESS_INTERVAL;
            while let Err(RecvTimeoutError::Timeout) =
                all_ended.recv_timeout(next.saturating_duration_since(Instant::now()))
            {
                observe(Progress::of(&live, start.elapsed()));
                next += PROGRESS_INTERVAL;
            }
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .map_err(|_| io::Error::other("a thread panicked"))?
                })
                .collect::<io::Result<Vec<_>>>()
        })?;
        let mut counts = Counts::new();
        let mut duration = Duration::ZERO;
        for part in &results {
            counts.merge(&part.counts);
            duration = duration.max(part.duration);
        }
        Ok(Self {
            counts,
            started_at: started_at.map_or(0, microseconds),
            duration,
            ended_early: results.iter().any(|part| part.early),
            cpu: cpu_time().saturating_sub(cpu_before),
        })
    }

    pub(crate) fn summary(&self) -> LoadSummary {
        let Counts {
            histogram,
            bytes,
            errors,
            connections_opened,
            ..
        } = &self.counts;
        let duration_microseconds = microseconds(self.duration);
        let mut summary = LoadSummary {
            requests_per_second: per_second(histogram.count(), duration_microseconds),
            bytes_per_second: per_second(*bytes, duration_microseconds),
            requests: histogram.count(),
            bytes: *bytes,
            errors: errors.clone(),
            connections_opened: *connections_opened,
            duration_microseconds,
            ..LoadSummary::default()
        };
        summary.set_times(histogram);
        summary
    }
}

impl Progress {
    fn of(live: &[Live], elapsed: Duration) -> Self {
        let sum = |counter: fn(&Live) -> &AtomicU64| {
            let values = live.iter().map(|one| counter(one).load(Ordering::Relaxed));
            values.sum()
        };
        Self {
            elapsed,
            requests: sum(|live| &live.requests),
            errors: sum(|live| &live.errors),
            connections: sum(|live| &live.connections),
        }
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
