//! The program over the real kernel, in a network namespace of its own: nothing outside it changes.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A network namespace that lives as long as this value.
struct Namespace {
    holder: Child,
    folder: TempDir,
}

/// The namespace is there within milliseconds; a machine under load may take seconds.
const DEADLINE: Duration = Duration::from_secs(20);

impl Namespace {
    /// `None` where this machine does not permit it; the test is then a named skip.
    fn new(test: &str) -> Option<Self> {
        let own = fs::read_link("/proc/self/ns/net").expect("procfs is mounted");
        let holder = Command::new("unshare")
            .args(["--net", "--", "sleep", "600"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut holder) = holder else {
            return skip(test, "unshare (util-linux) does not start");
        };
        let theirs = PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
        let began = Instant::now();
        while fs::read_link(&theirs).is_ok_and(|theirs| theirs == own) {
            if holder.try_wait().expect("our child").is_some() || began.elapsed() > DEADLINE {
                let _ = holder.kill();
                let _ = holder.wait();
                return skip(test, "a network namespace is not permitted");
            }
            std::thread::yield_now();
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let namespace = Self { holder, folder };
        if namespace
            .sysctl("net/core/somaxconn", Some("4096"))
            .is_none()
        {
            return skip(test, "/proc/sys cannot be written");
        }
        Some(namespace)
    }

    fn enter(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.id().to_string();
        command.args(["--target", &pid, "--net", "--"]).arg(program);
        command
    }

    /// Reads a key as the namespace sees it, after writing it where a value is given.
    fn sysctl(&self, path: &str, value: Option<&str>) -> Option<String> {
        let script = match value {
            Some(value) => format!("echo '{value}' > /proc/sys/{path} && cat /proc/sys/{path}"),
            None => format!("cat /proc/sys/{path}"),
        };
        let output = self
            .enter("sh")
            .args(["-c", &script])
            .output()
            .expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout)
            .trim()
            .replace('\t', " ");
        output.status.success().then_some(text)
    }

    fn value(&self, path: &str) -> String {
        self.sysctl(path, None).expect("a key of every namespace")
    }

    fn write_plan(&self, generation: i64, sysctls: &[(&str, &str)]) {
        let settings: Vec<String> = sysctls
            .iter()
            .map(|(name, value)| format!(r#"{{"name": "{name}", "value": "{value}"}}"#))
            .collect();
        let text = format!(
            r#"{{"version": 1, "context": "Host", "sysctls": [{}],
                "owner": {{"uid": "u", "resource": "web/site", "generation": {generation}}}}}"#,
            settings.join(",")
        );
        fs::write(self.plan(), text).expect("a plan");
    }

    fn plan(&self) -> PathBuf {
        self.folder.path().join("plan.json")
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Adds the program and its arguments to a command that ends with what is to be run.
    fn tuner(&self, mut command: Command, subcommand: &str) -> Output {
        command
            .args([subcommand, "--json", "--node", "node-1", "--plan"])
            .arg(self.plan())
            .arg("--journal")
            .arg(self.journal())
            .output()
            .expect("the program starts")
    }

    fn run(&self, subcommand: &str) -> Output {
        self.tuner(self.enter(PROGRAM), subcommand)
    }

    /// Runs the program and kills it when it makes this system call for the `nth` time.
    fn run_killed(&self, subcommand: &str, call: &str, nth: usize) -> Output {
        let mut command = self.enter("strace");
        command
            .args(["-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"));
        command
            .arg("-e")
            .arg(format!("inject={call}:signal=KILL:when={nth}"))
            .arg(PROGRAM);
        self.tuner(command, subcommand)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_tunedweb-tuner");

fn skip<T>(test: &str, reason: &str) -> Option<T> {
    // Past the test runner's capture, so that it is seen and counted where the test passes.
    // The line before may be the runner's, without its end.
    let _ = writeln!(std::io::stdout(), "\nSKIP {test}: {reason}");
    None
}

fn states(output: &Output) -> Vec<(String, String)> {
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let keys = value
        .get("keys")
        .unwrap_or(&value)
        .as_array()
        .expect("a list")
        .clone();
    let text = |key: &serde_json::Value, field: &str| key[field].as_str().unwrap_or("").to_owned();
    keys.iter()
        .map(|key| (text(key, "name"), text(key, "state")))
        .collect()
}

fn state_of(output: &Output, name: &str) -> String {
    let states = states(output);
    let found = states.iter().find(|(key, _)| key == name);
    found.map(|(_, state)| state.clone()).unwrap_or_default()
}

#[test]
fn real_keys_are_set_read_back_and_put_back() {
    let Some(namespace) = Namespace::new("real_keys_are_set_read_back_and_put_back") else {
        return;
    };
    let wanted = [
        ("net.core.somaxconn", "65535"),
        ("net.ipv4.tcp_rmem", "8192 262144 67108864"),
        ("net.ipv4.tcp_congestion_control", "reno"),
        ("net.ipv4.ip_local_port_range", "10240 65000"),
        // Longer than what a buffer that grows takes in its first read.
        (
            "net.ipv4.ip_local_reserved_ports",
            "1080,3128,5000-5010,6443,8080,10250-10260,30000-32767",
        ),
        ("net.ipv4.tcp_max_tw_buckets", "1440000"),
        ("net.ipv4.tcp_tw_reuse", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        ("net.ipv4.ip_unprivileged_port_start", "80"),
    ];
    let path = |name: &str| name.replace('.', "/");
    let before = wanted.map(|(name, _)| namespace.value(&path(name)));
    namespace.write_plan(1, &wanted);
    let applied = namespace.run("apply");
    assert!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stderr)
    );
    for (name, value) in wanted {
        assert_eq!(namespace.value(&path(name)), value, "{name}");
        assert_eq!(state_of(&applied, name), "Applied", "{name}");
    }
    assert!(namespace.run("verify").status.success());
    let restored = namespace.run("restore");
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    for ((name, _), before) in wanted.iter().zip(before) {
        assert_eq!(namespace.value(&path(name)), before, "{name}");
        assert_eq!(state_of(&restored, name), "Restored", "{name}");
    }
}

#[test]
fn the_real_kernels_refusals_are_told_apart_and_leave_nothing_changed() {
    let test = "the_real_kernels_refusals_are_told_apart_and_leave_nothing_changed";
    let Some(namespace) = Namespace::new(test) else {
        return;
    };
    // Another program moved the first unprivileged port: EINVAL for a range below it.
    namespace
        .sysctl("net/ipv4/ip_unprivileged_port_start", Some("20000"))
        .expect("permitted");
    namespace
        .sysctl("net/ipv4/ip_local_port_range", Some("32768 60999"))
        .expect("permitted");
    let other = ("net.core.somaxconn", "65535");
    for (name, value, states) in [
        (
            "net.ipv4.ip_local_port_range",
            "10240 65000",
            ["Rejected", "Rejected"],
        ),
        (
            "net.ipv4.tcp_congestion_control",
            "nosuch",
            ["Rejected", "Rejected"],
        ),
        // Of the host's namespace only: not there, or (since Linux 6.12) there and read-only.
        ("net.core.netdev_max_backlog", "5000", ["Absent", "Absent"]),
        ("net.core.rmem_max", "536870912", ["Absent", "ReadOnly"]),
    ] {
        namespace.write_plan(1, &[other, (name, value)]);
        let applied = namespace.run("apply");
        assert_eq!(applied.status.code(), Some(1), "{name}");
        let state = state_of(&applied, name);
        assert!(states.contains(&state.as_str()), "{name}: {state}");
        assert_eq!(state_of(&applied, other.0), "Skipped", "{name}");
        assert_eq!(namespace.value("net/core/somaxconn"), "4096", "{name}");
    }
}

/// System calls that touch a file, a key or the lock.
const CALLS: [&str; 7] = [
    "openat",
    "unlink",
    "write",
    "fsync",
    "rename",
    "flock",
    "ftruncate",
];

/// More often than the program makes any of them.
const NTH_MAX: usize = 100;

#[test]
fn the_program_killed_at_any_system_call_loses_nothing() {
    let test = "the_program_killed_at_any_system_call_loses_nothing";
    let Some(namespace) = Namespace::new(test) else {
        return;
    };
    let wanted = [
        ("net.core.somaxconn", "65535"),
        ("net.ipv4.tcp_tw_reuse", "1"),
    ];
    namespace.write_plan(1, &wanted);
    if !can_trace(&namespace) {
        return skip::<()>(test, "strace is missing or may not trace").unwrap_or_default();
    }
    let values = || {
        [
            namespace.value("net/core/somaxconn"),
            namespace.value("net/ipv4/tcp_tw_reuse"),
        ]
    };
    let before = values();
    let mut kills = 0;
    for call in CALLS {
        let mut ended = false;
        for nth in 1..=NTH_MAX {
            let _ = fs::remove_dir_all(namespace.journal());
            let applied = namespace.run_killed("apply", call, nth);
            let apply_was_killed = was_killed(&applied);
            assert!(
                namespace.run("apply").status.success(),
                "apply after {call} {nth}"
            );
            assert_eq!(values(), ["65535", "1"], "apply killed at {call} {nth}");
            let restored = namespace.run_killed("restore", call, nth);
            let restore_was_killed = was_killed(&restored);
            assert!(
                namespace.run("restore").status.success(),
                "restore after {call} {nth}"
            );
            assert_eq!(values(), before, "restore killed at {call} {nth}");
            assert!(
                is_empty(&namespace.journal()),
                "restore killed at {call} {nth}"
            );
            ended = !apply_was_killed && !restore_was_killed;
            if ended {
                break;
            }
            kills += usize::from(apply_was_killed) + usize::from(restore_was_killed);
        }
        assert!(ended, "{call}: the program never came to its end");
    }
    assert!(kills > 20, "only {kills} kills: strace did not do its work");
}

fn can_trace(namespace: &Namespace) -> bool {
    let mut command = namespace.enter("strace");
    command.args(["-qq", "-o", "/dev/null", "-e", "trace=openat", "true"]);
    command.output().is_ok_and(|output| output.status.success())
}

fn was_killed(output: &Output) -> bool {
    // strace ends by the signal that ended the program.
    output.status.signal() == Some(9)
}

fn is_empty(journal: &Path) -> bool {
    let text = fs::read_to_string(journal.join("journal.json")).expect("a journal");
    text.contains(r#""entries": []"#)
}
