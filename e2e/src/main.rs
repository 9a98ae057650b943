//! What `e2e/demo` and `e2e/test` leave to a program: looking, waiting and judging.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tunedweb_e2e::cluster::Cluster;
use tunedweb_e2e::demo::Demo;
use tunedweb_e2e::sample::Sample;
use tunedweb_e2e::summary::{self, Check};

/// What e2e/demo and e2e/test leave to a program: looking, waiting and judging.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Keep what the nodes are like, unless the site is there already.
    Remember(Site),
    /// Wait until every node is tuned and serves.
    WaitReady(Site),
    /// Wait until every benchmark that runs by itself has measured what is served now.
    WaitMeasured(Site),
    /// Show each key and limit before and after, the page, and what deleting puts back.
    Show(Site),
    /// Delete the site, wait until its nodes are put back, and show them.
    Undo(Site),
    /// Sum up the checks of a test run; the last line is `N passed, N failed, N skipped`.
    Summary {
        /// One a check: NAME=EXIT-STATUS=FILE, the file holding what the check printed.
        #[arg(required = true)]
        checks: Vec<String>,
    },
}

#[derive(Args)]
struct Site {
    /// Manifest with one TunedWebServer.
    #[arg(long)]
    sample: PathBuf,
    /// File that keeps what the nodes were like before.
    #[arg(long)]
    state: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<String> {
    let nothing = |()| String::new();
    Ok(match command {
        Command::Remember(site) => demo(site).await?.remember().await.map(nothing)?,
        Command::WaitReady(site) => demo(site).await?.wait_ready().await.map(nothing)?,
        Command::WaitMeasured(site) => demo(site).await?.wait_measured().await.map(nothing)?,
        Command::Show(site) => demo(site).await?.show().await?,
        Command::Undo(site) => demo(site).await?.undo().await?,
        Command::Summary { checks } => {
            let checks: Result<Vec<_>, _> = checks.iter().map(|text| check(text)).collect();
            summary::summary(&checks?)
        }
    })
}

async fn demo(site: Site) -> anyhow::Result<Demo> {
    let sample = Sample::read(&site.sample)?;
    Ok(Demo::new(Cluster::connect().await?, sample, site.state))
}

fn check(text: &str) -> anyhow::Result<Check> {
    let mut parts = text.splitn(3, '=');
    let (Some(name), Some(status), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
        anyhow::bail!("{text}: write it as NAME=EXIT-STATUS=FILE");
    };
    let output = std::fs::read(Path::new(file)).with_context(|| format!("read {file}"))?;
    Ok(Check {
        name: name.to_owned(),
        succeeded: status == "0",
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}
