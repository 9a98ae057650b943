//! The connections of a worker as its clock sees them: in which phase each is, and until when.
//!
//! A connection notes its phase and deadline; every tick looks at all of them and acts on those
//! that are overdue. This takes no timer for each request, and no wake-up: to shut a socket down
//! wakes the task that waits on it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::clock::Clock;
use crate::counters::Counters;

/// How long a closing connection is read from, so that the client reads the last response before
/// it sees a reset: a client that is not gone by then does not read.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of the first request.
    Opened,
    /// The rest of a request.
    Reading,
    /// The first byte of the next request.
    Idle,
    /// The client to take a response.
    Writing,
    /// The client to close. What it sends is thrown away.
    Closing,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Slot {
    phase: Cell<Phase>,
    deadline_ms: Cell<u64>,
    /// Bytes that the client had not acknowledged when the kernel had no more room for it.
    unsent: Cell<u32>,
    /// The client takes nothing; its task is to give up.
    given_up: Notify,
    /// Place in the table.
    index: Cell<usize>,
    stream: TcpStream,
}

/// What a tick needs.
#[derive(Debug)]
pub(crate) struct Tick<'a> {
    pub(crate) clock: &'a Clock,
    /// What a client is told whose request does not arrive.
    pub(crate) response_408: &'a [u8],
    pub(crate) send_timeout: Duration,
    pub(crate) counters: &'a Counters,
}

/// The connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Slots(RefCell<Vec<Rc<Slot>>>);

/// A connection's place in the table, given up on drop, a panic included.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Rc<Slots>,
    slot: Rc<Slot>,
}

impl Slots {
    pub(crate) fn enter(self: &Rc<Self>, stream: TcpStream, deadline_ms: u64) -> SlotGuard {
        let mut table = self.0.borrow_mut();
        let slot = Rc::new(Slot {
            phase: Cell::new(Phase::Opened),
            deadline_ms: Cell::new(deadline_ms),
            unsent: Cell::new(0),
            given_up: Notify::new(),
            index: Cell::new(table.len()),
            stream,
        });
        table.push(Rc::clone(&slot));
        SlotGuard {
            slots: Rc::clone(self),
            slot,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Connections on which a request or a response is under way.
    pub(crate) fn under_way(&self) -> usize {
        let is_under_way =
            |slot: &&Rc<Slot>| matches!(slot.phase(), Phase::Reading | Phase::Writing);
        self.0.borrow().iter().filter(is_under_way).count()
    }

    /// Acts on every connection that is overdue, and counts them by phase.
    pub(crate) fn tick(&self, tick: &Tick<'_>) {
        let (mut idle, mut reading, mut writing) = (0, 0, 0);
        let Tick {
            clock, counters, ..
        } = tick;
        let now_ms = clock.now_ms();
        for slot in self.0.borrow().iter() {
            if slot.deadline_ms.get() <= now_ms {
                slot.expire(tick);
            }
            match slot.phase.get() {
                Phase::Opened | Phase::Idle | Phase::Closing => idle += 1,
                Phase::Reading => reading += 1,
                Phase::Writing => writing += 1,
            }
        }
        counters.idle.set(idle);
        counters.reading.set(reading);
        counters.writing.set(writing);
    }

    /// Gives the connections on which nothing happens `grace` to send one more request.
    pub(crate) fn hurry_idle(&self, clock: &Clock, grace: Duration) {
        let deadline_ms = clock.deadline_ms(grace);
        for slot in self.0.borrow().iter() {
            match slot.phase.get() {
                // an opened connection that is silent gets no 408 for our leaving
                Phase::Opened => slot.enter(Phase::Idle, deadline_ms),
                Phase::Idle => slot
                    .deadline_ms
                    .set(slot.deadline_ms.get().min(deadline_ms)),
                Phase::Reading | Phase::Writing | Phase::Closing => {}
            }
        }
    }

    fn leave(&self, slot: &Slot) {
        let mut table = self.0.borrow_mut();
        let index = slot.index.get();
        table.swap_remove(index);
        if let Some(moved) = table.get(index) {
            moved.index.set(index);
        }
    }
}

impl Slot {
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn enter(&self, phase: Phase, deadline_ms: u64) {
        self.phase.set(phase);
        self.deadline_ms.set(deadline_ms);
    }

    /// Another phase within the time that is set already.
    pub(crate) fn enter_in_time(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Sends the end of the stream and waits for the client's. To close at once would reset the
    /// connection if a request were on its way, and the reset could overtake the last response.
    pub(crate) fn close_gently(&self, clock: &Clock) {
        self.shut(Shutdown::Write);
        self.enter(Phase::Closing, clock.deadline_ms(LINGER));
    }

    /// Has the connection reset when it is dropped: the client must not take what it got for all.
    /// Nothing may be shut down before, since that sends a proper end.
    pub(crate) fn reset_on_drop(&self) {
        let linger = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        if let Err(error) = linger {
            tracing::debug!(%error, "a connection ends without a reset");
        }
    }

    /// Returns once the kernel has room for more; an error, once the client took nothing in time.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.note_unsent();
        tokio::select! {
            ready = self.stream.writable() => ready,
            () = self.given_up.notified() => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Notes how much waits for the client, so that it is known later whether it took any of it:
    /// the kernel tells of room only once there is a lot.
    fn note_unsent(&self) {
        self.unsent
            .set(crate::sys::unacknowledged(&self.stream).unwrap_or(0));
    }

    fn expire(&self, tick: &Tick<'_>) {
        let Tick {
            clock,
            response_408,
            send_timeout,
            counters,
        } = *tick;
        match self.phase.get() {
            Phase::Idle => {
                if self.has_input() {
                    // its task has not run yet; it will set another deadline
                    self.deadline_ms.set(clock.deadline_ms(LINGER));
                } else {
                    self.close_gently(clock);
                }
            }
            Phase::Opened | Phase::Reading => {
                counters.request_timeouts.increment();
                // nothing is under way to the client in these phases, so there is room
                if let Ok(sent) = send(&self.stream, response_408, SendFlags::NOSIGNAL) {
                    counters.sent_bytes.add(sent as u64);
                }
                self.close_gently(clock);
            }
            Phase::Writing if self.takes_its_response() => {
                self.deadline_ms.set(clock.deadline_ms(send_timeout));
            }
            Phase::Writing => {
                counters.send_timeouts.increment();
                // a task that does not wait at this moment is about to send, and gets its chance
                self.given_up.notify_waiters();
                self.deadline_ms.set(clock.deadline_ms(send_timeout));
            }
            Phase::Closing => {
                self.shut(Shutdown::Both);
                self.deadline_ms.set(u64::MAX);
            }
        }
    }

    /// Whether the client took anything since it was last asked.
    fn takes_its_response(&self) -> bool {
        let before = self.unsent.get();
        self.note_unsent();
        self.unsent.get() < before
    }

    fn has_input(&self) -> bool {
        let mut byte = [0_u8];
        recv(
            &self.stream,
            &mut byte,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        )
        .is_ok_and(|(_, length)| length > 0)
    }

    /// A socket that is not connected any more has nothing left to shut down.
    fn shut(&self, how: Shutdown) {
        if let Err(error) = shutdown(&self.stream, how) {
            tracing::trace!(%error, "the client was gone before");
        }
    }
}

impl std::ops::Deref for SlotGuard {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.leave(&self.slot);
    }
}
