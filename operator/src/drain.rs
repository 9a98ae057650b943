//! Uninstalling: a mark in the operator's namespace has every node put back.
//!
//! The mark carries the uid of the operator's Deployment. The operator of a later installation has
//! another one, and does not obey a mark that was left behind; with its Deployment it goes anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;
use tunedweb_api::TunedWebServer;
use tunedweb_api::names::FINALIZER;

use crate::context::Context;
use crate::memory::MarkMemory;

/// Name of the mark.
pub(crate) const MARK_NAME: &str = "tunedweb-drain";

/// Name of the operator's Deployment, as the chart makes it.
const DEPLOYMENT_NAME: &str = "tunedweb-operator";

const DEPLOYMENT_UID: &str = "deploymentUid";
const TIMEOUT_SECONDS: &str = "timeoutSeconds";

/// Who writes the mark.
const MANAGER: &str = "tunedweb-drain";

/// How often the resources are counted while draining.
const POLL: Duration = Duration::from_secs(2);

/// Resources named when the time is over; the count tells of the others.
const NAMED_MAX: usize = 20;

/// A mark that is obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// When it was made.
    pub(crate) since: Timestamp,
    /// How long whoever made it waits.
    pub(crate) timeout: Duration,
}

/// Why the drain did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The operator is not there.
    #[error("read Deployment {namespace}/{DEPLOYMENT_NAME}, which must carry out the drain")]
    FindOperator {
        /// Namespace that was looked in.
        namespace: String,
        /// Why it was not found.
        #[source]
        source: Box<kube::Error>,
    },
    /// The mark could not be written.
    #[error("write the drain mark {MARK_NAME}")]
    WriteMark(#[source] Box<kube::Error>),
    /// Resources could not be counted.
    #[error("list TunedWebServers")]
    List(#[source] Box<kube::Error>),
    /// Some nodes were not put back in time.
    #[error(
        "after {waited:?} {count} TunedWebServers still hold their nodes: {names}; see their status, \
         or set the annotation tunedweb.io/skip-restore=true to let one go as it is. The operator \
         goes on draining until ConfigMap {MARK_NAME} is deleted"
    )]
    TimedOut {
        /// How long it was waited.
        waited: Duration,
        /// How many there are.
        count: usize,
        /// Some of them.
        names: String,
    },
}

