//! What every controller is given.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use crate::cli::{NodeAccess, RunArgs};
use crate::cluster::Cluster;
use crate::events::Events;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::queues::{Queues, Touch};
use crate::reader::PodReader;

/// How the operator was told to work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Image of serving pods whose resource names none.
    pub server_image: String,
    /// Image of the init container that tunes.
    pub tuner_image: String,
    /// Image of load pods.
    pub loadgen_image: String,
    /// Namespace that the operator runs in.
    pub namespace: String,
    /// Namespace of the agents.
    pub agent_namespace: String,
    /// Namespaces that may touch nodes.
    pub node_access: NodeAccess,
    /// How long a deleted resource waits for its nodes.
    pub restore_timeout: Duration,
    /// How often everything is looked at without a reason.
    pub drift_interval: Duration,
}

impl From<&RunArgs> for Options {
    fn from(arguments: &RunArgs) -> Self {
        let RunArgs {
            server_image,
            tuner_image,
            loadgen_image,
            namespace,
            agent_namespace,
            node_access_selector,
            admin: _,
            restore_timeout,
            drift_interval,
        } = arguments;
        Self {
            server_image: server_image.clone(),
            tuner_image: tuner_image.clone(),
            loadgen_image: loadgen_image.clone(),
            namespace: namespace.clone(),
            agent_namespace: agent_namespace.clone(),
            node_access: node_access_selector.clone(),
            restore_timeout: *restore_timeout,
            drift_interval: *drift_interval,
        }
    }
}

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What every controller is given.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) cluster: Cluster,
    pub(crate) queues: Queues,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) reader: Arc<dyn PodReader>,
    pub(crate) memory: Memory,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) async fn touch(&self, touch: Touch) {
        self.queues.touch(&self.cluster, touch).await;
    }

    /// Counts a request that changed something.
    pub(crate) fn wrote(&self, sent: bool) {
        if sent {
            self.metrics.writes.inc();
        }
    }
}
