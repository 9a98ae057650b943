//! The load asked for, and what it must reach.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One load: what every load pod does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Load {
    /// When the next request is sent.
    #[serde(default)]
    pub mode: LoadMode,
    /// Path and query asked for (RFC 9112 section 3.2.1, origin form).
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/[!-~]*$"))]
    pub path: String,
    /// Connections held open at the same time, over all threads.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1, max = 65_536))]
    pub connections: u32,
    /// Threads of the load generator, each with its share of the connections.
    #[serde(default = "default_threads")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: u16,
    /// Seconds of load.
    #[serde(default = "default_duration_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub duration_seconds: u32,
    /// Whether a connection carries one request or many.
    #[serde(default)]
    pub connection_reuse: ConnectionReuse,
}

/// When the next request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum LoadMode {
    /// As soon as the former one on the connection was answered.
    #[default]
    ClosedLoop,
}

/// Whether a connection carries one request or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ConnectionReuse {
    /// Many requests on a connection.
    #[default]
    KeepAlive,
    /// A new connection for each request.
    None,
}

/// What a run must reach; each one that is missed is named in the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objectives {
    /// At least so many answered requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub min_requests_per_second: Option<u64>,
    /// The 99th percentile of the response time at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 60_000_000))]
    pub max_p99_microseconds: Option<u64>,
    /// At most so many errors of any kind in the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub max_errors: Option<u64>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            mode: LoadMode::default(),
            path: default_path(),
            connections: default_connections(),
            threads: default_threads(),
            duration_seconds: default_duration_seconds(),
            connection_reuse: ConnectionReuse::default(),
        }
    }
}

fn default_path() -> String {
    "/".to_owned()
}

const fn default_connections() -> u32 {
    100
}

const fn default_threads() -> u16 {
    1
}

const fn default_duration_seconds() -> u32 {
    30
}
