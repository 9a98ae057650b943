//! One thread's load: an epoll loop over its connections.

mod connection;
mod counts;
mod transitions;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

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

/// How often time limits are looked at, and how long a stop may go unnoticed.
const TICK: u64 = 100 * NANOSECONDS_IN_A_MILLISECOND;

/// For the peer to close a connection that it does not keep; then this side does.
const CLOSE_TIME_LIMIT: u64 = 1_000 * NANOSECONDS_IN_A_MILLISECOND;

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
    /// Connections that had more to read than their turn allowed, and whether their peer has ended.
    unread: VecDeque<(usize, bool)>,
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
        let mut tick = self.tick_length();
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

    /// Goes on with the connections that had more to read.
    fn read_on(&mut self) {
        for _ in 0..self.unread.len() {
            let Some((index, ended)) = self.unread.pop_front() else {
                return;
            };
            if self.connections[index].phase == Phase::Receiving {
                self.receive(index, ended);
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
