//! The parts of `e2e/demo` that look, wait and judge.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use tunedweb_api::condition::{self, ConditionType};
use tunedweb_api::tuned_web_server::{BenchmarkResult, Trigger};
use tunedweb_api::{BenchmarkRun, TunedWebServer};

use crate::cluster::{Cluster, ClusterError, ServingPod};
use crate::command::{self, RunError};
use crate::probe::ProbeError;
use crate::reading::{self, Place, Reading, Wish};
use crate::sample::Sample;
use crate::wait::{self, WaitError};

/// Two nodes are tuned and their pods ready within a quarter of this.
const READY_SECONDS: u64 = 180;
/// A changed ConfigMap takes a minute to arrive, a load pod some seconds to start and to end.
const BENCHMARK_SECONDS: u64 = 180;
/// The operator gives up on a node after 300 s and says so.
const DELETE_SECONDS: u64 = 330;

/// Why the demo could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The cluster did not answer.
    #[error("ask the cluster")]
    Cluster(#[source] ClusterError),
    /// The API server refused.
    #[error("{action} {name}")]
    Request {
        /// What was asked for.
        action: &'static str,
        /// Of which object.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// A value could not be read.
    #[error("read keys and limits")]
    Probe(#[source] ProbeError),
    /// The resource did not get there.
    #[error("wait for the site")]
    Wait(#[source] WaitError),
    /// The page did not come.
    #[error("fetch the page")]
    Fetch(#[source] RunError),
    /// The values from before could not be kept or read again.
    #[error("{action} {}", path.display())]
    State {
        /// What was done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The Service has no address that this machine reaches.
    #[error("find the node port of Service {name}")]
    NoAddress {
        /// The Service.
        name: String,
    },
    /// Values are not what they should be.
    #[error("{expected}, but not so:\n{differences}")]
    Differ {
        /// What should be.
        expected: &'static str,
        /// What is.
        differences: String,
    },
}

/// The demo's site in its cluster, and the file that keeps what the nodes were like before.
pub struct Demo {
    cluster: Cluster,
    sample: Sample,
    wishes: Vec<Wish>,
    state: PathBuf,
}

impl Demo {
    /// The site of a sample in the cluster that the environment names.
    pub fn new(cluster: Cluster, sample: Sample, state: PathBuf) -> Self {
        let wishes = reading::wishes(&sample.server.spec);
        Self {
            cluster,
            sample,
            wishes,
            state,
        }
    }

    /// Keeps what the nodes are like, unless the site is there already.
    pub async fn remember(&self) -> Result<(), DemoError> {
        if self.state.exists() && self.live().await?.is_some() {
            return Ok(());
        }
        let readings = self.read_untuned().await?;
        write(&self.state, &readings)
    }

    /// Waits until every node is tuned and serves.
    pub async fn wait_ready(&self) -> Result<(), DemoError> {
        let limit = Duration::from_secs(READY_SECONDS);
        let look = async || match self.live().await.map_err(|error| error.to_string())? {
            Some(server) if is_ready(&server) => Ok(()),
            Some(server) => Err(conditions(&server)),
            None => Err("no such resource".to_owned()),
        };
        wait::eventually(limit, "the site is ready on every node", look)
            .await
            .map_err(DemoError::Wait)
    }

    /// Waits until every benchmark that runs by itself has measured what is served now.
    pub async fn wait_measured(&self) -> Result<(), DemoError> {
        let runs = self.sample.server.spec.benchmarks.iter();
        let load: u32 = runs.map(|benchmark| benchmark.load.duration_seconds).sum();
        let limit = Duration::from_secs(BENCHMARK_SECONDS + u64::from(load));
        let look = async || match self.live().await.map_err(|error| error.to_string())? {
            Some(server) => self.all_measured(&server).await,
            None => Err("no such resource".to_owned()),
        };
        wait::eventually(limit, "every benchmark measured what is served", look)
            .await
            .map_err(DemoError::Wait)
    }

    /// What was reached, read past the project's own reports; an error where a key or limit is not
    /// what was asked for.
    pub async fn show(&self) -> Result<String, DemoError> {
        let before = read(&self.state)?;
        let after = self.read_tuned().await?;
        let address = self.address().await?;
        let page = command::run("curl", &["-fsS", "--max-time", "10", &address])
            .await
            .map_err(DemoError::Fetch)?;
        self.as_asked(&after)?;
        Ok(format!(
            "Each key and limit on each node, before → after:\n\n{}\n{address}\n{}\n\n{}",
            reading::table(&before, &after),
            headline(&page),
            put_back(&before, &after),
        ))
    }

    /// Deletes the site, waits until its nodes are put back and shows them; an error where a value
    /// is not what it was before.
    pub async fn undo(&self) -> Result<String, DemoError> {
        let before = read(&self.state)?;
        let tuned = self.read_tuned().await?;
        self.delete().await?;
        let after = self.read_untuned().await?;
        let table = reading::table(&tuned, &after);
        let differences: String = after
            .iter()
            .filter(|now| reading::value_in(&before, now) != Some(&now.value))
            .fold(String::new(), |mut text, now| {
                let was = reading::value_in(&before, now).unwrap_or("not read");
                let _ = writeln!(
                    text,
                    "{} on {} is {}, was {was}",
                    now.what, now.node, now.value
                );
                text
            });
        if differences.is_empty() {
            let heading =
                "Each key and limit on each node, tuned → put back to what it was before:";
            return Ok(format!("{heading}\n\n{table}"));
        }
        Err(DemoError::Differ {
            expected: "each value as before",
            differences,
        })
    }

    async fn delete(&self) -> Result<(), DemoError> {
        let name = &self.sample.name;
        if self.live().await?.is_some() {
            let servers = self.cluster.api::<TunedWebServer>(&self.sample.namespace);
            servers
                .delete(name, &DeleteParams::default())
                .await
                .map_err(|source| DemoError::Request {
                    action: "delete",
                    name: name.clone(),
                    source,
                })?;
        }
        let limit = Duration::from_secs(DELETE_SECONDS);
        let look = async || match self.live().await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(server) => Err(conditions(&server)),
        };
        wait::eventually(limit, "the nodes are put back and the site is gone", look)
            .await
            .map_err(DemoError::Wait)
    }

    async fn live(&self) -> Result<Option<TunedWebServer>, DemoError> {
        let servers = self.cluster.api::<TunedWebServer>(&self.sample.namespace);
        servers
            .get_opt(&self.sample.name)
            .await
            .map_err(|source| DemoError::Request {
                action: "get",
                name: self.sample.name.clone(),
                source,
            })
    }

    async fn read_untuned(&self) -> Result<Vec<Reading>, DemoError> {
        reading::read_untuned(&self.wishes, self.cluster.workers())
            .await
            .map_err(DemoError::Probe)
    }

    async fn read_tuned(&self) -> Result<Vec<Reading>, DemoError> {
        let pods = self.serving_pods().await?;
        reading::read_tuned(&self.wishes, &pods)
            .await
            .map_err(DemoError::Probe)
    }

    async fn serving_pods(&self) -> Result<Vec<ServingPod>, DemoError> {
        let Sample {
            namespace, name, ..
        } = &self.sample;
        self.cluster
            .serving_pods(namespace, name)
            .await
            .map_err(DemoError::Cluster)
    }

    fn as_asked(&self, after: &[Reading]) -> Result<(), DemoError> {
        let mut differences = String::new();
        for node in self.cluster.workers() {
            for wish in &self.wishes {
                let found = after
                    .iter()
                    .find(|r| r.node == node.name && r.what == wish.what);
                let value = found.map_or("not there: no pod serves", |reading| &reading.value);
                if !wish.is_met_by(value) {
                    let Wish { what, wanted, .. } = wish;
                    let _ = writeln!(
                        differences,
                        "{what} on {} is {value}, wanted {wanted}",
                        node.name
                    );
                }
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(DemoError::Differ {
            expected: "each value as asked for",
            differences,
        })
    }

    /// Through a port of the first worker, which this machine reaches.
    async fn address(&self) -> Result<String, DemoError> {
        let Sample {
            namespace, name, ..
        } = &self.sample;
        let service = self
            .cluster
            .api::<Service>(namespace)
            .get(name)
            .await
            .map_err(|source| DemoError::Request {
                action: "get Service",
                name: name.clone(),
                source,
            })?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let port = ports.iter().find_map(|port| port.node_port);
        match (self.cluster.workers().first(), port) {
            (Some(node), Some(port)) => Ok(format!("http://{}:{port}/", node.address)),
            _ => Err(DemoError::NoAddress { name: name.clone() }),
        }
    }

    async fn all_measured(&self, server: &TunedWebServer) -> Result<(), String> {
        let status = server.status.as_ref().ok_or("no status")?;
        let expected = server
            .spec
            .benchmarks
            .iter()
            .filter(|benchmark| benchmark.trigger == Trigger::OnChange);
        for benchmark in expected {
            let result = status
                .benchmarks
                .iter()
                .find(|result| result.name == benchmark.name);
            let result = result.ok_or_else(|| format!("{} has no result", benchmark.name))?;
            let measured = self.hash_of_run(result).await?;
            if status.serving_hash.is_empty() || measured != status.serving_hash {
                return Err(format!(
                    "{} measured something else: {}",
                    benchmark.name, result.run
                ));
            }
        }
        Ok(())
    }

    async fn hash_of_run(&self, result: &BenchmarkResult) -> Result<String, String> {
        let runs = self.cluster.api::<BenchmarkRun>(&self.sample.namespace);
        let run = runs
            .get(&result.run)
            .await
            .map_err(|error| error.to_string())?;
        let provenance = run.status.and_then(|status| status.provenance);
        Ok(provenance.unwrap_or_default().spec_hash)
    }
}

fn is_ready(server: &TunedWebServer) -> bool {
    let ready = server
        .status
        .as_ref()
        .and_then(|status| condition::find(&status.conditions, ConditionType::Ready));
    ready.is_some_and(|ready| {
        ready.status == "True" && ready.observed_generation == server.metadata.generation
    })
}

fn conditions(server: &TunedWebServer) -> String {
    let conditions = server.status.iter().flat_map(|status| &status.conditions);
    let lines: Vec<_> = conditions
        .map(|c| format!("{}={}/{}: {}", c.type_, c.status, c.reason, c.message))
        .collect();
    if lines.is_empty() {
        "no condition".to_owned()
    } else {
        lines.join("; ")
    }
}

/// The page's heading, or its first line with anything on it.
fn headline(page: &str) -> &str {
    let lines = || page.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .find(|line| line.contains("<h1"))
        .or_else(|| lines().next())
        .unwrap_or_default()
}

fn put_back(before: &[Reading], after: &[Reading]) -> String {
    let mut text = "Deleting the site puts back, on each node:\n".to_owned();
    let on_node: Vec<_> = after
        .iter()
        .filter(|reading| reading.place == Place::Node)
        .filter(|reading| reading::value_in(before, reading) != Some(&reading.value))
        .cloned()
        .collect();
    let _ = if on_node.is_empty() {
        writeln!(text, "\nnothing: no node-wide key had to be changed")
    } else {
        write!(
            text,
            "\n{}",
            reading::table(&on_node, &with_values_of(&on_node, before))
        )
    };
    text.push_str("\nThe keys of a serving pod and the server's limits end with the pod.\n");
    text
}

fn with_values_of(readings: &[Reading], source: &[Reading]) -> Vec<Reading> {
    let value = |reading: &Reading| reading::value_in(source, reading).unwrap_or("?").to_owned();
    readings
        .iter()
        .map(|r| Reading {
            value: value(r),
            ..r.clone()
        })
        .collect()
}

fn write(path: &Path, readings: &[Reading]) -> Result<(), DemoError> {
    serde_json::to_vec_pretty(readings)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(path, text))
        .map_err(|source| DemoError::State {
            action: "write",
            path: path.to_owned(),
            source,
        })
}

fn read(path: &Path) -> Result<Vec<Reading>, DemoError> {
    std::fs::read(path)
        .and_then(|text| serde_json::from_slice(&text).map_err(std::io::Error::from))
        .map_err(|source| DemoError::State {
            action: "read",
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(what: &str, place: Place, value: &str) -> Reading {
        Reading {
            node: "worker".into(),
            what: what.into(),
            place,
            value: value.into(),
        }
    }

    #[test]
    fn a_page_is_known_by_its_heading() {
        assert_eq!(
            headline("<!doctype html>\n<title>x</title>\n  <h1>Hello</h1>\n"),
            "<h1>Hello</h1>"
        );
        assert_eq!(headline("\n  plain \n"), "plain");
        assert_eq!(headline(""), "");
    }

    #[test]
    fn only_node_wide_changes_are_to_be_put_back() {
        let before = [
            reading("vm.max_map_count", Place::Node, "65530"),
            reading("fs.file-max", Place::Node, "100"),
            reading("net.core.somaxconn", Place::Pod, "4096"),
        ];
        let after = [
            reading("vm.max_map_count", Place::Node, "262144"),
            reading("fs.file-max", Place::Node, "100"),
            reading("net.core.somaxconn", Place::Pod, "65535"),
        ];
        let text = put_back(&before, &after);
        assert!(
            text.contains("vm.max_map_count  node         262144 → 65530\n"),
            "{text}"
        );
        assert!(
            !text.contains("somaxconn") && !text.contains("file-max"),
            "{text}"
        );
    }

    #[test]
    fn what_was_kept_is_read_again() {
        let folder = std::env::temp_dir().join(format!("tunedweb-e2e-{}", std::process::id()));
        let kept = [reading("fs.nr_open", Place::Node, "1")];
        write(&folder, &kept).unwrap();
        let again = read(&folder);
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(again.unwrap(), kept);
        assert!(matches!(
            read(&folder),
            Err(DemoError::State { action: "read", .. })
        ));
    }
}
