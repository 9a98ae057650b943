//! What is counted. Each worker writes counters of its own, so that counting costs no more than an
//! addition; the admin endpoint reads and sums them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::status::StatusClass;

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the thread that owns the counters may call this: it is not one atomic step.
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one worker, on cache lines that no other worker writes (two lines, since x86 fetches
/// them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Requests answered, by class of status.
    requests: [Counter; StatusClass::ALL.len()],
    /// Connections accepted, those dropped at once included.
    pub(crate) accepted: Counter,
    /// Connections closed at once since the worker had as many as it may have.
    pub(crate) dropped: Counter,
    /// Times that a connection could not be accepted for want of files or memory.
    pub(crate) accept_failures: Counter,
    /// Connections that ended.
    pub(crate) closed: Counter,
    /// Connections closed because the request did not arrive in time (408).
    pub(crate) request_timeouts: Counter,
    /// Connections reset because the client took nothing of the response in time.
    pub(crate) send_timeouts: Counter,
    /// Responses cut short: the client went away, or the file changed under them.
    pub(crate) aborted: Counter,
    /// Requests and responses cut off at the end of the server.
    pub(crate) cut: Counter,
    /// Bytes of responses given to the kernel.
    pub(crate) sent_bytes: Counter,
    pub(crate) cache_hits: Counter,
    pub(crate) cache_misses: Counter,
    /// Connections, or the worker itself, ended by a panic.
    pub(crate) panics: Counter,
    /// Open connections that wait for a request, as of the last tick.
    pub(crate) idle: Counter,
    /// Open connections of which a request is arriving.
    pub(crate) reading: Counter,
    /// Open connections that a response is being sent on.
    pub(crate) writing: Counter,
    /// Connections that wait to be accepted, as of the last tick.
    pub(crate) accept_queue: Counter,
    /// When the worker last ran, in milliseconds since the start of the server.
    pub(crate) ticked_ms: Counter,
}

impl Counters {
    pub(crate) fn count_request(&self, class: StatusClass) {
        self.requests[class as usize].increment();
    }

    pub(crate) fn requests(&self, class: StatusClass) -> u64 {
        self.requests[class as usize].value()
    }
}
