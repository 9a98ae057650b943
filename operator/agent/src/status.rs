//! From the spec to the tuner's wishes, and from the tuner's report to the status. Pure.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tunedweb_api::condition::{self, ConditionType, Reason};
use tunedweb_api::node_tuning::{NodeOwner, OwnerOutcome, OwnerState, OwnerStatus};
use tunedweb_api::{NodeTuningSpec, NodeTuningStatus};
use tunedweb_tuner::{OwnerOutcome as Outcome, OwnerReport, OwnerWishes, Standing, SyncReport};
use tunedweb_tuning::{KeyReport, KeyState, NodeFacts, Owner};

/// What the tuner is asked for.
pub(crate) fn wishes(spec: &NodeTuningSpec) -> Vec<OwnerWishes> {
    spec.owners.iter().map(wishes_of).collect()
}

fn wishes_of(owner: &NodeOwner) -> OwnerWishes {
    OwnerWishes {
        owner: Owner {
            uid: owner.uid.clone(),
            resource: owner.resource.clone(),
            generation: owner.generation,
        },
        standing: match owner.state {
            OwnerState::Active => Standing::Active,
            OwnerState::Pending => Standing::Pending,
            OwnerState::Released => Standing::Released,
        },
        sysctls: owner.sysctls.clone(),
    }
}

/// The status after the node was compared with generation `generation` of the spec.
pub(crate) fn after_sync(
    former: &NodeTuningStatus,
    generation: i64,
    report: &SyncReport,
    facts: NodeFacts,
    now: Timestamp,
) -> NodeTuningStatus {
    let (reason, message) = verdict(report);
    NodeTuningStatus {
        observed_generation: generation,
        boot_id: report.boot_id.clone(),
        facts,
        owners: report
            .owners
            .iter()
            .map(|owner| owner_status(former, owner, &report.released))
            .collect(),
        keys: report
            .keys
            .iter()
            .take(KEYS_MAX)
            .cloned()
            .map(KeyReport::bounded)
            .collect(),
        conditions: with_applied(former, generation, reason, &message, now),
    }
}

/// The status after the tuner could not even try: what it acknowledged before stands.
pub(crate) fn after_failure(
    former: &NodeTuningStatus,
    generation: i64,
    message: &str,
    now: Timestamp,
) -> NodeTuningStatus {
    NodeTuningStatus {
        observed_generation: generation,
        conditions: with_applied(former, generation, Reason::TuningFailed, message, now),
        ..former.clone()
    }
}

/// The status where the spec does not fit this agent's schema: the node stays as it is.
pub(crate) fn undecodable(
    former: &NodeTuningStatus,
    generation: i64,
    error: &str,
    now: Timestamp,
) -> NodeTuningStatus {
    let message = format!(
        "this agent (version {}) cannot read the object, and leaves the node as it is: {error}",
        env!("CARGO_PKG_VERSION")
    );
    NodeTuningStatus {
        conditions: with_applied(former, generation, Reason::Undecodable, &message, now),
        ..former.clone()
    }
}

/// Owners whose wishes could not be met or put back.
pub(crate) fn owners_failed(status: &NodeTuningStatus) -> usize {
    let failed = |owner: &&OwnerStatus| owner.state == OwnerOutcome::Failed;
    status.owners.iter().filter(failed).count()
}

