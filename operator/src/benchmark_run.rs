//! The controller of `BenchmarkRun`: observe → decide → render → apply → report.
//!
//! A result is written to the run before its Job goes, and each decision is made on the run as it
//! is, not as it was last seen: whenever the operator is stopped, the next one goes on from there.

mod collect;
mod decide;
mod observe;
mod render;
mod report;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use tunedweb_api::BenchmarkRun;
use tunedweb_api::benchmark_run::{BenchmarkRunStatus, Phase};
use tunedweb_api::condition::{ConditionType, Reason};

use crate::cluster::Guarded;
use crate::conditions::Status;
use crate::context::Context;
use crate::metrics::Kind;
use crate::objects::{self, Manager, WriteError};
use crate::runner::Visit;
use decide::{Facts, Step, decide};
use observe::Observed;

/// How soon a run that waits is looked at again; what it waits for brings a visit sooner.
const WAIT: Duration = Duration::from_secs(15);

/// Why a visit failed, by step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("observe")]
    Observe(#[source] WriteError),
    #[error("read what the load pods left behind")]
    Collect(#[source] WriteError),
    #[error("apply")]
    Apply(#[source] WriteError),
    #[error("Job {name} exists and belongs to another; rename the run or delete the Job")]
    NameTaken { name: String },
    #[error("report")]
    Report(#[source] WriteError),
}

/// One visit.
pub(crate) fn reconcile(
    object: Arc<Guarded<BenchmarkRun>>,
    context: Arc<Context>,
) -> BoxFuture<'static, Visit<Error>> {
    Box::pin(async move {
        match &object.0 {
            Ok(run) => visit(&context, run).await,
            Err(invalid) => undecodable(&context, invalid).await,
        }
    })
}

async fn undecodable(context: &Context, invalid: &InvalidObject) -> Visit<Error> {
    let conditions = [
        (ConditionType::Succeeded, Status::False),
        (ConditionType::Reconciling, Status::False),
        (ConditionType::Stalled, Status::True),
    ];
    let (kind, manager) = (Kind::BenchmarkRun, Manager::Benchmark);
    crate::undecodable::report::<BenchmarkRun>(context, kind, manager, invalid, &conditions)
        .await
        .map_err(Error::Report)
}

async fn visit(context: &Context, seen: &BenchmarkRun) -> Visit<Error> {
    // its Job and its histogram go with it
    if seen.metadata.deletion_timestamp.is_some() || is_over(context, seen) {
        return Ok(Action::await_change());
    }
    let Some(observed) = observe::observe(context, seen).await? else {
        return Ok(Action::await_change());
    };
    if let Some(job) = &observed.job
        && !is_owned(job, &observed.run)
    {
        return Err(Error::NameTaken {
            name: job.name_any(),
        });
    }
    let pods: Vec<_> = observed.pods.iter().collect();
    let step = decide(Facts {
        run: &observed.run,
        job: observed.job.as_ref(),
        pods: &pods,
        target_missing: observed.target_missing.as_deref(),
        ahead: observed.ahead.as_deref(),
        now: context.now(),
    });
    take(context, &observed, step).await
}

/// Finished, and its Job gone, by what was last seen of both: nothing is left to be asked.
fn is_over(context: &Context, seen: &BenchmarkRun) -> bool {
    let phase = seen
        .status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default();
    let has_job = context
        .cluster
        .jobs
        .find(|job| is_owned(job, seen))
        .is_some();
    matches!(phase, Phase::Succeeded | Phase::Failed) && !has_job
}

async fn take(context: &Context, observed: &Observed, step: Step) -> Visit<Error> {
    let run = &observed.run;
    let old = run.status.clone().unwrap_or_default();
    match step {
        Step::Nothing => {}
        Step::CleanUp => clean_up(context, observed).await?,
        Step::Wait { reason, message } => {
            let told = report::under_way(&old, Phase::Pending, reason, &message);
            report::report(context, run, told).await?;
            return Ok(Action::requeue(WAIT));
        }
        Step::Start => {
            if claim(context, run) {
                start(context, observed, old).await?;
            }
            return Ok(Action::requeue(WAIT));
        }
        Step::Watch { phase, message } => {
            let reason = if phase == Phase::Running {
                Reason::Running
            } else {
                Reason::Pending
            };
            report::report(
                context,
                run,
                report::under_way(&old, phase, reason, &message),
            )
            .await?;
            return Ok(Action::requeue(WAIT));
        }
        Step::Record => record(context, observed, &old).await?,
        Step::Fail { reason, message } => {
            let told = report::failed(&old, reason, &message, context.now());
            report::report(context, run, told).await?;
            clean_up(context, observed).await?;
        }
    }
    Ok(Action::await_change())
}

/// Takes the target, unless another run has it: two runs that are visited at the same time do not
/// see each other start.
fn claim(context: &Context, run: &BenchmarkRun) -> bool {
    let namespace = namespace(run);
    let target = format!("{namespace}/{}", run.spec.target.tuned_web_server);
    let is_active = |name: &str| {
        let found = context
            .cluster
            .runs
            .get(&ObjectRef::new(name).within(&namespace));
        let status = found.as_ref().and_then(|run| run.0.as_ref().ok());
        status.is_some_and(|run| {
            let phase = run.status.as_ref().map(|status| status.phase);
            !matches!(phase, Some(Phase::Succeeded | Phase::Failed))
        })
    };
    context.memory.claim(&target, &run.name_any(), is_active)
}

/// What is measured is written down before the load begins.
async fn start(
    context: &Context,
    observed: &Observed,
    mut status: BenchmarkRunStatus,
) -> Result<(), Error> {
    let Some(target) = &observed.target else {
        return Ok(());
    };
    let run = &observed.run;
    if status.provenance.is_none() {
        status.provenance = Some(observe::provenance(context, observed, target));
    }
    let told = report::under_way(&status, Phase::Pending, Reason::Pending, "");
    report::report(context, run, told).await?;
    let job = render::job(run, target, &context.options.loadgen_image);
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &namespace(run));
    let sent = objects::apply(&jobs, Manager::Benchmark, &job, observed.job.as_ref())
        .await
        .map_err(Error::Apply)?;
    context.wrote(sent);
    Ok(())
}

/// Histogram, then status, and only then the Job goes.
async fn record(
    context: &Context,
    observed: &Observed,
    old: &BenchmarkRunStatus,
) -> Result<(), Error> {
    let run = &observed.run;
    let collected = collect::collect(context, observed).await?;
    if collected.reports.is_empty() {
        let message = collected.problems.join("; ");
        let told = report::failed(old, Reason::LoadFailed, &message, context.now());
        report::report(context, run, told).await?;
        return clean_up(context, observed).await;
    }
    let (status, drafts, histogram) =
        report::recorded(run, old, &collected, &observed.server_nodes, context.now());
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace(run));
    let sent = objects::apply(
        &maps,
        Manager::Benchmark,
        &render::histogram(run, &histogram),
        None,
    )
    .await
    .map_err(Error::Apply)?;
    context.wrote(sent);
    report::report(context, run, (status, drafts)).await?;
    clean_up(context, observed).await
}

async fn clean_up(context: &Context, observed: &Observed) -> Result<(), Error> {
    let Some(job) = observed
        .job
        .as_ref()
        .filter(|job| job.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &namespace(&observed.run));
    objects::delete(&jobs, &job.name_any(), job.metadata.uid.as_deref())
        .await
        .map_err(Error::Apply)?;
    context.wrote(true);
    Ok(())
}

fn is_owned(job: &Job, run: &BenchmarkRun) -> bool {
    let owners = job.meta().owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| Some(&owner.uid) == run.metadata.uid.as_ref())
}

fn namespace(run: &BenchmarkRun) -> String {
    run.namespace().unwrap_or_default()
}
