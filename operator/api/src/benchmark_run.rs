//! `BenchmarkRun`: one measurement, with what it was measured on and what may be concluded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunedweb_measure::{Load, LoadSummary, Objectives, Validity, Verdict};
use tunedweb_tuning::{SysctlSetting, UlimitSetting};

/// One measurement of one `TunedWebServer`. The spec cannot be changed; a new run is a new object.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "tunedweb.io",
    version = "v1alpha1",
    kind = "BenchmarkRun",
    plural = "benchmarkruns",
    shortname = "bench",
    category = "tunedweb",
    namespaced,
    status = "BenchmarkRunStatus",
    derive = "PartialEq",
    doc = "One measurement of one TunedWebServer; kept after its Job is gone.",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name: at most 63 characters, because pods and a ConfigMap carry it"),
    validation = Rule::new("self.spec == oldSelf.spec")
        .message("spec: a run cannot be changed after it was made; create another BenchmarkRun"),
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.target.tunedWebServer"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "QPS", type_ = "integer", json_path = ".status.result.requestsPerSecond"),
    printcolumn(name = "P99(µs)", type_ = "integer", json_path = ".status.result.p99Microseconds"),
    printcolumn(name = "Validity", type_ = "string", json_path = ".status.validity.state"),
    printcolumn(name = "Verdict", type_ = "string", json_path = ".status.verdict.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkRunSpec {
    /// What is measured.
    pub target: Target,
    /// Name of the benchmark in the target's `spec.benchmarks` that this run carries out; empty
    /// for a run made by hand.
    #[serde(default)]
    #[schemars(length(max = 15))]
    pub benchmark: String,
    /// The load.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self.threads <= self.connections")
        .message("load.threads: at most load.connections, since each thread needs a connection"))]
    pub load: Load,
    /// What it must reach.
    #[serde(default)]
    pub objectives: Objectives,
    /// Seconds from the creation of the load pods to their end; the run fails after that.
    #[serde(default = "default_deadline_seconds")]
    #[schemars(range(min = 10, max = 90_000))]
    pub deadline_seconds: u32,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Name of a `TunedWebServer` in the same namespace.
    #[schemars(length(min = 1, max = 40))]
    pub tuned_web_server: String,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkRunStatus {
    /// Where the run stands.
    #[serde(default)]
    pub phase: Phase,
    /// Why the run failed, for people.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The figures, merged over all load pods that reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<LoadSummary>,
    /// How many load pods the figures cover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    /// Whether the figures can be trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// Whether the objectives were reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What it was measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// `ConfigMap` with the merged histogram, in the lines that load pods print (HDR, V2 deflate,
    /// base64).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramReference>,
    /// When the result was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// `Succeeded`, `Reconciling`, `Stalled`.
    #[serde(default)]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// Load pods are not running yet.
    #[default]
    Pending,
    /// Load pods are running.
    Running,
    /// A result was recorded; see validity and verdict.
    Succeeded,
    /// There is no result.
    Failed,
}

/// How many load pods the figures cover.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Load pods asked for.
    pub pods: u32,
    /// Load pods whose result was recorded.
    pub reported: u32,
}

/// What it was measured on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// Hash of image, content, server settings and tuning at the start of the run.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub spec_hash: String,
    /// Generation of the target at the start of the run.
    #[serde(default)]
    pub generation: i64,
    /// Image of the serving pods.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub server_image: String,
    /// Kernel releases of the serving nodes, each once.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 128)))]
    pub kernels: Vec<String>,
    /// Nodes of the load pods.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub load_nodes: Vec<String>,
    /// Nodes of the serving pods, at most 64 of them.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub server_nodes: Vec<String>,
    /// Kernel keys asked for.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub sysctls: Vec<SysctlSetting>,
    /// Process limits asked for.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub ulimits: Vec<UlimitSetting>,
}

/// Where the histogram is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistogramReference {
    /// Name of the `ConfigMap`, owned by the run.
    #[schemars(length(max = 253))]
    pub config_map: String,
}

/// A load of 30 s, a minute for the pods to be scheduled and pulled, and as long again.
const fn default_deadline_seconds() -> u32 {
    300
}
