//! Benchmark runs.

use serde_json::{Value, json};
use tunedweb_measure::{Histogram, LoadSummary, PodSummary, encode_log_lines};

use super::api_server::ApiServer;
use super::cluster::{Cluster, JOBS, RUNS, condition, message};
use super::store::Key;

const RUN: &str = "r1";

async fn ready() -> Cluster {
    let cluster = Cluster::started().await;
    cluster.apply_site(&json!({"benchmarks": [{"name": "a"}]}));
    cluster.until_condition("Ready", "True/AsSpecified").await;
    cluster
}

fn create_run(cluster: &Cluster, name: &str, objectives: &Value) {
    cluster.api.put(
        RUNS,
        "web",
        name,
        json!({
            "apiVersion": "tunedweb.io/v1alpha1", "kind": "BenchmarkRun",
            "spec": {
                "target": {"tunedWebServer": "site"}, "benchmark": "a", "deadlineSeconds": 60,
                "objectives": objectives,
            },
        }),
    );
}

fn run(cluster: &Cluster, name: &str) -> Value {
    cluster.api.get(RUNS, "web", name).unwrap_or(Value::Null)
}

fn phase(cluster: &Cluster, name: &str) -> String {
    run(cluster, name)["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

async fn until_job(cluster: &Cluster, name: &str) {
    cluster
        .until("a Job", |cluster| {
            cluster.api.get(JOBS, "web", name).is_some()
        })
        .await;
}

async fn until_phase(cluster: &Cluster, name: &str, expected: &str) {
    cluster
        .until(expected, |cluster| phase(cluster, name) == expected)
        .await;
}

/// The load pod of a run, on a node, in a phase.
fn set_pod(api: &ApiServer, run: &str, node: &str, status: &Value) {
    let job = api.get(JOBS, "web", run).unwrap();
    let mut labels = job["spec"]["template"]["metadata"]["labels"].clone();
    labels["batch.kubernetes.io/job-completion-index"] = json!("0");
    api.put("/pods", "web", &format!("{run}-0-x"), json!({
        "metadata": {
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": run, "uid": job["metadata"]["uid"],
            }],
        },
        "spec": {"nodeName": node, "containers": []},
        "status": status,
    }));
}

/// The load pod ends with a result.
fn finish(api: &ApiServer, run: &str, node: &str) {
    let mut histogram = Histogram::new();
    for _ in 0..1_000 {
        histogram.record(500);
    }
    let mut summary = LoadSummary {
        requests_per_second: 100,
        requests: 1_000,
        duration_microseconds: 10_000_000,
        ..LoadSummary::default()
    };
    summary.set_times(&histogram);
    let message = PodSummary::new(run.to_owned(), 0, 0, summary)
        .to_termination_message()
        .unwrap();
    api.set_log(
        &format!("{run}-0-x"),
        encode_log_lines(run, 0, &histogram).join("\n"),
    );
    set_pod(
        api,
        run,
        node,
        &json!({
            "phase": "Succeeded",
            "containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}},
            }],
        }),
    );
    end_job(api, run, &json!({"type": "Complete", "status": "True"}));
}

fn end_job(api: &ApiServer, run: &str, ended: &Value) {
    let key = Key::new(JOBS, "web", run);
    api.edit(|store| store.change(&key, |job| job["status"]["conditions"] = json!([ended])));
}

