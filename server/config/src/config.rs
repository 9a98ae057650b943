//! Settings once checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::problem::{Problem, Problems};
use crate::settings::Settings;

/// Settings of which every value is within its range. Made from [`Settings`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Folder that is served.
    pub root: PathBuf,
    /// Address that requests are answered on.
    pub listen: SocketAddr,
    /// Address of the admin endpoint.
    pub admin: Option<SocketAddr>,
    /// Soft limit of open files to ask for; none: the hard one.
    pub nofile: Option<u64>,
    /// Worker threads; none: as many as the CPUs that may be used.
    pub workers: Option<u16>,
    /// Length of each listener's accept queue to ask for.
    pub backlog: u32,
    /// Open connections of one worker.
    pub connections_max: u32,
    /// Persistent connections.
    pub keep_alive: KeepAliveConfig,
    /// Time limits.
    pub timeouts: TimeoutConfig,
    /// Open files kept between requests.
    pub file_cache: FileCacheConfig,
    /// Names looked up when a folder is asked for.
    pub index: Vec<String>,
    /// What all this was made from, for reports.
    pub settings: Settings,
}

/// Persistent connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveConfig {
    /// How long an idle connection is kept; zero: each response closes its connection.
    pub idle_timeout: Duration,
    /// Requests answered on one connection.
    pub requests_max: u32,
}

/// Time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutConfig {
    /// For the whole request: head, and body where there is one.
    pub header: Duration,
    /// Without the client taking a byte.
    pub send: Duration,
    /// From the signal to the end of the process.
    pub drain: Duration,
}

/// Open files kept between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCacheConfig {
    /// Entries kept.
    pub entries_max: usize,
    /// Without a request, after which an entry is dropped.
    pub idle_timeout: Duration,
    /// Requests before a file is kept.
    pub uses_min: u32,
}

impl TryFrom<Settings> for Config {
    type Error = Problems;

    fn try_from(settings: Settings) -> Result<Self, Problems> {
        let mut problems = settings.problems();
        problems.extend(same_port(&settings));
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        let server = &settings.server;
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        Ok(Self {
            root: settings.root.clone(),
            listen: settings.listen,
            admin: settings.admin,
            nofile: settings.ulimits.nofile,
            workers: server.workers,
            backlog: server.listener.backlog,
            connections_max: server.max_connections_per_worker,
            keep_alive: KeepAliveConfig {
                idle_timeout: seconds(server.keep_alive.idle_timeout_seconds),
                requests_max: server.keep_alive.max_requests,
            },
            timeouts: TimeoutConfig {
                header: seconds(server.timeouts.header_seconds),
                send: seconds(server.timeouts.send_seconds),
                drain: seconds(server.timeouts.drain_seconds),
            },
            file_cache: FileCacheConfig {
                // at most a million, see the table of fields
                entries_max: usize::try_from(server.open_file_cache.max_entries)
                    .unwrap_or(usize::MAX),
                idle_timeout: seconds(server.open_file_cache.idle_timeout_seconds),
                uses_min: server.open_file_cache.min_uses,
            },
            index: server.index.clone(),
            settings,
        })
    }
}

/// Two listeners cannot have one port, unless the kernel chooses it (port 0).
fn same_port(settings: &Settings) -> Option<Problem> {
    let (listen, admin) = (settings.listen, settings.admin?);
    let overlap =
        listen.ip() == admin.ip() || listen.ip().is_unspecified() || admin.ip().is_unspecified();
    (overlap && listen.port() != 0 && listen.port() == admin.port()).then(|| {
        Problem::new(
            "admin",
            format!("\"{admin}\""),
            format!(
                "another port than that of listen, which is {}",
                listen.port()
            ),
            "choose another port for one of them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_durations_and_defaults_pass_the_check() {
        let config = Config::try_from(Settings::parse("root = '/srv'").unwrap()).unwrap();
        assert_eq!(config.timeouts.drain, Duration::from_secs(30));
        assert_eq!(config.file_cache.entries_max, 10_000);
        assert_eq!(config.settings.root, PathBuf::from("/srv"));
    }

    #[test]
    fn values_out_of_range_never_become_a_config() {
        let mut settings = Settings::parse("root = '/srv'").unwrap();
        settings.server.listener.backlog = 0;
        settings.server.timeouts.drain_seconds = 601;
        settings.ulimits.nofile = Some(u64::MAX);
        assert!(!Config::try_from(settings).unwrap_err().0.is_empty());
    }

    #[test]
    fn one_port_for_both_listeners_is_a_problem() {
        for (listen, admin, problems) in [
            ("0.0.0.0:80", "127.0.0.1:80", 1),
            ("127.0.0.1:80", "127.0.0.2:80", 0),
            ("0.0.0.0:80", "0.0.0.0:81", 0),
            ("127.0.0.1:0", "127.0.0.1:0", 0),
        ] {
            let text = format!("root = '/srv'\nlisten = '{listen}'\nadmin = '{admin}'");
            let found = Config::try_from(Settings::parse(&text).unwrap());
            assert_eq!(
                found.map_or_else(|p| p.0.len(), |_| 0),
                problems,
                "{listen} {admin}"
            );
        }
    }
}
