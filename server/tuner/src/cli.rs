//! The command line: the tuner without a cluster.

mod table;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use tunedweb_tuning::{
    ApplyReport, CheckedPlan, KeyReport, KeyState, Outcome, PLAN_BYTES_MAX, ParsePlanError, Plan,
    TERMINATION_MESSAGE_BYTES_MAX,
};

use crate::tree::ProcTree;
use crate::tuner::{Preview, PreviewStep, TuneError, Tuner};

/// Sets kernel keys of this node as a plan says, remembers what was there before, and puts it back.
///
/// Exit codes: 0 done, 1 the plan or the outcome is wrong, 2 wrong usage. Tables and messages go to
/// standard error, the data of --json to standard output.
#[derive(Debug, Parser)]
#[command(name = "tunedweb-tuner", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what apply would do; write nothing
    Plan(Common),
    /// Carry the plan out, whole or not at all
    Apply {
        #[command(flatten)]
        common: Common,
        /// File that gets the report as one line of JSON, at most 2 KiB, such as
        /// /dev/termination-log
        #[arg(long, value_name = "FILE", env = "TUNEDWEB_TUNER_TERMINATION_MESSAGE")]
        termination_message: Option<PathBuf>,
    },
    /// Compare the node with the plan; exit 1 when a value differs; write nothing
    Verify(Common),
    /// Withdraw the wishes of the plan's owner and put back what nobody else wants
    Restore(Common),
}

#[derive(Debug, Args)]
struct Common {
    /// Plan file (JSON)
    #[arg(long, value_name = "FILE", env = "TUNEDWEB_TUNER_PLAN")]
    plan: PathBuf,
    /// Folder whose proc/sys holds the keys
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        env = "TUNEDWEB_TUNER_ROOT"
    )]
    root: PathBuf,
    /// Folder of the journal and its lock, the same for all callers on a node
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/tunedweb",
        env = "TUNEDWEB_TUNER_JOURNAL"
    )]
    journal: PathBuf,
    /// Name of the node; the host name where it is not given
    #[arg(long, value_name = "NAME", env = "TUNEDWEB_TUNER_NODE")]
    node: Option<String>,
    /// Print the outcome as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error("read {}", path.display())]
    ReadPlan { path: PathBuf, source: io::Error },
    #[error("use the plan {}", path.display())]
    UsePlan {
        path: PathBuf,
        source: ParsePlanError,
    },
    #[error("tune this node")]
    Tune(#[source] TuneError),
    #[error("write {}", path.display())]
    WriteMessage { path: PathBuf, source: io::Error },
    #[error("print the outcome")]
    Print(#[source] io::Error),
}

/// Runs the program with its arguments, the program's name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to be done where even the message cannot be printed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let message_file = cli.command.termination_message().map(Path::to_owned);
    match execute(&cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let text = chain(&error);
            let _ = writeln!(io::stderr(), "{text}");
            if let Some(path) = message_file {
                let _ = write_message(&path, &text);
            }
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn termination_message(&self) -> Option<&Path> {
        match self {
            Self::Apply {
                termination_message,
                ..
            } => termination_message.as_deref(),
            Self::Plan(_) | Self::Verify(_) | Self::Restore(_) => None,
        }
    }
}

/// An error with what led to it.
fn chain(error: &CliError) -> String {
    let mut levels = vec![format!("tunedweb-tuner: {error}")];
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        levels.push(error.to_string());
        source = error.source();
    }
    levels.join(": ")
}

/// True where the outcome is right.
fn execute(command: &Command) -> Result<bool, CliError> {
    match command {
        Command::Plan(common) => preview(common, |step| step != PreviewStep::Refuse),
        Command::Apply {
            common,
            termination_message,
        } => apply(common, termination_message.as_deref()),
        Command::Verify(common) => preview(common, |step| step == PreviewStep::Keep),
        Command::Restore(common) => restore(common),
    }
}

