//! The program `tunedweb-server`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tunedweb_server::main()
}