/// Sets the mark and waits until no `TunedWebServer` holds a node any more.
pub async fn drain(client: Client, namespace: &str, timeout: Duration) -> Result<(), DrainError> {
    let deployment =
        deployment(&client, namespace)
            .await
            .map_err(|source| DrainError::FindOperator {
                namespace: namespace.to_owned(),
                source: Box::new(source),
            })?;
    let mark = rendered(namespace, &deployment, timeout);
    Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .patch(
            MARK_NAME,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&mark),
        )
        .await
        .map_err(|source| DrainError::WriteMark(Box::new(source)))?;
    let started = Instant::now();
    let mut before = None;
    loop {
        let held = held(&client).await?;
        if held.is_empty() {
            eprintln!("every node is put back");
            return Ok(());
        }
        if before != Some(held.len()) {
            eprintln!("{} TunedWebServers still hold their nodes", held.len());
            before = Some(held.len());
        }
        if started.elapsed() >= timeout {
            let named: Vec<String> = held.iter().take(NAMED_MAX).cloned().collect();
            return Err(DrainError::TimedOut {
                waited: timeout,
                count: held.len(),
                names: named.join(", "),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// `namespace/name` of each resource with our finalizer.
async fn held(client: &Client) -> Result<Vec<String>, DrainError> {
    let servers: Api<PartialObjectMeta<TunedWebServer>> = Api::all(client.clone());
    let list = servers
        .list(&ListParams::default())
        .await
        .map_err(|source| DrainError::List(Box::new(source)))?;
    let held = list
        .iter()
        .filter(|server| server.finalizers().iter().any(|name| name == FINALIZER))
        .map(|server| {
            format!(
                "{}/{}",
                server.namespace().unwrap_or_default(),
                server.name_any()
            )
        });
    Ok(held.collect())
}

fn rendered(namespace: &str, deployment: &Deployment, timeout: Duration) -> ConfigMap {
    let uid = deployment.uid().unwrap_or_default();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(MARK_NAME.to_owned()),
            namespace: Some(namespace.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                name: deployment.name_any(),
                uid: uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            (DEPLOYMENT_UID.to_owned(), uid),
            (TIMEOUT_SECONDS.to_owned(), timeout.as_secs().to_string()),
        ])),
        ..ConfigMap::default()
    }
}

async fn deployment(client: &Client, namespace: &str) -> Result<Deployment, kube::Error> {
    Api::namespaced(client.clone(), namespace)
        .get(DEPLOYMENT_NAME)
        .await
}

/// The mark that this operator has to obey, if there is one.
pub(crate) async fn mark(context: &Context) -> Result<Option<Mark>, kube::Error> {
    let namespace = &context.options.namespace;
    let seen = context
        .cluster
        .config_maps
        .get(&ObjectRef::new(MARK_NAME).within(namespace));
    let Some(version) = seen.and_then(|seen| seen.metadata.resource_version.clone()) else {
        return outlasting(context).await;
    };
    if let Some(known) = context.memory.mark(&version) {
        return Ok(known.obeyed);
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let Some(map) = maps.get_opt(MARK_NAME).await? else {
        return outlasting(context).await;
    };
    let own = deployment(&context.client, namespace).await?;
    let obeyed = obeyed(&map, own.metadata.uid.as_deref());
    context.memory.remember_mark(MarkMemory {
        version,
        deployment_uid: own.metadata.uid,
        obeyed: obeyed.clone(),
    });
    Ok(obeyed)
}

/// The mark that goes on binding this operator although it is gone. An uninstallation deletes the
/// Deployment and with it the mark, while this process runs for a moment longer; what it rendered
/// then would never be put back. Only where the Deployment stands did a person take the mark back.
async fn outlasting(context: &Context) -> Result<Option<Mark>, kube::Error> {
    let Some(known) = context.memory.last_mark() else {
        return Ok(None);
    };
    let own: Api<Deployment> = Api::namespaced(context.client.clone(), &context.options.namespace);
    let own = own.get_opt(DEPLOYMENT_NAME).await?;
    if known.obeyed.is_some() && !stands(own.as_ref(), known.deployment_uid.as_deref()) {
        return Ok(known.obeyed);
    }
    context.memory.forget_mark();
    Ok(None)
}

fn stands(deployment: Option<&Deployment>, uid: Option<&str>) -> bool {
    deployment.is_some_and(|deployment| {
        deployment.metadata.deletion_timestamp.is_none()
            && deployment.metadata.uid.as_deref() == uid
    })
}

fn obeyed(map: &ConfigMap, own_uid: Option<&str>) -> Option<Mark> {
    let data = map.data.as_ref()?;
    if own_uid.is_none() || data.get(DEPLOYMENT_UID).map(String::as_str) != own_uid {
        return None;
    }
    Some(Mark {
        since: map.metadata.creation_timestamp.as_ref()?.0,
        timeout: Duration::from_secs(data.get(TIMEOUT_SECONDS)?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(uid: &str) -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": "tunedweb-operator", "uid": uid}}))
            .unwrap()
    }

    fn map(uid: &str) -> ConfigMap {
        let mut map = rendered("n", &deployment(uid), Duration::from_mins(2));
        map.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        map
    }

    #[test]
    fn a_mark_of_another_installation_is_not_obeyed() {
        assert!(obeyed(&map("a"), Some("a")).is_some_and(|m| m.timeout == Duration::from_mins(2)));
        assert_eq!(obeyed(&map("a"), Some("b")), None);
        assert_eq!(obeyed(&map("a"), None), None);
    }

    #[test]
    fn a_mark_that_is_gone_is_taken_back_only_if_this_installation_stands() {
        let mut own = deployment("a");
        assert!(stands(Some(&own), Some("a")));
        assert!(!stands(Some(&own), Some("b")));
        assert!(!stands(None, Some("a")));
        own.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!stands(Some(&own), Some("a")));
    }
}