/// Shows what would be done; true where every step is right.
fn preview(common: &Common, is_right: impl Fn(PreviewStep) -> bool) -> Result<bool, CliError> {
    let previews = common
        .tuner()
        .preview(&common.read_plan()?)
        .map_err(CliError::Tune)?;
    // Standard error is for people: the outcome is the same where nobody reads it.
    let _ = table::previews(&mut io::stderr(), &previews);
    let rows: Vec<PreviewOutput<'_>> = previews.iter().map(PreviewOutput::of).collect();
    common.print_json(&rows)?;
    Ok(previews.iter().all(|preview| is_right(preview.step)))
}

fn apply(common: &Common, termination_message: Option<&Path>) -> Result<bool, CliError> {
    let applied = common
        .tuner()
        .apply(&common.read_plan()?)
        .map_err(CliError::Tune)?;
    if let Some(path) = termination_message {
        let message = applied
            .report
            .to_termination_message()
            .map_err(io::Error::from);
        message
            .and_then(|message| write_message(path, &message))
            .map_err(|source| CliError::WriteMessage {
                path: path.to_owned(),
                source,
            })?;
    }
    // Standard error is for people: the outcome is the same where nobody reads it.
    let _ = table::keys(&mut io::stderr(), &applied.keys);
    if let Some(text) = &applied.report.limit_not_permitted {
        let _ = writeln!(io::stderr(), "{text}");
    }
    common.print_json(&ApplyOutput {
        report: &applied.report,
        keys: &applied.keys,
    })?;
    Ok(applied.report.outcome == Outcome::Applied)
}

fn restore(common: &Common) -> Result<bool, CliError> {
    let plan = common.read_plan()?;
    let keys = common
        .tuner()
        .release(&plan.owner, plan.context)
        .map_err(CliError::Tune)?;
    let _ = table::keys(&mut io::stderr(), &keys);
    common.print_json(&keys)?;
    let is_right = |state: KeyState| {
        matches!(
            state,
            KeyState::Applied
                | KeyState::Unchanged
                | KeyState::Restored
                | KeyState::Kept
                | KeyState::ChangedByOthers
        )
    };
    Ok(keys.iter().all(|key| is_right(key.state)))
}

impl Common {
    fn read_plan(&self) -> Result<CheckedPlan, CliError> {
        let path = || self.plan.clone();
        let mut bytes = Vec::new();
        File::open(&self.plan)
            .and_then(|file| file.take(PLAN_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
            .map_err(|source| CliError::ReadPlan {
                path: path(),
                source,
            })?;
        Plan::parse(&bytes).map_err(|source| CliError::UsePlan {
            path: path(),
            source,
        })
    }

    fn tuner(&self) -> Tuner<ProcTree> {
        let node = self.node.clone().unwrap_or_else(|| {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        });
        Tuner::new(ProcTree::new(&self.root), &self.journal, node)
    }

    fn print_json(&self, value: &impl Serialize) -> Result<(), CliError> {
        if self.json {
            let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
            text.and_then(|text| writeln!(io::stdout(), "{text}"))
                .map_err(CliError::Print)?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct ApplyOutput<'a> {
    report: &'a ApplyReport,
    keys: &'a [KeyReport],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreviewOutput<'a> {
    name: &'a str,
    class: char,
    current: &'a str,
    would_be: &'a str,
    step: &'static str,
    reason: &'a str,
}

impl<'a> PreviewOutput<'a> {
    fn of(preview: &'a Preview) -> Self {
        Self {
            name: &preview.name,
            class: preview.class.letter(),
            current: &preview.current,
            would_be: &preview.would_be,
            step: table::step_word(preview.step),
            reason: &preview.reason,
        }
    }
}

/// The kubelet reads the file when the container has ended; it exists before, and is not ours to
/// replace.
fn write_message(path: &Path, text: &str) -> io::Result<()> {
    let mut end = text.len().min(TERMINATION_MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    std::fs::write(path, &text[..end])
}
