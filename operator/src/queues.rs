//! Which objects are visited, and why: from what changed to whom it concerns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt as _};
use tokio::sync::mpsc;
use tunedweb_api::{BenchmarkRun, TunedWebServer};

use crate::cluster::{Cluster, Guarded};
use crate::metrics::{Kind, Metrics};

/// Requests that wait for a controller's scheduler, which keeps one for each object. A watch waits
/// when the queue is full; nothing is dropped.
const QUEUE_MAX: usize = 4096;

/// Who is concerned by a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// One `TunedWebServer`.
    Server { namespace: String, name: String },
    /// Every `TunedWebServer` of a namespace.
    ServersIn { namespace: String },
    /// Those that serve a `ConfigMap`.
    ServersOfContent {
        namespace: String,
        config_map: String,
    },
    /// Every `TunedWebServer`.
    AllServers,
    /// One node.
    Node { name: String },
    /// Every node.
    AllNodes,
    /// One `BenchmarkRun`.
    Run { namespace: String, name: String },
    /// The runs of a `TunedWebServer`.
    RunsOf { namespace: String, server: String },
    /// All of everything.
    Everything,
}

/// The queues of the three controllers.
#[derive(Debug)]
pub(crate) struct Queues {
    started: AtomicBool,
    metrics: Arc<Metrics>,
    servers: mpsc::Sender<ObjectRef<Guarded<TunedWebServer>>>,
    nodes: mpsc::Sender<ObjectRef<Node>>,
    runs: mpsc::Sender<ObjectRef<Guarded<BenchmarkRun>>>,
}

/// The ends that the controllers read.
pub(crate) struct Receivers {
    pub(crate) servers: mpsc::Receiver<ObjectRef<Guarded<TunedWebServer>>>,
    pub(crate) nodes: mpsc::Receiver<ObjectRef<Node>>,
    pub(crate) runs: mpsc::Receiver<ObjectRef<Guarded<BenchmarkRun>>>,
}

/// Queues that take nothing yet.
pub(crate) fn queues(metrics: Arc<Metrics>) -> (Queues, Receivers) {
    let (servers, servers_receiver) = mpsc::channel(QUEUE_MAX);
    let (nodes, nodes_receiver) = mpsc::channel(QUEUE_MAX);
    let (runs, runs_receiver) = mpsc::channel(QUEUE_MAX);
    let queues = Queues {
        started: AtomicBool::new(false),
        metrics,
        servers,
        nodes,
        runs,
    };
    let receivers = Receivers {
        servers: servers_receiver,
        nodes: nodes_receiver,
        runs: runs_receiver,
    };
    (queues, receivers)
}

impl Queues {
    /// From now on changes are passed on, beginning with all that is there.
    pub(crate) async fn start(&self, cluster: &Cluster) {
        self.started.store(true, Ordering::SeqCst);
        self.touch(cluster, Touch::Everything).await;
    }

    /// Puts those concerned into the queues.
    pub(crate) async fn touch(&self, cluster: &Cluster, touch: Touch) {
        if !self.started.load(Ordering::SeqCst) {
            return;
        }
        match touch {
            Touch::Server { namespace, name } => {
                self.server(ObjectRef::new(&name).within(&namespace)).await;
            }
            Touch::ServersIn { namespace } => {
                self.servers_where(cluster, |server| {
                    server.namespace().as_deref() == Some(&namespace)
                })
                .await;
            }
            Touch::ServersOfContent {
                namespace,
                config_map,
            } => {
                self.servers_where(cluster, |server| {
                    server.namespace().as_deref() == Some(&namespace)
                        && server
                            .0
                            .as_ref()
                            .is_ok_and(|server| server.spec.content.config_map.name == config_map)
                })
                .await;
            }
            Touch::AllServers => self.servers_where(cluster, |_| true).await,
            Touch::Node { name } => self.node(ObjectRef::new(&name)).await,
            Touch::AllNodes => self.all_nodes(cluster).await,
            Touch::Run { namespace, name } => {
                self.run(ObjectRef::new(&name).within(&namespace)).await;
            }
            Touch::RunsOf { namespace, server } => {
                self.runs_where(cluster, |run| {
                    run.metadata.namespace.as_deref() == Some(&namespace)
                        && run.spec.target.tuned_web_server == server
                })
                .await;
            }
            Touch::Everything => {
                self.servers_where(cluster, |_| true).await;
                self.all_nodes(cluster).await;
                for run in cluster.runs.state() {
                    self.run(reference(&*run)).await;
                }
            }
        }
    }

    async fn servers_where(
        &self,
        cluster: &Cluster,
        concerned: impl Fn(&Guarded<TunedWebServer>) -> bool,
    ) {
        for server in cluster.servers.state_filter(|server| concerned(server)) {
            self.server(reference(&*server)).await;
        }
    }

    async fn runs_where(&self, cluster: &Cluster, concerned: impl Fn(&BenchmarkRun) -> bool) {
        let concerned = |run: &Guarded<BenchmarkRun>| run.0.as_ref().is_ok_and(&concerned);
        for run in cluster.runs.state_filter(concerned) {
            self.run(reference(&*run)).await;
        }
    }

    async fn all_nodes(&self, cluster: &Cluster) {
        for node in cluster.nodes.state() {
            self.node(reference(&*node)).await;
        }
    }

    async fn server(&self, server: ObjectRef<Guarded<TunedWebServer>>) {
        self.metrics.enqueued(Kind::TunedWebServer);
        send(&self.servers, server).await;
    }

    async fn node(&self, node: ObjectRef<Node>) {
        self.metrics.enqueued(Kind::NodeTuning);
        send(&self.nodes, node).await;
    }

    async fn run(&self, run: ObjectRef<Guarded<BenchmarkRun>>) {
        self.metrics.enqueued(Kind::BenchmarkRun);
        send(&self.runs, run).await;
    }
}

fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectRef<K> {
    ObjectRef::from_obj(object)
}

/// A closed queue means that its controller has ended, and the process with it.
async fn send<T>(queue: &mpsc::Sender<T>, value: T) {
    let _ = queue.send(value).await;
}
