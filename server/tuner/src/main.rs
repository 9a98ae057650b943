//! `tunedweb-tuner`: sets kernel keys of this node as a plan says, and puts them back.

use std::process::ExitCode;

fn main() -> ExitCode {
    tunedweb_tuner::cli::run(std::env::args_os())
}
