//! What each selected node has reached, and what that means for the whole. Pure.

use k8s_openapi::api::core::v1::Pod;
use tunedweb_api::condition::Reason;
use tunedweb_api::names::{TEMPLATE_HASH_ANNOTATION, TUNE_CONTAINER};
use tunedweb_api::node_tuning::{OwnerOutcome, OwnerStatus};
use tunedweb_config::TuningReport;
use tunedweb_tuning::{ApplyReport, KeyReport, KeyState, Outcome};

use super::observe::ObservedNode;
use crate::conditions::clipped;
use crate::pods;

/// Longest message of one node; the schema permits no more.
const NODE_MESSAGE_BYTES_MAX: usize = 512;

/// What a node has to show.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) owner_uid: &'a str,
    pub(crate) template_hash: &'a str,
    /// Hash of the plan of the init container, where there is one.
    pub(crate) plan_hash: Option<&'a str>,
    pub(crate) plan_generation: i64,
    /// Whether the agent has something to report.
    pub(crate) has_node_keys: bool,
    pub(crate) nofile: Option<u64>,
}

/// One node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    pub(crate) is_reachable: bool,
    pub(crate) is_tuned: bool,
    pub(crate) is_serving: bool,
    /// What failed.
    pub(crate) failure: Option<Failure>,
}

/// What failed on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: clipped(message.into(), NODE_MESSAGE_BYTES_MAX),
        }
    }
}

/// Judges one node by its pods and reports. `report` is the server's, of the pod given.
pub(crate) fn judge(
    node: &ObservedNode,
    expected: &Expected<'_>,
    pod: Option<&Pod>,
    report: Option<&TuningReport>,
) -> NodeState {
    let is_serving = pod.is_some_and(pods::is_ready);
    let results = [
        pod_tuning(expected, pod),
        node_tuning(node, expected),
        limit(expected, pod, report),
    ];
    let is_tuned = pod.is_some() && results.iter().all(|result| *result == Progress::Done);
    let failed = results.into_iter().find_map(|result| match result {
        Progress::Failed(failure) => Some(failure),
        Progress::Done | Progress::Pending => None,
    });
    let failure = failed.or_else(|| {
        if is_serving {
            None
        } else {
            pod.and_then(pod_failure)
        }
    });
    NodeState {
        name: node.name.clone(),
        is_reachable: node.is_ready,
        is_tuned: is_tuned && node.is_ready,
        is_serving: is_serving && node.is_ready,
        failure: failure.filter(|_| node.is_ready),
    }
}

/// The pod of the expected template on a node; a ready one before others.
pub(crate) fn current_pod<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    node: &str,
    template_hash: &str,
) -> Option<&'a Pod> {
    let current = pods.into_iter().filter(|pod| {
        pods::target_node(pod) == Some(node)
            && pods::annotation(pod, TEMPLATE_HASH_ANNOTATION) == Some(template_hash)
            && pod.metadata.deletion_timestamp.is_none()
    });
    current.max_by_key(|pod| pods::is_ready(pod))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Pending,
    Failed(Failure),
}

/// What the init container reported.
fn pod_tuning(expected: &Expected<'_>, pod: Option<&Pod>) -> Progress {
    let (Some(plan_hash), Some(pod)) = (expected.plan_hash, pod) else {
        return Progress::Done;
    };
    let Some(ended) = pods::ended(pod, TUNE_CONTAINER) else {
        return Progress::Pending;
    };
    match serde_json::from_str::<ApplyReport>(ended.message) {
        Ok(report) if report.outcome == Outcome::Applied && report.plan_hash == plan_hash => {
            Progress::Done
        }
        // of a pod that was made before and is being replaced
        Ok(report) if report.plan_hash != plan_hash => Progress::Pending,
        Ok(report) => Progress::Failed(keys_failed(&report.failures, report.failures_dropped)),
        Err(_) if ended.exit_code == 0 => Progress::Failed(Failure::new(
            Reason::TuningFailed,
            "the init container left no report; is its image the one of this release?",
        )),
        Err(_) => Progress::Failed(Failure::new(
            Reason::TuningFailed,
            format!(
                "init container: exit code {}: {}",
                ended.exit_code,
                ended.message.trim()
            ),
        )),
    }
}

