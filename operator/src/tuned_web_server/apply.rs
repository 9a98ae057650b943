//! Sends what was rendered, where it differs from what is there, and removes what is left over.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Api, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tunedweb_api::BenchmarkRun;

use super::Error;
use super::observe::Observed;
use super::render::{RenderedPlan, RenderedServer};
use super::resolve::ResolvedServer;
use crate::context::Context;
use crate::objects::{self, APPLIED_HASH_ANNOTATION, Manager};

/// Applies every object. The parts are taken one by one, so that a new one cannot be forgotten.
pub(crate) async fn apply(
    context: &Context,
    resolved: &ResolvedServer,
    observed: &Observed,
    rendered: &RenderedServer,
) -> Result<(), Error> {
    let RenderedServer {
        settings,
        plan,
        service,
        daemon_set,
        template_hash: _,
    } = rendered;
    // what pods mount first, the pods last
    apply_config_map(context, resolved, observed, settings).await?;
    if let Some(RenderedPlan {
        config_map,
        hash: _,
    }) = plan
    {
        apply_config_map(context, resolved, observed, config_map).await?;
    }
    let services: Api<Service> = Api::namespaced(context.client.clone(), &resolved.namespace);
    apply_named(
        context,
        resolved,
        &services,
        service,
        observed.service.as_deref(),
    )
    .await?;
    let daemon_sets: Api<DaemonSet> = Api::namespaced(context.client.clone(), &resolved.namespace);
    apply_named(
        context,
        resolved,
        &daemon_sets,
        daemon_set,
        observed.daemon_set.as_deref(),
    )
    .await?;
    prune(context, resolved, observed, rendered).await
}

/// Creates a run, unless one of its name is there, finished or not.
pub(crate) async fn create_run(context: &Context, run: &BenchmarkRun) -> Result<(), Error> {
    let namespace = run.namespace().unwrap_or_default();
    let runs: Api<BenchmarkRun> = Api::namespaced(context.client.clone(), &namespace);
    let parameters = PostParams {
        field_manager: Some(Manager::Server.as_str().to_owned()),
        ..PostParams::default()
    };
    match runs.create(&parameters, run).await {
        Ok(_) => context.wrote(true),
        // the watch has not shown it yet
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(source) => {
            let error = objects::request::<BenchmarkRun>("create", &run.name_any(), source);
            return Err(Error::Apply(error));
        }
    }
    Ok(())
}

/// An object whose name is that of the resource, so that another may have it already.
async fn apply_named<K>(
    context: &Context,
    resolved: &ResolvedServer,
    api: &Api<K>,
    object: &K,
    live: Option<&K>,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let name = object.name_any();
    // the watch sees objects with our label only
    let unseen = match live {
        Some(_) => None,
        None => api
            .get_opt(&name)
            .await
            .map_err(|source| Error::Apply(objects::request::<K>("read", &name, source)))?,
    };
    let live = live.or(unseen.as_ref());
    if live.is_some_and(|live| !is_owned(live, &resolved.uid)) {
        return Err(Error::NameTaken {
            kind: K::kind(&()).into_owned(),
            name,
        });
    }
    let sent = objects::apply(api, Manager::Server, object, live)
        .await
        .map_err(Error::Apply)?;
    context.wrote(sent);
    Ok(())
}

/// A `ConfigMap` that never changes under its name: it is there as rendered, or not at all.
async fn apply_config_map(
    context: &Context,
    resolved: &ResolvedServer,
    observed: &Observed,
    map: &ConfigMap,
) -> Result<(), Error> {
    let wanted = objects::stamped(map).map_err(Error::Apply)?;
    let stamp = wanted["metadata"]["annotations"][APPLIED_HASH_ANNOTATION].as_str();
    let name = map.name_any();
    let is_there = observed.config_maps.iter().any(|live| {
        live.name_any() == name
            && live
                .annotations()
                .get(APPLIED_HASH_ANNOTATION)
                .map(String::as_str)
                == stamp
    });
    if is_there {
        return Ok(());
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &resolved.namespace);
    let sent = objects::apply(&maps, Manager::Server, map, None)
        .await
        .map_err(Error::Apply)?;
    context.wrote(sent);
    Ok(())
}

/// Whether an object belongs to the owner of this uid.
pub(crate) fn is_owned<K: Resource>(object: &K, uid: &str) -> bool {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid)
}

/// Deletes settings and plans that neither the template nor a live pod mounts.
async fn prune(
    context: &Context,
    resolved: &ResolvedServer,
    observed: &Observed,
    rendered: &RenderedServer,
) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &resolved.namespace);
    for map in left_over(observed, rendered, &resolved.uid) {
        objects::delete(&maps, &map.name_any(), map.metadata.uid.as_deref())
            .await
            .map_err(Error::Apply)?;
        context.wrote(true);
    }
    Ok(())
}

fn left_over<'a>(
    observed: &'a Observed,
    rendered: &RenderedServer,
    owner_uid: &str,
) -> Vec<&'a PartialObjectMeta<ConfigMap>> {
    let mut used: BTreeSet<String> = observed.pods.iter().flat_map(|pod| mounted(pod)).collect();
    used.insert(rendered.settings.name_any());
    used.extend(rendered.plan.iter().map(|plan| plan.config_map.name_any()));
    let maps = observed.config_maps.iter().map(std::convert::AsRef::as_ref);
    maps.filter(|map| is_owned(*map, owner_uid) && !used.contains(&map.name_any()))
        .collect()
}

fn mounted(pod: &Pod) -> Vec<String> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| Some(volume.config_map.as_ref()?.name.clone()))
        .collect()
}
