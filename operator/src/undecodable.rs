//! A resource that this operator cannot read is told so on itself, and stops nothing.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::Action;
use serde_json::json;
use tracing::warn;
use tunedweb_api::condition::{ConditionType, Reason};

use crate::conditions::{Draft, Status, settle};
use crate::context::Context;
use crate::events::transitions;
use crate::metrics::Kind;
use crate::objects::{self, Manager, WriteError};

/// A change of the object brings the next visit; this is for an API server that would not take the
/// status.
const AGAIN: Duration = Duration::from_mins(10);

/// Writes these conditions with the reason `Undecodable`, and an event.
pub(crate) async fn report<K>(
    context: &Context,
    kind: Kind,
    manager: Manager,
    invalid: &InvalidObject,
    conditions: &[(ConditionType, Status)],
) -> Result<Action, WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    context.metrics.undecodable(kind);
    let meta = &invalid.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let live = api.get_opt(name).await;
    let Some(live) = live.map_err(|source| objects::request::<K>("read", name, source))? else {
        return Ok(Action::await_change());
    };
    let found = live.data["status"]["conditions"].clone();
    let old: Vec<Condition> = serde_json::from_value(found).unwrap_or_default();
    let message = format!("does not fit this operator's schema: {}", invalid.error);
    let draft = |(kind, status): &(ConditionType, Status)| {
        Draft::new(*kind, *status, Reason::Undecodable, message.clone())
    };
    let drafts = conditions.iter().map(draft).collect();
    let new = settle(&old, drafts, meta.generation, context.now());
    if old != new {
        let patch = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name},
            "status": {"conditions": &new},
        });
        let parameters = PatchParams::apply(manager.as_str()).force();
        match api
            .patch_status(name, &parameters, &Patch::Apply(&patch))
            .await
        {
            Ok(_) => context.wrote(true),
            Err(error) => warn!(
                error = &error as &dyn std::error::Error,
                "report undecodable"
            ),
        }
        let told: Vec<ConditionType> = conditions.iter().take(1).map(|(kind, _)| *kind).collect();
        context
            .events
            .publish(&reference::<K>(invalid), transitions(&told, &old, &new))
            .await;
    }
    Ok(Action::requeue(AGAIN))
}

fn reference<K: Resource<DynamicType = ()>>(invalid: &InvalidObject) -> ObjectReference {
    let meta = &invalid.metadata;
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}
