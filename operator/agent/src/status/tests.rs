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
    assert_eq!(wishes[0].standing, Standing::Active);
    assert_eq!(wishes[0].sysctls[0].name, "vm.max_map_count");
    assert_eq!(wishes[1].standing, Standing::Released);
    assert!(wishes[1].sysctls.is_empty());
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
