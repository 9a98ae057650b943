//! Keeps the stores up to date and tells the queues what changed.
//!
//! Every watch is selected by label, or holds no more than is used: nothing here grows with pods of
//! others or with images on nodes.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher as _};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{Instrument as _, info_span, warn};
use tunedweb_api::names::{
    AGENT_COMPONENT, COMPONENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, RUN_LABEL, SERVER_LABEL,
};
use tunedweb_api::{BenchmarkRun, NodeTuning, TunedWebServer};

use crate::cluster::{Guarded, Writers};
use crate::context::Context;
use crate::drain::MARK_NAME;
use crate::nodes;
use crate::queues::Touch;

/// Every watch of the operator, each a future that never ends.
pub(crate) fn all(context: &Arc<Context>, writers: Writers) -> Vec<BoxFuture<'static, ()>> {
    let Writers {
        servers,
        node_tunings,
        runs,
        nodes,
        namespaces,
        config_maps,
        daemon_sets,
        services,
        jobs,
        pods,
        agents,
    } = writers;
    let everywhere = Watching {
        context,
        labels: None,
    };
    let ours = format!("{MANAGED_BY_LABEL}={MANAGED_BY}");
    let ours = Watching {
        context,
        labels: Some(ours),
    };
    let agent = format!("{COMPONENT_LABEL}={AGENT_COMPONENT}");
    let agent = Watching {
        context,
        labels: Some(agent),
    };
    let own_namespace = context.options.namespace.clone();
    let config_map_touches =
        move |map: &PartialObjectMeta<ConfigMap>, _| config_map_touches(map, &own_namespace);
    vec![
        everywhere.keep(servers, server_touches),
        everywhere.keep(node_tunings, node_tuning_touches),
        everywhere.keep(runs, run_touches),
        everywhere.keep(nodes, node_touches),
        everywhere.keep(namespaces, namespace_touches),
        everywhere.keep(config_maps, config_map_touches),
        ours.keep(daemon_sets, child_touches),
        ours.keep(services, child_touches),
        ours.keep(jobs, child_touches),
        ours.keep(pods, pod_touches),
        agent.keep_in(&context.options.agent_namespace, agents, agent_touches),
    ]
}

/// Which objects are watched.
struct Watching<'a> {
    context: &'a Arc<Context>,
    labels: Option<String>,
}

impl Watching<'_> {
    fn keep<K: Kept>(
        &self,
        writer: Writer<K>,
        touches: impl Fn(&K, bool) -> Vec<Touch> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let api = Api::all(self.context.client.clone());
        keep(self.context, api, self.config(), writer, touches)
    }

    fn keep_in(
        &self,
        namespace: &str,
        writer: Writer<Pod>,
        touches: impl Fn(&Pod, bool) -> Vec<Touch> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let api = Api::namespaced(self.context.client.clone(), namespace);
        keep(self.context, api, self.config(), writer, touches)
    }

    fn config(&self) -> watcher::Config {
        let config = watcher::Config::default();
        match &self.labels {
            Some(labels) => config.labels(labels),
            None => config,
        }
    }
}

/// An object that is kept, cut down to what is used.
pub(crate) trait Kept:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Drops what nobody reads.
    fn prune(&mut self) {
        self.meta_mut().managed_fields = None;
    }

    /// Changes with everything that concerns others than the object itself.
    fn fingerprint(&self) -> u64 {
        hash_of(&self.meta().resource_version)
    }
}

impl Kept for Guarded<TunedWebServer> {
    fn fingerprint(&self) -> u64 {
        let meta = self.meta();
        let deleting = meta.deletion_timestamp.is_some();
        hash_of(&(
            &meta.uid,
            meta.generation,
            deleting,
            &meta.finalizers,
            &meta.annotations,
        ))
    }
}

impl Kept for Guarded<NodeTuning> {}
impl Kept for Guarded<BenchmarkRun> {}
impl Kept for k8s_openapi::api::apps::v1::DaemonSet {}
impl Kept for k8s_openapi::api::batch::v1::Job {}
impl Kept for k8s_openapi::api::core::v1::Service {}

impl Kept for Node {
    fn prune(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        if let Some(status) = &mut self.status {
            // the longest parts of a Node by far
            status.images = None;
            status.volumes_attached = None;
            status.volumes_in_use = None;
        }
    }

