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

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON,
};
use kube::CustomResourceExt as _;

/// API group of every kind here.
pub const GROUP: &str = "tunedweb.io";

/// The definitions of all kinds, in the order in which they are installed.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    vec![
        TunedWebServer::crd(),
        default_spec(NodeTuning::crd()),
        BenchmarkRun::crd(),
    ]
}

/// Server-side apply drops a map-list that its only manager applies empty, and the object around it
/// too; a node without owners would then lack its required spec (measured on 1.34).
fn default_spec(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = definition.spec.versions.iter_mut();
    let roots = schemas.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in roots.filter_map(|root| root.properties.as_mut()?.get_mut("spec")) {
        spec.default = Some(JSON(serde_json::json!({})));
    }
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tuning_without_owners_keeps_its_spec() {
        let definition = custom_resource_definitions().remove(1);
        assert_eq!(definition.spec.names.kind, "NodeTuning");
        let text = serde_json::to_value(&definition).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/default";
        assert_eq!(text.pointer(spec), Some(&serde_json::json!({})));
    }
}