fn verdict(report: &SyncReport) -> (Reason, String) {
    let problems: Vec<String> = report
        .owners
        .iter()
        .filter(|owner| outcome(owner.outcome) == OwnerOutcome::Failed)
        .map(|owner| format!("{}: {}", owner.resource, problem(owner)))
        .collect();
    if !problems.is_empty() {
        return (failure_reason(report), problems.join("; "));
    }
    let resources = report
        .owners
        .iter()
        .filter(|owner| owner.outcome == Outcome::Applied)
        .count();
    match (report.keys.len(), resources) {
        (0, 0) => (
            Reason::NotRequested,
            "no resource wants a key of this node".to_owned(),
        ),
        (keys, resources) => (
            Reason::AsSpecified,
            format!(
                "in place: {}, wanted by {}",
                count(keys, "key"),
                count(resources, "resource")
            ),
        ),
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A conflict is told apart because it is solved elsewhere: in the resources, not on the node.
fn failure_reason(report: &SyncReport) -> Reason {
    let mut failures = report
        .owners
        .iter()
        .flat_map(|owner| &owner.failures)
        .peekable();
    let any = failures.peek().is_some();
    if any && failures.all(|key| matches!(key.state, KeyState::Conflict | KeyState::Skipped)) {
        Reason::Conflict
    } else {
        Reason::TuningFailed
    }
}

fn owner_status(
    former: &NodeTuningStatus,
    report: &OwnerReport,
    released: &[KeyReport],
) -> OwnerStatus {
    let state = outcome(report.outcome);
    let message = match state {
        OwnerOutcome::Applied | OwnerOutcome::Pending => String::new(),
        OwnerOutcome::Failed => problem(report),
        OwnerOutcome::Released => left_behind(report, released),
    };
    let status = OwnerStatus {
        uid: report.uid.clone(),
        generation: report.generation,
        state,
        message: cut(&message, MESSAGE_MAX),
    };
    // The tuner forgets a released owner at once; its acknowledgement stands until the operator
    // has read it and forgets the owner too.
    let acknowledged = former.owners.iter().find(|before| {
        before.state == OwnerOutcome::Released
            && status.state == OwnerOutcome::Released
            && before.uid == status.uid
            && status.message.is_empty()
    });
    acknowledged.cloned().unwrap_or(status)
}

fn outcome(outcome: Outcome) -> OwnerOutcome {
    match outcome {
        Outcome::Applied => OwnerOutcome::Applied,
        Outcome::Pending => OwnerOutcome::Pending,
        Outcome::Failed | Outcome::Superseded | Outcome::RestoreFailed => OwnerOutcome::Failed,
        Outcome::Released => OwnerOutcome::Released,
    }
}

fn problem(owner: &OwnerReport) -> String {
    let keys = each_key(&owner.failures);
    match owner.outcome {
        Outcome::Superseded => format!(
            "the node has wishes of a later generation than {}; they stay",
            owner.generation
        ),
        Outcome::RestoreFailed => format!("not put back yet, will be tried again: {keys}"),
        _ => keys,
    }
}

/// Keys of a released owner that were left as they are for good, with the reason. The tuner tells
/// whose they were only while others want them too.
fn left_behind(owner: &OwnerReport, released: &[KeyReport]) -> String {
    let left: Vec<KeyReport> = released
        .iter()
        .filter(|key| matches!(key.state, KeyState::ChangedByOthers | KeyState::Kept))
        .filter(|key| key.owners.is_empty() || key.owners.contains(&owner.resource))
        .cloned()
        .collect();
    each_key(&left)
}

fn each_key(keys: &[KeyReport]) -> String {
    let texts: Vec<String> = keys
        .iter()
        .map(|key| match key.reason.as_str() {
            "" => format!("{}: {:?}", key.name, key.state),
            reason => format!("{}: {reason}", key.name),
        })
        .collect();
    texts.join("; ")
}

fn with_applied(
    former: &NodeTuningStatus,
    generation: i64,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let holds = matches!(reason, Reason::AsSpecified | Reason::NotRequested);
    let status = if holds { "True" } else { "False" };
    let since = condition::find(&former.conditions, ConditionType::Applied)
        .filter(|before| before.status == status)
        .map_or_else(
            || Time(to_second(now)),
            |before| before.last_transition_time.clone(),
        );
    vec![Condition {
        type_: ConditionType::Applied.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message: cut(message, MESSAGE_MAX),
        observed_generation: Some(generation),
        last_transition_time: since,
    }]
}

/// The API carries whole seconds; a finer value would differ from what comes back.
fn to_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Longest message and most keys: the schema of `NodeTuningStatus`. A condition's message may be
/// longer, but nobody reads a longer one.
const MESSAGE_MAX: usize = 1024;
const KEYS_MAX: usize = 256;

fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max - 1).chain(['…']).collect()
}
