//! What a server wants of the nodes that it selects: for the controller that writes `NodeTuning`s.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tunedweb_api::TunedWebServer;
use tunedweb_tuning::SysctlSetting;

use super::observe::{has_node_access, selected_nodes};
use super::render::plan_generation;
use super::resolve::{access_wanted, kubernetes_minor, resolve_tuning};
use super::spec::{self, Checked};
use crate::context::Context;
use crate::nodes;

/// What a server wants of the nodes that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wishes {
    /// Whatever it wanted before: its spec has problems, or its pods still run.
    AsBefore,
    /// Nothing any more.
    Nothing,
    /// These keys.
    Keys {
        generation: i64,
        sysctls: Vec<SysctlSetting>,
        /// Whether the init container of a serving pod tunes the node first.
        pod_first: bool,
    },
}

/// What a server wants. `is_draining`: the operator is being uninstalled.
pub(crate) fn wishes(context: &Context, server: &TunedWebServer, is_draining: bool) -> Wishes {
    let uid = server.uid().unwrap_or_default();
    if is_draining || server.metadata.deletion_timestamp.is_some() {
        // a pod that still runs would tune again
        return if context.memory.has_ended(&uid) {
            Wishes::Nothing
        } else {
            Wishes::AsBefore
        };
    }
    let namespace = server.namespace().unwrap_or_default();
    let nodes = selected_nodes(context, server);
    let minors: Vec<u32> = nodes
        .iter()
        .filter_map(|node| nodes::kubelet_minor(node))
        .collect();
    let minor = kubernetes_minor(&minors);
    let Checked { tuning, problems } = spec::check(&server.spec);
    let wanted = access_wanted(server, tuning.as_ref(), minor);
    if !wanted.is_empty() && !has_node_access(context, &namespace) {
        return Wishes::Nothing;
    }
    let files = ObjectRef::new(&server.spec.content.config_map.name).within(&namespace);
    let has_content = context.cluster.config_maps.get(&files).is_some();
    let (Some(tuning), true, true) = (tuning, problems.is_empty(), has_content) else {
        return Wishes::AsBefore;
    };
    let tuning = resolve_tuning(&tuning, minor);
    // the journal remembers whoever tunes, so that also an owner of pod keys alone is released
    if tuning.node.is_empty() && tuning.init.is_empty() {
        return Wishes::Nothing;
    }
    let daemon_set = ObjectRef::<DaemonSet>::new(&server.name_any()).within(&namespace);
    let live = context.cluster.daemon_sets.get(&daemon_set);
    let generation = server.metadata.generation.unwrap_or_default();
    Wishes::Keys {
        generation: plan_generation(&tuning, generation, live.as_deref()),
        pod_first: !tuning.init.is_empty(),
        sysctls: tuning.node,
    }
}
