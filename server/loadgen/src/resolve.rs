//! From a host to the one address that the load goes to.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::url::Url;

/// Between two attempts: a fifth of the second that a cluster's name service takes to learn a new
/// name, so that at most that share of it is lost.
const PAUSE: Duration = Duration::from_millis(200);

/// For one attempt to connect. A SYN that is lost is sent again after 1 s (RFC 6298 section 2.1)
/// and 3 s.
const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(4);

/// Why there is no address to load.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The name is not known.
    #[error("cannot resolve {host}{after}")]
    Resolve {
        /// Host asked for.
        host: String,
        /// How long it was tried, in words.
        after: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answers.
    #[error("cannot connect to {address}{after}")]
    Connect {
        /// The last address tried.
        address: SocketAddr,
        /// How long it was tried, in words.
        after: String,
        /// Why.
        source: io::Error,
    },
    /// Stopped by a signal.
    #[error("stopped before a connection was made")]
    Stopped,
}

/// The first address of the host that takes a connection, which is closed at once. Tries again
/// until the time is over.
pub(crate) fn reachable_address(
    url: &Url,
    wait: Duration,
    stop: &AtomicBool,
) -> Result<SocketAddr, ResolveError> {
    let start = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(ResolveError::Stopped);
        }
        let error = match first_that_connects(url, start.elapsed()) {
            Ok(address) => return Ok(address),
            Err(error) => error,
        };
        if start.elapsed() + PAUSE > wait {
            return Err(error);
        }
        thread::sleep(PAUSE);
    }
}

fn first_that_connects(url: &Url, elapsed: Duration) -> Result<SocketAddr, ResolveError> {
    let after = if elapsed.is_zero() || elapsed < PAUSE {
        String::new()
    } else {
        format!(" after {:.1} s", elapsed.as_secs_f64())
    };
    let not_resolved = |after, source| ResolveError::Resolve {
        host: url.host.clone(),
        after,
        source,
    };
    let addresses = match (url.host.as_str(), url.port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(source) => return Err(not_resolved(after, source)),
    };
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIME_LIMIT) {
            Ok(_) => return Ok(address),
            // somebody took the connection, and ended it; the load will show whether always
            Err(source) if source.kind() == io::ErrorKind::ConnectionReset => return Ok(address),
            Err(source) => last = Some((address, source)),
        }
    }
    Err(match last {
        Some((address, source)) => ResolveError::Connect {
            address,
            after,
            source,
        },
        None => not_resolved(after, io::Error::other("the name has no address")),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn url(port: u16) -> Url {
        format!("http://127.0.0.1:{port}/").parse().unwrap()
    }

    /// A port that nobody listens on: taken from a listener that is gone.
    fn free_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn a_server_that_listens_is_found_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let expected = listener.local_addr().unwrap();
        let url = url(expected.port());
        let found = reachable_address(&url, Duration::ZERO, &AtomicBool::new(false));
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_server_that_does_not_listen_is_an_error_without_waiting() {
        let found = reachable_address(&url(free_port()), Duration::ZERO, &AtomicBool::new(false));
        assert!(matches!(found, Err(ResolveError::Connect { .. })));
    }

    #[test]
    fn a_server_that_comes_up_during_the_wait_is_found() {
        let port = free_port();
        let late = thread::spawn(move || {
            thread::sleep(PAUSE / 2);
            TcpListener::bind(("127.0.0.1", port)).unwrap()
        });
        let wait = Duration::from_secs(30);
        let found = reachable_address(&url(port), wait, &AtomicBool::new(false));
        assert_eq!(found.unwrap().port(), port);
        late.join().unwrap();
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let wait = Duration::from_hours(1);
        let found = reachable_address(&url(free_port()), wait, &AtomicBool::new(true));
        assert!(matches!(found, Err(ResolveError::Stopped)));
    }
}
