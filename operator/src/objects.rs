//! Writing objects: server-side apply, and only where something would change.

use std::fmt::Debug;

use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use crate::hash;

/// Annotation: hash of the object as it was rendered. It differs when a field was dropped, which a
/// comparison of the fields that are there cannot show.
pub(crate) const APPLIED_HASH_ANNOTATION: &str = "tunedweb.io/applied-hash";

/// Which controller writes. A field that one of them no longer renders is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    Server,
    Node,
    Benchmark,
}

impl Manager {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "tunedweb-server-controller",
            Self::Node => "tunedweb-node-controller",
            Self::Benchmark => "tunedweb-benchmark-controller",
        }
    }
}

/// Why an object could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It cannot be put into JSON.
    #[error("encode {kind}")]
    Encode {
        kind: String,
        #[source]
        source: serde_json::Error,
    },
    /// The API server refused it, or was not reached.
    #[error("{verb} {kind} {name}")]
    Request {
        verb: &'static str,
        kind: String,
        name: String,
        #[source]
        source: RequestError,
    },
}

/// Why a request had no success. The library's own text says everything twice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The API server answered so.
    #[error("{message} (status {code})")]
    Refused { code: u16, message: String },
    /// There was no answer, or one that cannot be read.
    #[error("no answer from the API server that can be used")]
    Unanswered(#[source] Box<kube::Error>),
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused {
                code: status.code,
                message: status.message.clone(),
            },
            other => Self::Unanswered(Box::new(other)),
        }
    }
}

impl WriteError {
    /// Somebody else wrote in between.
    pub(crate) fn is_conflict(&self) -> bool {
        let Self::Request { source, .. } = self else {
            return false;
        };
        matches!(source, RequestError::Refused { code: 409, .. })
    }
}

/// An object as it is sent: with the hash of its contents among its annotations.
pub(crate) fn stamped<K>(object: &K) -> Result<Value, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let encode = |source| WriteError::Encode {
        kind: K::kind(&()).into_owned(),
        source,
    };
    let mut value = serde_json::to_value(object).map_err(encode)?;
    let hash = hash::of_parts([value.to_string().as_bytes()]);
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value["metadata"]["annotations"][APPLIED_HASH_ANNOTATION] = json!(hash::short(&hash));
    Ok(value)
}

/// Applies an object unless `live` has all of it already. True when it was sent.
pub(crate) async fn apply<K>(
    api: &Api<K>,
    manager: Manager,
    object: &K,
    live: Option<&K>,
) -> Result<bool, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let wanted = stamped(object)?;
    if live.is_some_and(|live| serde_json::to_value(live).is_ok_and(|live| covers(&live, &wanted)))
    {
        return Ok(false);
    }
    let name = object.name_any();
    api.patch(
        &name,
        &PatchParams::apply(manager.as_str()).force(),
        &Patch::Apply(&wanted),
    )
    .await
    .map_err(|source| request::<K>("apply", &name, source))?;
    Ok(true)
}

/// Applies a status unless it is there already. True when it was sent.
pub(crate) async fn apply_status<K, S>(
    api: &Api<K>,
    manager: Manager,
    name: &str,
    old: Option<&S>,
    new: &S,
) -> Result<bool, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    S: Serialize + PartialEq,
{
    if old == Some(new) {
        return Ok(false);
    }
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name},
        "status": new,
    });
    let parameters = PatchParams::apply(manager.as_str()).force();
    api.patch_status(name, &parameters, &Patch::Apply(&patch))
        .await
        .map_err(|source| request::<K>("apply status of", name, source))?;
    Ok(true)
}

/// Sets the finalizers of exactly this version of an object. A server-side apply would make an
/// object that is gone anew.
pub(crate) async fn set_finalizers<K>(
    api: &Api<K>,
    object: &K,
    finalizers: &[String],
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let name = object.name_any();
    let patch = json!({
        "metadata": {
            "finalizers": finalizers,
            "resourceVersion": object.meta().resource_version,
        },
    });
    match api
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        // it is gone, and its finalizers with it
        Err(kube::Error::Api(status)) if status.code == 404 && finalizers.is_empty() => Ok(()),
        Err(source) => Err(request::<K>("set finalizers of", &name, source)),
    }
}

/// Deletes exactly this object, its dependents in the background. One that is gone is fine.
pub(crate) async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let mut parameters = DeleteParams::background();
    if let Some(uid) = uid {
        parameters = parameters.preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
    }
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(request::<K>("delete", name, source)),
    }
}

pub(crate) fn request<K: Resource<DynamicType = ()>>(
    verb: &'static str,
    name: &str,
    source: kube::Error,
) -> WriteError {
    WriteError::Request {
        verb,
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source: source.into(),
    }
}

/// Whether `live` has everything that `wanted` has; what the API server filled in beside it counts
/// for nothing. An empty list or map is covered by its absence.
pub(crate) fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Null, Value::Array(items)) => items.is_empty(),
        (Value::Null, Value::Object(fields)) => fields.values().all(|field| covers(live, field)),
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, field)| covers(live.get(name).unwrap_or(&Value::Null), field)),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(a, b)| covers(a, b))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn what_the_api_server_fills_in_is_no_difference() {
        let live = json!({"spec": {"a": 1, "default": true, "list": [{"x": 1, "y": 2}]}});
        assert!(covers(
            &live,
            &json!({"spec": {"a": 1, "list": [{"x": 1}]}})
        ));
        assert!(covers(
            &live,
            &json!({"spec": {"a": 1, "none": [], "empty": {}}})
        ));
    }

    #[test]
    fn a_changed_value_a_missing_field_and_another_list_are_differences() {
        let live = json!({"a": 1, "list": [1, 2], "map": {"x": "y"}});
        for wanted in [
            json!({"a": 2}),
            json!({"b": 1}),
            json!({"list": [1]}),
            json!({"list": [2, 1]}),
            json!({"map": {"x": "z"}}),
            json!({"map": {"w": "y"}}),
        ] {
            assert!(!covers(&live, &wanted), "{wanted}");
        }
    }

    #[test]
    fn a_field_that_is_no_longer_rendered_changes_the_stamp() {
        let stamp = |object: &ConfigMap| {
            stamped(object).unwrap()["metadata"]["annotations"][APPLIED_HASH_ANNOTATION].clone()
        };
        let mut object = ConfigMap {
            immutable: Some(true),
            ..ConfigMap::default()
        };
        let with = stamp(&object);
        object.immutable = None;
        assert_ne!(with, stamp(&object));
    }
}
