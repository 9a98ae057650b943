//! The plan file: what `tunedweb-tuner --plan FILE` reads and the operator renders (JSON).

use serde::{Deserialize, Serialize};

use crate::{SysctlSetting, UlimitSetting};

/// What one owner wants on the node that the tuner runs on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Format of this file: 1.
    pub version: u32,
    /// Who wants it.
    pub owner: Owner,
    /// Where the tuner runs, which decides what it may write and what it must remember.
    pub context: PlanContext,
    /// Keys and values wished for.
    #[serde(default)]
    pub sysctls: Vec<SysctlSetting>,
    /// Process limits that the server is going to ask for; compared with the hard limit here.
    #[serde(default)]
    pub ulimits: Vec<UlimitSetting>,
}

/// Who wants a value. Together with the node's name it is the key of a wish in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Owner {
    /// UID of the resource; any stable word for plans written by hand.
    pub uid: String,
    /// `namespace/name` of the resource, for people.
    pub resource: String,
    /// Generation of the resource at which its tuning last changed. An older generation never
    /// replaces a newer one.
    pub generation: i64,
}

/// Where the tuner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum PlanContext {
    /// In a pod with a network namespace of its own: `net.*` keys end with the pod and are not
    /// journalled; node-wide keys are.
    Pod,
    /// In the node's network namespace: every key is journalled.
    Host,
}
