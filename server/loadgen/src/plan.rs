//! What every thread does, checked and prepared.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cli::HttpArgs;
use crate::url::Url;

/// A load, ready to be made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    /// The bytes of the request.
    pub(crate) request: Vec<u8>,
    pub(crate) connections: u32,
    pub(crate) threads: u16,
    /// Length of the load; none: until all requests are done.
    pub(crate) duration: Option<Duration>,
    /// Requests to make; none: until the time is over.
    pub(crate) requests: Option<u64>,
    /// Whether each request has its own connection.
    pub(crate) short: bool,
    pub(crate) request_timeout: Duration,
}

/// One thread's share of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) connections: u32,
    /// Requests to make; none: no limit.
    pub(crate) requests: Option<u64>,
}

impl Plan {
    /// Length of a load that is not bounded otherwise.
    const DURATION_DEFAULT: Duration = Duration::from_secs(30);

    pub(crate) fn new(args: &HttpArgs, address: SocketAddr) -> Self {
        let unbounded = args.duration.is_none() && args.requests.is_none();
        Self {
            address,
            request: request(&args.url, args.short),
            connections: args.connections,
            threads: threads(args),
            duration: args
                .duration
                .or_else(|| unbounded.then_some(Self::DURATION_DEFAULT)),
            requests: args.requests,
            short: args.short,
            request_timeout: args.request_timeout,
        }
    }

    /// The shares of all threads; they differ by one at most.
    pub(crate) fn shares(&self) -> impl Iterator<Item = Share> {
        let threads = u64::from(self.threads);
        (0..threads).map(move |thread| {
            let connections = share(u64::from(self.connections), threads, thread);
            Share {
                connections: u32::try_from(connections).unwrap_or(self.connections),
                requests: self.requests.map(|all| share(all, threads, thread)),
            }
        })
    }
}

/// A thread without a connection or without a request would have nothing to do.
pub(crate) fn threads(args: &HttpArgs) -> u16 {
    let connections = u64::from(args.connections);
    let useful = connections.min(args.requests.unwrap_or(u64::MAX));
    u16::try_from(useful).map_or(args.threads, |useful| args.threads.min(useful))
}

fn share(all: u64, parts: u64, part: u64) -> u64 {
    all / parts + u64::from(part < all % parts)
}

/// No field but those that are needed, so that the server's work is that for any client.
fn request(url: &Url, short: bool) -> Vec<u8> {
    let Url {
        path, authority, ..
    } = url;
    let connection = if short { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n{connection}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn plan(flags: &str) -> Plan {
        let words = ["tunedweb-loadgen", "http", "http://host:81/a?b"];
        let words = words.into_iter().chain(flags.split_whitespace());
        let Command::Http(args) = Cli::parse_from(words).command;
        Plan::new(&args, SocketAddr::from(([127, 0, 0, 1], 81)))
    }

    #[test]
    fn a_request_is_the_same_for_every_connection_and_complete() {
        let request = plan("").request;
        assert_eq!(request, b"GET /a?b HTTP/1.1\r\nHost: host:81\r\n\r\n");
        let short = String::from_utf8(plan("--short").request).unwrap();
        assert!(short.ends_with("\r\nConnection: close\r\n\r\n"), "{short}");
    }

    #[test]
    fn the_load_is_bounded_by_time_unless_requests_are_given() {
        assert_eq!(plan("").duration, Some(Plan::DURATION_DEFAULT));
        assert_eq!(plan("-n 5").duration, None);
        let both = plan("-n 5 -d 2s");
        assert_eq!(both.duration, Some(Duration::from_secs(2)));
        assert_eq!(both.requests, Some(5));
    }

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        let plan = plan("-t 3 -c 10 -n 100");
        let shares: Vec<Share> = plan.shares().collect();
        let connections: Vec<u32> = shares.iter().map(|share| share.connections).collect();
        let requests: Vec<_> = shares.iter().filter_map(|share| share.requests).collect();
        assert_eq!(connections, [4, 3, 3]);
        assert_eq!(requests, [34, 33, 33]);
    }

    #[test]
    fn a_thread_has_a_connection_and_a_request_at_least() {
        assert_eq!(plan("-t 8 -c 3").threads, 3);
        assert_eq!(plan("-t 8 -c 100 -n 2").threads, 2);
        assert_eq!(plan("-t 8 -c 100000 -n 100000").threads, 8);
    }
}
