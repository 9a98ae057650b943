//! A cluster around the fake API server: nodes, kubelets, agents, and the operator itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tunedweb_config::TuningReport;
use tunedweb_operator::cli::Cli;
use tunedweb_operator::{Options, Parts, PodReader, ReadError};

use super::actors::{Behaviour, play};
use super::api_server::{ApiServer, OPERATOR_NAMESPACE};
use super::store::Key;

/// Longest wait for a state. Reaching one takes some milliseconds; the kubelet's and the operator's
/// own intervals of 2 s are the longest that a state waits for.
const DEADLINE: Duration = Duration::from_secs(30);

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;

pub(crate) const SERVERS: &str = "tunedweb.io/tunedwebservers";
pub(crate) const TUNINGS: &str = "tunedweb.io/nodetunings";
pub(crate) const RUNS: &str = "tunedweb.io/benchmarkruns";
pub(crate) const DAEMON_SETS: &str = "apps/daemonsets";
pub(crate) const JOBS: &str = "batch/jobs";

/// What takes part.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    pub(crate) pods: Arc<FakePods>,
    time: Arc<AtomicI64>,
    behaviour: Arc<Mutex<Behaviour>>,
    player: JoinHandle<()>,
    operator: Option<JoinHandle<()>>,
    admin: Option<SocketAddr>,
}

/// What serving pods answer.
#[derive(Debug, Default)]
pub(crate) struct FakePods {
    /// Entity tags that the pods serve instead of those that are asked for.
    stale: Mutex<Option<Vec<(String, String)>>>,
    soft_nofile: AtomicI64,
}

impl FakePods {
    /// The pods serve this content, whatever the ConfigMap says.
    pub(crate) fn serve_stale(&self, etags: Option<Vec<(String, String)>>) {
        *self.stale.lock().unwrap() = etags;
    }

    pub(crate) fn permit_files(&self, soft: i64) {
        self.soft_nofile.store(soft, Ordering::SeqCst);
    }
}

impl PodReader for FakePods {
    fn tuning(&self, _: IpAddr) -> BoxFuture<'_, Result<TuningReport, ReadError>> {
        let soft = self.soft_nofile.load(Ordering::SeqCst);
        let report = json!({
            "version": 1, "serverVersion": "0.1.0", "listen": "0.0.0.0:8080",
            "workers": {"running": 2, "source": "AffinityMask", "affinityCpus": 2},
            "nofile": {"softFound": 1024, "hardFound": soft, "soft": soft, "hard": soft},
            "backlog": {"asked": 1, "effective": 1},
            "maxConnectionsPerWorker": {"asked": 1, "effective": 1},
            "settings": {"root": "/srv"},
        });
        let report = serde_json::from_value(report).expect("a report");
        Box::pin(futures::future::ready(Ok(report)))
    }

    fn serves<'a>(
        &'a self,
        _: SocketAddr,
        etags: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<bool, ReadError>> {
        let stale = self.stale.lock().unwrap();
        let serves = stale.as_ref().is_none_or(|stale| stale == etags);
        Box::pin(futures::future::ready(Ok(serves)))
    }
}

impl Cluster {
    /// Two nodes with agents, a namespace that may touch them, and a content.
    pub(crate) fn new() -> Self {
        let api = ApiServer::new("2026-01-01T00:00:00Z");
        for node in ["a", "b"] {
            add_node(&api, node);
        }
        let labels = json!({"tunedweb.io/node-access": "allowed"});
        api.put(
            "/namespaces",
            "",
            "web",
            json!({"metadata": {"labels": labels}}),
        );
        set_content(&api, "hello");
        let behaviour = Arc::new(Mutex::new(Behaviour {
            kubelets: true,
            agents: true,
            failing: BTreeSet::new(),
        }));
        Self {
            player: tokio::spawn(play(api.clone(), Arc::clone(&behaviour))),
            pods: Arc::default(),
            time: Arc::new(AtomicI64::new(START)),
            operator: None,
            admin: None,
            behaviour,
            api,
        }
    }

    /// The same with an operator.
    pub(crate) async fn started() -> Self {
        let mut cluster = Self::new();
        cluster.start().await;
        cluster
    }

    pub(crate) async fn start(&mut self) {
        let arguments = [
            "tunedweb-operator",
            "--server-image=server:1",
            "--drift-interval=1h",
        ];
        let cli = <Cli as clap::Parser>::parse_from(arguments);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.admin = Some(listener.local_addr().unwrap());
        let time = Arc::clone(&self.time);
        let parts = Parts {
            client: self.api.client(),
            options: Options::from(&cli.run),
            clock: Arc::new(move || {
                Timestamp::from_second(time.load(Ordering::SeqCst)).expect("a time")
            }),
            reader: Arc::clone(&self.pods) as Arc<dyn PodReader>,
            admin: Some(listener),
        };
        let run = async {
            tunedweb_operator::run(parts, std::future::pending())
                .await
                .unwrap();
        };
        self.operator = Some(tokio::spawn(run));
    }

