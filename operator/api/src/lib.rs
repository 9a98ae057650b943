//! The custom resources of `tunedweb.io/v1alpha1`, and the words that controllers, agent, plugin
//! and documentation share.
//!
//! | kind | scope | written by | is |
//! |---|---|---|---|
//! | [`TunedWebServer`] | namespaced | spec: user; status: operator | one site on a set of nodes |
//! | [`NodeTuning`] | cluster | spec: operator; status: that node's agent | who wants which key on a node |
//! | [`BenchmarkRun`] | namespaced | spec: user or operator, immutable; status: operator | one measurement |
//!
//! No Kubernetes client, no runtime: types and their schemas only.
#![expect(
    clippy::duplicated_attributes,
    reason = "printed columns repeat their type"
)]
#![expect(
    unreachable_pub,
    reason = "the schema derive repeats each type inside a function"
)]

pub mod benchmark_run;
pub mod condition;
pub mod names;
pub mod node_tuning;
pub mod tuned_web_server;

pub use benchmark_run::{BenchmarkRun, BenchmarkRunSpec, BenchmarkRunStatus};
pub use node_tuning::{NodeTuning, NodeTuningSpec, NodeTuningStatus};
pub use tuned_web_server::{TunedWebServer, TunedWebServerSpec, TunedWebServerStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// API group of every kind here.
pub const GROUP: &str = "tunedweb.io";

/// The definitions of all kinds, in the order in which they are installed.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    vec![
        TunedWebServer::crd(),
        NodeTuning::crd(),
        BenchmarkRun::crd(),
    ]
}
