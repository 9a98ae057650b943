//! Harness of the cluster tests, and what `e2e/demo` and `e2e/test` leave to a program.
//!
//! Values are read through privileged probes of a node and its processes, never through the
//! status that the operator and the agents report.
//!
//! - [`cluster::Cluster`] finds nodes, serving pods and the chart of the cluster that the
//!   environment names.
//! - [`probe`] looks into a node, a network namespace, a process.
//! - [`namespace::TestNamespace`] is a namespace of one test, gone after it.
//! - [`wait::eventually`] waits for a condition and says what was seen instead.
//! - [`skip`] counts what a machine cannot run.
//! - [`demo`] and [`summary`] are what the program does.

pub mod cluster;
pub mod command;
pub mod demo;
pub mod namespace;
pub mod probe;
pub mod reading;
pub mod release;
pub mod sample;
pub mod summary;
pub mod wait;

/// Names a test that this machine cannot run, and why. The test then returns; `e2e/test` takes
/// the line out of its output and counts it as skipped instead of passed.
#[expect(clippy::print_stdout, reason = "the test runner passes the line on")]
pub fn skip(test: &str, reason: &str) {
    println!("{}{test}: {reason}", summary::SKIP);
}
