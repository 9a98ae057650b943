//! The table of permissions is enough, and not more.

use std::time::Duration;

use serde_json::json;
use tunedweb_measure::{Histogram, LoadSummary, PodSummary, encode_log_lines};

use super::api_server::OPERATOR_NAMESPACE;
use super::cluster::{Cluster, JOBS, RUNS, SERVERS, add_deployment, labels};
use super::store::Key;

/// From installation to uninstallation, with everything that happens in between.
#[tokio::test]
async fn a_whole_life_uses_every_permission_and_no_other() {
    let cluster = Cluster::started().await;
    cluster.behave(|behaviour| behaviour.kubelets = false);
    let spec = |workers: u32| {
        json!({
            "server": {"workers": workers},
            "tuning": {"sysctls": [{"name": "vm.max_map_count", "value": "262144"}]},
            "benchmarks": [{"name": "a", "trigger": "OnChange"}],
        })
    };
    cluster.apply_site(&spec(1));
    // no pod: the events are asked why
    cluster
        .until("events asked", |c| c.api.count("list", "/events") > 0)
        .await;
    cluster.behave(|behaviour| behaviour.kubelets = true);
    cluster
        .until("a Job", |cluster| !cluster.api.list(JOBS).is_empty())
        .await;
    finish_first_run(&cluster);
    cluster
        .until_condition("BenchmarkPassed", "Unknown/NotRequested")
        .await;
    // other settings: the old ones are removed, events repeat
    cluster.apply_site(&spec(2));
    cluster
        .until("another Job", |cluster| !cluster.api.list(JOBS).is_empty())
        .await;
    cluster.api.put(
        SERVERS,
        "web",
        "broken",
        json!({
            "apiVersion": "tunedweb.io/v1alpha1", "kind": "TunedWebServer", "spec": {},
        }),
    );
    cluster
        .until("read", |c| c.api.count("get", SERVERS) > 0)
        .await;
    add_deployment(&cluster.api);
    cluster
        .api
        .edit(|store| store.remove(&Key::new(SERVERS, "web", "broken")));
    tunedweb_operator::drain(
        cluster.api.client(),
        OPERATOR_NAMESPACE,
        Duration::from_mins(1),
    )
    .await
    .unwrap();
    assert_eq!(cluster.api.refused(), Vec::<String>::new());
    assert_eq!(cluster.api.unused(), Vec::<String>::new());
}

fn finish_first_run(cluster: &Cluster) {
    let run = cluster.api.list(RUNS)[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let job = cluster.api.list(JOBS)[0].clone();
    let mut histogram = Histogram::new();
    histogram.record(5);
    let mut summary = LoadSummary {
        requests: 1,
        requests_per_second: 1,
        ..LoadSummary::default()
    };
    summary.set_times(&histogram);
    let message = PodSummary::new(run.clone(), 0, 0, summary)
        .to_termination_message()
        .unwrap();
    let mut labels = labels(&job["spec"]["template"]);
    labels.insert(
        "batch.kubernetes.io/job-completion-index".to_owned(),
        "0".to_owned(),
    );
    cluster
        .api
        .set_log("load", encode_log_lines(&run, 0, &histogram).join("\n"));
    cluster.api.put(
        "/pods",
        "web",
        "load",
        json!({
            "metadata": {"labels": labels},
            "spec": {"nodeName": "a", "containers": []},
            "status": {"phase": "Succeeded", "containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}},
            }]},
        }),
    );
    let key = Key::new(JOBS, "web", job["metadata"]["name"].as_str().unwrap());
    let complete = json!([{"type": "Complete", "status": "True"}]);
    cluster
        .api
        .edit(|store| store.change(&key, |job| job["status"]["conditions"] = complete));
}
