//! Whose wishes count: owners, their generations, their leaving, and what others do meanwhile.

use tunedweb_tuning::{KeyState, Outcome, PlanContext};

use crate::support::{
    CONGESTION, MAPS, Node, SOMAXCONN, WATCHES, host_plan, node, owner, plan, pod_plan, states,
};

#[test]
fn a_key_that_left_the_plan_is_put_back() {
    let node = node();
    node.apply(&pod_plan("a", 1, &[(MAPS, "262144"), (WATCHES, "524288")]));
    let applied = node.apply(&pod_plan("a", 2, &[(MAPS, "300000")]));
    assert_eq!(applied.report.outcome, Outcome::Applied);
    assert_eq!(
        applied.report.applied, 1,
        "only the plan's own keys are counted"
    );
    assert_eq!(node.kernel.value(MAPS), "300000");
    assert_eq!(node.kernel.value(WATCHES), "8192");
}

#[test]
fn a_pods_plan_leaves_the_host_keys_of_its_owner_alone() {
    let node = node();
    node.apply(&host_plan(
        "a",
        1,
        &[(MAPS, "262144"), (SOMAXCONN, "65535")],
    ));
    node.apply(&pod_plan("a", 2, &[(WATCHES, "524288")]));
    assert_eq!(
        node.kernel.value(MAPS),
        "65530",
        "of an older generation, and node-wide"
    );
    assert_eq!(node.kernel.value(SOMAXCONN), "65535", "the agent's");
    node.apply(&host_plan("a", 2, &[(WATCHES, "524288")]));
    assert_eq!(node.kernel.value(SOMAXCONN), "4096");
}

