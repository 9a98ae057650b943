//! Every permission that the programs in a cluster use, each with its reason.
//!
//! The chart's rules are generated from this table and compared with it by a test; the API server of
//! the tests refuses what is not in it and names what was never used.

use std::fmt::Write as _;

/// One permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Who has it.
    pub holder: Holder,
    /// API group; empty: the core group.
    pub group: &'static str,
    /// Resource, or resource and subresource.
    pub resource: &'static str,
    /// What may be done with it.
    pub verbs: &'static [&'static str],
    /// What for.
    pub reason: &'static str,
}

/// Who has a permission, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The operator, in every namespace.
    Operator,
    /// The operator, in the namespace that it runs in.
    OperatorNamespace,
    /// The drain of an uninstallation, in every namespace.
    Drain,
    /// The drain, in the operator's namespace.
    DrainNamespace,
    /// The agent of each node, in the whole cluster; an admission policy narrows the writing to its
    /// own node.
    Agent,
}

/// Permissions of all programs that hold a token. Serving pods and load pods hold none.
pub const PERMISSIONS: &[Permission] = &[
    operator(
        "tunedweb.io",
        "tunedwebservers",
        &["get", "list", "watch", "patch"],
        "what users ask for; patched to set and to remove the finalizer",
    ),
    operator(
        "tunedweb.io",
        "tunedwebservers/status",
        &["patch"],
        "what was reached",
    ),
    operator(
        "tunedweb.io",
        "nodetunings",
        &["list", "watch", "create", "patch"],
        "the wishes for each node; what its agent answers",
    ),
    operator(
        "tunedweb.io",
        "benchmarkruns",
        &["get", "list", "watch", "create"],
        "runs; created for benchmarks that run on each change",
    ),
    operator(
        "tunedweb.io",
        "benchmarkruns/status",
        &["patch"],
        "what was measured",
    ),
    operator(
        "apps",
        "daemonsets",
        &["get", "list", "watch", "create", "patch", "delete"],
        "the serving pods; deleted first, before the nodes are put back",
    ),
    operator(
        "batch",
        "jobs",
        &["get", "list", "watch", "create", "patch", "delete"],
        "the load pods; deleted once their result is recorded",
    ),
    operator(
        "",
        "services",
        &["get", "list", "watch", "create", "patch"],
        "the Service in front of the serving pods",
    ),
    operator(
        "",
        "configmaps",
        &["get", "list", "watch", "create", "patch", "delete"],
        "content (read for its hash; metadata only is watched), settings, plans, histograms",
    ),
    operator(
        "",
        "pods",
        &["list", "watch", "create"],
        "serving, load and agent pods, selected by label; create is used as a dry run only, to learn \
         whether the namespace's Pod Security level admits a serving pod",
    ),
    operator("", "pods/log", &["get"], "histograms that load pods print"),
    operator(
        "",
        "nodes",
        &["list", "watch"],
        "which nodes a resource selects, and whether they report",
    ),
    operator(
        "",
        "namespaces",
        &["list", "watch"],
        "the label by which an administrator lets a namespace touch nodes; metadata only",
    ),
    operator(
        "",
        "events",
        &["list"],
        "why a DaemonSet could not create its pods",
    ),
    operator(
        "events.k8s.io",
        "events",
        &["create", "patch"],
        "what changed, where people look for it; patched when it repeats",
    ),
    Permission {
        holder: Holder::OperatorNamespace,
        group: "apps",
        resource: "deployments",
        verbs: &["get"],
        reason: "the operator's own uid, which a drain mark must carry to be obeyed",
    },
    Permission {
        holder: Holder::Drain,
        group: "tunedweb.io",
        resource: "tunedwebservers",
        verbs: &["list"],
        reason: "which resources still hold their nodes; metadata only",
    },
    Permission {
        holder: Holder::DrainNamespace,
        group: "apps",
        resource: "deployments",
        verbs: &["get"],
        reason: "the uid of the operator's Deployment, which the drain mark carries",
    },
    Permission {
        holder: Holder::DrainNamespace,
        group: "",
        resource: "configmaps",
        verbs: &["create", "patch"],
        reason: "the drain mark",
    },
    Permission {
        holder: Holder::Agent,
        group: "tunedweb.io",
        resource: "nodetunings",
        verbs: &["list", "watch"],
        reason: "the wishes for its node, selected by name",
    },
    Permission {
        holder: Holder::Agent,
        group: "tunedweb.io",
        resource: "nodetunings/status",
        verbs: &["patch"],
        reason: "what became of them",
    },
];

const fn operator(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Permission {
    Permission {
        holder: Holder::Operator,
        group,
        resource,
        verbs,
        reason,
    }
}

/// The rules of a holder as the chart includes them (YAML, a list of `PolicyRule`).
pub fn rules_yaml(holder: Holder) -> String {
    let mut text = String::from(GENERATED);
    for permission in PERMISSIONS.iter().filter(|p| p.holder == holder) {
        let Permission {
            holder: _,
            group,
            resource,
            verbs,
            reason,
        } = permission;
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "# {reason}\n- apiGroups: [{group:?}]\n  resources: [{resource}]\n  verbs: [{}]\n",
            verbs.join(", ")
        );
    }
    text
}

/// First line of every file that is generated from this table.
const GENERATED: &str = "# Generated from operator/src/rbac.rs. Do not edit.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_everything_of_anything() {
        for permission in PERMISSIONS {
            let words = [permission.group, permission.resource];
            assert!(words.iter().all(|word| !word.contains('*')));
            assert!(permission.verbs.iter().all(|verb| *verb != "*"));
            assert!(!permission.reason.is_empty());
        }
    }

    #[test]
    fn secrets_and_the_means_to_gain_permissions_are_never_touched() {
        let barred = [
            "secrets",
            "pods/exec",
            "serviceaccounts",
            "serviceaccounts/token",
        ];
        for permission in PERMISSIONS {
            assert!(!barred.contains(&permission.resource));
            assert_ne!(permission.group, "rbac.authorization.k8s.io");
            let escalating = ["escalate", "bind", "impersonate"];
            assert!(
                permission
                    .verbs
                    .iter()
                    .all(|verb| !escalating.contains(verb))
            );
        }
    }

    #[test]
    fn each_resource_stands_once_for_each_holder() {
        for (at, one) in PERMISSIONS.iter().enumerate() {
            let same = |other: &Permission| {
                (other.holder, other.group, other.resource) == (one.holder, one.group, one.resource)
            };
            assert!(!PERMISSIONS[at + 1..].iter().any(same), "{one:?}");
        }
    }
}