    /// Leaves out the heartbeat: a node of a large cluster says every few minutes that nothing
    /// changed.
    fn fingerprint(&self) -> u64 {
        hash_of(&(
            &self.metadata.uid,
            &self.metadata.labels,
            format!(
                "{:?}",
                self.spec.as_ref().and_then(|spec| spec.taints.as_ref())
            ),
            nodes::is_ready(self),
            nodes::kubelet_minor(self),
            nodes::kernel(self),
        ))
    }
}

impl Kept for Pod {
    /// Of an agent, only where it runs and whether it is ready.
    fn fingerprint(&self) -> u64 {
        hash_of(&(
            &self.metadata.uid,
            crate::pods::node_name(self),
            crate::pods::is_ready(self),
        ))
    }
}

impl Kept for PartialObjectMeta<Namespace> {
    fn prune(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
    }

    fn fingerprint(&self) -> u64 {
        hash_of(&(&self.metadata.uid, &self.metadata.labels))
    }
}

impl Kept for PartialObjectMeta<ConfigMap> {
    fn prune(&mut self) {
        self.metadata.managed_fields = None;
        // of ours the stamp is read; others may carry their whole content in theirs
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.retain(|name, _| name == crate::objects::APPLIED_HASH_ANNOTATION);
        }
    }
}

fn server_touches(server: &Guarded<TunedWebServer>, changed: bool) -> Vec<Touch> {
    let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
    let mut touches = vec![
        Touch::Server {
            namespace: namespace.clone(),
            name: name.clone(),
        },
        Touch::RunsOf {
            namespace,
            server: name,
        },
    ];
    if changed {
        touches.push(Touch::AllNodes);
    }
    touches
}

fn node_tuning_touches(tuning: &Guarded<NodeTuning>, _: bool) -> Vec<Touch> {
    let mut touches = vec![Touch::Node {
        name: tuning.name_any(),
    }];
    let owners = tuning.0.iter().flat_map(|tuning| &tuning.spec.owners);
    touches.extend(owners.filter_map(|owner| {
        let (namespace, name) = owner.resource.split_once('/')?;
        Some(Touch::Server {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }));
    touches
}

fn run_touches(run: &Guarded<BenchmarkRun>, _: bool) -> Vec<Touch> {
    let namespace = run.namespace().unwrap_or_default();
    let mut touches = vec![Touch::Run {
        namespace: namespace.clone(),
        name: run.name_any(),
    }];
    if let Ok(run) = &run.0 {
        let server = run.spec.target.tuned_web_server.clone();
        touches.push(Touch::Server {
            namespace: namespace.clone(),
            name: server.clone(),
        });
        // the next in line
        touches.push(Touch::RunsOf { namespace, server });
    }
    touches
}

fn node_touches(node: &Node, changed: bool) -> Vec<Touch> {
    if changed {
        vec![
            Touch::Node {
                name: node.name_any(),
            },
            Touch::AllServers,
        ]
    } else {
        Vec::new()
    }
}

fn namespace_touches(namespace: &PartialObjectMeta<Namespace>, changed: bool) -> Vec<Touch> {
    if changed {
        vec![
            Touch::ServersIn {
                namespace: namespace.name_any(),
            },
            Touch::AllNodes,
        ]
    } else {
        Vec::new()
    }
}

fn config_map_touches(map: &PartialObjectMeta<ConfigMap>, mark_namespace: &str) -> Vec<Touch> {
    let (namespace, config_map) = (map.namespace().unwrap_or_default(), map.name_any());
    if namespace == mark_namespace && config_map == MARK_NAME {
        return vec![Touch::Everything];
    }
    let mut touches = labelled_touches(map);
    touches.push(Touch::ServersOfContent {
        namespace,
        config_map,
    });
    touches
}

fn child_touches<K: ResourceExt>(child: &K, _: bool) -> Vec<Touch> {
    labelled_touches(child)
}

/// What a pod's init container has carried out, the node's agent keeps.
fn pod_touches(pod: &Pod, _: bool) -> Vec<Touch> {
    let node = crate::pods::node_name(pod).map(|node| Touch::Node {
        name: node.to_owned(),
    });
    labelled_touches(pod).into_iter().chain(node).collect()
}

fn labelled_touches<K: ResourceExt>(child: &K) -> Vec<Touch> {
    let namespace = child.namespace().unwrap_or_default();
    let label = |name: &str| child.labels().get(name).cloned();
    let server = label(SERVER_LABEL).map(|name| Touch::Server {
        namespace: namespace.clone(),
        name,
    });
    let run = label(RUN_LABEL).map(|name| Touch::Run { namespace, name });
    server.into_iter().chain(run).collect()
}

fn agent_touches(agent: &Pod, changed: bool) -> Vec<Touch> {
    match crate::pods::node_name(agent) {
        Some(node) if changed => vec![
            Touch::Node {
                name: node.to_owned(),
            },
            Touch::AllServers,
        ],
        _ => Vec::new(),
    }
}

/// One watch, for ever.
fn keep<K: Kept>(
    context: &Arc<Context>,
    api: Api<K>,
    config: watcher::Config,
    mut writer: Writer<K>,
    touches: impl Fn(&K, bool) -> Vec<Touch> + Send + 'static,
) -> BoxFuture<'static, ()> {
    let context = Arc::clone(context);
    let kind = K::kind(&()).into_owned();
    let span = info_span!("watch", kind);
    let watch = async move {
        let mut seen = Seen::default();
        let mut events = pin!(watcher::watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event.modify(K::prune),
                Err(error) => {
                    context.metrics.watch_errors.inc();
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "watch interrupted"
                    );
                    continue;
                }
            };
            writer.apply_watcher_event(&event);
            for touch in seen.touches_of(&event, &touches) {
                context.queues.touch(&context.cluster, touch).await;
            }
        }
    };
    Box::pin(watch.instrument(span))
}

