//! One thread's load: an epoll loop over its connections.
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

mod connection;
mod counts;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::plan::{Plan, Share};
use crate::response::FormerHead;
use connection::{Connection, Phase};
use counts::Failure;
pub(crate) use counts::{Counts, Examples};

/// Bytes read at once: one read takes any small response, and the buffer stays in a second-level
/// cache.
const BUFFER_BYTES: usize = 256 * 1024;

/// Events taken at once; more are taken in the next round.
const EVENTS_MAX: usize = 1024;

/// Reads of one connection before the others have their turn.
const READS_MAX: usize = 16;

/// How often time limits are looked at, and how long a stop may go unnoticed.
const TICK: u64 = 100 * NANOSECONDS_IN_A_MILLISECOND;

/// For the peer to close a connection that it does not keep; then this side does.
const CLOSE_TIME_LIMIT: u64 = 1_000 * NANOSECONDS_IN_A_MILLISECOND;

/// Pause after a failure: doubles with each further one on the same connection, so that a server
/// that is gone costs no CPU, and one that comes back is found within a second.
const BACK_OFF_MIN: u64 = 10 * NANOSECONDS_IN_A_MILLISECOND;
const BACK_OFF_MAX: u64 = 1_000 * NANOSECONDS_IN_A_MILLISECOND;

/// From here on the pause is the longest: 10 ms doubled 7 times exceed 1 s.
const DOUBLINGS_MAX: u32 = 7;

const NANOSECONDS_IN_A_MILLISECOND: u64 = 1_000_000;

/// What a worker lets others see while it runs.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines, as they are fetched in pairs: no sharing between threads
pub(crate) struct Live {
    pub(crate) requests: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) connections: AtomicU64,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) counts: Counts,
    pub(crate) duration: Duration,
    /// Whether it was stopped before its load was made.
    pub(crate) early: bool,
}

/// One thread's load.
pub(crate) struct Worker<'a> {
    plan: &'a Plan,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections in back-off, by the end of it.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Connections that had more to read than their turn allowed.
    unread: VecDeque<usize>,
    /// Requests left to begin.
    budget: u64,
    /// Requests begun that did not end.
    under_way: usize,
    buffer: Vec<u8>,
    former_head: FormerHead,
    counts: Counts,
    clock: Clock,
    /// End of the load.
    end: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(plan: &'a Plan, share: Share) -> io::Result<Self> {
        let connections = usize::try_from(share.connections).map_err(io::Error::other)?;
        Ok(Self {
            plan,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: (0..connections).map(|_| Connection::new()).collect(),
            waiting: BinaryHeap::with_capacity(connections),
            unread: VecDeque::with_capacity(connections),
            budget: share.requests.unwrap_or(u64::MAX),
            under_way: 0,
            buffer: vec![0; BUFFER_BYTES],
            former_head: FormerHead::default(),
            counts: Counts::new(),
            clock: Clock(Instant::now()),
            end: plan.duration.map_or(u64::MAX, nanoseconds),
        })
    }

    /// Makes the load from `start` on.
    pub(crate) fn run(
        mut self,
        start: Instant,
        stop: &AtomicBool,
        live: &Live,
    ) -> io::Result<Ended> {
        self.clock = Clock(start);
        for index in 0..self.connections.len() {
            self.begin(index, self.clock.now());
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut tick = TICK;
        loop {
            self.wait(&mut events, tick)?;
            for event in events.drain(..) {
                let epoll::Event { flags, data } = event;
                let index = usize::try_from(data.u64()).map_err(io::Error::other)?;
                self.on_event(index, flags);
            }
            self.read_on();
            let now = self.clock.now();
            self.begin_again(now);
            if now >= tick {
                tick = now + self.tick_length();
                self.expire(now);
                let open = self.connections.iter().filter(|one| one.is_open()).count();
                live.connections.store(open as u64, Ordering::Relaxed);
            }
            live.requests
                .store(self.counts.histogram.count(), Ordering::Relaxed);
            live.errors
                .store(self.counts.errors.total(), Ordering::Relaxed);
            let done = now >= self.end || self.budget == 0 && self.under_way == 0;
            if done || stop.load(Ordering::Relaxed) {
                return Ok(Ended {
                    counts: self.counts,
                    duration: Duration::from_nanos(now.min(self.end)),
                    early: !done,
                });
            }
        }
    }

    /// Waits for events, at most until the next thing that is due.
    fn wait(&self, events: &mut Vec<epoll::Event>, tick: u64) -> io::Result<()> {
        let due = self
            .waiting
            .peek()
            .map_or(u64::MAX, |Reverse((due, _))| *due);
        let until = if self.unread.is_empty() {
            tick.min(due).min(self.end)
        } else {
            0
        };
        let left = Duration::from_nanos(until.saturating_sub(self.clock.now()));
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn on_event(&mut self, index: usize, flags: epoll::EventFlags) {
        let ended = connection::ended(flags);
        let phase = self.connections[index].phase;
        match phase {
            Phase::Connecting => self.connected(index, flags),
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
    fn begin(&mut self, index: usize, now: u64) {
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

    fn connected(&mut self, index: usize, flags: epoll::EventFlags) {
        let connection = &mut self.connections[index];
        if let Err(error) = connection.connect_result(flags) {
            self.fail(index, Failure::Connect(error));
            return;
        }
        self.counts.connections_opened += 1;
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
    fn receive(&mut self, index: usize, ended: bool) {
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
        self.unread.push_back(index);
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
        if connection.response.persistent() && !self.plan.short {
            self.begin(index, now);
        } else if ended {
            self.reopen(index);
        } else {
            connection.phase = Phase::Closing;
            connection.since = now;
        }
    }

    fn fail(&mut self, index: usize, failure: Failure) {
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
    fn reopen(&mut self, index: usize) {
        self.connections[index].close(Phase::Idle);
        self.begin(index, self.clock.now());
    }

    /// Goes on with the connections that had more to read.
    fn read_on(&mut self) {
        for _ in 0..self.unread.len() {
            let Some(index) = self.unread.pop_front() else {
                return;
            };
            if self.connections[index].phase == Phase::Receiving {
                // whether the peer has ended is not known any more: read until it shows
                self.receive(index, true);
            }
        }
    }

    fn begin_again(&mut self, now: u64) {
        while let Some(Reverse((due, index))) = self.waiting.peek().copied() {
            if due > now {
                return;
            }
            self.waiting.pop();
            self.begin(index, now);
        }
    }

    /// Ends what has lasted too long.
    fn expire(&mut self, now: u64) {
        let limit = nanoseconds(self.plan.request_timeout);
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let age = now.saturating_sub(connection.since);
            match connection.phase {
                Phase::Connecting if age >= limit => {
                    self.fail(index, Failure::Connect(Errno::TIMEDOUT));
                }
                Phase::Sending | Phase::Receiving if age >= limit => {
                    self.fail(index, Failure::Timeout);
                }
                Phase::Closing if age >= CLOSE_TIME_LIMIT => {
                    self.counts.closed_first += 1;
                    self.reopen(index);
                }
                _ => {}
            }
        }
    }

    /// Short time limits are looked at more often.
    fn tick_length(&self) -> u64 {
        let tenth = nanoseconds(self.plan.request_timeout) / 10;
        tenth.clamp(NANOSECONDS_IN_A_MILLISECOND, TICK)
    }
}

/// Nanoseconds since the start of the load.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    #[inline]
    fn now(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// Runs last a day at most; 64 bits hold 584 years.
#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}
