//! From a resource to pods that serve.

use serde_json::{Value, json};

use super::cluster::{
    Cluster, DAEMON_SETS, RUNS, SERVERS, TUNINGS, add_node, message, set_content, set_ready,
};
use super::store::{Key, Store};

fn tuned() -> Value {
    json!({"tuning": {"sysctls": [
        {"name": "net.core.somaxconn", "value": "65535"},
        {"name": "vm.max_map_count", "value": "262144"},
    ]}})
}

fn assert_no_refusal(cluster: &Cluster) {
    assert_eq!(cluster.api.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_site_becomes_ready_when_every_node_is_tuned_and_serves() {
    let cluster = Cluster::started().await;
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    let site = cluster.site();
    assert_eq!(site["status"]["nodes"]["summary"], "2/2");
    assert_eq!(
        site["status"]["observedGeneration"],
        site["metadata"]["generation"]
    );
    assert_eq!(cluster.condition("Stalled"), "False/AsSpecified");
    assert_eq!(cluster.condition("Reconciling"), "False/AsSpecified");
    for node in ["a", "b"] {
        let tuning = cluster.api.get(TUNINGS, "", node).unwrap();
        let owner = &tuning["spec"]["owners"][0];
        assert_eq!(owner["resource"], "web/site");
        assert_eq!(
            owner["sysctls"],
            json!([{"name": "vm.max_map_count", "value": "262144"}])
        );
        assert_eq!(tuning["metadata"]["ownerReferences"][0]["kind"], "Node");
    }
    assert_no_refusal(&cluster);
}

#[tokio::test]
async fn the_first_visit_says_that_nothing_is_known_yet() {
    let cluster = Cluster::started().await;
    cluster.behave(|behaviour| behaviour.kubelets = false);
    // the first write of a status, before anything else is
    let mut changes = cluster.api.changes();
    cluster.apply_site(&tuned());
    while cluster.condition("Ready").is_empty() {
        changes.changed().await.unwrap();
    }
    let first = cluster.api.writes();
    assert_eq!(first[0].resource, "tunedweb.io/tunedwebservers/status");
    cluster.until_condition("Ready", "False/RollingOut").await;
    assert_eq!(cluster.condition("Reconciling"), "True/RollingOut");
    let conditions = cluster.site()["status"]["conditions"].clone();
    for condition in conditions.as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], 1, "{condition}");
    }
}

