//! Writes the status, and events where something changed.

use kube::api::Api;
use kube::{Resource as _, ResourceExt as _};
use tunedweb_api::condition::{ConditionType, Reason};
use tunedweb_api::tuned_web_server::{NodeCounts, TunedWebServerStatus};
use tunedweb_api::{TunedWebServer, condition};

use super::Error;
use super::observe::Observed;
use super::resolve::Obstacle;
use super::runs;
use crate::conditions::{Draft, Status, settle};
use crate::context::Context;
use crate::events::{Transition, transitions};
use crate::objects::{self, Manager};

/// Types of conditions whose changes are events.
const TOLD: [ConditionType; 2] = [ConditionType::Ready, ConditionType::BenchmarkPassed];

/// What a visit found, before it is compared with what the status says already.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) conditions: Vec<Draft>,
    /// None: as before.
    pub(crate) nodes: Option<NodeCounts>,
    /// None: as before.
    pub(crate) serving_hash: Option<String>,
}

impl Report {
    /// Nothing is known yet.
    pub(crate) fn first() -> Self {
        let draft = |kind, status| Draft::new(kind, status, Reason::Pending, "");
        Self::of(vec![
            draft(ConditionType::Ready, Status::Unknown),
            draft(ConditionType::Reconciling, Status::True),
            draft(ConditionType::Stalled, Status::False),
            draft(ConditionType::Tuned, Status::Unknown),
            draft(ConditionType::Serving, Status::Unknown),
        ])
    }

    /// Obstacles: nothing was changed, and what served keeps serving.
    pub(crate) fn stalled(obstacles: &[Obstacle], old: &TunedWebServerStatus) -> Self {
        let reason = obstacles
            .first()
            .map_or(Reason::InvalidSpec, |first| first.reason);
        let lines: Vec<&str> = obstacles.iter().map(|o| o.message.as_str()).collect();
        Self::waiting_for_a_person(reason, lines.join("\n"), old)
    }

    /// Something that only a person can change.
    pub(crate) fn waiting_for_a_person(
        reason: Reason,
        message: String,
        old: &TunedWebServerStatus,
    ) -> Self {
        let mut conditions = vec![
            Draft::new(ConditionType::Ready, Status::False, reason, message.clone()),
            Draft::new(
                ConditionType::Reconciling,
                Status::False,
                Reason::AsSpecified,
                "",
            ),
            Draft::new(ConditionType::Stalled, Status::True, reason, message),
        ];
        conditions.extend(unchanged(old));
        Self::of(conditions)
    }

    /// Kubernetes did not do what it was asked; it is asked again.
    pub(crate) fn failed(message: &str, old: &TunedWebServerStatus) -> Self {
        let reason = Reason::ApplyFailed;
        let mut conditions = vec![
            Draft::new(ConditionType::Ready, Status::False, reason, message),
            Draft::new(ConditionType::Reconciling, Status::True, reason, message),
            Draft::new(
                ConditionType::Stalled,
                Status::False,
                Reason::AsSpecified,
                "",
            ),
        ];
        conditions.extend(unchanged(old));
        Self::of(conditions)
    }

    /// On the way out, by deletion or by the end of the operator.
    pub(crate) fn leaving(reason: Reason, message: &str, is_over: bool) -> Self {
        let of = |kind, status| Draft::new(kind, status, reason, message);
        Self {
            conditions: vec![
                of(ConditionType::Ready, Status::False),
                of(ConditionType::Reconciling, Status::of(!is_over)),
                Draft::new(
                    ConditionType::Stalled,
                    Status::False,
                    Reason::AsSpecified,
                    "",
                ),
                of(ConditionType::Tuned, Status::False),
                of(ConditionType::Serving, Status::False),
            ],
            nodes: Some(NodeCounts::default()),
            serving_hash: Some(String::new()),
        }
    }

    fn of(conditions: Vec<Draft>) -> Self {
        Self {
            conditions,
            nodes: None,
            serving_hash: None,
        }
    }
}

/// Tuned and Serving as they were last known.
fn unchanged(old: &TunedWebServerStatus) -> Vec<Draft> {
    let of = |kind: ConditionType| {
        let found = condition::find(&old.conditions, kind);
        let status = match found.map(|found| found.status.as_str()) {
            Some("True") => Status::True,
            Some("False") => Status::False,
            _ => Status::Unknown,
        };
        let reason = found
            .and_then(|found| {
                Reason::ALL
                    .iter()
                    .find(|reason| reason.as_str() == found.reason)
            })
            .copied()
            .unwrap_or(Reason::Pending);
        let message = found.map_or("", |found| found.message.as_str());
        Draft::new(kind, status, reason, message)
    };
    vec![of(ConditionType::Tuned), of(ConditionType::Serving)]
}

/// The status that is there; empty on the first visit.
pub(crate) fn status_of(server: &TunedWebServer) -> TunedWebServerStatus {
    server.status.clone().unwrap_or_default()
}

/// Writes what differs, and tells what changed. Returns the status as it is now.
pub(crate) async fn report(
    context: &Context,
    server: &TunedWebServer,
    observed: Option<&Observed>,
    report: Report,
) -> Result<TunedWebServerStatus, Error> {
    let old = status_of(server);
    let Report {
        mut conditions,
        nodes,
        serving_hash,
    } = report;
    let benchmarks = match observed {
        Some(observed) => runs::results(server, &observed.runs),
        None => old.benchmarks.clone(),
    };
    conditions.push(runs::condition(server, &benchmarks));
    let generation = server.metadata.generation;
    let new = TunedWebServerStatus {
        observed_generation: generation.unwrap_or_default(),
        conditions: settle(&old.conditions, conditions, generation, context.now()),
        nodes: nodes.unwrap_or_else(|| old.nodes.clone()),
        serving_hash: serving_hash.unwrap_or_else(|| old.serving_hash.clone()),
        benchmarks,
    };
    write(context, server, &new).await?;
    let changes = transitions(&TOLD, &old.conditions, &new.conditions);
    tell(context, server, changes).await;
    Ok(new)
}

async fn write(
    context: &Context,
    server: &TunedWebServer,
    status: &TunedWebServerStatus,
) -> Result<(), Error> {
    let namespace = server.namespace().unwrap_or_default();
    let api: Api<TunedWebServer> = Api::namespaced(context.client.clone(), &namespace);
    let name = server.name_any();
    let old = server.status.as_ref();
    let sent = objects::apply_status(&api, Manager::Server, &name, old, status)
        .await
        .map_err(Error::Report)?;
    context.wrote(sent);
    Ok(())
}

pub(crate) async fn tell(context: &Context, server: &TunedWebServer, changes: Vec<Transition>) {
    context
        .events
        .publish(&server.object_ref(&()), changes)
        .await;
}
