//! Puts the nodes back, before a resource is deleted or the operator goes.
//!
//! The order: first the DaemonSet goes and its pods end, since a restarted sandbox would tune again;
//! then the owner is marked `Released` on each node; then each live node's agent confirms. Nodes
//! that are gone or not ready are not waited for. A time limit, or an annotation, ends the waiting.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use tunedweb_api::condition::Reason;
use tunedweb_api::names::{
    COMPONENT_LABEL, FINALIZER, SERVER_COMPONENT, SERVER_LABEL, SKIP_RESTORE_ANNOTATION,
};
use tunedweb_api::{NodeTuning, TunedWebServer};

use super::Error;
use super::apply::is_owned;
use super::report::{Report, report, tell};
use crate::context::Context;
use crate::drain::Mark;
use crate::events::Transition;
use crate::node_tuning;
use crate::nodes;
use crate::objects;
use crate::pods;
use crate::queues::Touch;

/// How soon it is looked again where no watch tells of a change.
const POLL: Duration = Duration::from_secs(2);

/// Nodes named in a message.
const NAMED_MAX: usize = 10;

/// Why a resource leaves, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Leave {
    pub(crate) reason: Reason,
    since: Timestamp,
    limit: Duration,
}

impl Leave {
    pub(crate) fn deleted(since: Timestamp, limit: Duration) -> Self {
        Self {
            reason: Reason::Deleting,
            since,
            limit,
        }
    }

    /// Ends before whoever waits for the drain does.
    pub(crate) fn drained(mark: &Mark, limit: Duration) -> Self {
        Self {
            reason: Reason::Draining,
            since: mark.since,
            limit: limit.min(mark.timeout.mul_f64(0.75)),
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        let waited = now.duration_since(self.since);
        SignedDuration::try_from(self.limit).is_ok_and(|limit| waited >= limit)
    }
}

/// One step on the way out. The finalizer goes with the last one.
pub(crate) async fn leave(
    context: &Context,
    server: &TunedWebServer,
    leave: &Leave,
) -> Result<Action, Error> {
    if !server.finalizers().iter().any(|name| name == FINALIZER) {
        return left(context, server, leave).await;
    }
    let missing = match missing(context, server).await? {
        Missing::Nothing => return let_go(context, server, leave, Reason::Restored, "").await,
        missing => missing,
    };
    let message = missing.message();
    let skip = server
        .annotations()
        .get(SKIP_RESTORE_ANNOTATION)
        .is_some_and(|v| v == "true");
    if skip || leave.is_over(context.now()) {
        let why = if skip {
            format!("by the annotation {SKIP_RESTORE_ANNOTATION}")
        } else {
            format!("after {} s", leave.limit.as_secs())
        };
        let message = format!("gone {why}, {message}");
        return let_go(context, server, leave, Reason::RestoreIncomplete, &message).await;
    }
    report(
        context,
        server,
        None,
        Report::leaving(leave.reason, &message, false),
    )
    .await?;
    Ok(Action::requeue(POLL))
}

/// What has to happen before the resource may go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// Pods on live nodes that have not ended.
    Pods(usize),
    /// Live nodes that have not confirmed.
    Nodes(Vec<String>),
}

impl Missing {
    fn message(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Pods(count) => format!("waiting for {count} serving pods to end"),
            Self::Nodes(names) => {
                let first: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
                format!(
                    "waiting for {} nodes to be put back: {}",
                    names.len(),
                    first.join(", ")
                )
            }
        }
    }
}

async fn missing(context: &Context, server: &TunedWebServer) -> Result<Missing, Error> {
    let uid = server.uid().unwrap_or_default();
    delete_daemon_set(context, server, &uid).await?;
    let pods = live_pods(context, server).await?;
    if pods > 0 {
        return Ok(Missing::Pods(pods));
    }
    if !context.memory.has_ended(&uid) {
        context.memory.set_ended(&uid);
        context.touch(Touch::AllNodes).await;
    }
    let nodes = unconfirmed_nodes(context, &uid).await?;
    Ok(if nodes.is_empty() {
        Missing::Nothing
    } else {
        Missing::Nodes(nodes)
    })
}

