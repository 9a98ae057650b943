//! Reads everything that a server refers to, and everything that was made for it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service};
use kube::api::Api;
use kube::core::{PartialObjectMeta, SelectorExt as _};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt as _};
use tunedweb_api::names::SERVER_LABEL;
use tunedweb_api::node_tuning::NodeTuningStatus;
use tunedweb_api::{BenchmarkRun, TunedWebServer};

use super::Error;
use super::resolve::References;
use crate::content::Content;
use crate::context::Context;
use crate::nodes;
use crate::objects;

/// What was found.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) has_node_access: bool,
    pub(crate) content: Option<Content>,
    /// The selected nodes, by name.
    pub(crate) nodes: Vec<ObservedNode>,
    pub(crate) kubelet_minors: Vec<u32>,
    pub(crate) daemon_set: Option<Arc<DaemonSet>>,
    pub(crate) service: Option<Arc<Service>>,
    pub(crate) config_maps: Vec<Arc<PartialObjectMeta<ConfigMap>>>,
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) runs: Vec<BenchmarkRun>,
}

/// One selected node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedNode {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    pub(crate) has_agent: bool,
    /// What its agent reports.
    pub(crate) tuning: Option<NodeTuningStatus>,
}

impl Observed {
    pub(crate) fn references(&self) -> References<'_> {
        References {
            has_node_access: self.has_node_access,
            content: self.content.as_ref(),
            kubelet_minors: &self.kubelet_minors,
            nodes: self.nodes.len(),
        }
    }
}

pub(crate) async fn observe(context: &Context, server: &TunedWebServer) -> Result<Observed, Error> {
    let namespace = server.namespace().unwrap_or_default();
    let name = server.name_any();
    let cluster = &context.cluster;
    let selected = selected_nodes(context, server);
    let mut pods = cluster
        .pods
        .state_filter(|pod| belongs(pod, &namespace, &name));
    pods.sort_by_key(|pod| pod.name_any());
    Ok(Observed {
        has_node_access: has_node_access(context, &namespace),
        content: content(context, &namespace, &server.spec.content.config_map.name).await?,
        kubelet_minors: selected
            .iter()
            .filter_map(|node| nodes::kubelet_minor(node))
            .collect(),
        nodes: selected
            .iter()
            .map(|node| observed_node(context, node))
            .collect(),
        daemon_set: cluster
            .daemon_sets
            .get(&ObjectRef::new(&name).within(&namespace)),
        service: cluster
            .services
            .get(&ObjectRef::new(&name).within(&namespace)),
        config_maps: cluster
            .config_maps
            .state_filter(|map| belongs(map, &namespace, &name)),
        pods,
        runs: runs(context, &namespace, &name),
    })
}

/// Whether resources of a namespace may touch nodes.
pub(crate) fn has_node_access(context: &Context, namespace: &str) -> bool {
    let labels = context.cluster.namespace_labels(namespace);
    context.options.node_access.selector.matches(&labels)
}

/// The nodes that a DaemonSet of this placement puts pods on, by name.
pub(crate) fn selected_nodes(context: &Context, server: &TunedWebServer) -> Vec<Arc<Node>> {
    let placement = &server.spec.placement;
    let mut nodes = context
        .cluster
        .nodes
        .state_filter(|node| nodes::is_selected(node, placement));
    nodes.sort_by_key(|node| node.name_any());
    nodes
}

fn observed_node(context: &Context, node: &Node) -> ObservedNode {
    let name = node.name_any();
    ObservedNode {
        is_ready: nodes::is_ready(node),
        has_agent: context.cluster.has_ready_agent(&name),
        tuning: context
            .cluster
            .node_tuning(&name)
            .and_then(|tuning| tuning.status),
        name,
    }
}

fn belongs<K: Resource<DynamicType = ()>>(object: &K, namespace: &str, server: &str) -> bool {
    let meta = object.meta();
    let label = meta
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SERVER_LABEL));
    meta.namespace.as_deref() == Some(namespace) && label.map(String::as_str) == Some(server)
}

fn runs(context: &Context, namespace: &str, server: &str) -> Vec<BenchmarkRun> {
    let all = context.cluster.runs.state();
    all.iter()
        .filter_map(|run| run.0.as_ref().ok())
        .filter(|run| run.namespace().as_deref() == Some(namespace))
        .filter(|run| run.spec.target.tuned_web_server == server)
        .cloned()
        .collect()
}

/// The content, read again only when it changed.
async fn content(context: &Context, namespace: &str, name: &str) -> Result<Option<Content>, Error> {
    let seen = context
        .cluster
        .config_maps
        .get(&ObjectRef::new(name).within(namespace));
    let Some(version) = seen.and_then(|seen| seen.metadata.resource_version.clone()) else {
        return Ok(None);
    };
    if let Some(known) = context.memory.content(namespace, name, &version) {
        return Ok(Some(known));
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let map = maps
        .get_opt(name)
        .await
        .map_err(|source| Error::Observe(objects::request::<ConfigMap>("read", name, source)))?;
    let read = map.as_ref().map(Content::of);
    if let Some(read) = &read {
        context
            .memory
            .remember_content(namespace, name, read.clone());
    }
    Ok(read)
}
