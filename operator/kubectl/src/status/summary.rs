//! The answer as a value: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tunedweb_api::condition::{self, ConditionType};
use tunedweb_api::node_tuning::OwnerOutcome;
use tunedweb_api::tuned_web_server::{BenchmarkResult, NodeCounts};
use tunedweb_api::{NodeTuning, TunedWebServer};
use tunedweb_measure::{Validity, Verdict};
use tunedweb_tuning::catalogue;
use tunedweb_tuning::{Class, KUBERNETES_MINOR_MIN, KeyReport, KeyState, classify};

use super::observe::Observed;
use super::restore::{RestoreLine, on_delete};

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Namespace of the resource.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Generation of its spec.
    pub generation: i64,
    /// Generation that its status answers.
    pub observed_generation: i64,
    /// True when `Ready` holds for this generation.
    pub ready: bool,
    /// True when it is being deleted.
    pub deleting: bool,
    /// Its conditions.
    pub conditions: Vec<ConditionLine>,
    /// How many nodes are where.
    pub node_counts: NodeCounts,
    /// Each node that serves it or is tuned for it, by name.
    pub nodes: Vec<NodeLine>,
    /// Each benchmark, in the order of the spec.
    pub benchmarks: Vec<BenchmarkLine>,
    /// What deleting it will do to each node's keys.
    pub on_delete: Vec<RestoreLine>,
    /// Keys that end with the pods, since they are in the pods' own network namespaces.
    pub keys_of_pods: Vec<String>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionLine {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// True when it answers an older generation than that of the spec.
    pub outdated: bool,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// Whether a serving pod is ready on it; none: there is no pod.
    pub serving: Option<bool>,
    /// What its agent made of the node-wide keys; none: no node-wide key is wished for.
    pub tuning: Option<String>,
    /// Node-wide keys that this resource wants there.
    pub keys: Vec<KeyLine>,
    /// What is wrong with it, for people; empty where nothing is.
    pub problem: String,
}

/// One node-wide key of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyLine {
    /// Name with dots.
    pub name: String,
    /// Merged wish of all resources.
    pub wanted: String,
    /// Value found.
    pub found: String,
    /// Value before anything was written in this boot.
    pub baseline: String,
    /// What became of the wish.
    pub state: KeyState,
    /// Why.
    pub reason: String,
}

/// One benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkLine {
    /// Its name.
    pub name: String,
    /// Its last recorded result.
    pub result: Option<BenchmarkResult>,
}

impl Summary {
    /// What is to be said of what was read.
    pub fn of(observed: &Observed) -> Self {
        let server = &observed.server;
        let generation = server.metadata.generation.unwrap_or_default();
        let status = server.status.clone().unwrap_or_default();
        let nodes = nodes(observed);
        let ready =
            condition::find(&status.conditions, ConditionType::Ready).is_some_and(|ready| {
                ready.status == "True"
                    && ready
                        .observed_generation
                        .is_none_or(|seen| seen == generation)
            });
        Self {
            namespace: server.metadata.namespace.clone().unwrap_or_default(),
            name: server.metadata.name.clone().unwrap_or_default(),
            generation,
            observed_generation: status.observed_generation,
            ready: ready && status.observed_generation == generation,
            deleting: server.metadata.deletion_timestamp.is_some(),
            conditions: status
                .conditions
                .iter()
                .map(|condition| ConditionLine {
                    kind: condition.type_.clone(),
                    status: condition.status.clone(),
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                    outdated: condition
                        .observed_generation
                        .is_some_and(|seen| seen < generation),
                })
                .collect(),
            node_counts: status.nodes,
            on_delete: on_delete(server, &observed.tunings),
            nodes,
            benchmarks: benchmarks(server),
            keys_of_pods: keys_of_pods(server),
            problems: observed.problems.clone(),
        }
    }
}

fn nodes(observed: &Observed) -> Vec<NodeLine> {
    let server = &observed.server;
    let mut nodes: BTreeMap<String, NodeLine> = BTreeMap::new();
    for pod in &observed.pods {
        if let Some(name) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) {
            let node = nodes.entry(name.clone()).or_default();
            // while pods are replaced, one of two being ready is enough
            node.serving = Some(node.serving == Some(true) || is_ready(pod));
        }
    }
    for tuning in observed
        .tunings
        .iter()
        .filter(|tuning| concerns(tuning, server))
    {
        let node = nodes.entry(name_of(tuning)).or_default();
        node.tuning = Some(outcome(tuning, server));
        node.keys = keys(tuning, server).map(KeyLine::of).collect();
        node.problem = owner_message(tuning, server);
    }
    let failing = server
        .status
        .iter()
        .flat_map(|status| &status.nodes.failing);
    for failing in failing {
        let node = nodes.entry(failing.name.clone()).or_default();
        node.problem = format!("{}: {}", failing.reason, failing.message);
    }
    nodes
        .into_iter()
        .map(|(name, node)| NodeLine { name, ..node })
        .collect()
}

