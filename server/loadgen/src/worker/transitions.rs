//! What happens to a connection.
//!
//! ```text
//!            begin                    response complete
//!   Idle ──────────► Connecting ─► Sending ─► Receiving ──┬─► Sending   (connection persists)
//!    ▲                    │            │          │       └─► Closing   (until the peer closed)
//!    │ no request left    └────────────┴──────────┴─► Waiting (back-off) ─► Connecting
//! ```
//!
//! A request is taken from the budget in `begin` and ends in exactly one of `complete` and `fail`;
//! those that are under way when the time is over end in neither. So every connection accounts for
//! at most one request that the server saw and this side did not count.

use std::cmp::Reverse;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::connection::{self, Phase};
use super::counts::Failure;
use super::{NANOSECONDS_IN_A_MILLISECOND, Worker};

/// Reads of one connection before the others have their turn.
const READS_MAX: usize = 16;

/// Pause after a failure: doubles with each further one on the same connection, so that a server
/// that is gone costs no CPU, and one that comes back is found within a second.
const BACK_OFF_MIN: u64 = 10 * NANOSECONDS_IN_A_MILLISECOND;
const BACK_OFF_MAX: u64 = 1_000 * NANOSECONDS_IN_A_MILLISECOND;

/// From here on the pause is the longest: 10 ms doubled 7 times exceed 1 s.
const DOUBLINGS_MAX: u32 = 7;

impl Worker<'_> {
    pub(super) fn on_event(&mut self, index: usize, flags: EventFlags) {
        let ended = connection::ended(flags);
        let phase = self.connections[index].phase;
        match phase {
            Phase::Connecting => {
                self.connected(index, flags);
                if ended && self.connections[index].phase == Phase::Receiving {
                    self.receive(index, ended);
                }
            }
            Phase::Sending => {
                self.send(index);
                if self.connections[index].phase == Phase::Receiving {
                    self.receive(index, ended);
                }
            }
            Phase::Receiving => self.receive(index, ended),
            Phase::Closing if ended => self.reopen(index),
            Phase::Closing | Phase::Idle | Phase::Waiting => {}
        }
    }

    /// Starts a request, if there is one left.
    pub(super) fn begin(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if self.budget == 0 || now >= self.end {
            connection.close(Phase::Idle);
            return;
        }
        self.budget -= 1;
        self.under_way += 1;
        connection.since = now;
        connection.sent = 0;
        connection.response.reset();
        if connection.socket.is_some() {
            self.send(index);
        } else {
            self.connect(index);
        }
    }

    fn connect(&mut self, index: usize) {
        match self.connections[index].connect(&self.epoll, self.plan.address, index) {
            Ok(()) => self.connections[index].phase = Phase::Connecting,
            Err(error) => self.fail(index, Failure::Connect(error)),
        }
    }

    fn connected(&mut self, index: usize, flags: EventFlags) {
        let connection = &mut self.connections[index];
        let result = connection.connect_result(flags);
        // only a connection that was established can be reset; others are refused
        if matches!(result, Ok(()) | Err(Errno::CONNRESET)) {
            self.counts.connections_opened += 1;
        }
        match result {
            Ok(()) => {}
            Err(Errno::CONNRESET) => return self.fail(index, Failure::Closed),
            Err(error) => return self.fail(index, Failure::Connect(error)),
        }
        if !self.plan.short {
            connection.since = self.clock.now();
        }
        self.send(index);
    }

    /// Sends the request, or the rest of it.
    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.phase = Phase::Sending;
        let Some(socket) = &connection.socket else {
            return;
        };
        while let Some(rest @ [_, ..]) = self.plan.request.get(connection.sent..) {
            match rustix::net::send(socket, rest, SendFlags::NOSIGNAL) {
                Ok(count) => connection.sent += count,
                Err(Errno::INTR) => {}
                // an event tells when there is room again
                Err(Errno::AGAIN) => return,
                Err(_) => return self.fail(index, Failure::Closed),
            }
        }
        connection.phase = Phase::Receiving;
    }

    /// Reads what has arrived. `ended`: the peer sends no more.
    ///
    /// Events are edge-triggered: a read that does not fill the buffer has emptied the socket, and
    /// whatever comes later is another event. That does not hold for an end that came with the
    /// data, so then the reading goes on.
    pub(super) fn receive(&mut self, index: usize, ended: bool) {
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[index];
            let Some(socket) = &connection.socket else {
                return;
            };
            let skip = connection.response.left().is_some();
            let flags = if skip {
                RecvFlags::TRUNC
            } else {
                RecvFlags::empty()
            };
            // TRUNC: the kernel drops the bytes instead of copying them (tcp(7))
            let count = match rustix::net::recv(socket, self.buffer.as_mut_slice(), flags) {
                Ok((_, 0)) => return self.end_of_stream(index),
                Ok((_, count)) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.fail(index, Failure::Closed),
            };
            self.counts.bytes += count as u64;
            let outcome = if skip {
                connection.response.skip(count as u64)
            } else {
                let bytes = &self.buffer[..count];
                connection.response.consume(bytes, &mut self.former_head)
            };
            match outcome {
                Ok(true) => return self.complete(index, ended),
                Ok(false) if count < self.buffer.len() && !ended => return,
                Ok(false) => {}
                Err(reason) => return self.fail(index, Failure::Protocol(reason)),
            }
        }
        self.unread.push_back((index, ended));
    }

    fn end_of_stream(&mut self, index: usize) {
        if self.connections[index].response.ends_with_connection() {
            self.complete(index, true);
        } else {
            self.fail(index, Failure::Closed);
        }
    }

    fn complete(&mut self, index: usize, ended: bool) {
        let now = self.clock.now();
        let connection = &mut self.connections[index];
        if now >= self.end {
            connection.close(Phase::Idle);
            return;
        }
        self.under_way -= 1;
        connection.failures = 0;
        let nanoseconds = now.saturating_sub(connection.since);
        self.counts
            .answer(connection.response.status(), nanoseconds);
        if ended {
            self.reopen(index);
        } else if connection.response.persistent() && !self.plan.short {
            self.begin(index, now);
        } else {
            connection.phase = Phase::Closing;
            connection.since = now;
        }
    }

    pub(super) fn fail(&mut self, index: usize, failure: Failure) {
        let now = self.clock.now();
        let connection = &mut self.connections[index];
        if now >= self.end {
            connection.close(Phase::Idle);
            return;
        }
        self.under_way -= 1;
        self.counts.fail(failure);
        connection.close(Phase::Waiting);
        let pause = BACK_OFF_MIN << connection.failures;
        connection.failures = (connection.failures + 1).min(DOUBLINGS_MAX);
        let due = now + pause.min(BACK_OFF_MAX);
        self.waiting.push(Reverse((due, index)));
    }

    /// Closes a connection that is not kept, and begins the next request on a new one.
    pub(super) fn reopen(&mut self, index: usize) {
        self.connections[index].close(Phase::Idle);
        self.begin(index, self.clock.now());
    }
}
