//! `tunedweb-loadgen`: makes HTTP load and measures the answers.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tunedweb_loadgen::{Cli, Outcome, run};

fn main() -> ExitCode {
    match run(Cli::parse()).map_err(anyhow::Error::new) {
        Ok(Outcome::Measured) => ExitCode::SUCCESS,
        Ok(Outcome::NotMeasured) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
