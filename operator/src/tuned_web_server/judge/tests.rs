use serde_json::{Value, json};
use tunedweb_api::node_tuning::NodeTuningStatus;

use super::*;

const EXPECTED: Expected<'_> = Expected {
    owner_uid: "uid",
    template_hash: "t1",
    plan_hash: Some("p1"),
    plan_generation: 3,
    has_node_keys: true,
    nofile: None,
};

fn apply_report(outcome: &str, hash: &str, failures: &Value) -> String {
    json!({
        "version": 1, "planHash": hash, "generation": 3, "outcome": outcome, "applied": 1,
        "unchanged": 0, "failures": failures, "hardNofile": 20000,
    })
    .to_string()
}

fn pod(is_ready: bool, exit_code: i32, message: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": {TEMPLATE_HASH_ANNOTATION: "t1"}},
        "spec": {"nodeName": "a", "containers": []},
        "status": {
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}],
            "initContainerStatuses": [{
                "name": TUNE_CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code, "message": message}},
            }],
        },
    }))
    .unwrap()
}

fn node(owner: &Value) -> ObservedNode {
    let status: NodeTuningStatus = serde_json::from_value(json!({"owners": [owner]})).unwrap();
    ObservedNode {
        name: "a".to_owned(),
        is_ready: true,
        has_agent: true,
        tuning: Some(status),
    }
}

fn applied_node() -> ObservedNode {
    node(&json!({"uid": "uid", "generation": 3, "state": "Applied"}))
}

fn applied_pod() -> Pod {
    pod(true, 0, &apply_report("Applied", "p1", &json!([])))
}

fn reason(state: &NodeState) -> Option<Reason> {
    state.failure.as_ref().map(|failure| failure.reason)
}

#[test]
fn a_node_is_done_when_pod_agent_and_server_say_so() {
    let state = judge(&applied_node(), &EXPECTED, Some(&applied_pod()), None);
    assert_eq!(
        (state.is_tuned, state.is_serving, state.failure),
        (true, true, None)
    );
}

#[test]
fn a_report_of_another_plan_counts_for_nothing() {
    let pod = pod(true, 0, &apply_report("Applied", "p0", &json!([])));
    let state = judge(&applied_node(), &EXPECTED, Some(&pod), None);
    assert_eq!((state.is_tuned, state.failure), (false, None));
}

#[test]
fn failed_keys_are_named_with_their_reason() {
    let failures = json!([
        {"name": "vm.x", "wanted": "5", "state": "Absent", "reason": "this kernel has no such key"},
        {"name": "vm.y", "wanted": "6", "state": "Skipped"},
    ]);
    let pod = pod(false, 1, &apply_report("Failed", "p1", &failures));
    let state = judge(&applied_node(), &EXPECTED, Some(&pod), None);
    let failure = state.failure.unwrap();
    assert_eq!(failure.reason, Reason::TuningFailed);
    assert!(failure.message.contains("vm.x") && failure.message.contains("no such key"));
    assert!(!failure.message.contains("vm.y"));
}

#[test]
fn a_conflict_is_told_as_such_by_pod_and_agent() {
    let failures = json!([{"name": "vm.x", "wanted": "5", "state": "Conflict", "reason": "r"}]);
    let pod = pod(false, 1, &apply_report("Failed", "p1", &failures));
    assert_eq!(
        reason(&judge(&applied_node(), &EXPECTED, Some(&pod), None)),
        Some(Reason::Conflict)
    );

    let mut conflicted =
        node(&json!({"uid": "uid", "generation": 3, "state": "Failed", "message": "vm.x: no"}));
    conflicted.tuning.as_mut().unwrap().keys = vec![
        serde_json::from_value(json!({"name": "vm.x", "wanted": "5", "state": "Conflict"}))
            .unwrap(),
    ];
    let state = judge(&conflicted, &EXPECTED, Some(&applied_pod()), None);
    assert_eq!(reason(&state), Some(Reason::Conflict));
}

#[test]
fn a_tuner_without_a_report_fails_with_what_it_said() {
    let pod = pod(false, 1, "tunedweb-tuner: use the plan\n");
    let failure = judge(&applied_node(), &EXPECTED, Some(&pod), None)
        .failure
        .unwrap();
    assert_eq!(
        failure.message,
        "init container: exit code 1: tunedweb-tuner: use the plan"
    );
}

