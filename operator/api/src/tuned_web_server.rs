//! `TunedWebServer`: one site on a set of nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunedweb_config::ServerSettings;
use tunedweb_measure::{Load, Objectives, Validity, Verdict};
use tunedweb_tuning::{SysctlSetting, UlimitSetting};

mod rules;

/// One site on a set of nodes: what is served, how, and what is tuned for it.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "tunedweb.io",
    version = "v1alpha1",
    kind = "TunedWebServer",
    plural = "tunedwebservers",
    shortname = "tws",
    category = "tunedweb",
    namespaced,
    status = "TunedWebServerStatus",
    derive = "PartialEq",
    doc = "One site on a set of nodes: what is served, how, and what is tuned for it.",
    validation = Rule::new(
        "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    )
    .message(Message::Expression(
        "'metadata.name: \"' + self.metadata.name + '\" must be 1 to 40 lower-case letters, digits or \"-\", \
         starting with a letter, because a Service and Jobs carry it'".into()
    )),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes.summary"),
    printcolumn(
        name = "QPS",
        type_ = "integer",
        json_path = ".status.benchmarks[0].requestsPerSecond"
    ),
    printcolumn(
        name = "P99(µs)",
        type_ = "integer",
        json_path = ".status.benchmarks[0].p99Microseconds"
    ),
    printcolumn(
        name = "Verdict",
        type_ = "string",
        json_path = ".status.benchmarks[0].verdict.state"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "self.network.containerPort >= 1024 || self.tuning.sysctls.exists(s, \
         s.name == 'net.ipv4.ip_unprivileged_port_start' && s.value.matches('^[0-9]{1,5}$') && \
         int(s.value) <= self.network.containerPort)"
    )
    .message(Message::Expression(
        "'spec.network.containerPort: %d is below 1024, and the server runs without privileges; use 1024 to 65535, \
         or add net.ipv4.ip_unprivileged_port_start with at most that value to spec.tuning.sysctls'\
         .format([self.network.containerPort])".into()
    )),
)]
pub struct TunedWebServerSpec {
    /// Image of the server; omitted: the one that this operator release ships.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// What is served.
    pub content: Content,
    /// Where it is served.
    #[serde(default)]
    pub placement: Placement,
    /// The serving pods.
    #[serde(default)]
    pub pod: PodSettings,
    /// How pods are replaced.
    #[serde(default)]
    pub rollout: Rollout,
    /// Ports and the Service.
    #[serde(default)]
    pub network: Network,
    /// How the server serves.
    #[serde(default)]
    pub server: ServerSettings,
    /// Kernel keys and process limits.
    #[serde(default)]
    pub tuning: Tuning,
    /// What is measured. The first one stands in `kubectl get`.
    #[serde(default)]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub benchmarks: Vec<Benchmark>,
}

/// What is served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// A `ConfigMap` in the same namespace: each key is a file.
    pub config_map: ConfigMapReference,
}

/// A `ConfigMap` in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapReference {
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// Where it is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Labels that a node must have; empty: every node.
    #[schemars(extend("maxProperties" = 16), transform = bound_label_values)]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the serving pods tolerate. Honoured only in namespaces that may touch nodes.
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
}

/// A taint that the serving pods tolerate, as in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the taint; empty with `Exists`: every taint.
    #[schemars(length(max = 317))]
    pub key: String,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// Value of the taint, with `Equal`.
    #[schemars(length(max = 63))]
    pub value: String,
    /// Effect of the taint; omitted: every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// How the value of a taint is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is there.
    Exists,
}

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away where another node has room.
    PreferNoSchedule,
    /// Running pods are moved away too.
    NoExecute,
}

/// The serving pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSettings {
    /// Resources of the serving container.
    pub resources: Resources,
}

/// Resources of the serving container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// What the scheduler sets aside.
    pub requests: Quantities,
    /// What the kernel holds the container to.
    pub limits: Quantities,
}

/// Amounts of CPU and memory (Kubernetes quantities).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Quantities {
    /// Cores, such as `500m` or `2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]+(\.[0-9]{1,3}|m)?$"))]
    pub cpu: Option<String>,
    /// Bytes, such as `64Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$"))]
    pub memory: Option<String>,
}

/// How pods are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Nodes, as a number or a percentage, on which a new pod is started at the same time. The old
    /// pod of a node serves until the new one is ready.
    #[schemars(
        length(max = 4),
        regex(pattern = r"^([1-9][0-9]{0,2}|([1-9][0-9]?|100)%)$")
    )]
    pub max_unavailable: String,
}

/// Ports and the Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.containerPort != 9180").message(
    "network.containerPort: 9180 is the server's admin port (probes, metrics); use another"
))]
pub struct Network {
    /// Port that the server listens on in its pod.
    #[serde(default = "default_container_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub container_port: u16,
    /// The Service in front of the serving pods.
    #[serde(default)]
    pub service: ServiceSettings,
}

