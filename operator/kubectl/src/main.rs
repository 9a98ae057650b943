//! `kubectl tunedweb`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    kubectl_tunedweb::run(&kubectl_tunedweb::Options::parse())
}
