//! Reads what a run refers to: the run and its Job as they are now, the rest as last seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::ObjectRef;
use tunedweb_api::benchmark_run::Provenance;
use tunedweb_api::condition::{ConditionType, is_true};
use tunedweb_api::names::{
    COMPONENT_LABEL, RUN_LABEL, SERVER_COMPONENT, SERVER_CONTAINER, SERVER_LABEL,
};
use tunedweb_api::{BenchmarkRun, TunedWebServer};

use super::{Error, decide, render};
use crate::cluster::Guarded;
use crate::context::Context;
use crate::objects;
use crate::{nodes, pods};

/// Nodes and kernels that a status names, as the schema permits.
const NODES_MAX: usize = 64;
const KERNELS_MAX: usize = 16;

/// What was found.
#[derive(Debug)]
pub(crate) struct Observed {
    /// As it is now: what was last seen may lack a result that was recorded a moment ago.
    pub(crate) run: BenchmarkRun,
    pub(crate) job: Option<Job>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) target: Option<TunedWebServer>,
    pub(crate) target_missing: Option<String>,
    pub(crate) ahead: Option<String>,
    /// Nodes with a ready serving pod of the target.
    pub(crate) server_nodes: Vec<String>,
}

/// None where the run is gone.
pub(crate) async fn observe(
    context: &Context,
    seen: &BenchmarkRun,
) -> Result<Option<Observed>, Error> {
    let namespace = seen.namespace().unwrap_or_default();
    let name = seen.name_any();
    let runs: Api<BenchmarkRun> = Api::namespaced(context.client.clone(), &namespace);
    let run = runs.get_opt(&name).await.map_err(|source| {
        Error::Observe(objects::request::<BenchmarkRun>("read", &name, source))
    })?;
    let Some(run) = run.filter(|run| run.metadata.uid == seen.metadata.uid) else {
        return Ok(None);
    };
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &namespace);
    let job_name = render::job_name(&name);
    let job = jobs
        .get_opt(&job_name)
        .await
        .map_err(|source| Error::Observe(objects::request::<Job>("read", &job_name, source)))?;
    let server = &run.spec.target.tuned_web_server;
    let found = context
        .cluster
        .servers
        .get(&ObjectRef::new(server).within(&namespace));
    let target = found.and_then(|found| found.0.as_ref().ok().cloned());
    Ok(Some(Observed {
        target_missing: target_missing(server, target.as_ref()),
        ahead: ahead(context, &run),
        pods: load_pods(context, &namespace, &name, job.as_ref()).await?,
        server_nodes: server_nodes(context, &namespace, server),
        target,
        job,
        run,
    }))
}

fn target_missing(name: &str, target: Option<&TunedWebServer>) -> Option<String> {
    let Some(target) = target else {
        return Some(format!(
            "TunedWebServer {name} does not exist in this namespace"
        ));
    };
    if target.metadata.deletion_timestamp.is_some() {
        return Some(format!("TunedWebServer {name} is being deleted"));
    }
    let status = target.status.as_ref();
    let serves = status.is_some_and(|status| {
        Some(status.observed_generation) == target.metadata.generation
            && is_true(&status.conditions, ConditionType::Serving)
    });
    (!serves).then(|| format!("TunedWebServer {name} does not serve yet; see its conditions"))
}

fn ahead(context: &Context, run: &BenchmarkRun) -> Option<String> {
    let is_rival = |other: &BenchmarkRun| {
        other.metadata.namespace == run.metadata.namespace
            && other.spec.target == run.spec.target
            && other.metadata.name != run.metadata.name
    };
    let all = context.cluster.runs.state();
    let rivals = all
        .iter()
        .filter_map(|other| decoded(other))
        .filter(|other| is_rival(other));
    let first = decide::first_in_line(rivals.chain([run]))?;
    (first.metadata.name != run.metadata.name).then(|| first.name_any())
}

fn decoded(run: &Guarded<BenchmarkRun>) -> Option<&BenchmarkRun> {
    run.0.as_ref().ok()
}

/// The load pods. Once the Job has ended, its pods have too, and the watch may not have told so yet.
async fn load_pods(
    context: &Context,
    namespace: &str,
    run: &str,
    job: Option<&Job>,
) -> Result<Vec<Pod>, Error> {
    if !job.is_some_and(decide::has_ended) {
        let seen = labelled_pods(context, namespace, RUN_LABEL, run);
        return Ok(seen.iter().map(|pod| Pod::clone(pod)).collect());
    }
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let labels = format!("{RUN_LABEL}={run}");
    let list = api
        .list(&ListParams::default().labels(&labels))
        .await
        .map_err(|source| Error::Observe(objects::request::<Pod>("list", &labels, source)))?;
    Ok(list.items)
}

fn labelled_pods(context: &Context, namespace: &str, label: &str, value: &str) -> Vec<Arc<Pod>> {
    let mut pods = context.cluster.pods.state_filter(|pod| {
        let found = pod.labels().get(label).map(String::as_str);
        pod.metadata.namespace.as_deref() == Some(namespace) && found == Some(value)
    });
    pods.sort_by_key(|pod| pod.name_any());
    pods
}

fn server_nodes(context: &Context, namespace: &str, server: &str) -> Vec<String> {
    let serving = labelled_pods(context, namespace, SERVER_LABEL, server);
    let is_server = |pod: &Pod| {
        pod.labels()
            .get(COMPONENT_LABEL)
            .is_some_and(|component| component == SERVER_COMPONENT)
    };
    let names: BTreeSet<String> = serving
        .iter()
        .filter(|pod| is_server(pod) && pods::is_ready(pod))
        .filter_map(|pod| pods::node_name(pod).map(str::to_owned))
        .collect();
    names.into_iter().take(NODES_MAX).collect()
}

/// What is measured, as it is at the start of the run.
pub(crate) fn provenance(
    context: &Context,
    observed: &Observed,
    target: &TunedWebServer,
) -> Provenance {
    let kernel = |name: &String| {
        let node = context.cluster.nodes.get(&ObjectRef::new(name))?;
        Some(nodes::kernel(&node).to_owned())
    };
    let kernels: BTreeSet<String> = observed.server_nodes.iter().filter_map(kernel).collect();
    Provenance {
        spec_hash: target
            .status
            .as_ref()
            .map(|s| s.serving_hash.clone())
            .unwrap_or_default(),
        generation: target.metadata.generation.unwrap_or_default(),
        server_image: server_image(context, target),
        kernels: kernels.into_iter().take(KERNELS_MAX).collect(),
        load_nodes: Vec::new(),
        server_nodes: observed.server_nodes.clone(),
        sysctls: target.spec.tuning.sysctls.clone(),
        ulimits: target.spec.tuning.ulimits.clone(),
    }
}

/// The image that pods were made from, which an operator of another release may have chosen.
fn server_image(context: &Context, target: &TunedWebServer) -> String {
    let namespace = target.namespace().unwrap_or_default();
    let reference = ObjectRef::new(&target.name_any()).within(&namespace);
    let daemon_set = context.cluster.daemon_sets.get(&reference);
    let template = daemon_set
        .as_ref()
        .and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let containers = template.into_iter().flat_map(|spec| &spec.containers);
    let server = containers
        .into_iter()
        .find(|container| container.name == SERVER_CONTAINER);
    server
        .and_then(|container| container.image.clone())
        .unwrap_or_default()
}
