//! The listening sockets: one for each worker on the same port (`SO_REUSEPORT`, socket(7)), so that
//! the kernel spreads the connections and no queue is shared.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {advice}")]
pub struct ListenError {
    /// As set.
    pub address: SocketAddr,
    advice: &'static str,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

impl ListenError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::AddrInUse => "end the program that uses the port, or set another one",
            io::ErrorKind::AddrNotAvailable => "set an address that this host has, or 0.0.0.0",
            io::ErrorKind::PermissionDenied => {
                "set a port from 1024 on, or lower net.ipv4.ip_unprivileged_port_start"
            }
            _ => "set another address",
        };
        Self {
            address,
            advice,
            source,
        }
    }
}

/// Binds `count` listeners to one address. With port 0 the kernel chooses one port for all.
pub(crate) fn bind_each(
    address: SocketAddr,
    backlog: u32,
    count: usize,
) -> Result<Vec<TcpListener>, ListenError> {
    let failed = |error| ListenError::new(address, error);
    // SO_REUSEPORT lets another program of the same user in on the port, silently; a bind without
    // it fails where one listens already
    if address.port() != 0 {
        drop(bind(address, false).map_err(failed)?);
    }
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(count);
    for _ in 0..count {
        let address = match listeners.first() {
            Some(first) => first.local_addr().map_err(failed)?,
            None => address,
        };
        let socket = bind(address, true).map_err(failed)?;
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        socket.listen(backlog).map_err(failed)?;
        listeners.push(socket.into());
    }
    Ok(listeners)
}

/// Binds one listener to an address of its own.
pub(crate) fn bind_one(address: SocketAddr, backlog: i32) -> Result<TcpListener, ListenError> {
    let listening = bind(address, false).and_then(|socket| socket.listen(backlog).map(|()| socket));
    listening
        .map(Into::into)
        .map_err(|error| ListenError::new(address, error))
}

fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    // inherited by the connections: responses are written whole, waiting for more only delays them
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_share_the_port_that_the_kernel_chose() {
        let listeners = bind_each(SocketAddr::from(([127, 0, 0, 1], 0)), 16, 3).unwrap();
        let ports: Vec<u16> = listeners
            .iter()
            .map(|l| l.local_addr().unwrap().port())
            .collect();
        assert!(
            ports[0] != 0 && ports.iter().all(|port| *port == ports[0]),
            "{ports:?}"
        );
    }

    #[test]
    fn a_port_in_use_is_refused_though_it_could_be_shared() {
        let first = bind_each(SocketAddr::from(([127, 0, 0, 1], 0)), 16, 1).unwrap();
        let address = first[0].local_addr().unwrap();
        let error = bind_each(address, 16, 1).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("end the program that uses the port"),
            "{error}"
        );
    }
}
