//! The settings as written, with their defaults and permitted ranges.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole settings file (TOML), as `tunedweb-server --config FILE` reads it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Folder that is served. Nothing outside it is ever opened.
    pub root: PathBuf,
    /// Address that requests are answered on.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Address of `/healthz`, `/readyz`, `/metrics` and `/tuning`; none: no admin endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// Process limits that the server asks the kernel for at start.
    #[serde(default)]
    pub ulimits: Ulimits,
    /// What `TunedWebServer.spec.server` carries.
    #[serde(default)]
    pub server: ServerSettings,
}

impl Settings {
    /// The settings to serve `root` with, all others at their defaults.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            listen: default_listen(),
            admin: None,
            ulimits: Ulimits::default(),
            server: ServerSettings::default(),
        }
    }
}

/// Process limits (`getrlimit(2)`) that the server sets for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ulimits {
    /// Soft limit of open files; none: raise the soft limit to the hard one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
}

/// How the server serves: the same words in the settings file and in the resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Worker threads, each with its own listener. Omitted: one for each CPU that the affinity
    /// mask and the cgroup quota allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// The listening sockets.
    pub listener: Listener,
    /// Open connections of one worker; a connection beyond it is closed at once and counted.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_connections_per_worker: u32,
    /// Persistent connections (RFC 9112 section 9.3).
    pub keep_alive: KeepAlive,
    /// Time limits, in seconds.
    pub timeouts: Timeouts,
    /// Open files and small contents that are kept between requests.
    pub open_file_cache: OpenFileCache,
    /// Names looked up, in this order, when a folder is asked for.
    #[schemars(length(max = 8), inner(length(min = 1, max = 255)))]
    pub index: Vec<String>,
}

/// The listening sockets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Listener {
    /// Length of the accept queue of each listener (`listen(2)`); the kernel cuts it to
    /// `net.core.somaxconn`.
    #[schemars(range(min = 1, max = 65_535))]
    pub backlog: u32,
}

/// Persistent connections.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KeepAlive {
    /// Seconds that an idle connection is kept; 0: each response closes its connection.
    #[schemars(range(min = 0, max = 86_400))]
    pub idle_timeout_seconds: u32,
    /// Requests answered on one connection before it is closed.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_requests: u32,
}

/// Time limits, in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timeouts {
    /// From the first byte of a request, or from the opening of the connection, to the end of the
    /// request; 408 after that.
    #[schemars(range(min = 1, max = 3_600))]
    pub header_seconds: u32,
    /// Without the client taking a single byte of a response; the connection is closed after that.
    #[schemars(range(min = 1, max = 3_600))]
    pub send_seconds: u32,
    /// From SIGTERM to the end of the process at the latest. For a third of it, at most 5 seconds,
    /// connections are still accepted while the endpoints are withdrawn; the rest is for requests
    /// that are under way.
    #[schemars(range(min = 1, max = 600))]
    pub drain_seconds: u32,
}

/// Open files and small contents that are kept between requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenFileCache {
    /// Entries kept; 0: every request opens its file.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_entries: u32,
    /// Seconds after which an entry that nobody asked for is dropped.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_timeout_seconds: u32,
    /// Requests for a file, within `idleTimeoutSeconds`, before it is kept open.
    #[schemars(range(min = 1, max = 1_000))]
    pub min_uses: u32,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 8080))
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            workers: None,
            listener: Listener::default(),
            max_connections_per_worker: 65_536,
            keep_alive: KeepAlive::default(),
            timeouts: Timeouts::default(),
            open_file_cache: OpenFileCache::default(),
            index: vec!["index.html".to_owned()],
        }
    }
}

impl Default for Listener {
    fn default() -> Self {
        Self { backlog: 65_535 }
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            idle_timeout_seconds: 65,
            max_requests: 100_000,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header_seconds: 60,
            send_seconds: 60,
            drain_seconds: 30,
        }
    }
}

impl Default for OpenFileCache {
    fn default() -> Self {
        Self {
            max_entries: 10_000,
            idle_timeout_seconds: 60,
            min_uses: 1,
        }
    }
}
