//! A node: a tree of files in place of the kernel's, and the agent that keeps it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::api_server::ApiServer;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tunedweb-agent");

/// Longer than the shortest drift interval, on a machine that does much else.
const DEADLINE: Duration = Duration::from_mins(1);

/// The keys of the tree and their values before anything was tuned.
const KEYS: [(&str, &str); 3] = [
    ("vm/max_map_count", "65530"),
    ("fs/nr_open", "1048576"),
    ("net/core/rmem_max", "212992"),
];

/// Ends its agent when it is dropped.
pub(crate) struct Node {
    folder: tempfile::TempDir,
    agent: Option<(Child, String)>,
}

impl Node {
    pub(crate) fn start(api: &ApiServer) -> Self {
        let mut node = Self::prepare();
        node.run(api);
        node
    }

    pub(crate) fn prepare() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Self {
            folder,
            agent: None,
        };
        for (key, value) in KEYS {
            fs::create_dir_all(node.path(key).parent().expect("a parent")).expect("folders");
            node.write(key, value);
        }
        node
    }

    pub(crate) fn run(&mut self, api: &ApiServer) {
        let kubeconfig = self.folder.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig()).expect("a file");
        let mut child = Command::new(PROGRAM)
            .args([
                "--node=n1",
                "--drift-interval=5s",
                "--admin=127.0.0.1:0",
                "--root",
            ])
            .arg(self.folder.path().join("root"))
            .arg("--journal")
            .arg(self.folder.path().join("journal"))
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let stderr = child.stderr.take().expect("a pipe");
        let admin = admin_address(stderr);
        self.agent = Some((child, admin));
    }

    /// Tells the agent to stop, as the kubelet does.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let (mut child, _) = self.agent.take().expect("an agent runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        child.wait().expect("the agent ends")
    }

    pub(crate) fn read(&self, key: &str) -> String {
        let text = fs::read_to_string(self.path(key)).expect("a key");
        text.trim().to_owned()
    }

    pub(crate) fn write(&self, key: &str, value: &str) {
        fs::write(self.path(key), format!("{value}\n")).expect("a key");
    }

    pub(crate) fn wait_until_ready(&self) {
        wait_until("readiness", || {
            self.get("/readyz").starts_with("HTTP/1.1 200")
        });
    }

    pub(crate) fn wait_for_metric(&self, name: &str, least: u64) {
        wait_until(name, || {
            let metrics = self.get("/metrics");
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok())
                .is_some_and(|value| value >= least)
        });
    }

    fn get(&self, path: &str) -> String {
        let (_, admin) = self.agent.as_ref().expect("an agent runs");
        let mut stream = TcpStream::connect(admin).expect("the admin port answers");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.path().join("root/proc/sys").join(key)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.agent.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Reads the log up to the line that names the port; the rest is passed on to the test's output.
fn admin_address(stderr: impl std::io::Read + Send + 'static) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("admin=") {
                sender.send(address.to_owned()).ok();
            }
            eprintln!("{line}");
        }
    });
    receiver
        .recv_timeout(DEADLINE)
        .expect("the agent names its admin port")
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
