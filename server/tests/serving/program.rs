//! The program: its command line, its exit codes, its signals, its limits.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tunedweb_config::TuningReport;

use crate::site::{Client, DEADLINE, eventually, metric};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tunedweb-server"));
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Exit code and standard error.
fn output(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    assert!(
        output.stdout.is_empty(),
        "text for people belongs on standard error"
    );
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A running program.
struct Running {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut admin = None;
        let mut lines = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "ended: {lines}");
            let address = || {
                let (_, rest) = line.split_once("http://")?;
                rest.trim_end()
                    .trim_end_matches('/')
                    .parse::<SocketAddr>()
                    .ok()
            };
            match address() {
                Some(found) if line.contains("admin endpoint") => admin = Some(found),
                Some(address) => {
                    let admin = admin.unwrap_or(address);
                    return Self {
                        child,
                        address,
                        admin,
                        stderr,
                    };
                }
                None => lines.push_str(&line),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn ended(&mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < DEADLINE, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn on_loopback(root: &Path) -> Command {
    let mut command = program();
    command.arg("--root").arg(root);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]);
    command
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "a").unwrap();
    folder
}

#[test]
fn a_folder_is_served_until_a_signal_asks_for_the_end() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = folder();
        let mut running = Running::start(&mut on_loopback(folder.path()));
        assert_eq!(Client::connect(running.address).get("/a").text(), "a");
        running.signal(signal);
        if signal == Signal::TERM {
            // a second one is for those who cannot wait
            eventually("it is ending", || {
                Client::connect(running.admin).get("/readyz").status == 503
            });
            running.signal(signal);
        }
        let (status, text) = running.ended();
        assert_eq!(status.code(), Some(0), "{text}");
        assert!(text.contains("every response was complete"), "{text}");
    }
}

#[test]
fn environment_variables_use_the_words_of_the_flags() {
    let folder = folder();
    let mut command = program();
    command.env("TUNEDWEB_SERVER_ROOT", folder.path());
    command.env("TUNEDWEB_SERVER_LISTEN", "127.0.0.1:0");
    command.env("TUNEDWEB_SERVER_WORKERS", "1");
    let running = Running::start(&mut command);
    assert_eq!(Client::connect(running.address).get("/a").text(), "a");
}

#[test]
fn check_reports_every_problem_and_exits_with_1() {
    let folder = folder();
    let path = folder.path().join("settings.toml");
    fs::write(&path, "rot = '/srv'\n[server]\nworkers = 0\n").unwrap();
    let (code, text) = output(program().arg("check").arg("--config").arg(&path));
    assert_eq!(code, 1);
    for part in [
        "did you mean root?",
        "server.workers: found 0",
        "root: found nothing",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    fs::write(&path, "root = '/srv'\n").unwrap();
    assert_eq!(
        output(program().arg("check").arg("--config").arg(&path)).0,
        0
    );
    let (code, text) = output(program().args(["check", "--config", "/nonexistent.toml"]));
    assert_eq!(code, 1);
    assert!(text.contains("/nonexistent.toml"), "{text}");
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for arguments in [
        &[][..],
        &["--workers", "many"],
        &["--nonsense"],
        &["--listen", "localhost"],
    ] {
        assert_eq!(output(program().args(arguments)).0, 2, "{arguments:?}");
    }
    let help = program().arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(
        ["--root", "--config", "--listen", "check"]
            .iter()
            .all(|word| text.contains(word))
    );
}

#[test]
fn what_prevents_the_start_says_what_to_do() {
    let folder = folder();
    let (code, text) =
        output(program().args(["--root", "/nonexistent", "--listen", "127.0.0.1:0"]));
    assert_eq!(code, 1);
    assert!(
        text.contains("/nonexistent") && text.contains("name an existing folder"),
        "{text}"
    );

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_taken(
        program()
            .arg("--root")
            .arg(folder.path())
            .args(["--listen", &address]),
    );
    let mut command = program();
    command
        .arg("--root")
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0"]);
    assert_taken(command.args(["--admin", &address]));
}

#[test]
fn a_second_server_on_the_port_is_refused() {
    let folder = folder();
    let running = Running::start(&mut on_loopback(folder.path()));
    let address = running.address.to_string();
    assert_taken(
        program()
            .arg("--root")
            .arg(folder.path())
            .args(["--listen", &address]),
    );
}

fn assert_taken(command: &mut Command) {
    let (code, text) = output(command);
    assert_eq!(code, 1);
    assert!(
        text.contains("end the program that uses the port"),
        "{text}"
    );
}

#[test]
fn without_open_files_the_server_waits_and_recovers() {
    let folder = folder();
    fs::write(folder.path().join("b"), "b").unwrap();
    let running = Running::start(&mut on_loopback(folder.path()));
    let mut client = Client::connect(running.address);
    assert_eq!(client.get("/a").text(), "a");
    let soft = Some(lowest_free_descriptor(&running));
    let limit = |soft| Rlimit {
        current: soft,
        maximum: Some(20_000),
    };
    let before = prlimit(Some(running.pid()), Resource::Nofile, limit(soft)).unwrap();
    assert_eq!(client.get("/b").status, 503);
    // accepted by the kernel, not by the server
    let mut waiting = Client::connect(running.address);
    waiting.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let cpu_before = cpu_ticks(&running);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert_eq!(client.get("/a").text(), "a");
        std::thread::sleep(Duration::from_millis(50));
    }
    // a hundredth of a second each: far from a spin
    assert!(cpu_ticks(&running) - cpu_before < 30);
    prlimit(Some(running.pid()), Resource::Nofile, before).unwrap();
    assert_eq!(waiting.response().text(), "a");
    assert_eq!(client.get("/b").text(), "b");
    let failures = metric(running.admin, "tunedweb_server_accept_failures_total");
    assert!((1..30).contains(&failures), "{failures}");
}

fn lowest_free_descriptor(running: &Running) -> u64 {
    let open: Vec<u64> = fs::read_dir(format!("/proc/{}/fd", running.child.id()))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    (0..20_000)
        .find(|descriptor| !open.contains(descriptor))
        .unwrap()
}

/// User and system time of the process (proc_pid_stat(5), fields 14 and 15).
fn cpu_ticks(running: &Running) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.child.id())).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_unreachable_open_file_limit_is_reported_and_lived_with() {
    let folder = folder();
    let path = folder.path().join("settings.toml");
    let text = format!(
        "root = {:?}\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[ulimits]\nnofile = 1048576\n\
         [server]\nworkers = 1\n",
        folder.path()
    );
    fs::write(&path, text).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 700 && exec \"$0\" --config \"$1\""]);
    command
        .arg(env!("CARGO_BIN_EXE_tunedweb-server"))
        .arg(&path);
    let running = Running::start(command.stderr(Stdio::piped()));
    let body = Client::connect(running.admin).get("/tuning").body;
    let report: TuningReport = serde_json::from_slice(&body).unwrap();
    assert_eq!((report.nofile.soft, report.nofile.hard), (700, 700));
    assert!(report.max_connections_per_worker.effective < 700);
    let short = report
        .shortfalls
        .iter()
        .find(|s| s.setting == "ulimits.nofile")
        .unwrap();
    assert_eq!((short.asked, short.reached), (1_048_576, 700));
    assert!(short.advice.contains("hard limit"), "{}", short.advice);
}
