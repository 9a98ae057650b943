//! The controller of `NodeTuning`: writes each node's wishes, whole, from all resources.
//!
//! One writer for all of a node: several with one field manager would erase each other. What a
//! server wants comes from its own spec, never from an object that its users can edit.

mod resolve;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ObjectMeta};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use tunedweb_api::names::{MANAGED_BY, MANAGED_BY_LABEL, SERVER_LABEL, TUNE_CONTAINER};
use tunedweb_api::node_tuning::NodeOwner;
use tunedweb_api::{NodeTuning, NodeTuningSpec, TunedWebServer};
use tunedweb_tuning::{ApplyReport, Outcome};

pub(crate) use resolve::is_released;

use crate::context::Context;
use crate::drain;
use crate::metrics::Kind;
use crate::nodes;
use crate::objects::{self, Manager, RequestError, WriteError};
use crate::pods;
use crate::runner::{Visit, spread};
use crate::tuned_web_server::wishes;
use resolve::{Claim, Claimant, Resolved};

/// Why a visit failed, by step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("read the drain mark")]
    Drain(#[source] RequestError),
    #[error("apply")]
    Apply(#[source] WriteError),
}

/// One visit.
pub(crate) fn reconcile(
    node: Arc<Node>,
    context: Arc<Context>,
) -> BoxFuture<'static, Visit<Error>> {
    Box::pin(async move { visit(&context, &node).await })
}

async fn visit(context: &Context, node: &Node) -> Visit<Error> {
    let name = node.name_any();
    let observed = observe(context, node).await?;
    let before = observed.before.as_ref();
    let Resolved { owners, dropped } = resolve::resolve(before, &observed.claims);
    context.metrics.owners_dropped.inc_by(dropped);
    let is_needed = observed.has_agent || !owners.is_empty() || before.is_some();
    if is_needed && node.metadata.deletion_timestamp.is_none() {
        let api: Api<NodeTuning> = Api::all(context.client.clone());
        let sent = objects::apply(&api, Manager::Node, &render(node, owners), before)
            .await
            .map_err(Error::Apply)?;
        context.wrote(sent);
    }
    Ok(Action::requeue(spread(
        context.options.drift_interval,
        &name,
    )))
}

struct Observed {
    before: Option<NodeTuning>,
    has_agent: bool,
    claims: Vec<Claim>,
}

async fn observe(context: &Context, node: &Node) -> Result<Observed, Error> {
    let name = node.name_any();
    let found = context.cluster.node_tunings.get(&ObjectRef::new(&name));
    let before = match found.as_deref().map(|found| &found.0) {
        None => None,
        Some(Ok(tuning)) => Some(tuning.clone()),
        Some(Err(_)) => {
            context.metrics.undecodable(Kind::NodeTuning);
            None
        }
    };
    let mark = drain::mark(context)
        .await
        .map_err(|source| Error::Drain(source.into()))?;
    let servers = context.cluster.servers.state();
    let claim = |server: &crate::cluster::Guarded<TunedWebServer>| {
        let uid = server.meta().uid.clone()?;
        let resource = format!("{}/{}", server.namespace()?, server.name_any());
        let claimant = match &server.0 {
            // nobody can tell what it wants
            Err(_) => Claimant::Unknown,
            Ok(server) => Claimant::Known {
                selects: nodes::is_selected(node, &server.spec.placement),
                wishes: wishes(context, server, mark.is_some()),
                carried_out: carried_out(context, server, &name),
            },
        };
        Some(Claim {
            uid,
            resource,
            claimant,
        })
    };
    Ok(Observed {
        before,
        has_agent: context.cluster.has_agent(&name),
        claims: servers.iter().filter_map(|server| claim(server)).collect(),
    })
}

/// Generations of a server's plan that the init containers of its pods on a node have carried out.
fn carried_out(context: &Context, server: &TunedWebServer, node: &str) -> Vec<i64> {
    let (namespace, name) = (server.namespace(), server.name_any());
    let of_server = |pod: &Pod| {
        pod.namespace() == namespace
            && pod.labels().get(SERVER_LABEL) == Some(&name)
            && pods::node_name(pod) == Some(node)
    };
    let report = |pod: &Pod| {
        let ended = pods::ended(pod, TUNE_CONTAINER)?;
        let report: ApplyReport = serde_json::from_str(ended.message).ok()?;
        (report.outcome == Outcome::Applied).then_some(report.generation)
    };
    let pods = context.cluster.pods.state();
    let of_server = pods.iter().filter(|pod| of_server(pod));
    of_server.filter_map(|pod| report(pod)).collect()
}

fn render(node: &Node, owners: Vec<NodeOwner>) -> NodeTuning {
    NodeTuning {
        metadata: ObjectMeta {
            name: node.metadata.name.clone(),
            labels: Some([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())].into()),
            // it goes with its node
            owner_references: node.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: NodeTuningSpec { owners },
        status: None,
    }
}
