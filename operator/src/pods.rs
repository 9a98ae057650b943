//! What a pod's status says.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::ResourceExt as _;

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The node that a pod runs on, or that its DaemonSet made it for.
pub(crate) fn target_node(pod: &Pod) -> Option<&str> {
    node_name(pod).or_else(|| {
        let affinity = pod
            .spec
            .as_ref()?
            .affinity
            .as_ref()?
            .node_affinity
            .as_ref()?;
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        let fields = required
            .node_selector_terms
            .first()?
            .match_fields
            .as_ref()?;
        let name = fields.iter().find(|field| field.key == "metadata.name")?;
        name.values.as_ref()?.first().map(String::as_str)
    })
}

/// Ready, and not on its way out.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        })
}

/// The status of a container or init container.
pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .find(|container| container.name == name)
}

/// What a container left behind at its last end: exit code, reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended<'a> {
    pub(crate) exit_code: i32,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The last end of a container, of this run or the one before.
pub(crate) fn ended<'a>(pod: &'a Pod, name: &str) -> Option<Ended<'a>> {
    let status = container(pod, name)?;
    let of = |state: &'a Option<ContainerState>| state.as_ref()?.terminated.as_ref();
    let terminated = of(&status.state).or_else(|| of(&status.last_state))?;
    Some(Ended {
        exit_code: terminated.exit_code,
        reason: terminated.reason.as_deref().unwrap_or_default(),
        message: terminated.message.as_deref().unwrap_or_default(),
    })
}

/// Reasons for which a container waits and that a person has to deal with.
const WAITING_FOR_A_PERSON: [&str; 8] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Why a pod does not get on, where it does not: `reason: message`, stable from visit to visit.
pub(crate) fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.as_deref().unwrap_or_default();
        return Some(sentence(reason, message));
    }
    let init = status.init_container_statuses.iter().flatten();
    let waiting = init
        .chain(status.container_statuses.iter().flatten())
        .find_map(waiting_for_a_person);
    waiting.or_else(|| unschedulable(pod))
}

fn waiting_for_a_person(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    if !WAITING_FOR_A_PERSON.contains(&reason) {
        return None;
    }
    let last = container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let text = match last {
        // the kubelet's text counts the seconds of its back-off
        Some(last) => format!(
            "container {} ended with exit code {} ({})",
            container.name,
            last.exit_code,
            last.reason.as_deref().unwrap_or("no reason given")
        ),
        None => format!(
            "container {} uses image {}",
            container.name, container.image
        ),
    };
    Some(sentence(pull_reason(reason), &text))
}

/// The two words between which the kubelet goes back and forth are one here.
fn pull_reason(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "ImagePullBackOff",
        other => other,
    }
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some(sentence(
        scheduled.reason.as_deref().unwrap_or("Unschedulable"),
        scheduled.message.as_deref().unwrap_or_default(),
    ))
}

fn sentence(reason: &str, message: &str) -> String {
    if message.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason}: {message}")
    }
}

/// The address of a pod.
pub(crate) fn address(pod: &Pod) -> Option<std::net::IpAddr> {
    pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()
}

/// An annotation of a pod.
pub(crate) fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.annotations().get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn waiting(reason: &str, last: &serde_json::Value) -> Pod {
        pod(&json!({"containerStatuses": [{
            "name": "server", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": reason, "message": "back-off 40s restarting"}},
            "lastState": last,
        }]}))
    }

    #[test]
    fn a_crash_loop_is_told_without_its_clock() {
        let last = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let found = trouble(&waiting("CrashLoopBackOff", &last)).unwrap();
        assert_eq!(
            found,
            "CrashLoopBackOff: container server ended with exit code 1 (Error)"
        );
    }

    #[test]
    fn both_words_of_a_failing_pull_are_one() {
        let (one, two) = (
            waiting("ErrImagePull", &json!({})),
            waiting("ImagePullBackOff", &json!({})),
        );
        assert_eq!(trouble(&one), trouble(&two));
    }

    #[test]
    fn a_pod_that_starts_is_no_trouble() {
        assert_eq!(trouble(&waiting("PodInitializing", &json!({}))), None);
        assert_eq!(trouble(&pod(&json!({"phase": "Pending"}))), None);
    }

    #[test]
    fn an_evicted_and_an_unschedulable_pod_say_why() {
        let evicted =
            pod(&json!({"phase": "Failed", "reason": "Evicted", "message": "low memory"}));
        assert_eq!(trouble(&evicted).unwrap(), "Evicted: low memory");
        let waiting = pod(&json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"},
        ]}));
        assert_eq!(trouble(&waiting).unwrap(), "Unschedulable: 0/3");
    }

    #[test]
    fn a_pod_on_its_way_out_is_not_ready() {
        let mut ready = pod(&json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(is_ready(&ready));
        ready.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!is_ready(&ready));
    }
}