/// The Service in front of the serving pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettings {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// Its port.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: u16,
    /// Which nodes' pods answer what arrives from outside the cluster.
    pub external_traffic_policy: ExternalTrafficPolicy,
}

/// Type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// Reached from inside the cluster.
    #[default]
    ClusterIP,
    /// Reached on a port of each node, which Kubernetes chooses.
    NodePort,
    /// Reached through a load balancer, where the cluster has one.
    LoadBalancer,
}

/// Which nodes' pods answer what arrives from outside the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ExternalTrafficPolicy {
    /// Those of every node.
    #[default]
    Cluster,
    /// Those of the node that it arrives at; the client's address is kept.
    Local,
}

/// Kernel keys and process limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// Kernel keys and the values wished for. Keys that are not on Kubernetes' safe list are
    /// honoured only in namespaces that may touch nodes.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[schemars(transform = rules::refuse_harmful_values)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sysctls: Vec<SysctlSetting>,
    /// Process limits of the server.
    #[serde(default)]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ulimits: Vec<UlimitSetting>,
}

/// One benchmark of the site.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Benchmark {
    /// Name, unique within the resource. Jobs carry it.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// When it runs.
    #[serde(default)]
    pub trigger: Trigger,
    /// The load.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self.threads <= self.connections")
        .message("load.threads: at most load.connections, since each thread needs a connection"))]
    pub load: Load,
    /// What it must reach.
    #[serde(default)]
    pub objectives: Objectives,
}

/// When a benchmark runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Trigger {
    /// When a person creates a `BenchmarkRun`.
    #[default]
    Manual,
    /// Once for each hash of image, content, server settings and tuning, when every pod serves it.
    OnChange,
}

/// What was reached.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunedWebServerStatus {
    /// Generation of the spec that this status answers.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready`, `Reconciling`, `Stalled`, `Tuned`, `Serving`, `BenchmarkPassed`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many nodes are where.
    #[serde(default)]
    pub nodes: NodeCounts,
    /// Hash of image, content, server settings and tuning that every reachable node last served
    /// together. While a change arrives, it is the one from before.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub serving_hash: String,
    /// The last recorded result of each benchmark, in the order of the spec.
    #[serde(default)]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub benchmarks: Vec<BenchmarkResult>,
}

/// How many nodes are where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// Nodes that the placement selects.
    pub desired: u32,
    /// Of these, reachable nodes with every key and limit of this generation.
    pub tuned: u32,
    /// Of these, reachable nodes with a ready pod of this generation.
    pub serving: u32,
    /// Of these, nodes where something failed.
    pub failed: u32,
    /// Of these, nodes that are not ready themselves; nothing is expected of them.
    pub unreachable: u32,
    /// Serving and tuned of desired, such as `2/3`.
    #[schemars(length(max = 16))]
    pub summary: String,
    /// Nodes that failed, at most 10 named.
    #[schemars(length(max = 10))]
    pub failing: Vec<FailingNode>,
}

/// A node where something failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingNode {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// One word, from [`crate::condition::Reason`].
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What failed, why and what to do.
    #[schemars(length(max = 512))]
    pub message: String,
}

/// The last recorded result of a benchmark.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkResult {
    /// Name of the benchmark.
    #[schemars(length(max = 15))]
    pub name: String,
    /// Name of the `BenchmarkRun`.
    #[schemars(length(max = 63))]
    pub run: String,
    /// Answered requests a second.
    pub requests_per_second: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Median response time.
    pub p50_microseconds: u64,
    /// 99th percentile of the response time.
    pub p99_microseconds: u64,
    /// 99.9th percentile of the response time.
    pub p999_microseconds: u64,
    /// Requests that failed, of every kind.
    pub errors: u64,
    /// Whether the figures can be trusted.
    pub validity: Validity,
    /// Whether the objectives were reached.
    pub verdict: Verdict,
    /// When the result was recorded.
    pub finished_at: Time,
}

/// The value of a label has at most 63 characters.
fn bound_label_values(schema: &mut schemars::Schema) {
    if let Some(values) = schema
        .get_mut("additionalProperties")
        .and_then(serde_json::Value::as_object_mut)
    {
        values.insert("maxLength".to_owned(), 63.into());
    }
}

impl Default for Resources {
    /// A tenth of a core and 64 MiB are set aside: enough to start and to answer probes anywhere;
    /// nothing is capped.
    fn default() -> Self {
        Self {
            requests: Quantities {
                cpu: Some("100m".to_owned()),
                memory: Some("64Mi".to_owned()),
            },
            limits: Quantities::default(),
        }
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_unavailable: "10%".to_owned(),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            container_port: default_container_port(),
            service: ServiceSettings::default(),
        }
    }
}

const fn default_container_port() -> u16 {
    8080
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            kind: ServiceType::default(),
            port: 80,
            external_traffic_policy: ExternalTrafficPolicy::default(),
        }
    }
}