#[test]
fn an_older_generation_never_replaces_a_newer_one() {
    let node = node();
    node.apply(&pod_plan("a", 5, &[(MAPS, "262144")]));
    for context in [PlanContext::Pod, PlanContext::Host] {
        let late = plan(context, "a", 4, &[(MAPS, "900000"), (WATCHES, "524288")]);
        let applied = node.apply(&late);
        assert_eq!(
            applied.report.outcome,
            Outcome::Applied,
            "the late pod may serve"
        );
        assert_eq!(node.kernel.value(MAPS), "262144");
        assert_eq!(node.kernel.value(WATCHES), "8192");
        assert!(
            applied.keys[0].reason.contains("generation 5"),
            "{:?}",
            applied.keys[0]
        );
    }
    // Also where the newer generation wants nothing.
    node.apply(&pod_plan("a", 6, &[]));
    node.apply(&pod_plan("a", 5, &[(MAPS, "262144")]));
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn two_owners_merge_and_leave_in_any_order() {
    for order in [["a", "b"], ["b", "a"]] {
        let node = node();
        let value = |uid: &str| if uid == "a" { "262144" } else { "524288" };
        for uid in order {
            node.apply(&pod_plan(uid, 1, &[(MAPS, value(uid))]));
        }
        assert_eq!(node.kernel.value(MAPS), "524288");
        node.release("b", 1);
        assert_eq!(node.kernel.value(MAPS), "262144");
        assert_eq!(states(&node.release("a", 1)), [(MAPS, KeyState::Restored)]);
        assert_eq!(node.kernel.value(MAPS), "65530");
    }
}

#[test]
fn a_name_that_another_owner_holds_is_a_conflict_and_its_value_stays() {
    let node = node();
    node.apply(&host_plan("a", 1, &[(CONGESTION, "bbr")]));
    let applied = node.apply(&host_plan(
        "b",
        1,
        &[(CONGESTION, "reno"), (MAPS, "262144")],
    ));
    assert_eq!(
        states(&applied.report.failures),
        [(CONGESTION, KeyState::Conflict)]
    );
    assert!(
        applied.report.failures[0].reason.contains("web/a"),
        "{applied:?}"
    );
    assert_eq!(applied.report.failures[0].wanted, "reno");
    assert_eq!(node.kernel.value(CONGESTION), "bbr");
    assert_eq!(node.kernel.value(MAPS), "65530");
    // The same value is no conflict, and the first owner cannot change it under the second.
    assert_eq!(
        node.apply(&host_plan("b", 1, &[(CONGESTION, "bbr")]))
            .report
            .unchanged,
        1
    );
    let changed = node.apply(&host_plan("a", 2, &[(CONGESTION, "reno")]));
    assert_eq!(
        states(&changed.report.failures),
        [(CONGESTION, KeyState::Conflict)]
    );
    assert_eq!(node.kernel.value(CONGESTION), "bbr");
}

#[test]
fn a_value_that_others_changed_is_not_restored_over() {
    let node = node();
    node.apply(&pod_plan("a", 1, &[(MAPS, "262144")]));
    node.kernel.set(MAPS, "131072");
    assert_eq!(
        states(&node.release("a", 1)),
        [(MAPS, KeyState::ChangedByOthers)]
    );
    assert_eq!(node.kernel.value(MAPS), "131072");
    assert!(!node.journal_text().contains(MAPS), "it is forgotten");
}

#[test]
fn a_released_owner_comes_back_only_with_a_newer_generation() {
    let node = node();
    node.apply(&pod_plan("a", 3, &[(MAPS, "262144")]));
    node.release("a", 3);
    let late = node.apply(&pod_plan("a", 3, &[(MAPS, "262144"), (SOMAXCONN, "65535")]));
    assert_eq!(late.report.outcome, Outcome::Failed);
    let reason = &late.report.failures.first().expect("it says why").reason;
    assert!(reason.contains("released"), "{reason}");
    assert!(
        late.keys.iter().all(|key| key.state == KeyState::Skipped),
        "{late:?}"
    );
    assert_eq!(node.kernel.value(MAPS), "65530");
    assert_eq!(node.kernel.value(SOMAXCONN), "4096");
    // Those who know that the owner is back call under Host.
    assert_eq!(
        node.apply(&host_plan("a", 2, &[(MAPS, "262144")]))
            .report
            .outcome,
        Outcome::Failed
    );
    assert_eq!(
        node.apply(&host_plan("a", 3, &[(MAPS, "262144")]))
            .report
            .applied,
        1
    );
    node.release("a", 3);
    assert_eq!(
        node.apply(&pod_plan("a", 4, &[(MAPS, "262144")]))
            .report
            .applied,
        1
    );
}

#[test]
fn an_owner_that_was_never_here_leaves_a_tombstone_too() {
    let node = node();
    assert_eq!(node.release("a", 3), []);
    assert_eq!(
        node.apply(&pod_plan("a", 3, &[(MAPS, "262144")]))
            .report
            .outcome,
        Outcome::Failed
    );
}

#[test]
fn after_a_reboot_the_baseline_is_read_again_and_wishes_count_on() {
    let node = node();
    node.apply(&host_plan("a", 1, &[(MAPS, "262144")]));
    node.kernel.reboot(&[(MAPS, "70000"), (WATCHES, "8192")]);
    node.apply(&host_plan("b", 1, &[(MAPS, "131072")]));
    assert_eq!(
        node.kernel.value(MAPS),
        "262144",
        "the other owner's wish is there still"
    );
    node.release("b", 1);
    node.release("a", 1);
    assert_eq!(node.kernel.value(MAPS), "70000");
}

#[test]
fn host_keys_belong_to_one_network_namespace_of_one_node() {
    let node = node();
    node.apply(&host_plan("a", 1, &[(SOMAXCONN, "65535")]));
    // Another node of the same machine: its own namespace, the same journal.
    node.kernel.enter_namespace(77);
    node.kernel.set(SOMAXCONN, "2048");
    let other = node.tuner_of("node-2");
    other
        .apply(&host_plan("a", 1, &[(SOMAXCONN, "8192")]))
        .expect("the journal is usable");
    other
        .release(&owner("a", 1), PlanContext::Host)
        .expect("the journal is usable");
    assert_eq!(node.kernel.value(SOMAXCONN), "2048");
    // The first node's container starts again: its old values went with its old namespace.
    node.kernel.enter_namespace(78);
    node.kernel.set(SOMAXCONN, "4096");
    node.tuner().sync(&[]).expect("the journal is usable");
    assert_eq!(node.kernel.value(SOMAXCONN), "65535");
    node.release("a", 1);
    assert_eq!(node.kernel.value(SOMAXCONN), "4096");
}

#[test]
fn a_call_in_a_pods_namespace_forgets_nothing_of_the_hosts() {
    const HOST: u64 = 1;
    const POD: u64 = 2;
    let node = node();
    node.kernel.enter_namespace(HOST);
    node.apply(&host_plan("a", 1, &[(SOMAXCONN, "65535")]));

    node.kernel.enter_namespace(POD);
    node.kernel.set(SOMAXCONN, "2048");
    node.apply(&pod_plan("b", 1, &[(MAPS, "262144")]));
    for uid in ["a", "b"] {
        let released = node.tuner().release(&owner(uid, 1), PlanContext::Pod);
        released.expect("the journal is usable");
    }
    assert_eq!(node.kernel.value(MAPS), "65530");
    assert_eq!(node.kernel.value(SOMAXCONN), "2048", "the pod's own");

    node.kernel.enter_namespace(HOST);
    node.kernel.set(SOMAXCONN, "65535");
    node.tuner().sync(&[]).expect("the journal is usable");
    assert_eq!(node.kernel.value(SOMAXCONN), "4096");
    assert!(node.journal_text().contains(r#""entries": []"#));
}

#[test]
fn reserved_ports_of_others_survive_and_an_empty_set_is_put_back() {
    const PORTS: &str = "net.ipv4.ip_local_reserved_ports";
    let node = Node::new(&[(PORTS, "")]);
    node.apply(&host_plan("a", 1, &[(PORTS, "30000-32767")]));
    node.kernel.set(PORTS, "10250");
    node.apply(&host_plan("b", 1, &[(PORTS, "8080")]));
    assert_eq!(node.kernel.value(PORTS), "8080,10250,30000-32767");
    node.release("a", 1);
    node.release("b", 1);
    assert_eq!(
        node.kernel.value(PORTS),
        "10250",
        "what others added is theirs"
    );
    let node = Node::new(&[(PORTS, "")]);
    node.apply(&host_plan("a", 1, &[(PORTS, "8080")]));
    node.release("a", 1);
    assert_eq!(node.kernel.value(PORTS), "");
}