    /// Kills the operator where it is.
    pub(crate) async fn kill(&mut self) {
        let operator = self.operator.take().expect("an operator that runs");
        operator.abort();
        let _ = operator.await;
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
        self.api.edit(|_| ());
    }

    pub(crate) fn pass(&self, seconds: i64) {
        let now = self.time.fetch_add(seconds, Ordering::SeqCst) + seconds;
        let now = Timestamp::from_second(now).unwrap().to_string();
        self.api.edit(|store| store.now = now);
    }

    /// `web/site` with these fields in its spec.
    pub(crate) fn apply_site(&self, changes: &Value) {
        let key = Key::new(SERVERS, "web", "site");
        let before = self.api.get(SERVERS, "web", "site");
        let mut object = before.unwrap_or_else(
            || json!({"apiVersion": "tunedweb.io/v1alpha1", "kind": "TunedWebServer"}),
        );
        object["spec"] = json!({"content": {"configMap": {"name": "site-html"}}});
        for (name, value) in changes.as_object().unwrap() {
            object["spec"][name] = value.clone();
        }
        self.api.edit(|store| store.put(&key, object));
    }

    pub(crate) fn site(&self) -> Value {
        self.api.get(SERVERS, "web", "site").unwrap_or(Value::Null)
    }

    pub(crate) fn daemon_set(&self) -> Value {
        self.api
            .get(DAEMON_SETS, "web", "site")
            .unwrap_or(Value::Null)
    }

    /// `Status/Reason` of a condition of the site.
    pub(crate) fn condition(&self, kind: &str) -> String {
        condition(&self.site(), kind)
    }

    /// Waits for a state.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let mut changes = self.api.changes();
        let reached = async {
            while !is(self) {
                changes.changed().await.expect("the server is here");
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let conditions = self.site()["status"]["conditions"].clone();
            let told: Vec<String> = conditions
                .as_array()
                .into_iter()
                .flatten()
                .map(|c| {
                    format!(
                        "{}={}/{}: {}",
                        c["type"], c["status"], c["reason"], c["message"]
                    )
                })
                .collect();
            let refused = self.api.refused();
            panic!("{what} was not reached: {told:#?}, refused: {refused:?}");
        }
    }

    pub(crate) async fn until_condition(&self, kind: &str, expected: &str) {
        self.until(&format!("{kind} {expected}"), |cluster| {
            cluster.condition(kind) == expected
        })
        .await;
    }

    /// Visits of one kind so far.
    pub(crate) async fn visits(&self, kind: &str) -> u64 {
        let page = page(self.admin.expect("an operator that runs")).await;
        let prefix = format!("tunedweb_operator_reconciles_total{{kind=\"{kind}\"");
        let counts = page.lines().filter(|line| line.starts_with(&prefix));
        counts
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Waits until an object was visited again after a change that means nothing.
    pub(crate) async fn nudge(&self, kind: &str) {
        let before = self.visits(kind).await;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        for count in 0.. {
            self.api.edit(|store| {
                for resource in [SERVERS, RUNS] {
                    let keys: Vec<Key> = store
                        .objects
                        .keys()
                        .filter(|k| k.resource == resource)
                        .cloned()
                        .collect();
                    for key in keys {
                        store.change(&key, |object| {
                            object["metadata"]["annotations"]["nudge"] = json!(count.to_string());
                        });
                    }
                }
            });
            if self.visits(kind).await >= before + 3 {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{kind} was not visited"
            );
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.player.abort();
        if let Some(operator) = &self.operator {
            operator.abort();
        }
    }
}

pub(crate) fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |found| {
        format!(
            "{}/{}",
            found["status"].as_str().unwrap(),
            found["reason"].as_str().unwrap()
        )
    })
}

pub(crate) fn message(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |found| {
        found["message"].as_str().unwrap().to_owned()
    })
}

pub(crate) fn add_node(api: &ApiServer, name: &str) {
    let node = json!({
        "metadata": {"labels": {"kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "6.18", "kubeProxyVersion": "", "kubeletVersion": "v1.33.1",
                "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
            },
        },
    });
    api.put("/nodes", "", name, node);
    let agent = json!({
        "metadata": {"labels": {"app.kubernetes.io/component": "agent"}},
        "spec": {"nodeName": name, "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    api.put("/pods", "tunedweb-agent", &format!("agent-{name}"), agent);
}

pub(crate) fn set_ready(api: &ApiServer, node: &str, status: &str) {
    api.edit(|store| {
        store.change(&Key::new("/nodes", "", node), |node| {
            node["status"]["conditions"][0]["status"] = json!(status);
        });
    });
}

pub(crate) fn set_content(api: &ApiServer, text: &str) {
    api.put(
        "/configmaps",
        "web",
        "site-html",
        json!({"data": {"index.html": text}}),
    );
}

/// The Deployment of the operator, which a drain mark names.
pub(crate) fn add_deployment(api: &ApiServer) {
    api.put(
        "apps/deployments",
        OPERATOR_NAMESPACE,
        "tunedweb-operator",
        json!({"spec": {}}),
    );
}

async fn page(address: SocketAddr) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

/// Labels of an object as a map.
pub(crate) fn labels(object: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default()
}
