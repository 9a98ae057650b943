//! From the spec to the tuner's wishes, and from the tuner's report to the status. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tunedweb_api::condition::{self, ConditionType, Reason};
use tunedweb_api::node_tuning::{NodeOwner, OwnerOutcome, OwnerState, OwnerStatus};
use tunedweb_api::{NodeTuningSpec, NodeTuningStatus};
use tunedweb_tuner::{OwnerOutcome as Outcome, OwnerReport, OwnerWishes, SyncReport};
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
        released: owner.state == OwnerState::Released,
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
        OwnerOutcome::Applied => String::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, state: KeyState, reason: &str) -> KeyReport {
        KeyReport {
            name: name.to_owned(),
            wanted: "1".to_owned(),
            found: "1".to_owned(),
            baseline: "0".to_owned(),
            state,
            owners: vec!["web/site".to_owned()],
            reason: reason.to_owned(),
        }
    }

    fn owner(outcome: Outcome, failures: Vec<KeyReport>) -> OwnerReport {
        OwnerReport {
            uid: "u1".to_owned(),
            resource: "web/site".to_owned(),
            generation: 3,
            outcome,
            failures,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn status(former: &NodeTuningStatus, report: &SyncReport, second: i64) -> NodeTuningStatus {
        after_sync(former, 7, report, NodeFacts::default(), at(second))
    }

    fn applied(status: &NodeTuningStatus) -> &Condition {
        condition::find(&status.conditions, ConditionType::Applied).expect("the condition")
    }

    #[test]
    fn every_owner_is_passed_on_with_its_generation_and_whether_it_goes() {
        let spec: NodeTuningSpec = serde_json::from_value(serde_json::json!({"owners": [
            {"uid": "a", "resource": "web/a", "generation": 4, "state": "Active",
             "sysctls": [{"name": "vm.max_map_count", "value": "262144"}]},
            {"uid": "b", "resource": "web/b", "generation": 9, "state": "Released"},
        ]}))
        .expect("a spec");
        let wishes = wishes(&spec);
        assert_eq!(wishes[0].owner.generation, 4);
        assert!(!wishes[0].released);
        assert_eq!(wishes[0].sysctls[0].name, "vm.max_map_count");
        assert!(wishes[1].released && wishes[1].sysctls.is_empty());
    }

    #[test]
    fn what_holds_is_acknowledged_with_its_generation() {
        let report = SyncReport {
            boot_id: "boot".to_owned(),
            keys: vec![key("vm.max_map_count", KeyState::Applied, "")],
            owners: vec![owner(Outcome::Applied, vec![])],
            ..SyncReport::default()
        };
        let status = status(&NodeTuningStatus::default(), &report, 100);
        assert_eq!(status.observed_generation, 7);
        assert_eq!(status.boot_id, "boot");
        assert_eq!(status.owners[0].state, OwnerOutcome::Applied);
        assert_eq!(status.owners[0].generation, 3);
        assert_eq!(applied(&status).status, "True");
        assert_eq!(applied(&status).reason, "AsSpecified");
        assert_eq!(
            applied(&status).message,
            "in place: 1 key, wanted by 1 resource"
        );
        assert_eq!(applied(&status).observed_generation, Some(7));
    }

    #[test]
    fn the_same_report_later_makes_the_same_status() {
        let report = SyncReport {
            keys: vec![key("vm.max_map_count", KeyState::Applied, "")],
            owners: vec![owner(Outcome::Applied, vec![])],
            ..SyncReport::default()
        };
        let first = status(&NodeTuningStatus::default(), &report, 100);
        assert_eq!(status(&first, &report, 160), first);
    }

    #[test]
    fn a_failure_names_resource_key_and_reason_and_its_time_is_when_it_began() {
        let report = SyncReport {
            owners: vec![owner(
                Outcome::Failed,
                vec![key(
                    "vm.max_map_count",
                    KeyState::Rejected,
                    "the kernel refused 1",
                )],
            )],
            ..SyncReport::default()
        };
        let first = status(&NodeTuningStatus::default(), &report, 100);
        let second = status(&first, &report, 160);
        assert_eq!(applied(&second).status, "False");
        assert_eq!(applied(&second).reason, "TuningFailed");
        assert_eq!(
            applied(&second).message,
            "web/site: vm.max_map_count: the kernel refused 1"
        );
        assert_eq!(applied(&second).last_transition_time, Time(at(100)));
        assert_eq!(second.owners[0].state, OwnerOutcome::Failed);
    }

    #[test]
    fn a_conflict_is_told_apart_from_what_the_node_refuses() {
        let conflict = owner(
            Outcome::Failed,
            vec![
                key("vm.swappiness", KeyState::Conflict, "web/b wants 10"),
                key("fs.nr_open", KeyState::Skipped, ""),
            ],
        );
        let report = SyncReport {
            owners: vec![conflict],
            ..SyncReport::default()
        };
        let status = status(&NodeTuningStatus::default(), &report, 1);
        assert_eq!(applied(&status).reason, "Conflict");
    }

    #[test]
    fn an_acknowledged_release_keeps_its_words_until_the_owner_is_forgotten() {
        let report = SyncReport {
            owners: vec![owner(Outcome::Released, vec![])],
            released: vec![key(
                "vm.max_map_count",
                KeyState::ChangedByOthers,
                "found 3, written 2",
            )],
            ..SyncReport::default()
        };
        let first = status(&NodeTuningStatus::default(), &report, 1);
        assert_eq!(first.owners[0].state, OwnerOutcome::Released);
        assert_eq!(
            first.owners[0].message,
            "vm.max_map_count: found 3, written 2"
        );
        assert_eq!(applied(&first).status, "True");
        let again = SyncReport {
            released: vec![],
            ..report
        };
        assert_eq!(status(&first, &again, 60).owners, first.owners);
    }

    #[test]
    fn a_value_that_was_put_back_needs_no_words() {
        let report = SyncReport {
            owners: vec![owner(Outcome::Released, vec![])],
            released: vec![key("vm.max_map_count", KeyState::Restored, "")],
            ..SyncReport::default()
        };
        let status = status(&NodeTuningStatus::default(), &report, 1);
        assert_eq!(status.owners[0].message, "");
    }

    #[test]
    fn a_value_that_cannot_be_put_back_yet_is_no_acknowledgement() {
        let failure = key(
            "vm.max_map_count",
            KeyState::ReadOnly,
            "read-only file system",
        );
        let report = SyncReport {
            owners: vec![owner(Outcome::RestoreFailed, vec![failure])],
            ..SyncReport::default()
        };
        let status = status(&NodeTuningStatus::default(), &report, 1);
        assert_eq!(status.owners[0].state, OwnerOutcome::Failed);
        assert!(status.owners[0].message.contains("tried again"));
    }

    #[test]
    fn a_tuner_that_could_not_try_takes_no_acknowledgement_back() {
        let report = SyncReport {
            owners: vec![owner(Outcome::Applied, vec![])],
            ..SyncReport::default()
        };
        let former = status(&NodeTuningStatus::default(), &report, 1);
        let failed = after_failure(&former, 8, "the node's lock is held", at(2));
        assert_eq!(failed.owners, former.owners);
        assert_eq!(failed.observed_generation, 8);
        assert_eq!(applied(&failed).status, "False");
        assert_eq!(applied(&failed).message, "the node's lock is held");
    }

    #[test]
    fn an_object_that_cannot_be_read_changes_nothing_but_the_condition() {
        let former = status(&NodeTuningStatus::default(), &SyncReport::default(), 1);
        let status = undecodable(&former, 9, "unknown variant `Paused`", at(2));
        assert_eq!(status.observed_generation, former.observed_generation);
        assert_eq!(applied(&status).reason, "Undecodable");
        assert!(
            applied(&status)
                .message
                .contains("unknown variant `Paused`")
        );
    }

    #[test]
    fn no_text_is_longer_than_the_schema_permits() {
        let long = "x".repeat(2000);
        let report = SyncReport {
            owners: vec![owner(
                Outcome::Failed,
                vec![key("vm.max_map_count", KeyState::Rejected, &long)],
            )],
            keys: vec![key("vm.max_map_count", KeyState::Rejected, &long)],
            ..SyncReport::default()
        };
        let status = status(&NodeTuningStatus::default(), &report, 1);
        assert_eq!(status.owners[0].message.chars().count(), 1024);
        assert_eq!(applied(&status).message.chars().count(), 1024);
        assert_eq!(status.keys[0].reason.chars().count(), 512);
        assert!(tunedweb_tuning::catalogue::keys().len() <= KEYS_MAX);
    }
}
