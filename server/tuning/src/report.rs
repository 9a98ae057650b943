//! What was found and done on a node, in the words that status, files and people read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The outcome of `tunedweb-tuner apply`, small enough for a termination message (2 KiB).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyReport {
    /// Format of this report: 1.
    pub version: u32,
    /// SHA-256 of the plan file's bytes, the first 16 hexadecimal digits.
    pub plan_hash: String,
    /// Generation of the plan's owner.
    pub generation: i64,
    /// All or nothing: `Failed` means that every key has the value it had before.
    pub outcome: Outcome,
    /// Keys written and read back.
    pub applied: u32,
    /// Keys that had the value already.
    pub unchanged: u32,
    /// Keys with a problem, as many as fit.
    #[serde(default)]
    pub failures: Vec<KeyReport>,
    /// Problems left out because the report would have become too long.
    #[serde(default)]
    pub failures_dropped: u32,
    /// Hard limit of open files seen by this process, which is the server's too.
    pub hard_nofile: u64,
    /// Set when a wish for open files exceeds `hard_nofile`: what is asked, what is permitted, and
    /// what would permit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_not_permitted: Option<String>,
}

/// Whether a plan was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Outcome {
    /// Every key has the value asked for, or a higher one where the merge rule keeps it.
    Applied,
    /// At least one key could not be set; nothing was left changed.
    Failed,
}

/// One key on one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReport {
    /// Name with dots.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Merged value of all owners.
    #[schemars(length(max = 256))]
    pub wanted: String,
    /// Value read last; empty where it could not be read.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub found: String,
    /// Value before the first write of this boot; empty where nothing was written.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub baseline: String,
    /// What became of the wish.
    pub state: KeyState,
    /// Owners (`namespace/name`) that want this key.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 128)))]
    pub owners: Vec<String>,
    /// Why the state is what it is and what to do, for people; empty where there is nothing to say.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub reason: String,
}

/// What became of the wish for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum KeyState {
    /// Written, and read back with the value wanted.
    Applied,
    /// Had the value wanted (or a higher one, for keys that merge by maximum) before any write.
    Unchanged,
    /// Written, but the kernel stored another value within its own limits.
    Clamped,
    /// The kernel refused the value (`EINVAL`).
    Rejected,
    /// The file cannot be written here (`EACCES`, `EPERM`, `EROFS`).
    ReadOnly,
    /// This kernel has no such key (`ENOENT`), or it is not visible in this namespace.
    Absent,
    /// Owners want different values of a key that cannot be merged.
    Conflict,
    /// The value cannot be right on this node, such as `tcp_mem` beyond its memory.
    NotPermitted,
    /// Not attempted because another key of the same plan failed.
    Skipped,
    /// Put back to its baseline.
    Restored,
    /// Not put back, because the value found is not the one written here.
    ChangedByOthers,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Kernel release (`uname -r`).
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub kernel: String,
    /// Size of a memory page.
    #[serde(default)]
    pub page_size_bytes: u64,
    /// Memory of the node (`MemTotal`).
    #[serde(default)]
    pub memory_bytes: u64,
    /// Hard limit of open files that the agent's container got; containers of one runtime get the
    /// same.
    #[serde(default)]
    pub hard_nofile: u64,
}
