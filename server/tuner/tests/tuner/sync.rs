//! All owners of a node at once, again and again.

use tunedweb_tuner::OwnerOutcome;
use tunedweb_tuner::SyncReport;
use tunedweb_tuning::KeyState;

use crate::support::{EINVAL, EROFS, Fault, Node, active, pending, pod_plan, released, states};

const MAPS: &str = "vm.max_map_count";
const WATCHES: &str = "fs.inotify.max_user_watches";
const SOMAXCONN: &str = "net.core.somaxconn";
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

const DEFAULTS: [(&str, &str); 4] = [
    (MAPS, "65530"),
    (WATCHES, "8192"),
    (SOMAXCONN, "4096"),
    (CONGESTION, "cubic"),
];

fn node() -> Node {
    Node::new(&DEFAULTS)
}

fn outcomes(report: &SyncReport) -> Vec<(&str, OwnerOutcome)> {
    report
        .owners
        .iter()
        .map(|owner| (owner.uid.as_str(), owner.outcome))
        .collect()
}

fn sync(node: &Node, owners: &[tunedweb_tuner::OwnerWishes]) -> SyncReport {
    node.tuner().sync(owners).expect("the journal is usable")
}

#[test]
fn the_wishes_of_all_owners_are_applied_and_told_once_a_key() {
    let node = node();
    let owners = [
        active("a", 1, &[(MAPS, "262144"), (SOMAXCONN, "65535")]),
        active("b", 1, &[(MAPS, "524288")]),
    ];
    let report = sync(&node, &owners);
    assert_eq!(
        outcomes(&report),
        [("a", OwnerOutcome::Applied), ("b", OwnerOutcome::Applied)]
    );
    assert_eq!(
        states(&report.keys),
        [(SOMAXCONN, KeyState::Applied), (MAPS, KeyState::Applied)]
    );
    let maps = &report.keys[1];
    assert_eq!(
        (maps.wanted.as_str(), maps.found.as_str()),
        ("524288", "524288")
    );
    assert_eq!(maps.baseline, "65530");
    assert_eq!(maps.owners, ["web/a", "web/b"]);
}

#[test]
fn a_sync_that_finds_all_well_writes_neither_the_kernel_nor_the_journal() {
    let node = node();
    let owners = [
        active("a", 1, &[(MAPS, "262144")]),
        released("b", 1),
        released("c", 1),
    ];
    sync(&node, &owners);
    node.kernel.take_writes();
    let before = std::fs::metadata(node.journal_file()).expect("a journal");
    let report = sync(&node, &owners);
    assert_eq!(node.kernel.take_writes(), []);
    let after = std::fs::metadata(node.journal_file()).expect("a journal");
    // A replaced file has another inode.
    assert_eq!(inode(&before), inode(&after));
    assert_eq!(outcomes(&report)[0], ("a", OwnerOutcome::Applied));
    assert_eq!(states(&report.keys), [(MAPS, KeyState::Applied)]);
}

fn inode(metadata: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    metadata.ino()
}

