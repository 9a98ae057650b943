//! Looks into a node, a network namespace, a process: through `docker exec` into the privileged
//! container that a kind node is, past everything that the project itself reports.

use crate::command::{self, RunError};

mod parse;

pub use parse::{Fetched, OpenFiles};

/// Seconds that a fetched page may take; every page of a test is small or local.
const FETCH_SECONDS_MAX: &str = "20";

/// Why a look showed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The program that looks could not be run in the node.
    #[error("look into node {node}")]
    Run {
        /// The node.
        node: String,
        /// Why.
        source: RunError,
    },
    /// What was printed has no such line.
    #[error("find {what} on node {node} in: {text}")]
    Find {
        /// What was looked for.
        what: String,
        /// The node.
        node: String,
        /// What was printed.
        text: String,
    },
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, which is the name of its container too.
    pub name: String,
    /// Its address, which this machine reaches.
    pub address: String,
}

impl Node {
    /// Runs a program in the node, as root with every capability that the node has.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, ProbeError> {
        let arguments = [&["exec", &self.name], arguments].concat();
        command::run("docker", &arguments)
            .await
            .map_err(|source| ProbeError::Run {
                node: self.name.clone(),
                source,
            })
    }

    /// A kernel key as the node itself sees it.
    pub async fn sysctl(&self, key: &str) -> Result<String, ProbeError> {
        self.run(&["sysctl", "-n", key])
            .await
            .map(|text| one_line(&text))
    }

    /// A kernel key as a network namespace made just now has it, which is how a pod begins.
    pub async fn sysctl_of_new_network(&self, key: &str) -> Result<String, ProbeError> {
        self.run(&["unshare", "-n", "sysctl", "-n", key])
            .await
            .map(|text| one_line(&text))
    }

    /// The main process of a container, by the id that its pod's status gives
    /// (`containerd://…`).
    pub async fn process(&self, container_id: &str) -> Result<Process, ProbeError> {
        let id = container_id.rsplit('/').next().unwrap_or_default();
        let text = self.run(&["ctr", "-n", "k8s.io", "tasks", "ls"]).await?;
        let pid = parse::pid_of_task(&text, id)
            .ok_or_else(|| self.not_found(format!("the process of container {id}"), text))?;
        Ok(Process {
            node: self.clone(),
            pid,
        })
    }

    /// The limits of open files that every container of the node begins with: those of the runtime
    /// that starts them.
    pub async fn default_open_files(&self) -> Result<OpenFiles, ProbeError> {
        let pid = self.run(&["pgrep", "-o", "-x", "containerd"]).await?;
        match pid.trim().parse() {
            Ok(pid) => {
                Process {
                    node: self.clone(),
                    pid,
                }
                .open_files()
                .await
            }
            Err(_) => Err(self.not_found("the process of containerd".to_owned(), pid)),
        }
    }

    /// Fetches a page from the node, so that pods and Services are reached without a detour.
    pub async fn fetch(&self, url: &str) -> Result<Fetched, ProbeError> {
        self.fetch_with(url, &[]).await
    }

    /// Fetches a page with further arguments of `curl`.
    pub async fn fetch_with(&self, url: &str, curl: &[&str]) -> Result<Fetched, ProbeError> {
        let fixed = ["curl", "-sS", "-i", "--max-time", FETCH_SECONDS_MAX];
        let text = self.run(&[&fixed, curl, &[url]].concat()).await?;
        parse::response(&text).ok_or_else(|| self.not_found(format!("a response of {url}"), text))
    }

    fn not_found(&self, what: String, text: String) -> ProbeError {
        ProbeError::Find {
            what,
            node: self.name.clone(),
            text,
        }
    }
}

/// A process on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The node that it runs on.
    pub node: Node,
    /// Its number in the node's process namespace.
    pub pid: u32,
}

impl Process {
    /// Runs a program of the node in the process's network namespace.
    pub async fn run_in_network(&self, arguments: &[&str]) -> Result<String, ProbeError> {
        let pid = self.pid.to_string();
        self.node
            .run(&[&["nsenter", "-t", &pid, "-n"], arguments].concat())
            .await
    }

    /// A kernel key as the process's network namespace has it.
    pub async fn sysctl(&self, key: &str) -> Result<String, ProbeError> {
        self.run_in_network(&["sysctl", "-n", key])
            .await
            .map(|text| one_line(&text))
    }

    /// The limits of open files that the process runs under.
    pub async fn open_files(&self) -> Result<OpenFiles, ProbeError> {
        let text = self
            .node
            .run(&["cat", &format!("/proc/{}/limits", self.pid)])
            .await?;
        parse::open_files(&text).ok_or_else(|| {
            self.node
                .not_found(format!("the open-file limit of process {}", self.pid), text)
        })
    }

    /// The accept queue's length of each socket that listens on a port, one a worker
    /// (`ss -ltn`, column Send-Q).
    pub async fn backlogs(&self, port: u16) -> Result<Vec<u32>, ProbeError> {
        self.run_in_network(&["ss", "-ltnH"])
            .await
            .map(|text| parse::backlogs(&text, port))
    }
}

/// Keys of several numbers are separated by tabs in `/proc/sys`, by spaces everywhere else.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
