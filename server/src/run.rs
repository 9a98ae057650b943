//! The program: settings, start, signals, end.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tunedweb_config::Config;

use crate::cli::{self, Cli, Command, SettingsError};
use crate::lifecycle::Stop;
use crate::report;
use crate::server::{Ended, Server};

/// The input or the outcome is wrong.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

/// What the program `tunedweb-server` does.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .init();
    let Cli { command, serve } = Cli::parse();
    let config = match command {
        Some(Command::Check { config: path }) => {
            return match cli::check(&path) {
                Ok(_) => {
                    tell(&format!("{}: no problems", path.display()));
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&error),
            };
        }
        None => serve.config(),
    };
    match config {
        Ok(config) => serve_with(&config),
        Err(error @ SettingsError::Nothing) => {
            tell(&chain(&error));
            ExitCode::from(USAGE)
        }
        Err(error) => fail(&error),
    }
}

fn serve_with(config: &Config) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    runtime.block_on(async {
        // before the server is ready: a signal from then on is a request to end, not a kill
        let signals = Signals::new();
        let server = match Server::start(config) {
            Ok(server) => server,
            Err(error) => return fail(&error),
        };
        let mut signals = match signals {
            Ok(signals) => signals,
            Err(error) => return fail(&error),
        };
        greet(&server);
        let next = tokio::sync::Mutex::new(&mut signals);
        match server
            .run(|| async { next.lock().await.next().await })
            .await
        {
            Ok(Ended { cut: 0 }) => tell("ended: every response was complete"),
            Ok(Ended { cut }) => tell(&format!("ended: {cut} requests or responses were cut off")),
            Err(error) => return fail(&error),
        }
        ExitCode::SUCCESS
    })
}

/// The signals that ask for the end (signal(7)).
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Graceful,
            _ = self.interrupt.recv() => Stop::Quick,
        }
    }
}

fn greet(server: &Server) {
    for line in report::lines(server.tuning()) {
        tell(&line);
    }
    if let Some(address) = server.admin_address() {
        tell(&format!("admin endpoint on http://{address}/"));
    }
    let root = server.tuning().settings.root.display();
    tell(&format!(
        "serving {root} on http://{}/",
        server.listen_address()
    ));
}

fn fail(error: &dyn Error) -> ExitCode {
    tell(&chain(error));
    ExitCode::from(FAILURE)
}

/// An error with its causes: each level says only its own part.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let separator = if cause.to_string().contains('\n') {
            ":\n"
        } else {
            ": "
        };
        // writing to a string cannot fail
        let _ = write!(text, "{separator}{cause}");
        source = cause.source();
    }
    text
}

/// A line for people. With standard error closed there is nobody to tell.
fn tell(line: &str) {
    use io::Write as _;
    let _ = writeln!(io::stderr(), "tunedweb-server: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_an_error_is_told_once() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let error = SettingsError::ReadFile {
            path: "/x".into(),
            source,
        };
        assert_eq!(
            chain(&error),
            "cannot read the settings file \"/x\": entity not found"
        );
    }
}
