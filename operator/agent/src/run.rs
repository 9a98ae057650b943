//! Start-up: admin port, client, tuner, loop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{Instrument as _, info, info_span};
use tracing_subscriber::EnvFilter;
use tunedweb_tuner::{ProcTree, Tuner};

use crate::admin::{self, Shown};
use crate::health::Health;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::options::Options;

/// Runs until it is told to stop.
pub fn run(options: Options) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    // One node, one thread: the tuner's calls, which block, have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime");
    match runtime.and_then(|runtime| runtime.block_on(keep(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn keep(options: Options) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let health = Arc::new(Health::new(options.drift_interval, Instant::now()));
    let shown = Shown {
        health: Arc::clone(&health),
        registry: Arc::new(registry),
    };
    let listener = admin::listen(options.admin).await?;
    let admin = listener.local_addr().context("tell the admin port")?;
    tokio::spawn(admin::serve(listener, shown).instrument(info_span!("admin")));

    let client = kube::Client::try_default()
        .await
        .context("find the API server")?;
    info!(node = options.node, %admin, "keeping this node");
    let tuner = Tuner::new(ProcTree::new(options.root), options.journal, &options.node);
    let span = info_span!("keep", node = options.node);
    let keeper = Keeper::new(
        options.node,
        client,
        tuner,
        options.drift_interval,
        metrics,
        health,
    );
    keeper.keep(told_to_stop()?).instrument(span).await;
    info!("told to stop; the node stays as it is");
    Ok(())
}

/// The kubelet sends TERM, a terminal INT; the first process of a container has no default for
/// either.
fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate()).context("handle TERM")?;
    let mut int = signal(SignalKind::interrupt()).context("handle INT")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