#[tokio::test]
async fn a_run_is_measured_recorded_and_only_then_its_job_goes() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({"minRequestsPerSecond": 50}));
    until_job(&cluster, RUN).await;
    assert_eq!(
        run(&cluster, RUN)["status"]["provenance"]["serverNodes"],
        json!(["a", "b"])
    );
    set_pod(&cluster.api, RUN, "a", &json!({"phase": "Running"}));
    until_phase(&cluster, RUN, "Running").await;
    finish(&cluster.api, RUN, "a");
    until_phase(&cluster, RUN, "Succeeded").await;
    cluster
        .until("the Job gone", |cluster| {
            cluster.api.get(JOBS, "web", RUN).is_none()
        })
        .await;
    let recorded = run(&cluster, RUN);
    let status = &recorded["status"];
    assert_eq!(status["result"]["requestsPerSecond"], 100);
    assert_eq!(status["verdict"]["state"], "Passed");
    assert_eq!(
        status["validity"],
        json!({"state": "Qualified", "reasons": ["SharedNode"]})
    );
    assert_eq!(status["coverage"], json!({"pods": 1, "reported": 1}));
    assert_eq!(condition(&recorded, "Succeeded"), "True/ObjectivesReached");
    let map = status["histogram"]["configMap"].as_str().unwrap();
    assert!(cluster.api.get("/configmaps", "web", map).is_some());
    let order: Vec<_> = cluster
        .api
        .writes()
        .into_iter()
        .filter(|write| [RUN, map].contains(&write.name.as_str()))
        .map(|write| format!("{} {}", write.verb, write.resource))
        .collect();
    let position = |what: &str| order.iter().rposition(|done| done == what).unwrap();
    let status_at = position("patch tunedweb.io/benchmarkruns/status");
    assert!(position("patch /configmaps") < status_at, "{order:?}");
    assert!(status_at < position("delete batch/jobs"), "{order:?}");
    assert_eq!(cluster.api.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_watch_that_lags_behind_loses_no_result() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    set_pod(&cluster.api, RUN, "a", &json!({"phase": "Running"}));
    until_phase(&cluster, RUN, "Running").await;
    // the Job is seen to have ended before its pod is
    cluster.api.edit(|store| store.late = Some("/pods"));
    finish(&cluster.api, RUN, "a");
    until_phase(&cluster, RUN, "Succeeded").await;
}

#[tokio::test]
async fn the_result_stands_in_the_status_of_the_site() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({"maxP99Microseconds": 400}));
    until_job(&cluster, RUN).await;
    finish(&cluster.api, RUN, "elsewhere");
    cluster
        .until_condition("BenchmarkPassed", "False/ObjectivesMissed")
        .await;
    let benchmarks = cluster.site()["status"]["benchmarks"].clone();
    assert_eq!(benchmarks[0]["run"], RUN);
    assert_eq!(benchmarks[0]["requestsPerSecond"], 100);
    assert_eq!(benchmarks[0]["validity"]["state"], "Valid");
    assert_eq!(
        benchmarks[0]["verdict"]["failed"][0]["name"],
        "maxP99Microseconds"
    );
}

#[tokio::test]
async fn an_operator_killed_at_any_moment_loses_no_result() {
    for moment in ["create", "patch", "delete"] {
        let mut cluster = ready().await;
        create_run(&cluster, RUN, &json!({}));
        until_job(&cluster, RUN).await;
        // the API server fails where the operator is about to be killed
        match moment {
            "create" => {}
            "patch" => cluster
                .api
                .fail_next("patch", "tunedweb.io/benchmarkruns/status", 500),
            _ => cluster.api.fail_next("delete", JOBS, 500),
        }
        let job = cluster.api.get(JOBS, "web", RUN).unwrap();
        if moment == "create" {
            cluster.kill().await;
            finish(&cluster.api, RUN, "a");
        } else {
            let before = cluster.api.count("get", "/pods/log");
            finish(&cluster.api, RUN, "a");
            cluster
                .until("the log read", |c| c.api.count("get", "/pods/log") > before)
                .await;
            cluster.kill().await;
        }
        cluster.start().await;
        until_phase(&cluster, RUN, "Succeeded").await;
        cluster
            .until("the Job gone", |c| c.api.get(JOBS, "web", RUN).is_none())
            .await;
        cluster.nudge("BenchmarkRun").await;
        assert_eq!(phase(&cluster, RUN), "Succeeded", "{moment}");
        assert_eq!(
            run(&cluster, RUN)["status"]["result"]["requests"],
            1_000,
            "{moment}"
        );
        assert_eq!(
            cluster.api.count("create", JOBS),
            0,
            "only applied, never repeated: {job}"
        );
    }
}

#[tokio::test]
async fn a_finished_run_is_left_alone() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    finish(&cluster.api, RUN, "a");
    until_phase(&cluster, RUN, "Succeeded").await;
    cluster
        .until("the Job gone", |cluster| {
            cluster.api.get(JOBS, "web", RUN).is_none()
        })
        .await;
    cluster.nudge("BenchmarkRun").await;
    let before = cluster.api.writes();
    for _ in 0..3 {
        cluster.nudge("BenchmarkRun").await;
    }
    assert_eq!(cluster.api.writes(), before);
}

