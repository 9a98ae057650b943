//! One connection: reads, has the requests answered, sends.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Worker;
use super::exchange::{Ending, Exchange};
use super::slot::{Phase, SlotGuard};
use crate::files::{Body, Found};

/// Bytes of a file given to the kernel before other connections get their turn.
const FILE_PART_BYTES: u64 = 2 * 1024 * 1024;

/// A connection that is served.
#[derive(Debug)]
pub(super) struct Connection {
    worker: Rc<Worker>,
    slot: SlotGuard,
    exchange: Exchange,
}

impl Connection {
    /// Takes up a socket that was just accepted. A client that has sent its request by then is
    /// answered at once; if that is all it wants, the runtime never hears of it, which spares a
    /// short connection a third of its system calls. None: the connection is over.
    pub(super) fn open(worker: &Rc<Worker>, socket: OwnedFd) -> io::Result<Option<Self>> {
        let mut exchange = Exchange::default();
        let mut input = worker.input.borrow_mut();
        let answered = match recv(&socket, &mut input[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(None),
            Ok((_, read)) => Some(exchange.advance(
                worker,
                &mut input[..read],
                |bytes, flags| Ok(send(&socket, bytes, flags | SendFlags::DONTWAIT)?),
            )?),
            Err(Errno::AGAIN) => None,
            Err(error) => return Err(error.into()),
        };
        if exchange.then.ending == Ending::AtOnce && !exchange.has_unsent() {
            return Ok(None);
        }
        let stream = TcpStream::from_std(socket.into())
            .inspect_err(|_| worker.counters.accept_failures.increment())?;
        let deadline_ms = worker.clock.deadline_ms(worker.shared.timeouts.header);
        let slot = worker.slots.enter(stream, deadline_ms);
        let connection = Self {
            worker: Rc::clone(worker),
            slot,
            exchange,
        };
        if let Some(answered) = answered {
            connection.await_request(answered);
        } else if worker.draining.get() {
            // to say nothing now is to be idle: nobody waits a whole timeout for it
            connection.await_request(true);
        }
        Ok(Some(connection))
    }

    /// Serves until either side ends the connection.
    pub(super) async fn serve(mut self) {
        loop {
            if self.send_rest().await.is_err() {
                self.worker.counters.aborted.increment();
                self.slot.reset_on_drop();
                return;
            }
            match std::mem::take(&mut self.exchange.then.ending) {
                Ending::No => {}
                Ending::AtOnce => return,
                Ending::Gently => self.slot.close_gently(&self.worker.clock),
            }
            if poll_fn(|context| self.poll_batch(context)).await.is_err() {
                return;
            }
        }
    }

    /// Reads once and answers what is there; an error: the connection is over. Without an await
    /// inside, so that the buffers can be those of the worker.
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let worker = Rc::clone(&self.worker);
        let mut input = worker.input.borrow_mut();
        let mut filled = self.exchange.kept.len();
        input[..filled].copy_from_slice(&self.exchange.kept);
        if !self.exchange.more {
            filled += ready!(self.poll_read(context, &mut input[filled..]))?;
        }
        if self.slot.phase() == Phase::Closing {
            self.exchange = Exchange::default();
            return Poll::Ready(Ok(()));
        }
        let Self { slot, exchange, .. } = self;
        let answered = exchange.advance(&worker, &mut input[..filled], |bytes, flags| {
            try_send(slot.stream(), bytes, flags)
        })?;
        self.await_request(answered);
        Poll::Ready(Ok(()))
    }

    /// Notes what is waited for now, and for how long.
    fn await_request(&self, answered: bool) {
        if self.exchange.has_unsent() {
            return self.await_client();
        }
        let Worker { clock, shared, .. } = &*self.worker;
        if !self.exchange.is_midway() {
            let deadline_ms = clock.deadline_ms(self.worker.idle_timeout());
            self.slot.enter(Phase::Idle, deadline_ms);
        } else if answered || self.slot.phase() == Phase::Idle {
            self.slot
                .enter(Phase::Reading, clock.deadline_ms(shared.timeouts.header));
        } else {
            // the time for the request began when its connection was opened or its first byte came
            self.slot.enter_in_time(Phase::Reading);
        }
    }

    async fn send_rest(&mut self) -> io::Result<()> {
        if !self.exchange.has_unsent() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.exchange.unsent);
        let mut at = 0;
        while at < unsent.len() {
            match try_send(
                self.slot.stream(),
                &unsent[at..],
                self.exchange.send_flags(),
            ) {
                Ok(sent) => {
                    at += sent;
                    self.worker.counters.sent_bytes.add(sent as u64);
                    self.await_client();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(file) = self.exchange.then.file.take() {
            // it was looked at when the request was answered; a head sent whole took no time
            self.send_file(&file, unsent.is_empty()).await?;
        }
        self.await_request(true);
        Ok(())
    }

    /// Sends the body of a large file out of the page cache. Before its last part the file is
    /// looked at again, unless it was so a moment ago: should it have changed, the client must not
    /// take the response for whole.
    async fn send_file(&self, entry: &Found, mut seen_just_now: bool) -> io::Result<()> {
        let Body::File(file) = &entry.body else {
            return Ok(());
        };
        let end = entry.identity().length;
        let mut at = 0;
        while at < end {
            let part = (end - at).min(FILE_PART_BYTES);
            if part == end - at && !seen_just_now && !entry.has_its_bytes() {
                return Err(io::Error::other("the file has changed"));
            }
            let count = usize::try_from(part).map_err(io::Error::other)?;
            let stream = self.slot.stream();
            let taken = stream.try_io(Interest::WRITABLE, || {
                Ok(sendfile(stream, file, Some(&mut at), count)?)
            });
            match taken {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(taken) => {
                    self.worker.counters.sent_bytes.add(taken as u64);
                    self.await_client();
                    if at < end {
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.writable().await?;
                }
                Err(error) => return Err(error),
            }
            seen_just_now = false;
        }
        Ok(())
    }

    fn await_client(&self) {
        let deadline_ms = self
            .worker
            .clock
            .deadline_ms(self.worker.shared.timeouts.send);
        self.slot.enter(Phase::Writing, deadline_ms);
    }

    /// Never zero bytes: the end of the stream is an error.
    fn poll_read(&self, context: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let stream = self.slot.stream();
        loop {
            ready!(stream.poll_read_ready(context))?;
            let mut read = 0;
            let result = stream.try_io(Interest::READABLE, || {
                read = recv(stream, &mut *room, RecvFlags::empty())?.1;
                // a read that does not fill the room has emptied the socket: to say so here saves
                // the call that would find it empty
                let emptied = (1..room.len()).contains(&read);
                if emptied {
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            });
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && read == 0 => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ if read == 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                _ => return Poll::Ready(Ok(read)),
            }
        }
    }
}

fn try_send(stream: &TcpStream, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || Ok(send(stream, bytes, flags)?))
}

impl Drop for Connection {
    fn drop(&mut self) {
        let counters = &self.worker.counters;
        counters.closed.increment();
        if std::thread::panicking() {
            counters.panics.increment();
        }
    }
}