fn keys_failed(failures: &[KeyReport], dropped: u32) -> Failure {
    let conflict = failures.iter().any(|key| key.state == KeyState::Conflict);
    let reason = if conflict {
        Reason::Conflict
    } else {
        Reason::TuningFailed
    };
    let mut parts: Vec<String> = failures
        .iter()
        .filter(|key| key.state != KeyState::Skipped)
        .map(|key| {
            format!(
                "{} = {:?}: {:?}: {}",
                key.name, key.wanted, key.state, key.reason
            )
        })
        .collect();
    parts.sort_unstable();
    if dropped > 0 {
        parts.push(format!("and {dropped} more"));
    }
    Failure::new(reason, parts.join("; "))
}

/// What the agent reported.
fn node_tuning(node: &ObservedNode, expected: &Expected<'_>) -> Progress {
    if !expected.has_node_keys {
        return Progress::Done;
    }
    let owners = node.tuning.as_ref().map(|tuning| tuning.owners.as_slice());
    let status = owners
        .unwrap_or_default()
        .iter()
        .find(|owner| owner.uid == expected.owner_uid)
        .filter(|owner| owner.generation >= expected.plan_generation);
    match status {
        Some(OwnerStatus {
            state: OwnerOutcome::Applied,
            ..
        }) => Progress::Done,
        Some(OwnerStatus {
            state: OwnerOutcome::Failed,
            message,
            ..
        }) => {
            let conflict = node
                .tuning
                .iter()
                .flat_map(|tuning| &tuning.keys)
                .any(|key| key.state == KeyState::Conflict && message.contains(&key.name));
            let reason = if conflict {
                Reason::Conflict
            } else {
                Reason::TuningFailed
            };
            Progress::Failed(Failure::new(reason, message))
        }
        _ if node.has_agent => Progress::Pending,
        _ => Progress::Failed(Failure::new(
            Reason::AgentNotReporting,
            "no agent pod is ready on this node, and keys were asked for that only it can set",
        )),
    }
}

/// Whether the server got the open files that were asked for.
fn limit(expected: &Expected<'_>, pod: Option<&Pod>, report: Option<&TuningReport>) -> Progress {
    let Some(asked) = expected.nofile else {
        return Progress::Done;
    };
    if let Some(report) = report {
        if report.nofile.soft >= asked {
            return Progress::Done;
        }
        let shortfall = report
            .shortfalls
            .iter()
            .find(|s| s.setting == "ulimits.nofile");
        let advice = shortfall.map_or("", |shortfall| &shortfall.advice);
        return Progress::Failed(Failure::new(
            Reason::LimitNotPermitted,
            format!(
                "ulimits nofile: asked for {asked}, the container runtime permits {}: {advice}",
                report.nofile.hard
            ),
        ));
    }
    // the init container knows before the server does
    let ended = pod.and_then(|pod| pods::ended(pod, TUNE_CONTAINER));
    let report = ended.and_then(|ended| serde_json::from_str::<ApplyReport>(ended.message).ok());
    match report.and_then(|report| report.limit_not_permitted) {
        Some(message) => Progress::Failed(Failure::new(Reason::LimitNotPermitted, message)),
        None => Progress::Pending,
    }
}

fn pod_failure(pod: &Pod) -> Option<Failure> {
    let trouble = pods::trouble(pod)?;
    let reason = if trouble.starts_with("SysctlForbidden") {
        Reason::TuningFailed
    } else {
        Reason::PodsNotReady
    };
    Some(Failure::new(reason, trouble))
}

#[cfg(test)]
mod tests;
