//! HTTP server for static files: one worker a CPU, each with its own listener and connections.
//!
//! Programs call [`main`]; tests and tools start a [`Server`] in their own process.
//!
//! A request goes through consecutive stages: `listen` and `worker` bring its bytes, `http` reads
//! them, `files` finds the entry, `respond` writes the response, `worker` sends it.
//!
//! Not done here: ranges (a `Range` field is ignored, as RFC 9110 section 14.2 permits), content
//! codings, folder listings, TLS.

mod admin;
mod cli;
mod counters;
mod cpus;
mod files;
mod http;
mod lifecycle;
mod limits;
mod listen;
mod report;
mod respond;
mod run;
mod server;
mod sys;
mod worker;

pub use cli::{Cli, SettingsError};
pub use files::root::RootError;
pub use lifecycle::{Stage, Stop};
pub use listen::ListenError;
pub use run::main;
pub use server::{Ended, RunError, Server, StartError};
pub use worker::WorkerError;
