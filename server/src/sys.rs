//! What no safe library offers.
#![expect(
    unsafe_code,
    reason = "TCP_INFO, SIOCOUTQ, IP_MINTTL and AsyncFd have no safe wrapper"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The accept queue of a listening socket, as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptQueue {
    /// Connections that wait to be accepted.
    pub(crate) length: u32,
    /// Most that may wait: the backlog after `net.core.somaxconn` cut it.
    pub(crate) length_max: u32,
}

/// Reads the accept queue of `listener` (tcp(7), `TCP_INFO`; for a listening socket `tcpi_unacked`
/// is the queue's length and `tcpi_sacked` its bound, as `ss -l` shows them).
pub(crate) fn accept_queue(listener: &impl AsFd) -> io::Result<AcceptQueue> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>())
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `info` is a whole tcp_info and `length` its size, so the kernel writes only into it;
    // both live past the call, and the borrow of `listener` keeps the descriptor open.
    let result = unsafe {
        libc::getsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: tcp_info is integers only, zeroed above where an older kernel wrote less.
    let info = unsafe { info.assume_init() };
    Ok(AcceptQueue {
        length: info.tcpi_unacked,
        length_max: info.tcpi_sacked,
    })
}

/// Bytes given to the kernel that the peer has not acknowledged (tcp(7), `SIOCOUTQ`).
pub(crate) fn unacknowledged(stream: &impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int, which `bytes` is; the borrow of `stream`
    // keeps the descriptor open.
    let result = unsafe { libc::ioctl(stream.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(bytes).map_err(io::Error::other)
}

/// Drops packets that have fewer hops left than `hops` (ip(7) `IP_MINTTL`, ipv6(7)
/// `IPV6_MINHOPCOUNT`): 0 takes all, 255 only those that no router has touched and whose sender
/// started at the most, which common systems do not.
pub(crate) fn set_hops_left_min(socket: &impl AsFd, hops: u8) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MINTTL, hops)?;
    match set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, hops) {
        // not an IPv6 socket
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

fn set_option(socket: &impl AsFd, level: i32, name: i32, value: u8) -> io::Result<()> {
    let value = libc::c_int::from(value);
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>())
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is a whole int and `length` its size, so the kernel reads only it; the borrow
    // of `socket` keeps the descriptor open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the runtime watch `listener` for connections.
pub(crate) fn watch(listener: Rc<TcpListener>) -> io::Result<AsyncFd<Rc<TcpListener>>> {
    // SAFETY: a TcpListener behind an Rc gives the same descriptor each time it is asked and keeps
    // it open until it is dropped, which is not before the AsyncFd that holds the Rc is.
    let watched = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    Ok(watched?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_queue_of_a_listener_is_read_back() {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket
            .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        socket.listen(7).unwrap();
        assert_eq!(
            accept_queue(&socket).unwrap(),
            AcceptQueue {
                length: 0,
                length_max: 7
            }
        );
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(accept_queue(&socket).unwrap().length, 1);
    }

    #[test]
    fn a_listener_that_hears_only_neighbours_answers_nobody_and_hears_again() {
        let of_version_4 = TcpListener::bind("127.0.0.1:0").unwrap();
        // not every machine has IPv6
        let of_version_6 = TcpListener::bind("[::1]:0").ok();
        for listener in [Some(of_version_4), of_version_6].into_iter().flatten() {
            let connect = |milliseconds| {
                let timeout = std::time::Duration::from_millis(milliseconds);
                std::net::TcpStream::connect_timeout(&listener.local_addr().unwrap(), timeout)
            };
            set_hops_left_min(&listener, u8::MAX).unwrap();
            assert_eq!(connect(200).unwrap_err().kind(), io::ErrorKind::TimedOut);
            set_hops_left_min(&listener, 0).unwrap();
            assert!(connect(10_000).is_ok());
        }
    }

    #[test]
    fn what_the_peer_has_not_taken_is_read_back() {
        use std::io::Write;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        assert_eq!(unacknowledged(&client).unwrap(), 0);
        client.set_nonblocking(true).unwrap();
        let bytes = vec![0; 65_536];
        while client.write(&bytes).is_ok() {}
        assert!(unacknowledged(&client).unwrap() > 0);
        drop(server);
    }
}