impl KeyLine {
    fn of(key: &KeyReport) -> Self {
        Self {
            name: key.name.clone(),
            wanted: key.wanted.clone(),
            found: key.found.clone(),
            baseline: key.baseline.clone(),
            state: key.state,
            reason: key.reason.clone(),
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

pub(super) fn name_of(tuning: &NodeTuning) -> String {
    tuning.metadata.name.clone().unwrap_or_default()
}

fn is_same(uid: &str, server: &TunedWebServer) -> bool {
    server.metadata.uid.as_deref() == Some(uid)
}

fn concerns(tuning: &NodeTuning, server: &TunedWebServer) -> bool {
    let in_spec = tuning
        .spec
        .owners
        .iter()
        .any(|owner| is_same(&owner.uid, server));
    in_spec || keys(tuning, server).next().is_some()
}

pub(super) fn keys<'a>(
    tuning: &'a NodeTuning,
    server: &TunedWebServer,
) -> impl Iterator<Item = &'a KeyReport> + use<'a> {
    let resource = resource(server);
    let keys = tuning.status.iter().flat_map(|status| &status.keys);
    keys.filter(move |key| key.owners.contains(&resource))
}

pub(super) fn resource(server: &TunedWebServer) -> String {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    format!("{namespace}/{name}")
}

/// The agent's answer to the wishes that stand in the spec; `Pending` until it gave one.
fn outcome(tuning: &NodeTuning, server: &TunedWebServer) -> String {
    let mut wished = tuning
        .spec
        .owners
        .iter()
        .filter(|owner| is_same(&owner.uid, server));
    let generation = wished.next().map(|owner| owner.generation);
    let mut answers = tuning.status.iter().flat_map(|status| &status.owners);
    let answer = answers.find(|owner| is_same(&owner.uid, server));
    match answer {
        Some(answer) if generation.is_none_or(|wished| wished == answer.generation) => {
            format!("{:?}", answer.state)
        }
        _ => "Pending".to_owned(),
    }
}

fn owner_message(tuning: &NodeTuning, server: &TunedWebServer) -> String {
    let mut answers = tuning.status.iter().flat_map(|status| &status.owners);
    let answer = answers.find(|owner| is_same(&owner.uid, server));
    answer
        .filter(|answer| answer.state == OwnerOutcome::Failed)
        .map(|answer| answer.message.clone())
        .unwrap_or_default()
}

fn benchmarks(server: &TunedWebServer) -> Vec<BenchmarkLine> {
    let result_of = |name: &str| {
        let mut results = server.status.iter().flat_map(|status| &status.benchmarks);
        results.find(|result| result.name == name).cloned()
    };
    let wished = server.spec.benchmarks.iter();
    wished
        .map(|benchmark| BenchmarkLine {
            name: benchmark.name.clone(),
            result: result_of(&benchmark.name),
        })
        .collect()
}

fn keys_of_pods(server: &TunedWebServer) -> Vec<String> {
    let wished = server.spec.tuning.sysctls.iter();
    wished
        .filter_map(|wish| catalogue::find(&wish.name))
        .filter(|key| {
            let class = classify(key, KUBERNETES_MINOR_MIN, false);
            matches!(class, Class::PodSafe | Class::PodInit)
        })
        .map(|key| key.name.to_owned())
        .collect()
}

/// Validity in one cell.
pub(super) fn validity_cell(validity: &Validity) -> String {
    match validity.reasons.as_slice() {
        [] => format!("{:?}", validity.state),
        reasons => {
            let reasons: Vec<String> = reasons.iter().map(|reason| format!("{reason:?}")).collect();
            format!("{:?} ({})", validity.state, reasons.join(", "))
        }
    }
}

/// Verdict in one cell.
pub(super) fn verdict_cell(verdict: &Verdict) -> String {
    let missed: Vec<String> = verdict
        .failed
        .iter()
        .map(|missed| format!("{} {}, asked {}", missed.name, missed.value, missed.limit))
        .collect();
    match missed.as_slice() {
        [] => format!("{:?}", verdict.state),
        missed => format!("{:?} ({})", verdict.state, missed.join("; ")),
    }
}
