//! Open files: what the process may have, and how they are shared out.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tunedweb_config::NofileReport;

/// Sets the soft limit of open files as asked, or to the hard limit, whichever is lower, and reads
/// back what was reached (getrlimit(2)). A refusal leaves the limit as it was, which the report
/// shows.
pub(crate) fn raise_nofile(asked: Option<u64>) -> NofileReport {
    let found = getrlimit(Resource::Nofile);
    let hard = found.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit {
        current: Some(asked.unwrap_or(hard).min(hard)),
        maximum: found.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit of open files stays as it was");
    }
    let reached = getrlimit(Resource::Nofile);
    NofileReport {
        asked,
        soft_found: found.current.unwrap_or(u64::MAX),
        hard_found: hard,
        soft: reached.current.unwrap_or(u64::MAX),
        hard: reached.maximum.unwrap_or(u64::MAX),
    }
}

/// How many open files each part of the server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Files that the cache keeps open.
    pub(crate) cached_files_max: usize,
    /// Connections of one worker.
    pub(crate) connections_max: u32,
}

/// Shares out `soft` open files: a fixed number for the program itself, up to a quarter for the
/// cache, the rest for connections, as many as asked at most.
pub(crate) fn share_out(soft: u64, workers: u16, cache_entries_max: usize, asked: u32) -> Shares {
    /// Standard streams, root folder, admin endpoint with its connections, files being opened.
    const OWN: u64 = 128;
    /// Listener, epoll, its wake-up.
    const OF_A_WORKER: u64 = 4;
    let workers = u64::from(workers.max(1));
    let cached = (soft / 4).min(cache_entries_max as u64);
    let left = soft.saturating_sub(OWN + OF_A_WORKER * workers + cached) / workers;
    Shares {
        cached_files_max: usize::try_from(cached).unwrap_or(usize::MAX),
        connections_max: u32::try_from(left.max(1)).unwrap_or(u32::MAX).min(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_what_is_left() {
        let shares = share_out(20_000, 2, 200_000, 65_536);
        assert_eq!(shares.cached_files_max, 5_000);
        assert_eq!(shares.connections_max, 7_432);
        assert_eq!(
            share_out(1_048_576, 4, 10_000, 65_536).connections_max,
            65_536
        );
    }

    #[test]
    fn a_tiny_limit_still_leaves_a_connection() {
        assert_eq!(share_out(64, 8, 10_000, 100).connections_max, 1);
        assert_eq!(
            share_out(u64::MAX, 1, 10, 7),
            Shares {
                cached_files_max: 10,
                connections_max: 7
            }
        );
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one_and_read_back() {
        let report = raise_nofile(None);
        assert_eq!(report.soft, report.hard);
        assert_eq!(report.hard, report.hard_found);
    }
}
