//! `kubectl tunedweb status NAME`: conditions, nodes, benchmarks, and what deleting will put back.

mod observe;
mod restore;
mod show;
mod summary;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::connection::Connected;
pub use observe::Observed;
pub use restore::RestoreLine;
pub use summary::{BenchmarkLine, ConditionLine, KeyLine, NodeLine, Summary};

/// What is to be shown, and how.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Name of the TunedWebServer
    name: String,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

pub(crate) async fn run(connected: &Connected, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let observed = observe::observe(connected, &arguments.name).await?;
    let summary = Summary::of(&observed);
    let text = match arguments.output {
        Output::Table => summary.to_string(),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&summary)?),
    };
    write_out(&text).context("write the answer")?;
    Ok(if summary.ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Who reads the first lines only, such as `head`, has what was wanted.
fn write_out(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
