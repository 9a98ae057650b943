//! `NodeTuning`: who wants which kernel key on one node, and what became of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunedweb_tuning::{KeyReport, NodeFacts, SysctlSetting};

/// Wishes for the node-wide keys of one node. Named as the node and owned by it.
///
/// The operator writes the spec whole, from all resources that select the node. The node's agent
/// writes the status; an admission policy lets no other agent do so.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "tunedweb.io",
    version = "v1alpha1",
    kind = "NodeTuning",
    plural = "nodetunings",
    shortname = "ntune",
    category = "tunedweb",
    status = "NodeTuningStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Who wants which kernel key on one node, and what became of it.",
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Applied")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Applied")].reason"#
    ),
    printcolumn(
        name = "Kernel",
        type_ = "string",
        json_path = ".status.facts.kernel",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeTuningSpec {
    /// Resources that want keys on this node.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    pub owners: Vec<NodeOwner>,
}

/// One resource's wishes on this node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOwner {
    /// UID of the resource.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// `namespace/name` of the resource, for people.
    #[schemars(length(min = 3, max = 320))]
    pub resource: String,
    /// Generation of the resource at which its tuning last changed.
    pub generation: i64,
    /// Whether the wishes stand, or are to be put back.
    pub state: OwnerState,
    /// Node-wide keys (classes C and D) and the values wished for.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sysctls: Vec<SysctlSetting>,
}

/// Whether an owner's wishes stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum OwnerState {
    /// The wishes stand.
    Active,
    /// A serving pod has to tune the node first, whole or not at all: nothing is wanted of the
    /// agent yet, and the pod is let in where the owner was released before.
    Pending,
    /// The resource goes, or left this node: its share is to be put back.
    Released,
}

/// What the node's agent found and did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTuningStatus {
    /// Generation of the spec that this status answers.
    #[serde(default)]
    pub observed_generation: i64,
    /// `/proc/sys/kernel/random/boot_id` of the node.
    #[serde(default, rename = "bootID")]
    #[schemars(length(max = 64))]
    pub boot_id: String,
    /// What the node says of itself.
    #[serde(default)]
    pub facts: NodeFacts,
    /// What became of each owner of the spec.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    pub owners: Vec<OwnerStatus>,
    /// Each node-wide key that an owner wants, or that could not be put back.
    #[serde(default)]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub keys: Vec<KeyReport>,
    /// `Applied`.
    #[serde(default)]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What became of one owner's wishes on this node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerStatus {
    /// UID of the resource.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Generation of the wishes that were acted on.
    pub generation: i64,
    /// The outcome.
    pub state: OwnerOutcome,
    /// Each key that failed and why, or what was not put back and why.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// What became of one owner's wishes on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum OwnerOutcome {
    /// The node waits for the serving pod.
    Pending,
    /// Every key has the value wished for, or a merged one that covers it.
    Applied,
    /// At least one key could not be set; the node keeps the values it had.
    Failed,
    /// Its share was put back; the operator may forget the owner.
    Released,
}