#[test]
fn what_others_changed_is_written_again_and_said() {
    let node = node();
    let owners = [active("a", 1, &[(MAPS, "262144")])];
    sync(&node, &owners);
    node.kernel.set(MAPS, "100000");
    let report = sync(&node, &owners);
    assert_eq!(node.kernel.value(MAPS), "262144");
    assert_eq!(report.rewritten, [MAPS]);
    assert!(
        report.keys[0].reason.contains("100000"),
        "{:?}",
        report.keys[0]
    );
    let report = sync(&node, &[released("a", 1)]);
    assert_eq!(states(&report.released), [(MAPS, KeyState::Restored)]);
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn a_higher_value_of_others_is_left_and_put_back_as_theirs() {
    let node = node();
    sync(&node, &[active("a", 1, &[(MAPS, "262144")])]);
    node.kernel.set(MAPS, "1048576");
    let report = sync(&node, &[active("a", 1, &[(MAPS, "262144")])]);
    assert_eq!(node.kernel.value(MAPS), "1048576");
    assert_eq!(report.rewritten, [""; 0]);
    assert_eq!(states(&report.keys), [(MAPS, KeyState::Unchanged)]);
    sync(&node, &[active("a", 2, &[(MAPS, "2000000")])]);
    assert_eq!(node.kernel.value(MAPS), "2000000");
    sync(&node, &[released("a", 2)]);
    assert_eq!(node.kernel.value(MAPS), "1048576");
}

#[test]
fn owners_that_are_not_given_stay() {
    let node = node();
    sync(&node, &[active("a", 1, &[(MAPS, "262144")])]);
    let report = sync(&node, &[]);
    assert_eq!(node.kernel.value(MAPS), "262144");
    assert_eq!(states(&report.keys), [(MAPS, KeyState::Applied)]);
    node.kernel.set(MAPS, "70000");
    sync(&node, &[]);
    assert_eq!(node.kernel.value(MAPS), "262144");
}

#[test]
fn one_owners_failure_leaves_the_others_and_its_own_former_wishes() {
    let node = node();
    sync(&node, &[active("a", 1, &[(MAPS, "262144")])]);
    node.kernel.fault(WATCHES, Fault::WriteFails(EINVAL));
    let report = sync(
        &node,
        &[
            active("a", 2, &[(MAPS, "300000"), (WATCHES, "524288")]),
            active("b", 1, &[(SOMAXCONN, "8192")]),
        ],
    );
    assert_eq!(
        outcomes(&report),
        [("a", OwnerOutcome::Failed), ("b", OwnerOutcome::Applied)]
    );
    assert_eq!(node.kernel.value(MAPS), "262144");
    assert_eq!(
        states(&report.keys),
        [
            (WATCHES, KeyState::Rejected),
            (SOMAXCONN, KeyState::Applied),
            (MAPS, KeyState::Applied)
        ]
    );
    let failed = &report.owners[0].failures;
    assert!(
        failed
            .iter()
            .any(|key| key.name == WATCHES && key.state == KeyState::Rejected)
    );
}

#[test]
fn of_two_new_owners_in_conflict_the_same_one_wins_in_every_order() {
    let a = active("a", 1, &[(CONGESTION, "bbr")]);
    let b = active("b", 1, &[(CONGESTION, "reno")]);
    for owners in [[a.clone(), b.clone()], [b, a]] {
        let node = node();
        let report = sync(&node, &owners);
        assert_eq!(node.kernel.value(CONGESTION), "bbr");
        let lost = report
            .owners
            .iter()
            .find(|owner| owner.uid == "b")
            .expect("it was given");
        assert_eq!(lost.outcome, OwnerOutcome::Failed);
        assert_eq!(states(&report.keys), [(CONGESTION, KeyState::Conflict)]);
        assert!(
            report.keys[0].reason.contains("web/a"),
            "{:?}",
            report.keys[0]
        );
    }
}

#[test]
fn a_conflict_ends_when_the_holder_goes() {
    let node = node();
    sync(&node, &[active("a", 1, &[(CONGESTION, "bbr")])]);
    let b = active("b", 1, &[(CONGESTION, "reno")]);
    let report = sync(&node, &[active("a", 1, &[(CONGESTION, "bbr")]), b.clone()]);
    assert_eq!(outcomes(&report)[1], ("b", OwnerOutcome::Failed));
    let report = sync(&node, &[released("a", 1), b]);
    assert_eq!(
        outcomes(&report),
        [("a", OwnerOutcome::Released), ("b", OwnerOutcome::Applied)]
    );
    assert_eq!(node.kernel.value(CONGESTION), "reno");
    sync(&node, &[released("b", 1)]);
    assert_eq!(node.kernel.value(CONGESTION), "cubic");
}

#[test]
fn a_pod_and_the_agent_are_one_owner() {
    let node = node();
    node.apply(&pod_plan("a", 2, &[(MAPS, "262144")]));
    let report = sync(
        &node,
        &[active("a", 2, &[(MAPS, "262144"), (SOMAXCONN, "65535")])],
    );
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Applied)]);
    assert_eq!(report.rewritten, [""; 0]);
    // The agent has not heard of generation 3 yet.
    node.apply(&pod_plan("a", 3, &[(MAPS, "300000")]));
    let report = sync(
        &node,
        &[active("a", 2, &[(MAPS, "262144"), (SOMAXCONN, "65535")])],
    );
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Superseded)]);
    assert_eq!(node.kernel.value(MAPS), "300000");
    assert_eq!(node.kernel.value(SOMAXCONN), "65535");
}

#[test]
fn a_node_that_is_selected_again_gets_the_same_generation_back() {
    let node = node();
    sync(&node, &[active("a", 3, &[(MAPS, "262144")])]);
    sync(&node, &[released("a", 3)]);
    assert_eq!(node.kernel.value(MAPS), "65530");
    let plan = pod_plan("a", 3, &[(MAPS, "262144")]);
    assert_eq!(
        node.apply(&plan).report.applied,
        0,
        "the sandbox of before may not"
    );
    let report = sync(&node, &[active("a", 3, &[(MAPS, "262144")])]);
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Applied)]);
    assert_eq!(node.apply(&plan).report.unchanged, 1);
    let report = sync(&node, &[active("a", 2, &[])]);
    assert_eq!(node.kernel.value(MAPS), "262144", "{report:?}");
}

