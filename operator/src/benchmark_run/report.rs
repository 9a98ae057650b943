//! Writes a run's status, and an event when it ended.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kube::{Resource as _, ResourceExt as _};
use tunedweb_api::BenchmarkRun;
use tunedweb_api::benchmark_run::{
    BenchmarkRunStatus, Coverage, HistogramReference, Phase, Provenance,
};
use tunedweb_api::condition::{ConditionType, Reason};
use tunedweb_measure::{
    Histogram, PodReport, ValidityInputs, ValidityState, VerdictState, validity, verdict,
};

use super::collect::Collected;
use super::{Error, render};
use crate::conditions::{Draft, Status, clipped, settle, whole_seconds};
use crate::context::Context;
use crate::events::transitions;
use crate::objects::{self, Manager};

/// Longest message; the schema permits no more.
const MESSAGE_BYTES_MAX: usize = 1024;

/// A run at work: where it stands, and what holds it up.
pub(crate) fn under_way(
    old: &BenchmarkRunStatus,
    phase: Phase,
    reason: Reason,
    message: &str,
) -> (BenchmarkRunStatus, Vec<Draft>) {
    let status = BenchmarkRunStatus {
        phase,
        message: clipped(message.to_owned(), MESSAGE_BYTES_MAX),
        ..old.clone()
    };
    let drafts = vec![
        Draft::new(ConditionType::Succeeded, Status::Unknown, reason, message),
        Draft::new(ConditionType::Reconciling, Status::True, reason, message),
        Draft::new(
            ConditionType::Stalled,
            Status::False,
            Reason::AsSpecified,
            "",
        ),
    ];
    (status, drafts)
}

/// A run without a result.
pub(crate) fn failed(
    old: &BenchmarkRunStatus,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> (BenchmarkRunStatus, Vec<Draft>) {
    let status = BenchmarkRunStatus {
        phase: Phase::Failed,
        message: clipped(message.to_owned(), MESSAGE_BYTES_MAX),
        finished_at: Some(Time(whole_seconds(now))),
        ..old.clone()
    };
    let drafts = vec![
        Draft::new(ConditionType::Succeeded, Status::False, reason, message),
        Draft::new(
            ConditionType::Reconciling,
            Status::False,
            Reason::AsSpecified,
            "",
        ),
        Draft::new(ConditionType::Stalled, Status::True, reason, message),
    ];
    (status, drafts)
}

/// A run with a result, and the histogram of it.
pub(crate) fn recorded(
    run: &BenchmarkRun,
    old: &BenchmarkRunStatus,
    collected: &Collected,
    server_nodes: &[String],
    now: Timestamp,
) -> (BenchmarkRunStatus, Vec<Draft>, Histogram) {
    let (summary, histogram) = PodReport::merge(&collected.reports);
    let reported = u32::try_from(collected.reports.len()).unwrap_or(u32::MAX);
    let mut provenance: Provenance = old.provenance.clone().unwrap_or_default();
    let shared_node = collected
        .load_nodes
        .iter()
        .any(|node| server_nodes.contains(node) || provenance.server_nodes.contains(node));
    provenance.load_nodes.clone_from(&collected.load_nodes);
    let validity = validity(&ValidityInputs {
        load: &run.spec.load,
        summary: &summary,
        pods_expected: render::PODS,
        pods_reported: reported,
        shared_node,
    });
    let verdict = verdict(&summary, &run.spec.objectives, &validity);
    let (reason, message) = match (validity.state, verdict.state) {
        (ValidityState::Invalid, _) => (Reason::ResultInvalid, format!("{:?}", validity.reasons)),
        (_, VerdictState::Passed) => (Reason::ObjectivesReached, String::new()),
        (_, VerdictState::Failed) => {
            let missed: Vec<&str> = verdict.failed.iter().map(|o| o.name.as_str()).collect();
            (
                Reason::ObjectivesMissed,
                format!("missed: {}", missed.join(", ")),
            )
        }
        (_, VerdictState::NoObjectives | VerdictState::Unknown) => {
            (Reason::AsSpecified, String::new())
        }
    };
    let rate = format!("{} requests a second", summary.requests_per_second);
    let message = if message.is_empty() {
        rate
    } else {
        format!("{rate}; {message}")
    };
    let status = BenchmarkRunStatus {
        phase: Phase::Succeeded,
        message: clipped(collected.problems.join("; "), MESSAGE_BYTES_MAX),
        result: Some(summary),
        coverage: Some(Coverage {
            pods: render::PODS,
            reported,
        }),
        validity: Some(validity),
        verdict: Some(verdict),
        provenance: Some(provenance),
        histogram: Some(HistogramReference {
            config_map: render::histogram(run, &histogram).name_any(),
        }),
        finished_at: Some(Time(whole_seconds(now))),
        conditions: Vec::new(),
    };
    let drafts = vec![
        Draft::new(ConditionType::Succeeded, Status::True, reason, message),
        Draft::new(
            ConditionType::Reconciling,
            Status::False,
            Reason::AsSpecified,
            "",
        ),
        Draft::new(
            ConditionType::Stalled,
            Status::False,
            Reason::AsSpecified,
            "",
        ),
    ];
    (status, drafts, histogram)
}

/// Writes what differs.
pub(crate) async fn report(
    context: &Context,
    run: &BenchmarkRun,
    (mut status, drafts): (BenchmarkRunStatus, Vec<Draft>),
) -> Result<(), Error> {
    let old = run.status.as_ref();
    let conditions = old.map(|old| old.conditions.as_slice()).unwrap_or_default();
    status.conditions = settle(conditions, drafts, run.metadata.generation, context.now());
    let namespace = run.namespace().unwrap_or_default();
    let api: Api<BenchmarkRun> = Api::namespaced(context.client.clone(), &namespace);
    let sent = objects::apply_status(&api, Manager::Benchmark, &run.name_any(), old, &status)
        .await
        .map_err(Error::Report)?;
    context.wrote(sent);
    let changes = transitions(&[ConditionType::Succeeded], conditions, &status.conditions);
    context.events.publish(&run.object_ref(&()), changes).await;
    Ok(())
}
