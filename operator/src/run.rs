//! Puts the parts together and runs them.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::select_all;
use kube::Client;
use tokio::net::TcpListener;
use tracing::{Instrument as _, info, info_span};

use crate::admin::{self, Health};
use crate::cluster::{self, Cluster};
use crate::context::{Clock, Context, Options};
use crate::events::Events;
use crate::memory::Memory;
use crate::metrics::{Kind, Metrics};
use crate::queues::{self, Receivers};
use crate::reader::PodReader;
use crate::{benchmark_run, node_tuning, runner, tuned_web_server, watch};

/// What the operator works with.
pub struct Parts {
    /// The API server.
    pub client: Client,
    /// How it was told to work.
    pub options: Options,
    /// The time.
    pub clock: Clock,
    /// How serving pods are asked.
    pub reader: Arc<dyn PodReader>,
    /// Where `/healthz`, `/readyz` and `/metrics` are answered; none: nowhere.
    pub admin: Option<TcpListener>,
}

/// The operator came to an end that nobody asked for.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A part that never ends has ended.
    #[error("{0} ended")]
    Ended(&'static str),
}

/// Runs until `shutdown`. When one part ends, everything ends: a process that looks alive and does
/// nothing is worse than one that is started again.
pub async fn run(parts: Parts, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    let Parts {
        client,
        options,
        clock,
        reader,
        admin,
    } = parts;
    let metrics = Arc::new(Metrics::new());
    let health = Arc::new(Health::new(Arc::clone(&metrics)));
    let (cluster, writers) = cluster::stores();
    let (queues, receivers) = queues::queues(Arc::clone(&metrics));
    let context = Arc::new(Context {
        events: Events::new(client.clone(), Arc::clone(&metrics)),
        client,
        options,
        cluster,
        queues,
        metrics,
        clock,
        reader,
        memory: Memory::default(),
    });
    let watches = select_all(watch::all(&context, writers)).map(|_| "a watch");
    let controllers = controllers(Arc::clone(&context), receivers, Arc::clone(&health));
    let endpoint = async {
        match admin {
            Some(listener) => admin::serve(listener, health).await,
            None => std::future::pending().await,
        }
        "the admin endpoint"
    };
    let ended = tokio::select! {
        () = shutdown => return Ok(()),
        ended = watches => ended,
        ended = controllers => ended,
        ended = endpoint => ended,
    };
    Err(RunError::Ended(ended))
}

/// The three controllers, from the moment at which everything has been listed.
async fn controllers(
    context: Arc<Context>,
    receivers: Receivers,
    health: Arc<Health>,
) -> &'static str {
    let Cluster {
        servers,
        nodes,
        runs,
        ..
    } = context.cluster.clone();
    if context.cluster.wait_until_ready().await.is_err() {
        return "a watch";
    }
    info!("every watch has its first list");
    let server = runner::run(
        Arc::clone(&context),
        Kind::TunedWebServer,
        servers,
        receivers.servers,
        tuned_web_server::reconcile,
    );
    let node = runner::run(
        Arc::clone(&context),
        Kind::NodeTuning,
        nodes,
        receivers.nodes,
        node_tuning::reconcile,
    );
    let run = runner::run(
        Arc::clone(&context),
        Kind::BenchmarkRun,
        runs,
        receivers.runs,
        benchmark_run::reconcile,
    );
    let start = async {
        context.queues.start(&context.cluster).await;
        health.set_ready();
        std::future::pending::<()>().await;
    };
    // each on a task of its own, so that none waits for another
    let tasks = [
        tokio::spawn(server.instrument(info_span!("servers"))),
        tokio::spawn(node.instrument(info_span!("nodes"))),
        tokio::spawn(run.instrument(info_span!("runs"))),
    ];
    let tasks = tasks.map(AbortOnDrop);
    tokio::select! {
        () = start => "the start",
        _ = select_all(tasks) => "a controller",
    }
}

/// A task that ends with its handle.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Future for AbortOnDrop {
    type Output = Result<(), tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.0.poll_unpin(context)
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
