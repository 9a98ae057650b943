//! What a Node says: selected, tolerated, ready.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use tunedweb_api::tuned_web_server::{Placement, TaintEffect, Toleration, TolerationOperator};

/// Whether a DaemonSet of this placement puts a pod on this node.
pub(crate) fn is_selected(node: &Node, placement: &Placement) -> bool {
    has_labels(node.labels(), &node_selector(placement))
        && taints(node)
            .iter()
            .all(|taint| is_tolerated(taint, &placement.tolerations))
}

/// The labels that a node must have: those of the placement, on Linux.
pub(crate) fn node_selector(placement: &Placement) -> BTreeMap<String, String> {
    let mut selector = placement.node_selector.clone();
    selector.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    selector
}

fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

fn taints(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

/// Taints that every pod of a DaemonSet tolerates, whatever it says itself (Kubernetes: "Taints and
/// tolerations" of DaemonSets).
const TOLERATED_BY_DAEMON_SETS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == "PreferNoSchedule"
        || TOLERATED_BY_DAEMON_SETS.contains(&(taint.key.as_str(), taint.effect.as_str()))
        || tolerations
            .iter()
            .any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = match toleration.effect {
        None => true,
        Some(effect) => effect_word(effect) == taint.effect,
    };
    let key = match toleration.operator {
        TolerationOperator::Exists => toleration.key.is_empty() || toleration.key == taint.key,
        TolerationOperator::Equal => {
            toleration.key == taint.key
                && toleration.value == taint.value.as_deref().unwrap_or_default()
        }
    };
    effect && key
}

/// The word of Kubernetes.
pub(crate) const fn effect_word(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// Whether the node's kubelet reports that it works.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    })
}

/// Minor version of the node's kubelet: 33 of `v1.33.4-eks-1`.
pub(crate) fn kubelet_minor(node: &Node) -> Option<u32> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    let mut parts = info.kubelet_version.strip_prefix('v')?.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    if major != "1" {
        return None;
    }
    minor.parse().ok()
}

/// Kernel release of the node.
pub(crate) fn kernel(node: &Node) -> &str {
    let info = node
        .status
        .as_ref()
        .and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| &info.kernel_version)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"kind": "web", "kubernetes.io/os": "linux"}},
            "spec": {"taints": taints},
        }))
        .unwrap()
    }

    fn placement(value: &serde_json::Value) -> Placement {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn a_node_needs_every_label() {
        let node = node(&json!([]));
        for (selector, selected) in [
            (json!({}), true),
            (json!({"kind": "web"}), true),
            (json!({"kind": "db"}), false),
            (json!({"kind": "web", "zone": "1"}), false),
        ] {
            let placement = placement(&json!({"nodeSelector": selector}));
            assert_eq!(is_selected(&node, &placement), selected, "{selector}");
        }
    }

    #[test]
    fn taints_are_judged_as_the_daemon_set_controller_does() {
        let tolerations = json!([
            {"key": "a", "operator": "Exists"},
            {"key": "b", "value": "1", "effect": "NoSchedule"},
        ]);
        for (taint, selected) in [
            (
                json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
                true,
            ),
            (
                json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}),
                true,
            ),
            (
                json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
                false,
            ),
            (json!({"key": "x", "effect": "PreferNoSchedule"}), true),
            (json!({"key": "x", "effect": "NoSchedule"}), false),
            (
                json!({"key": "a", "value": "z", "effect": "NoExecute"}),
                true,
            ),
            (
                json!({"key": "b", "value": "1", "effect": "NoSchedule"}),
                true,
            ),
            (
                json!({"key": "b", "value": "2", "effect": "NoSchedule"}),
                false,
            ),
            (
                json!({"key": "b", "value": "1", "effect": "NoExecute"}),
                false,
            ),
        ] {
            let placement = placement(&json!({"tolerations": tolerations}));
            assert_eq!(
                is_selected(&node(&json!([taint])), &placement),
                selected,
                "{taint}"
            );
        }
    }

    #[test]
    fn an_empty_key_with_exists_tolerates_everything() {
        let placement = placement(&json!({"tolerations": [{"operator": "Exists"}]}));
        let tainted = node(&json!([{"key": "x", "value": "y", "effect": "NoExecute"}]));
        assert!(is_selected(&tainted, &placement));
    }

    #[test]
    fn the_minor_version_is_found_whatever_the_vendor_appends() {
        for (version, minor) in [
            ("v1.33.4", Some(33)),
            ("v1.34.1-eks-ab", Some(34)),
            ("v2.0.0", None),
            ("", None),
        ] {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "a"},
                "status": {"nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "6.1", "kubeProxyVersion": "", "kubeletVersion": version,
                    "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
                }},
            }))
            .unwrap();
            assert_eq!(kubelet_minor(&node), minor, "{version}");
        }
    }
}