#[tokio::test]
async fn one_run_of_a_site_at_a_time() {
    let cluster = ready().await;
    create_run(&cluster, "r1", &json!({}));
    until_job(&cluster, "r1").await;
    cluster.pass(1);
    create_run(&cluster, "r2", &json!({}));
    cluster
        .until("r2 waits", |cluster| {
            message(&run(cluster, "r2"), "Succeeded").starts_with("waiting for BenchmarkRun r1")
        })
        .await;
    assert!(cluster.api.get(JOBS, "web", "r2").is_none());
    finish(&cluster.api, "r1", "a");
    until_job(&cluster, "r2").await;
}

#[tokio::test]
async fn a_target_that_does_not_come_ends_the_run_in_time() {
    let cluster = Cluster::started().await;
    create_run(&cluster, RUN, &json!({}));
    cluster
        .until("told", |c| {
            condition(&run(c, RUN), "Succeeded") == "Unknown/TargetNotFound"
        })
        .await;
    cluster.pass(60);
    cluster.nudge("BenchmarkRun").await;
    until_phase(&cluster, RUN, "Failed").await;
    assert_eq!(
        condition(&run(&cluster, RUN), "Succeeded"),
        "False/TargetNotFound"
    );
    assert!(cluster.api.list(JOBS).is_empty());
}

#[tokio::test]
async fn a_job_that_somebody_deleted_ends_the_run() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    set_pod(&cluster.api, RUN, "a", &json!({"phase": "Running"}));
    until_phase(&cluster, RUN, "Running").await;
    cluster
        .api
        .edit(|store| store.remove(&Key::new(JOBS, "web", RUN)));
    until_phase(&cluster, RUN, "Failed").await;
    assert_eq!(condition(&run(&cluster, RUN), "Succeeded"), "False/Aborted");
}

#[tokio::test]
async fn a_load_pod_out_of_memory_says_so() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    cluster.api.set_log(&format!("{RUN}-0-x"), String::new());
    set_pod(
        &cluster.api,
        RUN,
        "a",
        &json!({
            "phase": "Failed",
            "containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }],
        }),
    );
    let ended = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"});
    end_job(&cluster.api, RUN, &ended);
    until_phase(&cluster, RUN, "Failed").await;
    let failed = run(&cluster, RUN);
    assert_eq!(condition(&failed, "Succeeded"), "False/LoadFailed");
    assert!(
        message(&failed, "Succeeded").starts_with("OOMKilled"),
        "{failed}"
    );
}

#[tokio::test]
async fn a_deadline_names_what_was_in_the_way() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    set_pod(
        &cluster.api,
        RUN,
        "",
        &json!({
            "phase": "Pending",
            "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2",
            }],
        }),
    );
    cluster
        .until("told", |c| {
            message(&run(c, RUN), "Succeeded") == "Unschedulable: 0/2"
        })
        .await;
    let ended = json!({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"});
    end_job(&cluster.api, RUN, &ended);
    until_phase(&cluster, RUN, "Failed").await;
    let failed = run(&cluster, RUN);
    assert_eq!(condition(&failed, "Succeeded"), "False/DeadlineExceeded");
    assert!(
        message(&failed, "Succeeded").ends_with("Unschedulable: 0/2"),
        "{failed}"
    );
}

#[tokio::test]
async fn deleting_a_run_deletes_its_job_and_its_histogram() {
    let cluster = ready().await;
    create_run(&cluster, RUN, &json!({}));
    until_job(&cluster, RUN).await;
    cluster
        .api
        .edit(|store| store.delete(&Key::new(RUNS, "web", RUN)));
    assert!(cluster.api.get(JOBS, "web", RUN).is_none());
    assert!(run(&cluster, RUN).is_null());
}

#[tokio::test]
async fn a_run_that_cannot_be_decoded_is_told_so() {
    let cluster = ready().await;
    cluster.api.put(
        RUNS,
        "web",
        "broken",
        json!({
            "apiVersion": "tunedweb.io/v1alpha1", "kind": "BenchmarkRun", "spec": {"target": 3},
        }),
    );
    cluster
        .until("told", |c| {
            condition(&run(c, "broken"), "Succeeded") == "False/Undecodable"
        })
        .await;
}
