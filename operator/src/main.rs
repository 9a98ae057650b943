//! The operator of tunedweb.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tunedweb_operator::cli::{Cli, Command, DrainArgs, RunArgs};
use tunedweb_operator::{HttpPodReader, Options, Parts, drain, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tunedweb-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn start(cli: Cli) -> anyhow::Result<()> {
    let client = kube::Client::try_default()
        .await
        .context("find the API server")?;
    match cli.command {
        Some(Command::Drain(arguments)) => drain_nodes(client, &arguments).await,
        None => control(client, &cli.run).await,
    }
}

async fn drain_nodes(client: kube::Client, arguments: &DrainArgs) -> anyhow::Result<()> {
    match drain(client, &arguments.namespace, arguments.timeout).await {
        Err(error) if arguments.best_effort => {
            eprintln!(
                "not everything is put back: {:#}",
                anyhow::Error::from(error)
            );
            Ok(())
        }
        drained => drained.map_err(Into::into),
    }
}

async fn control(client: kube::Client, arguments: &RunArgs) -> anyhow::Result<()> {
    let admin = TcpListener::bind(arguments.admin)
        .await
        .with_context(|| format!("listen on {}", arguments.admin))?;
    let mut terminate = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("wait for SIGINT")?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let parts = Parts {
        client,
        options: Options::from(arguments),
        clock: Arc::new(jiff::Timestamp::now),
        reader: Arc::new(HttpPodReader),
        admin: Some(admin),
    };
    run(parts, shutdown).await.map_err(Into::into)
}
