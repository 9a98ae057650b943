//! What one owner wants on one node, as `NodeTuning.spec.owners` carries it to the node's agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SysctlSetting;

/// The wishes of one owner for one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeOwner {
    /// UID of the resource.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// `namespace/name` of the resource, for people.
    #[schemars(length(max = 320))]
    pub resource: String,
    /// Generation of the resource at which its tuning last changed.
    pub generation: i64,
    /// Whether the owner still wants anything here.
    pub state: OwnerState,
    /// Keys of class C and D that it wants.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub sysctls: Vec<SysctlSetting>,
    /// What is done when others change a key.
    #[serde(default)]
    pub drift_policy: DriftPolicy,
    /// What is done when the owner is released.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Whether an owner still wants anything on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OwnerState {
    /// Its wishes count.
    Active,
    /// Its wishes are withdrawn and what was written for it is put back.
    Released,
}

/// What is done when others change a key that was written. Where owners of one key differ, the
/// strictest counts: `Enforce` before `Report` before `Once`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum DriftPolicy {
    /// Nothing, and nothing is said: the value was written once for this generation and boot.
    Once,
    /// It is reported as `Drifted` and left.
    Report,
    /// It is written again.
    #[default]
    Enforce,
}

/// What is done with the values when an owner is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The values from before are put back where no other owner wants the key.
    #[default]
    Restore,
    /// The values stay until the next boot.
    Keep,
}