#[test]
fn a_pending_owners_pod_is_let_in_and_what_it_did_stands() {
    let node = node();
    let plan = pod_plan("a", 3, &[(MAPS, "262144")]);
    let report = sync(&node, &[pending("a", 3)]);
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Pending)]);
    sync(&node, &[active("a", 3, &[(MAPS, "262144")])]);
    sync(&node, &[released("a", 3)]);
    assert_eq!(node.apply(&plan).report.applied, 0, "released");
    sync(&node, &[pending("a", 2)]);
    assert_eq!(node.apply(&plan).report.applied, 0, "of before the release");

    let report = sync(&node, &[pending("a", 3)]);
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Pending)]);
    assert_eq!(node.kernel.value(MAPS), "65530", "nothing is done for it");
    assert_eq!(node.apply(&plan).report.applied, 1);
    sync(&node, &[pending("a", 3)]);
    assert_eq!(
        node.kernel.value(MAPS),
        "262144",
        "the operator has not seen the pod yet"
    );
    sync(&node, &[released("a", 3)]);
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn a_value_that_cannot_be_put_back_is_tried_again() {
    let node = node();
    sync(&node, &[active("a", 1, &[(MAPS, "262144")])]);
    node.kernel.fault(MAPS, Fault::NotWritable(EROFS));
    for _ in 0..2 {
        let report = sync(&node, &[released("a", 1)]);
        assert_eq!(outcomes(&report), [("a", OwnerOutcome::RestoreFailed)]);
        assert_eq!(states(&report.keys), [(MAPS, KeyState::ReadOnly)]);
    }
    node.kernel.heal();
    let report = sync(&node, &[released("a", 1)]);
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Released)]);
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn a_key_that_went_with_its_module_is_nothing_to_wait_for() {
    let node = node();
    sync(&node, &[active("a", 1, &[(SOMAXCONN, "65535")])]);
    node.kernel.remove(SOMAXCONN);
    let report = sync(&node, &[released("a", 1)]);
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Released)]);
    assert_eq!(states(&report.released), [(SOMAXCONN, KeyState::Absent)]);
}

#[test]
fn a_key_that_an_owner_wants_and_that_went_away_holds_up_nobody_elses_release() {
    let node = node();
    let a = active("a", 1, &[(SOMAXCONN, "65535")]);
    sync(&node, &[a.clone(), active("b", 1, &[(MAPS, "262144")])]);
    node.kernel.remove(SOMAXCONN);
    let report = sync(&node, &[a, released("b", 1)]);
    assert_eq!(
        outcomes(&report),
        [("a", OwnerOutcome::Failed), ("b", OwnerOutcome::Released)]
    );
    assert_eq!(states(&report.keys), [(SOMAXCONN, KeyState::Absent)]);
    assert_eq!(report.keys[0].wanted, "65535");
}

#[test]
fn after_a_reboot_the_values_are_applied_again_and_the_new_baseline_is_put_back() {
    let node = node();
    let owners = [active("a", 1, &[(MAPS, "262144"), (SOMAXCONN, "65535")])];
    sync(&node, &owners);
    node.kernel
        .reboot(&[(MAPS, "70000"), (WATCHES, "8192"), (SOMAXCONN, "4096")]);
    let report = sync(&node, &owners);
    assert_eq!(report.boot_id, "boot-1");
    assert_eq!(node.kernel.value(MAPS), "262144");
    assert_eq!(report.rewritten, [""; 0], "a reboot is no drift");
    assert_eq!(report.keys[1].baseline, "70000");
    sync(&node, &[released("a", 1)]);
    assert_eq!(node.kernel.value(MAPS), "70000");
    assert_eq!(node.kernel.value(SOMAXCONN), "4096");
}

#[test]
fn a_wish_that_the_catalogue_refuses_fails_its_owner_with_the_reason() {
    let node = node();
    let report = sync(
        &node,
        &[active(
            "a",
            1,
            &[
                ("kernel.pid", "1"),
                ("kernel.pid_max", "100000"),
                (MAPS, "262144"),
            ],
        )],
    );
    assert_eq!(outcomes(&report), [("a", OwnerOutcome::Failed)]);
    assert_eq!(
        states(&report.keys),
        [
            ("kernel.pid", KeyState::Rejected),
            ("kernel.pid_max", KeyState::Rejected),
        ]
    );
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn two_nodes_on_one_kernel_share_its_keys_and_the_last_one_puts_them_back() {
    let node = node();
    let (one, two) = (node.tuner_of("node-1"), node.tuner_of("node-2"));
    let wishes = [active("a", 1, &[(MAPS, "262144")])];
    one.sync(&wishes).expect("the journal is usable");
    let report = two.sync(&wishes).expect("the journal is usable");
    assert_eq!(
        report.keys[0].baseline, "65530",
        "not the first node's value"
    );
    one.sync(&[released("a", 1)])
        .expect("the journal is usable");
    assert_eq!(node.kernel.value(MAPS), "262144");
    two.sync(&[released("a", 1)])
        .expect("the journal is usable");
    assert_eq!(node.kernel.value(MAPS), "65530");
}
