//! Objects for tests.

use kube::core::Selector;
use serde_json::{Value, json};
use tunedweb_api::TunedWebServer;

use crate::cli::NodeAccess;

/// `web/site`, with these fields of the spec instead of the defaults.
pub(crate) fn server(changes: &Value) -> TunedWebServer {
    let mut spec = json!({"content": {"configMap": {"name": "site-html"}}});
    for (name, value) in changes.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "tunedweb.io/v1alpha1",
        "kind": "TunedWebServer",
        "metadata": {"namespace": "web", "name": "site", "uid": "uid-site", "generation": 3},
        "spec": spec,
    }))
    .expect("a TunedWebServer")
}

/// The default of the command line.
pub(crate) fn access() -> NodeAccess {
    let selector: Selector = [("tunedweb.io/node-access", "allowed")]
        .into_iter()
        .collect();
    NodeAccess {
        shown: selector.to_string(),
        selector,
    }
}
