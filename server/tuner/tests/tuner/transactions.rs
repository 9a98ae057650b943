//! One plan on one node: whole or not at all, remembered, and put back.

use std::io;

use tunedweb_tuner::{Host, KernelTree, PreviewStep, TuneError, Tuner};
use tunedweb_tuning::catalogue::Key;
use tunedweb_tuning::{KeyState, Outcome, PlanContext};

use crate::support::{
    CONGESTION, EACCES, EINVAL, ENOENT, EPERM, Fault, MAPS, NR_OPEN, Node, RMEM, SOMAXCONN,
    WATCHES, host_plan, node, plan_with_nofile, pod_plan, states,
};

/// A kernel with a disk that is full from the first write on.
struct FullDisk<'a>(&'a Node);

impl KernelTree for FullDisk<'_> {
    fn read(&self, key: &Key) -> io::Result<String> {
        self.0.kernel.read(key)
    }

    fn check_writable(&self, key: &Key) -> io::Result<()> {
        self.0.kernel.check_writable(key)
    }

    fn write(&self, key: &Key, value: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.0.folder.path().join("journal.json.new"))?;
        self.0.kernel.write(key, value)
    }

    fn host(&self) -> io::Result<Host> {
        self.0.kernel.host()
    }
}

#[test]
fn a_plan_that_cannot_be_remembered_is_undone() {
    let node = node();
    let before = node.kernel.values();
    let plan = pod_plan("a", 1, &[(MAPS, "262144"), (SOMAXCONN, "65535")]);
    let tuner = Tuner::new(FullDisk(&node), node.folder.path(), "node-1");
    let error = tuner.apply(&plan).expect_err("a full disk");
    assert!(matches!(error, TuneError::UseJournal(_)), "{error}");
    assert_eq!(node.kernel.values(), before);

    std::fs::remove_dir(node.folder.path().join("journal.json.new")).expect("there");
    assert_eq!(node.apply(&plan).report.outcome, Outcome::Applied);
    node.release("a", 1);
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn a_plan_is_applied_read_back_and_found_unchanged_the_second_time() {
    let node = node();
    let plan = pod_plan("a", 1, &[(MAPS, "262144"), (SOMAXCONN, "65535")]);
    let first = node.apply(&plan).report;
    assert_eq!(
        (first.outcome, first.applied, first.unchanged),
        (Outcome::Applied, 2, 0)
    );
    assert_eq!(
        (first.plan_hash.as_str(), first.generation),
        (plan.hash.as_str(), 1)
    );
    assert_eq!(node.kernel.value(MAPS), "262144");
    assert_eq!(node.kernel.value(SOMAXCONN), "65535");
    node.kernel.take_writes();
    let second = node.apply(&plan).report;
    assert_eq!(
        (second.outcome, second.applied, second.unchanged),
        (Outcome::Applied, 0, 2)
    );
    assert_eq!(node.kernel.take_writes(), []);
}

#[test]
fn tabs_and_spaces_are_the_same_vector() {
    let node = node();
    let plan = host_plan("a", 1, &[(RMEM, "4096 131072 33554432")]);
    assert_eq!(node.apply(&plan).report.unchanged, 1);
    assert_eq!(node.kernel.take_writes(), []);
}

#[test]
fn the_baseline_is_on_disk_before_the_first_write() {
    let node = node();
    node.kernel.fault(MAPS, Fault::WriteFails(EINVAL));
    let killed_in_write = !node.survives(|node| {
        // Moments: the plan's read, its check for writing, then the write.
        node.kernel.kill_at(4);
        node.apply(&host_plan("a", 1, &[(MAPS, "262144")]));
    });
    assert!(killed_in_write);
    let journal = node.journal_text();
    assert!(journal.contains(r#""baseline": "65530""#), "{journal}");
    assert!(journal.contains(r#""pending": "262144""#), "{journal}");
    assert_eq!(
        node.kernel.take_writes(),
        [],
        "the kernel was written before the journal"
    );
}

#[test]
fn keys_of_the_pods_own_namespace_are_set_as_asked_and_not_remembered() {
    let node = node();
    let report = node.apply(&pod_plan("a", 1, &[(SOMAXCONN, "1024")])).report;
    assert_eq!(report.applied, 1);
    assert_eq!(
        node.kernel.value(SOMAXCONN),
        "1024",
        "lower than what was there"
    );
    assert!(!node.journal_text().contains(SOMAXCONN));
}

#[test]
fn a_higher_value_found_on_the_node_is_kept_and_never_restored_over() {
    let node = node();
    node.kernel.set(MAPS, "1048576");
    let applied = node.apply(&host_plan("a", 1, &[(MAPS, "262144")]));
    assert_eq!(states(&applied.keys), [(MAPS, KeyState::Unchanged)]);
    assert!(
        !node.journal_text().contains("baseline"),
        "no write is remembered"
    );
    assert_eq!(states(&node.release("a", 1)), [(MAPS, KeyState::Unchanged)]);
    assert_eq!(node.kernel.value(MAPS), "1048576");
}

#[test]
fn larger_places_of_a_vector_are_kept() {
    let node = node();
    node.apply(&host_plan("a", 1, &[(RMEM, "8192 87380 16777216")]));
    assert_eq!(node.kernel.value(RMEM), "8192\t131072\t33554432");
    node.release("a", 1);
    assert_eq!(node.kernel.value(RMEM), "4096\t131072\t33554432");
}

#[test]
fn when_one_key_fails_those_before_it_are_put_back() {
    for (fault, state) in [
        (Fault::WriteFails(EINVAL), KeyState::Rejected),
        (Fault::WriteFails(EACCES), KeyState::ReadOnly),
        (Fault::NotWritable(EACCES), KeyState::ReadOnly),
    ] {
        let node = node();
        node.apply(&host_plan("a", 1, &[(MAPS, "100000")]));
        let (values, journal) = (node.kernel.values(), node.journal_text());
        node.kernel.fault(MAPS, fault.clone());
        let plan = host_plan(
            "a",
            2,
            &[(WATCHES, "524288"), (SOMAXCONN, "65535"), (MAPS, "262144")],
        );
        let applied = node.apply(&plan);
        assert_eq!(applied.report.outcome, Outcome::Failed, "{fault:?}");
        assert_eq!(
            states(&applied.report.failures),
            [(MAPS, state)],
            "{fault:?}"
        );
        assert_eq!(node.kernel.values(), values, "{fault:?}");
        assert_eq!(
            node.journal_text(),
            journal,
            "{fault:?}: the former wishes count"
        );
        let skipped = applied
            .keys
            .iter()
            .filter(|key| key.state == KeyState::Skipped)
            .count();
        assert_eq!(skipped, 2, "{fault:?}");
    }
}

#[test]
fn a_value_that_the_kernel_changes_is_told_and_its_baseline_is_not_lost() {
    let node = node();
    node.kernel.fault(MAPS, Fault::Stores("99999"));
    let applied = node.apply(&host_plan("a", 1, &[(MAPS, "262144")]));
    assert_eq!(
        states(&applied.report.failures),
        [(MAPS, KeyState::Clamped)]
    );
    // Putting back was answered by the same wrong value: the journal still knows the right one.
    assert_eq!(node.kernel.value(MAPS), "99999");
    assert!(
        node.journal_text().contains(r#""baseline": "65530""#),
        "{}",
        node.journal_text()
    );
    node.kernel.heal();
    node.tuner().sync(&[]).expect("the journal is usable");
    assert_eq!(node.kernel.value(MAPS), "65530");
}

#[test]
fn nothing_is_written_when_a_key_cannot_be_set() {
    let node = node();
    node.kernel.remove(WATCHES);
    let applied = node.apply(&host_plan("a", 1, &[(MAPS, "262144"), (WATCHES, "524288")]));
    assert_eq!(
        states(&applied.keys),
        [(WATCHES, KeyState::Absent), (MAPS, KeyState::Skipped)]
    );
    assert_eq!(node.kernel.take_writes(), []);
    assert!(!node.journal_text().contains(MAPS));
}

#[test]
fn each_reason_of_a_failure_is_its_own_state() {
    let node = node();
    node.kernel.set("net.ipv4.tcp_mem", "1000\t2000\t3000");
    node.kernel.set(CONGESTION, "cubic");
    let state = |name: &str, value: &str| {
        let applied = node.apply(&host_plan("x", 1, &[(name, value)]));
        let failure = applied.report.failures.first().expect("a failure").clone();
        assert!(!failure.reason.is_empty(), "{name}");
        failure.state
    };
    assert_eq!(state("net.core.rmem_max", "16777216"), KeyState::Absent);
    // The fake node has 1 GiB; this is 12 GiB, as one of the published set-ups asks for.
    let tcp_mem = "3221225472 8589934592 12884901888";
    assert_eq!(state("net.ipv4.tcp_mem", tcp_mem), KeyState::NotPermitted);
    node.kernel.fault(MAPS, Fault::NotWritable(EACCES));
    assert_eq!(state(MAPS, "262144"), KeyState::ReadOnly);
    node.kernel.fault(SOMAXCONN, Fault::WriteFails(EINVAL));
    assert_eq!(state(SOMAXCONN, "65535"), KeyState::Rejected);
    // A name that is not allowed here, and one that is not there.
    for code in [EPERM, ENOENT] {
        node.kernel.fault(CONGESTION, Fault::WriteFails(code));
        assert_eq!(state(CONGESTION, "bbr"), KeyState::Rejected);
    }
}

#[test]
fn tcp_mem_is_written_in_pages_and_told_in_bytes() {
    for (page_size, pages) in [(4_096, "16384\t32768\t49152"), (65_536, "1024\t2048\t3072")] {
        let node = Node::new(&[("net.ipv4.tcp_mem", "1000\t1500\t2000")]);
        node.kernel.set_page_size(page_size);
        let plan = host_plan(
            "a",
            1,
            &[("net.ipv4.tcp_mem", "67108864 134217728 201326592")],
        );
        let applied = node.apply(&plan);
        if page_size == 65_536 {
            // What is there, 62 MiB and more, is kept where it is larger.
            assert_eq!(node.kernel.value("net.ipv4.tcp_mem"), "1024\t2048\t3072");
        }
        assert_eq!(node.kernel.value("net.ipv4.tcp_mem"), pages);
        assert_eq!(applied.keys[0].found, "67108864 134217728 201326592");
    }
}

#[test]
fn nr_open_is_raised_for_a_limit_and_never_lowered() {
    let node = node();
    node.kernel.set(NR_OPEN, "10000");
    let plan = plan_with_nofile(PlanContext::Pod, "a", 1, &[], Some(16_384));
    let report = node.apply(&plan).report;
    assert_eq!((report.applied, report.limit_not_permitted), (1, None));
    assert_eq!(node.kernel.value(NR_OPEN), "16384");
    assert_eq!(states(&node.release("a", 1)), [(NR_OPEN, KeyState::Kept)]);
    assert_eq!(node.kernel.value(NR_OPEN), "16384");
}

#[test]
fn a_limit_beyond_the_hard_one_is_told_and_fails_nothing() {
    let node = node();
    let report = node
        .apply(&plan_with_nofile(
            PlanContext::Pod,
            "a",
            1,
            &[],
            Some(65_536),
        ))
        .report;
    assert_eq!(
        (report.outcome, report.hard_nofile),
        (Outcome::Applied, 20_000)
    );
    assert!(
        report
            .limit_not_permitted
            .is_some_and(|text| text.contains("20000"))
    );
}

#[test]
fn a_preview_writes_nothing_and_tells_what_apply_does() {
    let node = node();
    node.kernel.remove(WATCHES);
    let plan = host_plan(
        "a",
        1,
        &[
            (MAPS, "262144"),
            (RMEM, "4096 87380 16777216"),
            (WATCHES, "9000"),
        ],
    );
    let steps: Vec<_> = node
        .tuner()
        .preview(&plan)
        .expect("the journal is usable")
        .into_iter()
        .map(|preview| {
            (
                preview.name,
                preview.current,
                preview.would_be,
                preview.step,
            )
        })
        .collect();
    let row = |name: &str, now: &str, then: &str, step| {
        (name.to_owned(), now.to_owned(), then.to_owned(), step)
    };
    let rmem = "4096 131072 33554432";
    assert_eq!(
        steps,
        [
            row(WATCHES, "", "9000", PreviewStep::Refuse),
            row(RMEM, rmem, rmem, PreviewStep::Keep),
            row(MAPS, "65530", "262144", PreviewStep::Write),
        ]
    );
    assert_eq!(node.kernel.take_writes(), []);
    assert!(!node.journal_file().exists());
}

#[test]
fn the_first_unprivileged_port_is_lowered_before_the_range_and_raised_after_it() {
    const START: &str = "net.ipv4.ip_unprivileged_port_start";
    const RANGE: &str = "net.ipv4.ip_local_port_range";
    let node = Node::new(&[(START, "1024"), (RANGE, "32768\t60999")]);
    node.apply(&pod_plan("a", 1, &[(RANGE, "1000 65000"), (START, "80")]));
    let order = |node: &Node| -> Vec<String> {
        node.kernel
            .take_writes()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    };
    assert_eq!(order(&node), [START, RANGE]);
    node.apply(&pod_plan("a", 2, &[(START, "1024"), (RANGE, "2000 65000")]));
    assert_eq!(order(&node), [RANGE, START]);
}
