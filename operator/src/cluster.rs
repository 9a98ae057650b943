//! What is known of the cluster: one store for each kind that is watched.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Service};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store};
use tunedweb_api::{BenchmarkRun, NodeTuning, TunedWebServer};

/// An object of ours, or what is wrong with it.
pub(crate) type Guarded<K> = DeserializeGuard<K>;

/// The objects as last seen. Reading them costs nothing and may lag behind; where a decision must
/// not be made on old news, it is made on a list read for it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) servers: Store<Guarded<TunedWebServer>>,
    pub(crate) node_tunings: Store<Guarded<NodeTuning>>,
    pub(crate) runs: Store<Guarded<BenchmarkRun>>,
    pub(crate) nodes: Store<Node>,
    pub(crate) namespaces: Store<PartialObjectMeta<Namespace>>,
    /// Metadata of all: any of them may be a content.
    pub(crate) config_maps: Store<PartialObjectMeta<ConfigMap>>,
    pub(crate) daemon_sets: Store<DaemonSet>,
    pub(crate) services: Store<Service>,
    pub(crate) jobs: Store<Job>,
    /// Serving pods and load pods.
    pub(crate) pods: Store<Pod>,
    /// Pods of the agent.
    pub(crate) agents: Store<Pod>,
}

/// The other ends of the stores.
pub(crate) struct Writers {
    pub(crate) servers: Writer<Guarded<TunedWebServer>>,
    pub(crate) node_tunings: Writer<Guarded<NodeTuning>>,
    pub(crate) runs: Writer<Guarded<BenchmarkRun>>,
    pub(crate) nodes: Writer<Node>,
    pub(crate) namespaces: Writer<PartialObjectMeta<Namespace>>,
    pub(crate) config_maps: Writer<PartialObjectMeta<ConfigMap>>,
    pub(crate) daemon_sets: Writer<DaemonSet>,
    pub(crate) services: Writer<Service>,
    pub(crate) jobs: Writer<Job>,
    pub(crate) pods: Writer<Pod>,
    pub(crate) agents: Writer<Pod>,
}

/// Empty stores.
pub(crate) fn stores() -> (Cluster, Writers) {
    let (servers, servers_writer) = store();
    let (node_tunings, node_tunings_writer) = store();
    let (runs, runs_writer) = store();
    let (nodes, nodes_writer) = store();
    let (namespaces, namespaces_writer) = store();
    let (config_maps, config_maps_writer) = store();
    let (daemon_sets, daemon_sets_writer) = store();
    let (services, services_writer) = store();
    let (jobs, jobs_writer) = store();
    let (pods, pods_writer) = store();
    let (agents, agents_writer) = store();
    let cluster = Cluster {
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
    };
    let writers = Writers {
        servers: servers_writer,
        node_tunings: node_tunings_writer,
        runs: runs_writer,
        nodes: nodes_writer,
        namespaces: namespaces_writer,
        config_maps: config_maps_writer,
        daemon_sets: daemon_sets_writer,
        services: services_writer,
        jobs: jobs_writer,
        pods: pods_writer,
        agents: agents_writer,
    };
    (cluster, writers)
}

/// A watch ended before its first list.
#[derive(Debug, thiserror::Error)]
#[error("a watch ended before its first list")]
pub(crate) struct WatchEnded;

impl Cluster {
    /// Waits until every store holds its first list.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WatchEnded> {
        let ready = futures::try_join!(
            self.servers.wait_until_ready(),
            self.node_tunings.wait_until_ready(),
            self.runs.wait_until_ready(),
            self.nodes.wait_until_ready(),
            self.namespaces.wait_until_ready(),
            self.config_maps.wait_until_ready(),
            self.daemon_sets.wait_until_ready(),
            self.services.wait_until_ready(),
            self.jobs.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.agents.wait_until_ready(),
        );
        ready.map(|_| ()).map_err(|_| WatchEnded)
    }

    /// A `NodeTuning` that can be decoded.
    pub(crate) fn node_tuning(&self, node: &str) -> Option<NodeTuning> {
        let found = self.node_tunings.get(&ObjectRef::new(node))?;
        found.0.as_ref().ok().cloned()
    }

    /// Whether an agent runs, or is about to, on this node.
    pub(crate) fn has_agent(&self, node: &str) -> bool {
        self.agents
            .find(|pod| crate::pods::node_name(pod) == Some(node))
            .is_some()
    }

    /// Whether an agent pod on this node is ready.
    pub(crate) fn has_ready_agent(&self, node: &str) -> bool {
        self.agents
            .find(|pod| crate::pods::node_name(pod) == Some(node) && crate::pods::is_ready(pod))
            .is_some()
    }

    /// Labels of a namespace; none where it is not known.
    pub(crate) fn namespace_labels(
        &self,
        name: &str,
    ) -> std::collections::BTreeMap<String, String> {
        self.namespaces
            .get(&ObjectRef::new(name))
            .and_then(|namespace| namespace.metadata.labels.clone())
            .unwrap_or_default()
    }
}
