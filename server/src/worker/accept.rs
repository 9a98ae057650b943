//! Accepting connections, and ceasing to.

use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tokio::io::unix::AsyncFd;

use super::Worker;
use super::connection::Connection;
use crate::lifecycle::Stage;
use crate::sys;

/// Connections accepted before those that are open get their turn.
const ACCEPTS_MAX: u32 = 64;

/// After the kernel had no file or memory for a connection: long enough not to spin, short enough
/// for the queue to hold what comes meanwhile.
const BACK_OFF: Duration = Duration::from_millis(100);

/// For the third packet of handshakes that have begun: most round trips are shorter.
const HANDSHAKE: Duration = Duration::from_millis(300);

/// Accepts until the server drains, then what is left in the queue, and closes the listener.
pub(super) async fn run(worker: &Rc<Worker>) -> io::Result<()> {
    let Some(listener) = worker.listener.get() else {
        return Ok(());
    };
    let listener = sys::watch(listener)?;
    let accepting = Accepting {
        worker,
        listener,
        refusing: Cell::new(false),
        warned_ms: Cell::new(None),
    };
    tokio::select! {
        biased;
        () = worker.reached(Stage::Draining) => {}
        result = accepting.for_ever() => result?,
    }
    accepting.refuse_handshakes();
    tokio::select! {
        biased;
        () = tokio::time::sleep(HANDSHAKE) => {}
        () = worker.reached(Stage::Ended) => {}
        result = accepting.for_ever() => result?,
    }
    accepting.the_rest();
    worker.listener.close();
    Ok(())
}

struct Accepting<'a> {
    worker: &'a Rc<Worker>,
    listener: AsyncFd<Rc<TcpListener>>,
    refusing: Cell<bool>,
    warned_ms: Cell<Option<u64>>,
}

/// What one attempt to accept came to.
enum Attempt {
    Accepted,
    Empty,
    /// Files or memory are short.
    Short(Errno),
    Failed(Errno),
}

impl Accepting<'_> {
    async fn for_ever(&self) -> io::Result<()> {
        loop {
            let mut ready = self.listener.readable().await?;
            for _ in 0..ACCEPTS_MAX {
                match self.attempt() {
                    Attempt::Accepted => {}
                    Attempt::Empty => {
                        ready.clear_ready();
                        break;
                    }
                    Attempt::Short(error) => {
                        self.warn(error);
                        tokio::time::sleep(BACK_OFF).await;
                    }
                    Attempt::Failed(error) => return Err(error.into()),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn attempt(&self) -> Attempt {
        match accept_with(
            self.listener.get_ref(),
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        ) {
            Ok(socket) => {
                self.hear_from_afar(&socket);
                self.admit(socket);
                Attempt::Accepted
            }
            Err(Errno::AGAIN) => Attempt::Empty,
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                self.worker.counters.accept_failures.increment();
                Attempt::Short(error)
            }
            Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT)) => {
                Attempt::Failed(error)
            }
            // accept(2): an error that is pending on the new connection; the next may be well
            Err(_) => Attempt::Accepted,
        }
    }

    fn admit(&self, socket: OwnedFd) {
        let worker = self.worker;
        worker.counters.accepted.increment();
        if worker.slots.len() >= worker.shared.connections_max {
            worker.counters.dropped.increment();
            worker.counters.closed.increment();
            return;
        }
        // a panic here would take the worker with it, in the task of a connection it does not
        let opened = catch_unwind(AssertUnwindSafe(|| Connection::open(worker, socket)));
        match opened {
            Ok(Ok(Some(connection))) => {
                tokio::task::spawn_local(connection.serve());
                return;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection ended as it began"),
            Err(_) => worker.counters.panics.increment(),
        }
        worker.counters.closed.increment();
    }

    /// Packets from a distance are dropped from here on, that is practically all that open a
    /// connection, so that the queue runs empty before its listener is closed: to close it with
    /// connections in it resets them. The client sends the packet again a second later, and is then
    /// refused or led elsewhere. (A socket filter could tell such packets better, but some kernels
    /// refuse it to processes without privileges.)
    fn refuse_handshakes(&self) {
        self.refusing.set(true);
        if let Err(error) = sys::set_hops_left_min(self.listener.get_ref(), u8::MAX) {
            tracing::warn!(%error, "connections that open at the last moment may be reset");
        }
    }

    /// A connection of which the handshake had begun inherits the listener's deafness.
    fn hear_from_afar(&self, socket: &OwnedFd) {
        if self.refusing.get()
            && let Err(error) = sys::set_hops_left_min(socket, 0)
        {
            tracing::debug!(%error, "a connection at the last moment may hang");
        }
    }

    fn the_rest(&self) {
        // no queue is longer (listen(2) takes 65535 at most here)
        for _ in 0..u16::MAX {
            if !matches!(self.attempt(), Attempt::Accepted) {
                return;
            }
        }
    }

    /// At most once in ten seconds: what happens a thousand times a second is counted, not told.
    fn warn(&self, error: Errno) {
        let now_ms = self.worker.clock.now_ms();
        if self
            .warned_ms
            .get()
            .is_none_or(|warned_ms| now_ms - warned_ms > 10_000)
        {
            self.warned_ms.set(Some(now_ms));
            tracing::warn!(
                %error,
                "cannot accept connections for now; raise ulimits.nofile or lower \
                 server.maxConnectionsPerWorker"
            );
        }
    }
}
