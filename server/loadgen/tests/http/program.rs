//! Runs the program and reads what it says.

use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tunedweb_measure::{LoadSummary, PodSummary};

/// A run that came to its end.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `tunedweb-loadgen http URL FLAGS --json`.
pub(crate) fn load(url: &str, flags: &str) -> Run {
    finish(start(url, flags))
}

pub(crate) fn start(url: &str, flags: &str) -> Child {
    command(url, flags).spawn().unwrap()
}

pub(crate) fn command(url: &str, flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tunedweb-loadgen"));
    command
        .args(["http", url, "--json"])
        .args(flags.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Waits for the end; every run of these tests ends within seconds.
pub(crate) fn finish(mut child: Child) -> Run {
    let deadline = Instant::now() + Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the program did not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Run::from(child.wait_with_output().unwrap())
}

/// Waits until something has happened.
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !happened() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Run {
    pub(crate) fn pod(&self) -> PodSummary {
        let line = self.stdout.lines().next();
        let line = line.unwrap_or_else(|| panic!("no result: {}", self.stderr));
        PodSummary::parse(line).unwrap()
    }

    pub(crate) fn summary(&self) -> LoadSummary {
        self.pod().summary
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