async fn delete_daemon_set(
    context: &Context,
    server: &TunedWebServer,
    uid: &str,
) -> Result<(), Error> {
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &namespace(server));
    let name = server.name_any();
    let live = api
        .get_opt(&name)
        .await
        .map_err(|source| Error::Leave(objects::request::<DaemonSet>("read", &name, source)))?;
    match live {
        Some(live) if is_owned(&live, uid) && live.metadata.deletion_timestamp.is_none() => {
            objects::delete(&api, &name, live.metadata.uid.as_deref())
                .await
                .map_err(Error::Leave)?;
            context.wrote(true);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Serving pods that may still tune. Those of nodes that are gone or not ready are not waited for.
async fn live_pods(context: &Context, server: &TunedWebServer) -> Result<usize, Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &namespace(server));
    let labels = format!(
        "{SERVER_LABEL}={},{COMPONENT_LABEL}={SERVER_COMPONENT}",
        server.name_any()
    );
    let list = api
        .list(&ListParams::default().labels(&labels))
        .await
        .map_err(|source| Error::Leave(objects::request::<Pod>("list", &labels, source)))?;
    let lives = |pod: &Pod| {
        // a pod that was never placed cannot tune, and goes with its DaemonSet
        pods::node_name(pod).is_some_and(|node| is_live(context, node))
    };
    Ok(list.iter().filter(|pod| lives(pod)).count())
}

/// Live nodes whose NodeTuning still holds the owner.
async fn unconfirmed_nodes(context: &Context, uid: &str) -> Result<Vec<String>, Error> {
    let api: Api<crate::cluster::Guarded<NodeTuning>> = Api::all(context.client.clone());
    let list = api
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::Leave(objects::request::<NodeTuning>("list", "all", source)))?;
    let mut names: Vec<String> = list
        .iter()
        .filter_map(|tuning| tuning.0.as_ref().ok())
        .filter(|tuning| holds(tuning, uid) && is_live(context, &tuning.name_any()))
        .map(ResourceExt::name_any)
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Whether a node still has something of an owner, as far as is known.
fn holds(tuning: &NodeTuning, uid: &str) -> bool {
    let owner = tuning.spec.owners.iter().find(|owner| owner.uid == uid);
    owner.is_some_and(|owner| !node_tuning::is_released(tuning, owner))
}

fn is_live(context: &Context, node: &str) -> bool {
    context
        .cluster
        .nodes
        .get(&ObjectRef::new(node))
        .is_some_and(|node| nodes::is_ready(&node))
}

/// Removes the finalizer, and says how it ended.
async fn let_go(
    context: &Context,
    server: &TunedWebServer,
    leave: &Leave,
    outcome: Reason,
    message: &str,
) -> Result<Action, Error> {
    let api: Api<TunedWebServer> = Api::namespaced(context.client.clone(), &namespace(server));
    let others: Vec<String> = server
        .finalizers()
        .iter()
        .filter(|name| *name != FINALIZER)
        .cloned()
        .collect();
    objects::set_finalizers(&api, server, &others)
        .await
        .map_err(Error::Leave)?;
    context.wrote(true);
    let note = match outcome {
        Reason::Restored => "every live node was put back".to_owned(),
        _ => message.to_owned(),
    };
    let warning = outcome != Reason::Restored;
    let transition = Transition {
        reason: outcome.as_str().to_owned(),
        note,
        warning,
    };
    tell(context, server, vec![transition]).await;
    if leave.reason == Reason::Deleting {
        context
            .memory
            .forget_owner(&server.uid().unwrap_or_default());
    }
    Ok(Action::await_change())
}

/// A resource that stays, after its nodes were put back.
async fn left(context: &Context, server: &TunedWebServer, leave: &Leave) -> Result<Action, Error> {
    if server.metadata.deletion_timestamp.is_none() {
        let message = "the operator is being uninstalled: nothing is rendered, nodes are let go";
        report(
            context,
            server,
            None,
            Report::leaving(leave.reason, message, true),
        )
        .await?;
    }
    Ok(Action::await_change())
}

fn namespace(server: &TunedWebServer) -> String {
    server.namespace().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_limit_counts_from_the_deletion() {
        let leave = Leave::deleted(at(100), Duration::from_mins(2));
        assert!(!leave.is_over(at(219)));
        assert!(leave.is_over(at(220)));
    }

    #[test]
    fn a_drain_ends_before_whoever_waits_for_it() {
        let mark = Mark {
            since: at(100),
            timeout: Duration::from_mins(2),
        };
        let leave = Leave::drained(&mark, Duration::from_mins(5));
        assert!(leave.is_over(at(190)) && !leave.is_over(at(189)));
    }

    #[test]
    fn many_nodes_are_counted_and_ten_are_named() {
        let names = (0..12).map(|n| format!("n{n:02}")).collect();
        let message = Missing::Nodes(names).message();
        assert!(
            message.starts_with("waiting for 12 nodes") && message.ends_with("n09"),
            "{message}"
        );
    }
}
