//! Killed at every moment: before and after each call to the kernel, and between the steps of the
//! journal, which lie between those calls.

use tunedweb_tuning::Outcome;

use crate::support::{Node, active, host_plan, pod_plan, released};

const MAPS: &str = "vm.max_map_count";
const WATCHES: &str = "fs.inotify.max_user_watches";
const SOMAXCONN: &str = "net.core.somaxconn";
const PORTS: &str = "net.ipv4.ip_local_reserved_ports";

const DEFAULTS: [(&str, &str); 4] = [
    (MAPS, "65530"),
    (WATCHES, "8192"),
    (SOMAXCONN, "4096"),
    (PORTS, ""),
];

/// More moments than any of the calls here has.
const MOMENTS_MAX: usize = 200;

/// Kills `work` at each of its moments in turn, on a fresh node that `prepare` made ready. After
/// each kill `mend` must bring the node to the same values as an undisturbed run, and releasing
/// every owner must bring back the defaults.
fn killed_anywhere(prepare: impl Fn(&Node), work: impl Fn(&Node), mend: impl Fn(&Node)) {
    let undisturbed = Node::new(&DEFAULTS);
    prepare(&undisturbed);
    work(&undisturbed);
    mend(&undisturbed);
    let came_to_its_end = (0..MOMENTS_MAX).any(|moment| {
        let node = Node::new(&DEFAULTS);
        prepare(&node);
        node.kernel.kill_at(moment);
        let survived = node.survives(&work);
        node.kernel.heal();
        mend(&node);
        assert_eq!(
            node.kernel.values(),
            undisturbed.kernel.values(),
            "killed at {moment}"
        );
        node.release("b", 9);
        node.release("a", 9);
        let defaults = DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            node.kernel.values(),
            defaults.into(),
            "killed at {moment}, then released"
        );
        assert!(
            moment > 4 || !survived,
            "the call has moments at which it can be killed"
        );
        survived
    });
    assert!(
        came_to_its_end,
        "the call has more than {MOMENTS_MAX} moments"
    );
}

fn nothing(_: &Node) {}

#[test]
fn an_apply_killed_anywhere_is_completed_by_the_next() {
    let work = |node: &Node| {
        let plan = host_plan(
            "a",
            1,
            &[(MAPS, "262144"), (SOMAXCONN, "65535"), (PORTS, "8080")],
        );
        assert_eq!(node.apply(&plan).report.outcome, Outcome::Applied);
    };
    killed_anywhere(nothing, work, work);
}

#[test]
fn a_changed_plan_killed_anywhere_is_completed_by_the_next() {
    let prepare = |node: &Node| {
        node.apply(&pod_plan("a", 1, &[(MAPS, "262144"), (WATCHES, "100000")]));
        node.apply(&pod_plan("b", 1, &[(WATCHES, "50000")]));
    };
    let work = |node: &Node| {
        node.apply(&pod_plan("a", 2, &[(MAPS, "131072")]));
    };
    killed_anywhere(prepare, work, work);
}

#[test]
fn an_apply_killed_anywhere_and_never_tried_again_is_undone_by_the_agent() {
    let work = |node: &Node| {
        node.apply(&host_plan(
            "a",
            1,
            &[(MAPS, "262144"), (SOMAXCONN, "65535")],
        ));
    };
    let mend = |node: &Node| {
        node.tuner()
            .sync(&[released("a", 1)])
            .expect("the journal is usable");
    };
    killed_anywhere(nothing, work, mend);
}

#[test]
fn a_failing_plan_killed_anywhere_leaves_nothing_behind() {
    let work = |node: &Node| {
        node.kernel.fault(
            MAPS,
            crate::support::Fault::WriteFails(crate::support::EINVAL),
        );
        let plan = host_plan(
            "b",
            1,
            &[(MAPS, "262144"), (SOMAXCONN, "65535"), (PORTS, "8080")],
        );
        assert_eq!(node.apply(&plan).report.outcome, Outcome::Failed);
        node.kernel.heal();
    };
    let mend = |node: &Node| {
        node.tuner().sync(&[]).expect("the journal is usable");
    };
    let prepare = |node: &Node| {
        node.apply(&host_plan("a", 1, &[(SOMAXCONN, "8192")]));
    };
    killed_anywhere(prepare, work, mend);
}

#[test]
fn a_release_killed_anywhere_is_completed_by_the_next() {
    let prepare = |node: &Node| {
        node.apply(&host_plan(
            "a",
            1,
            &[(MAPS, "262144"), (SOMAXCONN, "65535"), (PORTS, "8080")],
        ));
        node.apply(&host_plan("b", 1, &[(MAPS, "131072")]));
    };
    let work = |node: &Node| {
        node.release("a", 1);
    };
    killed_anywhere(prepare, work, work);
}

#[test]
fn a_sync_killed_anywhere_is_completed_by_the_next() {
    let prepare = |node: &Node| {
        node.apply(&host_plan(
            "a",
            1,
            &[(MAPS, "262144"), (SOMAXCONN, "65535")],
        ));
        node.apply(&host_plan("b", 1, &[(WATCHES, "100000")]));
        node.kernel.set(WATCHES, "9000");
    };
    let work = |node: &Node| {
        let owners = [
            released("a", 1),
            active("b", 2, &[(WATCHES, "200000"), (MAPS, "70000")]),
        ];
        node.tuner().sync(&owners).expect("the journal is usable");
    };
    killed_anywhere(prepare, work, work);
}
