//! Controllers for the custom resources of `tunedweb.io`.
//!
//! Each kind has a file and a folder of its name with the five steps observe → resolve → render →
//! apply → report; the middle ones are pure. Around them: the stores that watches fill
//! ([`cluster`]), the queues that they feed ([`queues`]), the runner that visits objects
//! ([`runner`]), and [`run()`], which puts all of it together.

pub mod cli;
pub mod rbac;

mod admin;
mod benchmark_run;
mod cluster;
mod conditions;
mod content;
mod context;
mod drain;
mod errors;
mod events;
mod hash;
mod memory;
mod metrics;
mod node_tuning;
mod nodes;
mod objects;
mod pods;
mod queues;
mod reader;
mod run;
mod runner;
mod tuned_web_server;
mod undecodable;
mod watch;

#[cfg(test)]
mod testing;

pub use context::{Clock, Options};
pub use drain::{DrainError, drain};
pub use reader::{HttpPodReader, PodReader, ReadError};
pub use run::{Parts, RunError, run};
