//! The Job of a run and the `ConfigMap` of its histogram. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMap, Container, PodAffinityTerm, PodAntiAffinity,
    PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile,
    SecurityContext, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::{Resource as _, ResourceExt as _};
use tunedweb_api::names::{
    COMPONENT_LABEL, LOAD_COMPONENT, LOAD_CONTAINER, MANAGED_BY, MANAGED_BY_LABEL, RUN_LABEL,
    SERVER_COMPONENT, SERVER_LABEL,
};
use tunedweb_api::{BenchmarkRun, TunedWebServer};
use tunedweb_measure::{ConnectionReuse, Histogram, LoadMode, encode_log_lines};

use crate::hash;

/// User and group of load pods.
const NOBODY: i64 = 65_532;

/// Load pods of a run.
pub(crate) const PODS: u32 = 1;

/// Longest name of an Indexed Job of one pod: with `-0` it is the pod's host name, of at most 63
/// characters (Kubernetes validates it).
const JOB_NAME_MAX: usize = 61;

/// How long a load pod tries to reach the Service, whose endpoints may lag behind its pods.
const CONNECT_WAIT: &str = "60s";

/// Name of the histogram in its `ConfigMap`.
const HISTOGRAM_KEY: &str = "histogram";

/// Name of the Job of a run. A run's name may have dots, a Job's index names a host and may not.
pub(crate) fn job_name(run: &str) -> String {
    if run.contains('.') {
        let hash = hash::of_parts([run.as_bytes()]);
        return hash::bounded_name(
            &format!("{}-{}", run.replace('.', "-"), &hash[..8]),
            JOB_NAME_MAX,
        );
    }
    hash::bounded_name(run, JOB_NAME_MAX)
}

