//! What a user writes: one kernel key or process limit and the value wished for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::NOFILE_PERMITTED;

/// One kernel key (`/proc/sys`) and the value wished for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SysctlSetting {
    /// Name with dots, such as `net.core.somaxconn`.
    #[schemars(
        length(min = 3, max = 128),
        regex(pattern = r"^[a-z0-9_]+(\.[A-Za-z0-9_-]+)+$")
    )]
    pub name: String,
    /// Value as decimal numbers separated by single spaces, or a name. `net.ipv4.tcp_mem` is given
    /// in bytes and converted with the node's page size.
    #[schemars(length(min = 1, max = 256))]
    pub value: String,
}

/// One process limit (`getrlimit(2)`) of the server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UlimitSetting {
    /// Which limit.
    pub name: UlimitName,
    /// Soft limit wished for. The largest is the default of `fs.nr_open`.
    #[schemars(range(min = *NOFILE_PERMITTED.start(), max = *NOFILE_PERMITTED.end()))]
    pub soft: u64,
}

/// Process limits that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UlimitName {
    /// Open files (`RLIMIT_NOFILE`).
    Nofile,
}
