//! One connection: reads, has the requests answered, sends.

use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Worker;
use super::batch::{Batch, Ending, Exchange, Then};
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
    /// Responses that the kernel had no room for.
    unsent: Vec<u8>,
    then: Then,
    /// What is kept of the input may hold whole requests.
    more: bool,
}

impl Connection {
    pub(super) fn new(worker: Rc<Worker>, stream: TcpStream) -> Self {
        let deadline_ms = worker.clock.deadline_ms(worker.shared.timeouts.header);
        let slot = worker.slots.enter(stream, deadline_ms);
        Self {
            worker,
            slot,
            exchange: Exchange::default(),
            unsent: Vec::new(),
            then: Then::default(),
            more: false,
        }
    }

    /// Serves until either side ends the connection.
    pub(super) async fn serve(mut self) {
        while poll_fn(|context| self.poll_batch(context))
            .await
            .is_continue()
        {
            if self.send_rest().await.is_err() {
                self.worker.counters.aborted.increment();
                self.slot.reset_on_drop();
                return;
            }
            match std::mem::take(&mut self.then.ending) {
                Ending::No => {}
                Ending::AtOnce => return,
                Ending::Gently => self.slot.close_gently(&self.worker.clock),
            }
        }
    }

    /// Reads once and answers what is there. Without an await inside, so that the buffers can be
    /// those of the worker.
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<ControlFlow<()>> {
        let worker = Rc::clone(&self.worker);
        let mut input = worker.input.borrow_mut();
        let kept = self.exchange.kept.len();
        input[..kept].copy_from_slice(&self.exchange.kept);
        let mut filled = kept;
        if !self.more {
            match ready!(self.poll_read(context, &mut input[kept..])) {
                Ok(0) | Err(_) => return Poll::Ready(ControlFlow::Break(())),
                Ok(read) => filled += read,
            }
        }
        if self.slot.phase() == Phase::Closing {
            self.more = false;
            self.exchange.kept = Vec::new();
            return Poll::Ready(ControlFlow::Continue(()));
        }
        let mut output = worker.output.borrow_mut();
        output.clear();
        let batch = self
            .exchange
            .answer_all(&worker, &mut input[..filled], &mut output);
        self.keep(&input[batch.used..filled]);
        let sent = self.send_batch(batch, &output);
        Poll::Ready(if sent.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    }

    fn keep(&mut self, rest: &[u8]) {
        let kept = &mut self.exchange.kept;
        if rest.is_empty() && kept.capacity() > 0 {
            // gives the memory back: most connections wait without a part of a request
            *kept = Vec::new();
        } else if !rest.is_empty() {
            kept.clear();
            kept.extend_from_slice(rest);
        }
    }

    /// Sends what the kernel takes at once; [`Self::send_rest`] does the rest.
    fn send_batch(&mut self, batch: Batch, output: &[u8]) -> io::Result<()> {
        self.more = batch.more && !self.exchange.kept.is_empty();
        self.then = batch.then;
        let mut sent = 0;
        if !output.is_empty() {
            match self.send(output) {
                Ok(length) => sent = length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.worker.counters.aborted.increment();
                    return Err(error);
                }
            }
        }
        self.unsent.extend_from_slice(&output[sent..]);
        if self.unsent.is_empty() && self.then.file.is_none() {
            self.await_request(batch.answered > 0);
        }
        Ok(())
    }

    /// Notes what is waited for now, and for how long.
    fn await_request(&self, answered: bool) {
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
        if self.unsent.is_empty() && self.then.file.is_none() {
            return Ok(());
        }
        self.await_client();
        let unsent = std::mem::take(&mut self.unsent);
        let mut at = 0;
        while at < unsent.len() {
            match self.send(&unsent[at..]) {
                Ok(sent) => {
                    at += sent;
                    self.await_client();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(file) = self.then.file.take() {
            self.send_file(&file).await?;
        }
        self.await_request(true);
        Ok(())
    }

    /// Sends the body of a large file out of the page cache. Before its last part the file is
    /// looked at again: should it have changed, the client must not take the response for whole.
    async fn send_file(&self, entry: &Found) -> io::Result<()> {
        let Body::File(file) = &entry.body else {
            return Ok(());
        };
        let end = entry.identity().length;
        let mut at = 0;
        while at < end {
            let part = (end - at).min(FILE_PART_BYTES);
            if part == end - at && !entry.has_its_bytes() {
                return Err(io::Error::other("the file has changed"));
            }
            let count = usize::try_from(part).map_err(io::Error::other)?;
            let stream = self.slot.stream();
            let sent = stream.try_io(Interest::WRITABLE, || {
                Ok(sendfile(stream, file, Some(&mut at), count)?)
            });
            match sent {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => {
                    self.worker.counters.sent_bytes.add(sent as u64);
                    self.await_client();
                    tokio::task::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.writable().await?;
                }
                Err(error) => return Err(error),
            }
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

    /// Head and file share packets (`MSG_MORE`) where a file follows.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let more = if self.then.file.is_some() {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let stream = self.slot.stream();
        let sent = stream.try_io(Interest::WRITABLE, || {
            Ok(send(stream, bytes, more | SendFlags::NOSIGNAL)?)
        })?;
        self.worker.counters.sent_bytes.add(sent as u64);
        Ok(sent)
    }

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
                _ => return Poll::Ready(Ok(read)),
            }
        }
    }
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