#[tokio::test]
async fn a_namespace_without_the_label_gets_nothing_but_the_reason() {
    let cluster = Cluster::started().await;
    cluster.api.put(
        "/namespaces",
        "",
        "web",
        json!({"metadata": {"labels": {}}}),
    );
    cluster.apply_site(&tuned());
    cluster
        .until_condition("Ready", "False/NodeAccessDenied")
        .await;
    assert_eq!(cluster.condition("Stalled"), "True/NodeAccessDenied");
    let said = message(&cluster.site(), "Ready");
    assert!(said.contains("tunedweb.io/node-access"), "{said}");
    for resource in [DAEMON_SETS, "/services"] {
        assert_eq!(cluster.api.list(resource), Vec::<Value>::new());
    }
    let tuning = cluster.api.get(TUNINGS, "", "a");
    assert!(tuning.is_none_or(|tuning| tuning["spec"] == json!({})));
    assert!(cluster.site()["metadata"]["finalizers"].is_null());
    // and goes on by itself once it is permitted
    let labels = json!({"tunedweb.io/node-access": "allowed"});
    cluster.api.put(
        "/namespaces",
        "",
        "web",
        json!({"metadata": {"labels": labels}}),
    );
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn losing_the_label_takes_the_node_keys_and_leaves_the_site_serving() {
    let cluster = Cluster::started().await;
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    cluster.api.put(
        "/namespaces",
        "",
        "web",
        json!({"metadata": {"labels": {}}}),
    );
    cluster
        .until_condition("Ready", "False/NodeAccessDenied")
        .await;
    cluster
        .until("owners gone", |cluster| {
            cluster.api.get(TUNINGS, "", "a").unwrap()["spec"] == json!({})
        })
        .await;
    assert!(!cluster.daemon_set().is_null());
}

#[tokio::test]
async fn a_wrong_spec_leaves_what_serves_as_it_is_and_names_every_problem() {
    let cluster = Cluster::started().await;
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    let (before, owners) = (
        cluster.daemon_set(),
        cluster.api.get(TUNINGS, "", "a").unwrap(),
    );
    cluster.apply_site(&json!({
        "content": {"configMap": {"name": "none"}},
        "tuning": {"sysctls": [{"name": "net.core.somaxcon", "value": "1"}]},
        "server": {"workers": 999},
    }));
    cluster.until_condition("Ready", "False/InvalidSpec").await;
    let said = message(&cluster.site(), "Stalled");
    for part in [
        "net.core.somaxconn",
        "spec.server.workers",
        "spec.content.configMap.name",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    cluster.nudge("NodeTuning").await;
    assert_eq!(cluster.daemon_set(), before);
    assert_eq!(
        cluster.api.get(TUNINGS, "", "a").unwrap()["spec"],
        owners["spec"]
    );
    assert_eq!(cluster.condition("Serving"), "True/AsSpecified");
}

#[tokio::test]
async fn a_content_that_is_missing_is_named_and_waited_for() {
    let cluster = Cluster::started().await;
    cluster
        .api
        .edit(|store| store.remove(&Key::new("/configmaps", "web", "site-html")));
    cluster.apply_site(&json!({}));
    cluster
        .until_condition("Ready", "False/ContentNotFound")
        .await;
    set_content(&cluster.api, "hello");
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn in_a_steady_state_nothing_is_written() {
    let cluster = Cluster::started().await;
    let mut spec = tuned();
    spec["benchmarks"] = json!([{"name": "a"}]);
    cluster.apply_site(&spec);
    cluster.until_condition("Ready", "True/AsSpecified").await;
    cluster.nudge("TunedWebServer").await;
    cluster.nudge("NodeTuning").await;
    let before = cluster.api.writes();
    for _ in 0..3 {
        cluster.nudge("TunedWebServer").await;
        cluster.nudge("NodeTuning").await;
    }
    // a new list of everything, as after a gap in a watch
    cluster.api.edit(Store::end_watches);
    cluster.nudge("TunedWebServer").await;
    assert_eq!(cluster.api.writes(), before);
}

#[tokio::test]
async fn another_operator_changes_nothing() {
    let mut cluster = Cluster::started().await;
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    cluster.nudge("NodeTuning").await;
    let (before, pods) = (cluster.api.writes(), cluster.api.list("/pods"));
    cluster.kill().await;
    cluster.start().await;
    cluster.until("visits", |_| true).await;
    cluster.nudge("TunedWebServer").await;
    cluster.nudge("NodeTuning").await;
    assert_eq!(cluster.api.writes(), before);
    assert_eq!(cluster.api.list("/pods"), pods);
}

#[tokio::test]
async fn editing_a_benchmark_or_the_service_restarts_no_pod() {
    let cluster = Cluster::started().await;
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    let pods = cluster.api.list("/pods");
    let mut spec = tuned();
    spec["benchmarks"] = json!([{"name": "a"}]);
    spec["network"] = json!({"service": {"type": "NodePort", "port": 8080}});
    cluster.apply_site(&spec);
    cluster
        .until("the service", |cluster| {
            let service = cluster.api.get("/services", "web", "site").unwrap();
            service["spec"]["type"] == "NodePort"
        })
        .await;
    cluster.nudge("TunedWebServer").await;
    assert_eq!(cluster.api.list("/pods"), pods);
}

#[tokio::test]
async fn a_changed_setting_rolls_the_pods_and_removes_the_old_settings() {
    let cluster = Cluster::started().await;
    cluster.apply_site(&json!({}));
    cluster.until_condition("Ready", "True/AsSpecified").await;
    let settings = |cluster: &Cluster| {
        let maps = cluster.api.list("/configmaps");
        let names = maps
            .iter()
            .map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
        names
            .filter(|name| name.starts_with("site-settings-"))
            .collect::<Vec<_>>()
    };
    let before = settings(&cluster);
    cluster.apply_site(&json!({"server": {"workers": 3}}));
    cluster
        .until("new settings alone", |cluster| {
            let now = settings(cluster);
            now.len() == 1 && now != before
        })
        .await;
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn one_failing_node_is_named_and_the_others_proceed() {
    let cluster = Cluster::started().await;
    cluster.behave(|behaviour| {
        behaviour.failing.insert("b".to_owned());
    });
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "False/TuningFailed").await;
    cluster
        .until("the other node", |cluster| {
            cluster.site()["status"]["nodes"]["summary"] == "1/2"
        })
        .await;
    let nodes = cluster.site()["status"]["nodes"].clone();
    assert_eq!(nodes["failed"], 1);
    assert_eq!(nodes["failing"][0]["name"], "b");
    assert_eq!(nodes["failing"][0]["reason"], "TuningFailed");
    assert_eq!(cluster.condition("Stalled"), "True/TuningFailed");
}

#[tokio::test]
async fn a_limit_that_is_not_permitted_is_told_and_the_site_serves() {
    let cluster = Cluster::started().await;
    cluster.pods.permit_files(20_000);
    let tuning = json!({"ulimits": [{"name": "nofile", "soft": 65_536}]});
    cluster.apply_site(&json!({"tuning": tuning}));
    cluster
        .until_condition("Ready", "False/LimitNotPermitted")
        .await;
    assert_eq!(cluster.condition("Serving"), "True/AsSpecified");
    assert_eq!(cluster.condition("Tuned"), "False/LimitNotPermitted");
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_counted_and_not_waited_for() {
    let cluster = Cluster::started().await;
    set_ready(&cluster.api, "b", "Unknown");
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    assert_eq!(cluster.site()["status"]["nodes"]["unreachable"], 1);
    // a node that joins is covered too
    add_node(&cluster.api, "c");
    cluster
        .until("three nodes", |cluster| {
            cluster.site()["status"]["nodes"]["serving"] == 2
        })
        .await;
}

#[tokio::test]
async fn a_level_that_refuses_the_pods_is_told_before_there_are_any() {
    let cluster = Cluster::started().await;
    cluster.api.refuse_pods(
        "web",
        Some("violates PodSecurity \"restricted:latest\": privileged"),
    );
    cluster.apply_site(&tuned());
    cluster
        .until_condition("Ready", "False/PodSecurityDenied")
        .await;
    let said = message(&cluster.site(), "Ready");
    assert!(
        said.contains("pod-security.kubernetes.io/enforce=privileged"),
        "{said}"
    );
    assert_eq!(cluster.api.list(DAEMON_SETS), Vec::<Value>::new());
    cluster.api.refuse_pods("web", None);
    let labels = json!({"tunedweb.io/node-access": "allowed", "level": "privileged"});
    cluster.api.put(
        "/namespaces",
        "",
        "web",
        json!({"metadata": {"labels": labels}}),
    );
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn pods_that_cannot_be_created_are_explained_by_the_events() {
    let cluster = Cluster::started().await;
    cluster.behave(|behaviour| behaviour.kubelets = false);
    cluster.apply_site(&json!({}));
    cluster
        .until("a DaemonSet", |cluster| !cluster.daemon_set().is_null())
        .await;
    let uid = cluster.daemon_set()["metadata"]["uid"].clone();
    cluster.api.put(
        "/events",
        "web",
        "e1",
        json!({
            "involvedObject": {"uid": uid}, "reason": "FailedCreate",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "message": "Error creating: pods \"site-abcde\" is forbidden: exceeded quota: q",
        }),
    );
    cluster.nudge("TunedWebServer").await;
    cluster.until_condition("Ready", "False/PodsNotReady").await;
    let said = message(&cluster.site(), "Ready");
    assert!(said.ends_with("exceeded quota: q"), "{said}");
}

#[tokio::test]
async fn an_object_of_the_same_name_is_not_taken_over() {
    let cluster = Cluster::started().await;
    let foreign = json!({"spec": {"ports": [{"port": 1}]}});
    cluster.api.put("/services", "web", "site", foreign);
    cluster.apply_site(&json!({}));
    cluster.until_condition("Ready", "False/ApplyFailed").await;
    let said = message(&cluster.site(), "Ready");
    assert!(
        said.contains("Service site exists and belongs to another"),
        "{said}"
    );
    let service = cluster.api.get("/services", "web", "site").unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 1);
}

#[tokio::test]
async fn an_api_server_that_fails_is_asked_again() {
    let cluster = Cluster::started().await;
    cluster.api.fail_next("patch", DAEMON_SETS, 500);
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn an_undecodable_resource_is_told_so_and_stops_nothing() {
    let cluster = Cluster::started().await;
    cluster.api.put(
        SERVERS,
        "web",
        "broken",
        json!({
            "apiVersion": "tunedweb.io/v1alpha1", "kind": "TunedWebServer",
            "spec": {"content": "a text"},
        }),
    );
    cluster.apply_site(&tuned());
    cluster.until_condition("Ready", "True/AsSpecified").await;
    let of = |cluster: &Cluster, kind: &str| {
        super::cluster::condition(&cluster.api.get(SERVERS, "web", "broken").unwrap(), kind)
    };
    cluster
        .until("told", |cluster| {
            of(cluster, "Stalled") == "True/Undecodable"
        })
        .await;
    cluster.nudge("TunedWebServer").await;
    let writes = cluster.api.writes();
    let count = writes.iter().filter(|write| write.name == "broken").count();
    assert_eq!(count, 1, "{writes:?}");
}

#[tokio::test]
async fn a_change_starts_its_benchmark_once_the_content_has_arrived_everywhere() {
    let cluster = Cluster::started().await;
    let spec = json!({"benchmarks": [{"name": "a", "trigger": "OnChange"}]});
    cluster.apply_site(&spec);
    cluster
        .until("a run", |cluster| cluster.api.list(RUNS).len() == 1)
        .await;
    let first = cluster.site()["status"]["servingHash"].clone();
    // the pods still have the old content
    let old = tunedweb_config::content_etag(b"hello");
    cluster
        .pods
        .serve_stale(Some(vec![("index.html".to_owned(), old)]));
    set_content(&cluster.api, "changed");
    cluster
        .until_condition("Reconciling", "True/RollingOut")
        .await;
    cluster.nudge("TunedWebServer").await;
    assert_eq!(cluster.api.list(RUNS).len(), 1);
    assert_eq!(cluster.site()["status"]["servingHash"], first);
    cluster.pods.serve_stale(None);
    cluster
        .until("a second run", |cluster| cluster.api.list(RUNS).len() == 2)
        .await;
    cluster
        .until_condition("Reconciling", "False/AsSpecified")
        .await;
    assert_ne!(cluster.site()["status"]["servingHash"], first);
    // an edit that changes nothing that is measured starts none
    cluster.nudge("TunedWebServer").await;
    assert_eq!(cluster.api.list(RUNS).len(), 2);
    assert_no_refusal(&cluster);
}
