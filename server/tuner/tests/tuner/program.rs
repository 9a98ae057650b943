//! The program, over a folder that looks like /proc/sys.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use tunedweb_tuning::{ApplyReport, Outcome};

/// A root folder with keys, and a plan for them.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        files.set("vm/max_map_count", "65530");
        files.set("net/core/somaxconn", "4096");
        files.write_plan(
            "Pod",
            1,
            r#"{"name": "vm.max_map_count", "value": "262144"},
            {"name": "net.core.somaxconn", "value": "65535"}"#,
        );
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, path: &str) -> PathBuf {
        self.path("root/proc/sys").join(path)
    }

    fn set(&self, path: &str, value: &str) {
        let path = self.key(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("folders");
        fs::write(path, format!("{value}\n")).expect("a key");
    }

    fn value(&self, path: &str) -> String {
        fs::read_to_string(self.key(path))
            .expect("a key")
            .trim()
            .to_owned()
    }

    fn write_plan(&self, context: &str, generation: i64, sysctls: &str) {
        let text = format!(
            r#"{{"version": 1, "context": "{context}", "sysctls": [{sysctls}],
                "owner": {{"uid": "u", "resource": "web/site", "generation": {generation}}}}}"#
        );
        fs::write(self.path("plan.json"), text).expect("a plan");
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
        let mut program = self.command(command);
        program.args(more).output().expect("the program starts")
    }

    fn command(&self, command: &str) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tunedweb-tuner"));
        program
            .arg(command)
            .arg("--plan")
            .arg(self.path("plan.json"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--journal")
            .arg(self.path("journal"))
            .args(["--node", "node-1"]);
        program
    }
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

#[test]
fn plan_verify_apply_and_restore_go_round() {
    let files = Files::new();
    let planned = files.run("plan", &["--json"]);
    assert_eq!(code(&planned), Some(0), "{}", errors(&planned));
    let rows = json(&planned);
    assert_eq!(rows[0]["name"], "net.core.somaxconn");
    assert_eq!(
        (&rows[0]["current"], &rows[0]["wouldBe"]),
        (&"4096".into(), &"65535".into())
    );
    assert_eq!(
        (&rows[0]["class"], &rows[1]["class"]),
        (&"B".into(), &"C".into())
    );
    assert_eq!(files.value("net/core/somaxconn"), "4096");
    assert_eq!(code(&files.run("verify", &[])), Some(1));

    let applied = files.run("apply", &[]);
    assert_eq!(code(&applied), Some(0), "{}", errors(&applied));
    assert!(applied.stdout.is_empty(), "data only where it is asked for");
    assert!(errors(&applied).contains("65530"), "{}", errors(&applied));
    assert_eq!(files.value("vm/max_map_count"), "262144");
    assert_eq!(code(&files.run("verify", &[])), Some(0));

    let restored = files.run("restore", &["--json"]);
    assert_eq!(code(&restored), Some(0), "{}", errors(&restored));
    assert_eq!(json(&restored)[0]["state"], "Restored");
    assert_eq!(files.value("vm/max_map_count"), "65530");
}

#[test]
fn the_termination_message_is_the_report() {
    let files = Files::new();
    let message = files.path("message");
    let argument = message.to_str().expect("a plain path");
    let applied = files.run("apply", &["--termination-message", argument, "--json"]);
    let text = fs::read_to_string(&message).expect("the message");
    let report = ApplyReport::parse(&text).expect("a report");
    assert_eq!((report.outcome, report.applied), (Outcome::Applied, 2));
    assert_eq!(json(&applied)["report"]["planHash"], report.plan_hash);
}

#[test]
fn a_failed_apply_exits_1_and_says_which_key() {
    let files = Files::new();
    fs::remove_file(files.key("net/core/somaxconn")).expect("the key was there");
    let message = files.path("message");
    let argument = message.to_str().expect("a plain path");
    let applied = files.run("apply", &["--termination-message", argument]);
    assert_eq!(code(&applied), Some(1));
    assert_eq!(files.value("vm/max_map_count"), "65530");
    let text = fs::read_to_string(&message).expect("the message");
    let report = ApplyReport::parse(&text).expect("a report");
    assert_eq!(report.outcome, Outcome::Failed);
    assert_eq!(report.failures[0].name, "net.core.somaxconn");
}

#[test]
fn every_problem_of_a_plan_is_printed_and_becomes_the_termination_message() {
    let files = Files::new();
    files.write_plan(
        "Host",
        1,
        r#"{"name": "net.core.somaxconn", "value": "3240000"},
           {"name": "net.ipv4.tcp_tw_recycle", "value": "1"}"#,
    );
    let message = files.path("message");
    let argument = message.to_str().expect("a plain path");
    let applied = files.run("apply", &["--termination-message", argument]);
    assert_eq!(code(&applied), Some(1));
    for text in [
        errors(&applied),
        fs::read_to_string(&message).expect("the message"),
    ] {
        for part in ["128 to 65535", "removed in Linux 4.12"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn wrong_usage_exits_2_and_help_0() {
    let program = || Command::new(env!("CARGO_BIN_EXE_tunedweb-tuner"));
    let run = |arguments: &[&str]| {
        let output = program()
            .args(arguments)
            .env_remove("TUNEDWEB_TUNER_PLAN")
            .output();
        code(&output.expect("the program starts"))
    };
    assert_eq!(run(&[]), Some(2));
    assert_eq!(run(&["apply"]), Some(2), "no plan");
    assert_eq!(run(&["undo", "--plan", "x"]), Some(2));
    assert_eq!(run(&["--help"]), Some(0));
    assert_eq!(run(&["apply", "--help"]), Some(0));
}

#[test]
fn the_outcome_is_the_same_where_nobody_reads_the_table() {
    let files = Files::new();
    for (command, expected) in [("plan", 0), ("verify", 1), ("apply", 0), ("restore", 0)] {
        let full = fs::File::create("/dev/full").expect("a device of Linux");
        let status = files.command(command).stderr(full).status();
        let status = status.expect("the program starts");
        assert_eq!(status.code(), Some(expected), "{command}");
    }
}

/// As a file without end; reading it whole would take all memory.
#[test]
fn a_plan_without_end_is_refused() {
    let files = Files::new();
    fs::remove_file(files.path("plan.json")).expect("the plan");
    std::os::unix::fs::symlink("/dev/zero", files.path("plan.json")).expect("a link");
    let output = files.run("apply", &[]);
    assert_eq!(code(&output), Some(1));
    assert!(
        errors(&output).contains("more than the 131072 bytes"),
        "{}",
        errors(&output)
    );
}

#[test]
fn flags_may_come_from_the_environment() {
    let files = Files::new();
    let output = Command::new(env!("CARGO_BIN_EXE_tunedweb-tuner"))
        .arg("apply")
        .env("TUNEDWEB_TUNER_PLAN", files.path("plan.json"))
        .env("TUNEDWEB_TUNER_ROOT", files.path("root"))
        .env("TUNEDWEB_TUNER_JOURNAL", files.path("journal"))
        .env("TUNEDWEB_TUNER_NODE", "node-7")
        .env("TUNEDWEB_TUNER_TERMINATION_MESSAGE", files.path("message"))
        .output()
        .expect("the program starts");
    assert_eq!(code(&output), Some(0), "{}", errors(&output));
    assert!(files.path("message").exists());
    let journal = fs::read_to_string(files.path("journal/journal.json")).expect("a journal");
    assert!(journal.contains("node-7"), "{journal}");
}

#[test]
fn programs_at_the_same_time_merge_their_wishes_and_undo_none_of_another() {
    let files = Files::new();
    let run_all = |command: &str| {
        let children: Vec<_> = (1..=8)
            .map(|n| {
                let plan = files.path(&format!("plan-{n}.json"));
                let text = format!(
                    r#"{{"version": 1, "context": "Host",
                        "sysctls": [{{"name": "vm.max_map_count", "value": "{n}00000"}}],
                        "owner": {{"uid": "{n}", "resource": "web/{n}", "generation": 1}}}}"#
                );
                std::fs::write(&plan, text).expect("a plan");
                Command::new(env!("CARGO_BIN_EXE_tunedweb-tuner"))
                    .args([command, "--node", "node-1", "--plan"])
                    .arg(plan)
                    .arg("--root")
                    .arg(files.path("root"))
                    .arg("--journal")
                    .arg(files.path("journal"))
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .expect("the program starts")
            })
            .collect();
        for mut child in children {
            assert!(child.wait().expect("our child").success());
        }
    };
    run_all("apply");
    assert_eq!(files.value("vm/max_map_count"), "800000");
    run_all("restore");
    assert_eq!(files.value("vm/max_map_count"), "65530");
}

#[test]
fn a_journal_that_cannot_be_read_stops_every_command_and_stays_as_it_is() {
    for (text, word) in [
        ("{\"version\": 1", "not a journal"),
        ("{\"version\": 2}", "format 2"),
    ] {
        let files = Files::new();
        fs::create_dir(files.path("journal")).expect("a folder");
        fs::write(files.path("journal/journal.json"), text).expect("a file");
        for command in ["plan", "verify", "apply", "restore"] {
            let output = files.run(command, &[]);
            assert_eq!(code(&output), Some(1), "{command}");
            assert!(
                errors(&output).contains(word),
                "{command}: {}",
                errors(&output)
            );
        }
        let left = fs::read_to_string(files.path("journal/journal.json")).expect("the file");
        assert_eq!(left, text);
        assert_eq!(files.value("vm/max_map_count"), "65530");
    }
}