/// The Job: one attempt, no restart, kept until its result is recorded.
pub(crate) fn job(run: &BenchmarkRun, target: &TunedWebServer, image: &str) -> Job {
    let pods = i32::try_from(PODS).unwrap_or(1);
    Job {
        metadata: metadata(run, job_name(&run.name_any())),
        spec: Some(JobSpec {
            completion_mode: Some("Indexed".to_owned()),
            completions: Some(pods),
            parallelism: Some(pods),
            backoff_limit: Some(0),
            active_deadline_seconds: Some(i64::from(run.spec.deadline_seconds)),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(run)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(run, target, image)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

/// The merged histogram, in the lines that load pods print.
pub(crate) fn histogram(run: &BenchmarkRun, histogram: &Histogram) -> ConfigMap {
    let name = run.name_any();
    let lines = encode_log_lines(&name, 0, histogram).join("\n");
    ConfigMap {
        metadata: metadata(run, format!("{name}-histogram")),
        data: Some(BTreeMap::from([(HISTOGRAM_KEY.to_owned(), lines)])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

fn metadata(run: &BenchmarkRun, name: String) -> ObjectMeta {
    ObjectMeta {
        namespace: run.namespace(),
        name: Some(name),
        labels: Some(labels(run)),
        owner_references: run.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn labels(run: &BenchmarkRun) -> BTreeMap<String, String> {
    [
        (RUN_LABEL, run.name_any()),
        (COMPONENT_LABEL, LOAD_COMPONENT.to_owned()),
        (MANAGED_BY_LABEL, MANAGED_BY.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn pod(run: &BenchmarkRun, target: &TunedWebServer, image: &str) -> PodSpec {
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        node_selector: Some([("kubernetes.io/os".to_owned(), "linux".to_owned())].into()),
        // on SIGTERM it stops at once
        termination_grace_period_seconds: Some(5),
        affinity: Some(away_from(&target.name_any())),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            run_as_group: Some(NOBODY),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(run, target, image)],
        ..PodSpec::default()
    }
}

/// Away from the servers where it can: what shares their CPUs measures itself.
fn away_from(server: &str) -> Affinity {
    let labels = BTreeMap::from([
        (SERVER_LABEL.to_owned(), server.to_owned()),
        (COMPONENT_LABEL.to_owned(), SERVER_COMPONENT.to_owned()),
    ]);
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                WeightedPodAffinityTerm {
                    weight: 100,
                    pod_affinity_term: PodAffinityTerm {
                        label_selector: Some(LabelSelector {
                            match_labels: Some(labels),
                            ..LabelSelector::default()
                        }),
                        topology_key: "kubernetes.io/hostname".to_owned(),
                        ..PodAffinityTerm::default()
                    },
                },
            ]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn container(run: &BenchmarkRun, target: &TunedWebServer, image: &str) -> Container {
    Container {
        name: LOAD_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        args: Some(arguments(run, target)),
        // an error before the load is told on standard error
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        // to be placed; a load takes what is idle
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity("100m".to_owned())),
                ("memory".to_owned(), Quantity("64Mi".to_owned())),
            ])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// The index comes from the Job's environment.
fn arguments(run: &BenchmarkRun, target: &TunedWebServer) -> Vec<String> {
    let load = &run.spec.load;
    let url = format!(
        "http://{}.{}.svc:{}{}",
        target.name_any(),
        target.namespace().unwrap_or_default(),
        target.spec.network.service.port,
        load.path
    );
    let LoadMode::ClosedLoop = load.mode;
    let mut arguments = vec!["http".to_owned(), url];
    for (flag, value) in [
        ("--threads", load.threads.to_string()),
        ("--connections", load.connections.to_string()),
        ("--duration", format!("{}s", load.duration_seconds)),
        ("--connect-wait", CONNECT_WAIT.to_owned()),
        ("--run", run.name_any()),
        ("--termination-message", "/dev/termination-log".to_owned()),
    ] {
        arguments.extend([flag.to_owned(), value]);
    }
    arguments.push("--histogram-log".to_owned());
    match load.connection_reuse {
        ConnectionReuse::KeepAlive => {}
        ConnectionReuse::None => arguments.push("--short".to_owned()),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::server;

    fn run(load: &Value) -> BenchmarkRun {
        serde_json::from_value(json!({
            "metadata": {"name": "site-a-01234567", "namespace": "web", "uid": "u"},
            "spec": {"target": {"tunedWebServer": "site"}, "load": load},
        }))
        .unwrap()
    }

    fn rendered(load: &Value) -> Value {
        let target = server(&json!({"network": {"service": {"port": 8081}}}));
        serde_json::to_value(job(&run(load), &target, "loadgen:1")).unwrap()
    }

    #[test]
    fn the_load_is_what_the_run_asks_for() {
        let job = rendered(&json!({
            "path": "/a?b", "connections": 64, "threads": 2, "durationSeconds": 10,
            "connectionReuse": "None",
        }));
        let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
        assert_eq!(
            arguments,
            &json!([
                "http",
                "http://site.web.svc:8081/a?b",
                "--threads",
                "2",
                "--connections",
                "64",
                "--duration",
                "10s",
                "--connect-wait",
                "60s",
                "--run",
                "site-a-01234567",
                "--termination-message",
                "/dev/termination-log",
                "--histogram-log",
                "--short",
            ])
        );
    }

    #[test]
    fn a_load_pod_fits_the_restricted_level_and_has_no_token() {
        let job = rendered(&json!({}));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert!(pod["volumes"].is_null());
    }

    #[test]
    fn a_job_runs_once_and_stays_until_its_result_is_recorded() {
        let spec = &rendered(&json!({}))["spec"];
        assert_eq!(spec["backoffLimit"], 0);
        assert_eq!(spec["completions"], 1);
        assert_eq!(spec["ttlSecondsAfterFinished"], Value::Null);
        assert_eq!(spec["activeDeadlineSeconds"], 300);
    }

    #[test]
    fn names_fit_whatever_the_run_is_called() {
        for name in [
            "a".repeat(63),
            "a.b".to_owned(),
            "a.".repeat(31) + "b",
            "site-a-0123".to_owned(),
        ] {
            let job = job_name(&name);
            assert!(
                job.len() <= JOB_NAME_MAX && !job.contains('.'),
                "{name}: {job}"
            );
        }
        assert_ne!(job_name("a.b"), job_name("a-b"));
        assert_eq!(job_name("site-a-0123"), "site-a-0123");
    }

    #[test]
    fn the_histogram_reads_back_the_same() {
        let mut counted = Histogram::new();
        counted.record(123);
        let run = run(&json!({}));
        let map = histogram(&run, &counted);
        let lines = &map.data.unwrap()[HISTOGRAM_KEY];
        let mut found = tunedweb_measure::decode_log_lines(&run.name_any(), lines.lines());
        assert_eq!(found.remove(&0).unwrap().unwrap(), counted);
    }
}
