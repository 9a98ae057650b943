//! Reads what load pods left behind.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, LogParams};
use tunedweb_api::names::LOAD_CONTAINER;
use tunedweb_measure::PodReport;

use super::decide::{is_past, pod_failed};
use super::observe::Observed;
use super::{Error, render};
use crate::context::Context;
use crate::{errors, objects, pods};

/// Of one pod's log. A histogram takes at most 10 lines under 16 KiB.
const LOG_BYTES_MAX: i64 = 1024 * 1024;

/// Annotation and label in which Kubernetes tells the index of a pod of an Indexed Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    pub(crate) reports: Vec<PodReport>,
    /// Why pods are missing.
    pub(crate) problems: Vec<String>,
    pub(crate) load_nodes: Vec<String>,
}

/// Reads every pod of a run. An API server that does not answer is an error and asked again; a pod
/// that left no result is a problem.
pub(crate) async fn collect(context: &Context, observed: &Observed) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    let run = observed.run.name_any();
    let mut nodes = BTreeSet::new();
    let mut read = BTreeSet::new();
    for pod in &observed.pods {
        nodes.extend(pods::node_name(pod).map(str::to_owned));
        let Some(index) = index(pod).filter(|index| !read.contains(index)) else {
            continue;
        };
        let Some(ended) = pods::ended(pod, LOAD_CONTAINER) else {
            collected.problems.push(pod_failed(pod));
            continue;
        };
        let Some(log) = log(context, observed, pod).await? else {
            collected
                .problems
                .push("the log of the load pod is gone".to_owned());
            continue;
        };
        match PodReport::read(&run, index, ended.message, log.lines()) {
            Ok(report) => {
                read.insert(index);
                collected.reports.push(report);
            }
            Err(_) if ended.exit_code != 0 => collected.problems.push(pod_failed(pod)),
            Err(error) => collected.problems.push(errors::chain(&error)),
        }
    }
    if observed.pods.is_empty() {
        collected
            .problems
            .push(format!("none of {} load pods is left", render::PODS));
    }
    collected.load_nodes = nodes.into_iter().collect();
    Ok(collected)
}

async fn log(context: &Context, observed: &Observed, pod: &Pod) -> Result<Option<String>, Error> {
    let api: Api<Pod> =
        Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    let parameters = LogParams {
        container: Some(LOAD_CONTAINER.to_owned()),
        limit_bytes: Some(LOG_BYTES_MAX),
        ..LogParams::default()
    };
    let name = pod.name_any();
    let deadline = observed.run.spec.deadline_seconds;
    match api.logs(&name, &parameters).await {
        Ok(log) => Ok(Some(log)),
        // the pod, or its container's log, is gone for good
        Err(kube::Error::Api(status)) if [400, 404].contains(&status.code) => Ok(None),
        // nor does a node come back for it when the run has waited as long as it may take
        Err(_) if is_past(ended_at(observed), deadline, context.now()) => Ok(None),
        Err(source) => Err(Error::Collect(objects::request::<Pod>(
            "read the log of",
            &name,
            source,
        ))),
    }
}

/// When the Job ended.
fn ended_at(observed: &Observed) -> Option<Timestamp> {
    let status = observed.job.as_ref()?.status.as_ref()?;
    let ends = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.last_transition_time.as_ref());
    ends.map(|time| time.0).max()
}

fn index(pod: &Pod) -> Option<u32> {
    let found = pod
        .annotations()
        .get(INDEX)
        .or_else(|| pod.labels().get(INDEX))?;
    found.parse().ok()
}