#[test]
fn an_older_answer_of_the_agent_is_no_answer() {
    let old = node(&json!({"uid": "uid", "generation": 2, "state": "Applied"}));
    let state = judge(&old, &EXPECTED, Some(&applied_pod()), None);
    assert_eq!((state.is_tuned, state.failure), (false, None));
}

#[test]
fn a_node_without_an_agent_is_told_only_where_keys_need_one() {
    let bare = ObservedNode {
        name: "a".to_owned(),
        is_ready: true,
        has_agent: false,
        tuning: None,
    };
    let state = judge(&bare, &EXPECTED, Some(&applied_pod()), None);
    assert_eq!(reason(&state), Some(Reason::AgentNotReporting));
    let expected = Expected {
        has_node_keys: false,
        ..EXPECTED
    };
    let state = judge(&bare, &expected, Some(&applied_pod()), None);
    assert!(state.is_tuned && state.failure.is_none());
}

#[test]
fn nothing_is_expected_of_a_node_that_is_not_ready() {
    let mut gone = applied_node();
    gone.is_ready = false;
    let state = judge(&gone, &EXPECTED, Some(&pod(false, 1, "x")), None);
    assert_eq!(
        (state.is_tuned, state.is_serving, state.failure),
        (false, false, None)
    );
}

fn tuning_report(soft: u64) -> TuningReport {
    serde_json::from_value(json!({
        "version": 1, "serverVersion": "0.1.0", "listen": "0.0.0.0:8080",
        "workers": {"running": 2, "source": "AffinityMask", "affinityCpus": 2},
        "nofile": {"asked": 65536, "softFound": 1024, "hardFound": 20000, "soft": soft, "hard": 20000},
        "backlog": {"asked": 1, "effective": 1},
        "maxConnectionsPerWorker": {"asked": 1, "effective": 1},
        "shortfalls": [
            {"setting": "ulimits.nofile", "asked": 65536, "reached": soft, "advice": "raise it"},
        ],
        "settings": {"root": "/srv"},
    }))
    .unwrap()
}

#[test]
fn a_limit_not_permitted_leaves_the_server_serving() {
    let expected = Expected {
        nofile: Some(65_536),
        ..EXPECTED
    };
    let report = tuning_report(20_000);
    let state = judge(
        &applied_node(),
        &expected,
        Some(&applied_pod()),
        Some(&report),
    );
    assert_eq!((state.is_tuned, state.is_serving), (false, true));
    let failure = state.failure.unwrap();
    assert_eq!(failure.reason, Reason::LimitNotPermitted);
    assert!(failure.message.contains("raise it"), "{}", failure.message);

    let report = tuning_report(65_536);
    assert!(
        judge(
            &applied_node(),
            &expected,
            Some(&applied_pod()),
            Some(&report)
        )
        .is_tuned
    );
    let unread = judge(&applied_node(), &expected, Some(&applied_pod()), None);
    assert_eq!((unread.is_tuned, unread.failure), (false, None));
}

#[test]
fn a_crash_loop_is_a_failure_and_a_starting_pod_is_not() {
    let expected = Expected {
        plan_hash: None,
        has_node_keys: false,
        ..EXPECTED
    };
    let mut crashing = pod(false, 0, "");
    let statuses = json!([{
        "name": "server", "image": "i", "imageID": "", "ready": false, "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }]);
    crashing.status.as_mut().unwrap().container_statuses =
        serde_json::from_value(statuses).unwrap();
    let state = judge(&applied_node(), &expected, Some(&crashing), None);
    assert_eq!(reason(&state), Some(Reason::PodsNotReady));
    let starting = judge(&applied_node(), &expected, Some(&pod(false, 0, "")), None);
    assert_eq!(starting.failure, None);
}

#[test]
fn the_pod_of_the_expected_template_is_found_even_before_it_is_scheduled() {
    let waiting: Pod = serde_json::from_value(json!({
        "metadata": {"name": "w", "annotations": {TEMPLATE_HASH_ANNOTATION: "t1"}},
        "spec": {"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
            ]},
        }}},
    }))
    .unwrap();
    assert!(current_pod([&waiting], "a", "t1").is_some());
    assert!(current_pod([&waiting], "b", "t1").is_none());
    assert!(current_pod([&waiting], "a", "t2").is_none());
    let ready = applied_pod();
    let found = current_pod([&ready, &waiting], "a", "t1").unwrap();
    assert_eq!(found.metadata.name.as_deref(), Some("p"));
}
