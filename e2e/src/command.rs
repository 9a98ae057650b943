//! Other programs: `docker`, `kubectl`, `helm`.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time;

/// A program that does not end by then hangs. `helm` waits longest: 3 minutes for the operator.
const RUN_TIME_MAX: Duration = Duration::from_mins(4);

/// Why a program did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("start {program}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ran too long and was ended.
    #[error("{command} did not end within {} s", RUN_TIME_MAX.as_secs())]
    TimedOut {
        /// Name and arguments.
        command: String,
    },
    /// It ended with an error.
    #[error("{command} ended with {status}: {message}")]
    Failed {
        /// Name and arguments.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it printed on standard error.
        message: String,
    },
}

/// Runs a program to its end and returns what it printed on standard output.
pub async fn run(program: &str, arguments: &[&str]) -> Result<String, RunError> {
    let command = || format!("{program} {}", arguments.join(" "));
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = time::timeout(RUN_TIME_MAX, child)
        .await
        .map_err(|_| RunError::TimedOut { command: command() })?
        .map_err(|source| RunError::Start {
            program: program.to_owned(),
            source,
        })?;
    if !status.success() {
        let message = String::from_utf8_lossy(&stderr).trim().to_owned();
        return Err(RunError::Failed {
            command: command(),
            status,
            message,
        });
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_comes_as_it_was_printed() {
        assert_eq!(run("printf", &["a b\\nc\\n"]).await.unwrap(), "a b\nc\n");
    }

    #[tokio::test]
    async fn a_failure_carries_command_status_and_message() {
        let error = run("sh", &["-c", "echo no such key >&2; exit 3"])
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("sh -c"), "{text}");
        assert!(
            text.contains("exit status: 3") && text.ends_with("no such key"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = run("no-such-program", &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "start no-such-program");
    }
}
