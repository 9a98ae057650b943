//! One connection and where it stands.

use std::net::SocketAddr;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::response::Response;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is left to do.
    Idle,
    Connecting,
    Sending,
    Receiving,
    /// The response is complete and the peer is expected to close.
    Closing,
    /// After a failure, until the pause is over.
    Waiting,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) phase: Phase,
    /// Start of the response time; in `Closing`, its end.
    pub(crate) since: u64,
    /// Bytes of the request that were sent.
    pub(crate) sent: usize,
    /// Failures since the last response, as far as they lengthen the pause.
    pub(crate) failures: u32,
    pub(crate) response: Response,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            socket: None,
            phase: Phase::Idle,
            since: 0,
            sent: 0,
            failures: 0,
            response: Response::new(),
        }
    }

    /// Starts to connect. The socket stays registered for everything until it is closed: an
    /// edge-triggered socket that can be written to costs no further events (epoll(7)).
    pub(crate) fn connect(
        &mut self,
        epoll: &OwnedFd,
        address: SocketAddr,
        index: usize,
    ) -> Result<(), Errno> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        match net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &socket, EventData::new_u64(index as u64), interest)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// How the connect ended that these flags were reported for.
    pub(crate) fn connect_result(&self, flags: EventFlags) -> Result<(), Errno> {
        if !flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        sockopt::socket_error(socket)?
    }

    /// Closes the socket, if there is one.
    pub(crate) fn close(&mut self, phase: Phase) {
        self.socket = None;
        self.phase = phase;
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(
            self.phase,
            Phase::Sending | Phase::Receiving | Phase::Closing
        )
    }
}

/// Whether the peer has closed its side, or all is over.
pub(crate) fn ended(flags: EventFlags) -> bool {
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}
