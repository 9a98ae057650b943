//! The controller of `TunedWebServer`: observe → resolve → render → apply → report.

mod admission;
mod apply;
mod judge;
mod leave;
mod observe;
mod probe;
mod render;
mod report;
mod resolve;
mod runs;
mod spec;
mod summary;
mod wishes;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::Action;
use tunedweb_api::TunedWebServer;
use tunedweb_api::condition::{ConditionType, find};
use tunedweb_api::names::FINALIZER;

pub(crate) use spec::load_problem;
pub(crate) use wishes::{Wishes, wishes};

use crate::cluster::Guarded;
use crate::conditions::Status;
use crate::content::Content;
use crate::context::Context;
use crate::drain;
use crate::errors;
use crate::metrics::Kind;
use crate::objects::{self, Manager, RequestError, WriteError};
use crate::runner::{Visit, spread};
use judge::{Expected, NodeState};
use leave::Leave;
use observe::Observed;
use probe::Questions;
use render::RenderedServer;
use report::{Report, report, status_of};
use resolve::ResolvedServer;
use summary::Progress;

/// How soon serving pods are asked again for what they have not answered: a `ConfigMap` takes up to
/// a minute to arrive, and nobody tells when it has.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Why a visit failed, by step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("observe")]
    Observe(#[source] WriteError),
    #[error("read the drain mark")]
    Drain(#[source] RequestError),
    #[error("render")]
    Render(#[source] render::RenderError),
    #[error("apply")]
    Apply(#[source] WriteError),
    #[error("{kind} {name} exists and belongs to another; rename or delete one of them")]
    NameTaken { kind: String, name: String },
    #[error("report")]
    Report(#[source] WriteError),
    #[error("put the nodes back")]
    Leave(#[source] WriteError),
}

/// One visit.
pub(crate) fn reconcile(
    object: Arc<Guarded<TunedWebServer>>,
    context: Arc<Context>,
) -> BoxFuture<'static, Visit<Error>> {
    Box::pin(async move {
        match &object.0 {
            Ok(server) => visit(&context, server).await,
            Err(invalid) => undecodable(&context, invalid).await,
        }
    })
}

async fn undecodable(context: &Context, invalid: &InvalidObject) -> Visit<Error> {
    let conditions = [
        (ConditionType::Ready, Status::False),
        (ConditionType::Reconciling, Status::False),
        (ConditionType::Stalled, Status::True),
    ];
    let (kind, manager) = (Kind::TunedWebServer, Manager::Server);
    crate::undecodable::report::<TunedWebServer>(context, kind, manager, invalid, &conditions)
        .await
        .map_err(Error::Report)
}

async fn visit(context: &Context, server: &TunedWebServer) -> Visit<Error> {
    let result = match leaving(context, server).await? {
        Some(leave) => leave::leave(context, server, &leave).await,
        None => serve(context, server).await,
    };
    if let Err(error) = &result
        && !is_conflict(error)
    {
        let failed = Report::failed(&errors::chain(error), &status_of(server));
        // where even this fails, the error itself is told in the log
        let _ = report(context, server, None, failed).await;
    }
    result
}

/// Whether and why the resource is on its way out.
async fn leaving(context: &Context, server: &TunedWebServer) -> Result<Option<Leave>, Error> {
    let limit = context.options.restore_timeout;
    if let Some(since) = &server.metadata.deletion_timestamp {
        return Ok(Some(Leave::deleted(since.0, limit)));
    }
    let mark = drain::mark(context)
        .await
        .map_err(|source| Error::Drain(source.into()))?;
    Ok(mark.map(|mark| Leave::drained(&mark, limit)))
}

async fn serve(context: &Context, server: &TunedWebServer) -> Visit<Error> {
    let mut server = server.clone();
    if find(&status_of(&server).conditions, ConditionType::Ready).is_none() {
        server.status = Some(report(context, &server, None, Report::first()).await?);
    }
    forget_others(context);
    let observed = observe::observe(context, &server).await?;
    let options = &context.options;
    let resolved = resolve::resolve(
        &server,
        observed.references(),
        &options.server_image,
        &options.node_access,
    );
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err(obstacles) => {
            let stalled = Report::stalled(&obstacles, &status_of(&server));
            report(context, &server, Some(&observed), stalled).await?;
            return Ok(later(context, &server));
        }
    };
    let live = observed.daemon_set.as_deref();
    let generation = render::plan_generation(&resolved.tuning, resolved.generation, live);
    let rendered = render::render(&server, &resolved, generation, &options.tuner_image)
        .map_err(Error::Render)?;
    if let Some(refused) = admission::check(context, &resolved, &rendered).await {
        let stalled = Report::stalled(&[refused], &status_of(&server));
        report(context, &server, Some(&observed), stalled).await?;
        return Ok(later(context, &server));
    }
    hold(context, &server).await?;
    apply::apply(context, &resolved, &observed, &rendered).await?;
    follow(
        context,
        &server,
        &Applied {
            resolved,
            rendered,
            observed,
            generation,
        },
    )
    .await
}

/// What was sent, and what had been observed before.
struct Applied {
    resolved: ResolvedServer,
    rendered: RenderedServer,
    observed: Observed,
    generation: i64,
}

/// The finalizer stands before the first object that touches a node.
async fn hold(context: &Context, server: &TunedWebServer) -> Result<(), Error> {
    if server.finalizers().iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    let namespace = server.namespace().unwrap_or_default();
    let api: Api<TunedWebServer> = Api::namespaced(context.client.clone(), &namespace);
    let mut finalizers = server.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    objects::set_finalizers(&api, server, &finalizers)
        .await
        .map_err(Error::Apply)?;
    context.wrote(true);
    Ok(())
}

/// Looks how far the nodes are, reports it, and starts what waits for them.
async fn follow(context: &Context, server: &TunedWebServer, applied: &Applied) -> Visit<Error> {
    let Applied {
        resolved,
        rendered,
        observed,
        generation,
    } = applied;
    let expected = Expected {
        owner_uid: &resolved.uid,
        template_hash: &rendered.template_hash,
        plan_hash: rendered.plan.as_ref().map(|plan| plan.hash.as_str()),
        plan_generation: *generation,
        has_node_keys: !resolved.tuning.node.is_empty(),
        nofile: resolved.tuning.nofile,
    };
    let Some(wanted) = &observed.content else {
        return Ok(later(context, server));
    };
    let pods = ready_pods(observed, &rendered.template_hash);
    let questions = Questions {
        wants_report: expected.nofile.is_some(),
        content: wanted,
        port: resolved.network.container_port,
    };
    probe::probe(context, &pods, questions).await;
    let states = judged(context, observed, &expected);
    let serving_hash = resolved.serving_hash();
    let progress = Progress {
        states: &states,
        wants_tuning: !resolved.tuning.is_empty(),
        was_reached: status_of(server).serving_hash == serving_hash,
        has_content: with_content(context, observed, &pods, wanted),
        pods_refused: refused(context, observed, &states).await,
    };
    let is_settled = progress.is_settled();
    let progress = Progress {
        was_reached: progress.was_reached || is_settled,
        ..progress
    };
    let told = Report {
        conditions: progress.conditions(),
        nodes: Some(progress.counts()),
        serving_hash: is_settled.then(|| serving_hash.clone()),
    };
    report(context, server, Some(observed), told).await?;
    if is_settled {
        for run in runs::due(server, &serving_hash, &observed.runs) {
            apply::create_run(context, &run).await?;
        }
    }
    if is_answered(context, &pods, &expected, wanted) {
        Ok(later(context, server))
    } else {
        Ok(Action::requeue(ASK_AGAIN))
    }
}

fn ready_pods<'a>(observed: &'a Observed, template_hash: &str) -> Vec<&'a Pod> {
    let nodes = observed.nodes.iter().filter(|node| node.is_ready);
    nodes
        .filter_map(|node| {
            let pods = observed.pods.iter().map(AsRef::as_ref);
            judge::current_pod(pods, &node.name, template_hash)
        })
        .filter(|pod| crate::pods::is_ready(pod))
        .collect()
}

fn judged(context: &Context, observed: &Observed, expected: &Expected<'_>) -> Vec<NodeState> {
    let judge_one = |node: &observe::ObservedNode| {
        let pods = observed.pods.iter().map(AsRef::as_ref);
        let pod = judge::current_pod(pods, &node.name, expected.template_hash);
        let known = pod
            .and_then(ResourceExt::uid)
            .map(|uid| context.memory.pod(&uid));
        let report = known.and_then(|known| known.tuning);
        judge::judge(
            node,
            expected,
            pod,
            report.as_ref().map(|(report, _)| report),
        )
    };
    observed.nodes.iter().map(judge_one).collect()
}

/// Reachable nodes whose pod was seen to serve the content.
fn with_content(context: &Context, observed: &Observed, pods: &[&Pod], wanted: &Content) -> usize {
    let ready: Vec<&str> = observed
        .nodes
        .iter()
        .filter(|node| node.is_ready)
        .map(|n| n.name.as_str())
        .collect();
    pods.iter()
        .filter(|pod| crate::pods::node_name(pod).is_some_and(|node| ready.contains(&node)))
        .filter(|pod| probe::serves(context, pod, wanted))
        .count()
}

/// Why there is no pod at all on a node that should have one.
async fn refused(
    context: &Context,
    observed: &Observed,
    states: &[NodeState],
) -> Option<judge::Failure> {
    let daemon_set = observed.daemon_set.as_deref()?;
    let is_bare = |state: &NodeState| {
        let on_node = |pod: &Pod| crate::pods::target_node(pod) == Some(state.name.as_str());
        state.is_reachable && !observed.pods.iter().any(|pod| on_node(pod))
    };
    if !states.iter().any(is_bare) {
        return None;
    }
    admission::refused_pods(context, daemon_set).await
}

fn is_answered(
    context: &Context,
    pods: &[&Pod],
    expected: &Expected<'_>,
    wanted: &Content,
) -> bool {
    pods.iter().all(|pod| {
        let known = pod
            .uid()
            .map(|uid| context.memory.pod(&uid))
            .unwrap_or_default();
        let has_report = expected.nofile.is_none() || known.tuning.is_some();
        has_report && known.content.as_ref() == Some(&wanted.hash)
    })
}

/// Forgets what belongs to pods and contents that are gone.
fn forget_others(context: &Context) {
    let cluster = &context.cluster;
    let pods = cluster.pods.state();
    let uids: std::collections::HashSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.uid.as_deref())
        .collect();
    context.memory.retain_pods(|uid| uids.contains(uid));
    let servers = cluster.servers.state();
    context.memory.retain_contents(|namespace, name| {
        servers
            .iter()
            .filter_map(|server| server.0.as_ref().ok())
            .any(|server| {
                server.namespace().as_deref() == Some(namespace)
                    && server.spec.content.config_map.name == name
            })
    });
}

/// The next visit without a reason.
fn later(context: &Context, server: &TunedWebServer) -> Action {
    Action::requeue(spread(
        context.options.drift_interval,
        &server.uid().unwrap_or_default(),
    ))
}

/// Somebody else wrote in between; the next visit sees it.
fn is_conflict(error: &Error) -> bool {
    match error {
        Error::Observe(source)
        | Error::Apply(source)
        | Error::Report(source)
        | Error::Leave(source) => source.is_conflict(),
        Error::Drain(_) | Error::Render(_) | Error::NameTaken { .. } => false,
    }
}