/// Fingerprints of the objects of one watch.
#[derive(Default)]
struct Seen {
    fingerprints: HashMap<String, u64>,
    listed: bool,
}

impl Seen {
    fn touches_of<K: Kept>(
        &mut self,
        event: &Event<K>,
        touches: impl Fn(&K, bool) -> Vec<Touch>,
    ) -> Vec<Touch> {
        match event {
            Event::Init => {
                self.fingerprints.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.remember(object);
                Vec::new()
            }
            // after a gap in a watch nobody knows what was missed
            Event::InitDone if std::mem::replace(&mut self.listed, true) => vec![Touch::Everything],
            Event::InitDone => Vec::new(),
            Event::Apply(object) => {
                let changed = self.remember(object);
                touches(object, changed)
            }
            Event::Delete(object) => {
                self.fingerprints.remove(&key(object));
                touches(object, true)
            }
        }
    }

    fn remember<K: Kept>(&mut self, object: &K) -> bool {
        let fingerprint = object.fingerprint();
        self.fingerprints.insert(key(object), fingerprint) != Some(fingerprint)
    }
}

fn key<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default())
}

fn hash_of(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: &serde_json::Value, heartbeat: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": labels, "resourceVersion": heartbeat},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn a_heartbeat_of_a_node_touches_nobody() {
        let mut seen = Seen::default();
        let times = ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"];
        let first = Event::Apply(node(&json!({}), times[0]));
        assert_eq!(seen.touches_of(&first, node_touches).len(), 2);
        let beat = Event::Apply(node(&json!({}), times[1]));
        assert_eq!(seen.touches_of(&beat, node_touches), []);
        let labelled = Event::Apply(node(&json!({"x": "y"}), times[1]));
        assert_eq!(seen.touches_of(&labelled, node_touches).len(), 2);
        let gone = Event::Delete(node(&json!({"x": "y"}), times[1]));
        assert_eq!(seen.touches_of(&gone, node_touches).len(), 2);
    }

    #[test]
    fn a_second_list_touches_everything() {
        let mut seen = Seen::default();
        assert_eq!(seen.touches_of::<Node>(&Event::InitDone, node_touches), []);
        let second = seen.touches_of::<Node>(&Event::InitDone, node_touches);
        assert_eq!(second, [Touch::Everything]);
    }

    #[test]
    fn a_child_touches_its_owner_and_a_content_those_who_serve_it() {
        let map: PartialObjectMeta<ConfigMap> = serde_json::from_value(json!({
            "metadata": {"name": "html", "namespace": "web", "labels": {SERVER_LABEL: "site"}},
        }))
        .unwrap();
        let namespace = || "web".to_owned();
        assert_eq!(
            config_map_touches(&map, "tunedweb-system"),
            [
                Touch::Server {
                    namespace: namespace(),
                    name: "site".to_owned()
                },
                Touch::ServersOfContent {
                    namespace: namespace(),
                    config_map: "html".to_owned()
                },
            ]
        );
    }
}
