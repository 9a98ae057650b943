//! The plugin `kubectl tunedweb`: one module a subcommand.
//!
//! It reads with the rights of whoever calls it, and writes nothing. What these rights do not cover
//! is named in the answer and left out of it.
//!
//! Exit codes: 0 all is as it should be, 1 it is not or could not be told, 2 usage.

mod connection;
pub mod status;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use connection::Connection;

/// Shows what tunedweb did on the nodes, what it serves and what it measured.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-tunedweb",
    bin_name = "kubectl tunedweb",
    version,
    about
)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Conditions, nodes, benchmarks of one TunedWebServer, and what deleting it will put back
    Status(status::Arguments),
}

/// Carries a command out.
pub fn run(options: &Options) -> ExitCode {
    match carry_out(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connected = options.connection.connect().await?;
        match &options.command {
            Command::Status(arguments) => status::run(&connected, arguments).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }

    #[test]
    fn kubectls_flags_may_stand_before_and_after_the_subcommand() {
        for line in [
            "-n web status site",
            "status site -n web",
            "status --context x site -o json",
        ] {
            let words = ["kubectl-tunedweb"].into_iter().chain(line.split(' '));
            assert!(Options::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
