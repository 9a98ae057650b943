//! Whether this process may hold the connections that are asked for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files besides connections: standard streams, one epoll instance a thread is counted apart,
/// the log and message files, and room for name resolution.
const OTHER_FILES: u64 = 32;

/// Why the connections cannot be held.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The limit of open files is too low.
    #[error(
        "{connections} connections on {threads} threads need {needed} open files, the hard limit \
         is {hard}: ask for at most {possible} connections (-c), or raise the limit (ulimit -Hn)"
    )]
    OpenFiles {
        /// Connections asked for.
        connections: u32,
        /// Threads asked for.
        threads: u16,
        /// Files that these need.
        needed: u64,
        /// The limit.
        hard: u64,
        /// Connections that would fit.
        possible: u64,
    },
    /// One source address has too few ports for one destination.
    #[error(
        "{connections} connections to one address need as many ports, \
         net.ipv4.ip_local_port_range has {ports} (from {low} to {high}): ask for fewer \
         connections (-c), or widen the range"
    )]
    Ports {
        /// Connections asked for.
        connections: u32,
        /// Ports that there are.
        ports: u32,
        /// First port.
        low: u16,
        /// Last port.
        high: u16,
    },
    /// The soft limit could not be raised to the hard one.
    #[error("cannot raise the soft limit of open files to {wanted}")]
    Raise {
        /// Limit wanted.
        wanted: u64,
    },
}

/// The range of `net.ipv4.ip_local_port_range`, that ports of outgoing connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// The range in force; none where the kernel does not tell.
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?)
    }

    pub(crate) fn ports(self) -> u32 {
        u32::from(self.high.saturating_sub(self.low)) + 1
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let (Some(Ok(low)), Some(Ok(high))) = (numbers.next(), numbers.next()) else {
            return None;
        };
        Some(Self { low, high })
    }
}

/// Raises the soft limit of open files to the hard one, and refuses what does not fit.
pub(crate) fn reserve(
    connections: u32,
    threads: u16,
    ports: Option<PortRange>,
) -> Result<(), LimitError> {
    if let Some(range) = ports {
        check_ports(connections, range)?;
    }
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let needed = check_open_files(connections, threads, hard)?;
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| LimitError::Raise { wanted: hard })
}

fn check_ports(connections: u32, range: PortRange) -> Result<(), LimitError> {
    let ports = range.ports();
    if connections <= ports {
        return Ok(());
    }
    let PortRange { low, high } = range;
    Err(LimitError::Ports {
        connections,
        ports,
        low,
        high,
    })
}

/// The files needed, when they fit.
fn check_open_files(connections: u32, threads: u16, hard: u64) -> Result<u64, LimitError> {
    let others = u64::from(threads) + OTHER_FILES;
    let needed = u64::from(connections) + others;
    if needed <= hard {
        return Ok(needed);
    }
    Err(LimitError::OpenFiles {
        connections,
        threads,
        needed,
        hard,
        possible: hard.saturating_sub(others),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_in_the_open_files_is_refused_with_the_arithmetic() {
        assert_eq!(check_open_files(100, 2, 134), Ok(134));
        let refused = check_open_files(20_000, 4, 20_000).unwrap_err();
        let LimitError::OpenFiles {
            needed, possible, ..
        } = refused
        else {
            panic!("{refused}")
        };
        assert_eq!((needed, possible), (20_036, 19_964));
        assert_eq!(check_open_files(19_964, 4, 20_000), Ok(20_000));
    }

    #[test]
    fn more_connections_than_ports_are_refused() {
        let range = PortRange::parse("32768\t60999\n").unwrap();
        assert_eq!(range.ports(), 28_232);
        assert_eq!(check_ports(28_232, range), Ok(()));
        let refused = check_ports(28_233, range);
        assert!(matches!(
            refused,
            Err(LimitError::Ports { ports: 28_232, .. })
        ));
    }

    #[test]
    fn a_range_that_cannot_be_read_is_none() {
        assert_eq!(PortRange::parse("32768"), None);
        assert_eq!(PortRange::parse("a b"), None);
    }
}
