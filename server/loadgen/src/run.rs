//! The program: from the command line to the result.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use tunedweb_measure::{PodSummary, ReportError};

use crate::cli::{Cli, Command, OutputArgs};
use crate::limits::{self, LimitError, PortRange};
use crate::measurement::Measurement;
use crate::output::{self, Report};
use crate::plan::{self, Plan};
use crate::resolve::{ResolveError, reachable_address};

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The load was made to its end and something was answered.
    Measured,
    /// It was stopped by a signal, or nothing was answered. What was counted was reported.
    NotMeasured,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Signals cannot be awaited.
    #[error("cannot await signals")]
    Signals(#[source] io::Error),
    /// `JOB_COMPLETION_INDEX` is not an index.
    #[error("JOB_COMPLETION_INDEX is {found:?}, which is no index; give --index")]
    Index {
        /// What it is.
        found: String,
    },
    /// The load does not fit in this process.
    #[error("this load cannot be made")]
    Limit(#[source] LimitError),
    /// The server was not reached.
    #[error("the load cannot start")]
    Resolve(#[source] ResolveError),
    /// The kernel refused what the load needs.
    #[error("the load failed")]
    Load(#[source] io::Error),
    /// The result does not fit in its format.
    #[error("the result cannot be written")]
    Summary(#[source] ReportError),
    /// The result could not be written.
    #[error("cannot write the result to {}", path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<Outcome, RunError> {
    let Command::Http(args) = cli.command;
    let stop = stop_on_signals().map_err(RunError::Signals)?;
    let index = args.output.index.map_or_else(job_completion_index, Ok)?;
    let ports = PortRange::read();
    limits::reserve(args.connections, plan::threads(&args), ports).map_err(RunError::Limit)?;
    let address =
        reachable_address(&args.url, args.connect_wait, &stop).map_err(RunError::Resolve)?;
    let plan = Plan::new(&args, address);
    let progress = args.output.progress || io::stderr().is_terminal();
    let mut former = 0;
    let measurement = Measurement::make(&plan, &stop, |now| {
        if progress {
            say(&format!("{}\n", output::progress(&now, former)));
        }
        former = now.requests;
    })
    .map_err(RunError::Load)?;
    let pod = PodSummary {
        ended_early: measurement.ended_early,
        ..PodSummary::new(
            args.output.run.clone(),
            index,
            measurement.started_at,
            measurement.summary(),
        )
    };
    let report = Report {
        plan: &plan,
        url: &args.url,
        measurement: &measurement,
        summary: &pod.summary,
        ports,
    };
    say(&report.table());
    write_result(&args.output, &measurement, &pod)?;
    Ok(if pod.ended_early || pod.summary.requests == 0 {
        Outcome::NotMeasured
    } else {
        Outcome::Measured
    })
}

/// Standard error is for people: the result is the same where nobody reads it.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The first signal ends the load, the second one the process.
fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The index that Kubernetes gives each pod of an Indexed Job; 0 elsewhere.
fn job_completion_index() -> Result<u32, RunError> {
    let Ok(found) = std::env::var("JOB_COMPLETION_INDEX") else {
        return Ok(0);
    };
    found.parse().map_err(|_| RunError::Index { found })
}

/// The summary goes last to where its reader takes it for the sign that all is written.
fn write_result(
    args: &OutputArgs,
    measurement: &Measurement,
    pod: &PodSummary,
) -> Result<(), RunError> {
    let message = pod.to_termination_message().map_err(RunError::Summary)?;
    let histogram = args.histogram_log.then_some(&measurement.counts.histogram);
    let json = args.json.then_some(message.as_str());
    output::write(io::stdout().lock(), json, pod, histogram).map_err(|source| RunError::Write {
        path: PathBuf::from("standard output"),
        source,
    })?;
    if let Some(path) = &args.termination_message {
        std::fs::write(path, &message).map_err(|source| RunError::Write {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}
