//! The agent of one node.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    tunedweb_agent::run(tunedweb_agent::Options::parse())
}
