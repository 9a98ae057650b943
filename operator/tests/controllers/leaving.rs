//! Deleting a resource, and uninstalling the operator.

use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::OPERATOR_NAMESPACE;
use super::cluster::{Cluster, DAEMON_SETS, SERVERS, TUNINGS, add_deployment, set_ready};
use super::store::Key;

const SITE: &str = "site";

async fn ready() -> Cluster {
    let cluster = Cluster::started().await;
    cluster.apply_site(&json!({"tuning": {"sysctls": [
        {"name": "vm.max_map_count", "value": "262144"},
    ]}}));
    cluster.until_condition("Ready", "True/AsSpecified").await;
    cluster
}

fn delete(cluster: &Cluster) {
    cluster
        .api
        .edit(|store| store.delete(&Key::new(SERVERS, "web", SITE)));
}

fn owner(cluster: &Cluster, node: &str) -> Value {
    cluster.api.get(TUNINGS, "", node).unwrap()["spec"]["owners"][0].clone()
}

fn serving_pods(cluster: &Cluster) -> Vec<Key> {
    let pods = cluster.api.list("/pods");
    let ours = pods
        .iter()
        .filter(|pod| pod["metadata"]["namespace"] == "web");
    ours.map(|pod| Key::new("/pods", "web", pod["metadata"]["name"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn deleting_ends_the_pods_first_then_releases_then_goes() {
    let cluster = ready().await;
    cluster.behave(|behaviour| behaviour.agents = false);
    cluster.api.edit(|store| store.holds_pods = true);
    delete(&cluster);
    cluster
        .until("the DaemonSet gone", |cluster| {
            cluster.daemon_set().is_null()
        })
        .await;
    cluster.until_condition("Ready", "False/Deleting").await;
    cluster.nudge("NodeTuning").await;
    // pods still run, and one of them could tune again
    assert_eq!(owner(&cluster, "a")["state"], "Active");
    for key in serving_pods(&cluster) {
        cluster.api.edit(|store| store.remove(&key));
    }
    cluster
        .until("released", |cluster| {
            owner(cluster, "a")["state"] == "Released"
        })
        .await;
    cluster
        .until("released", |cluster| {
            owner(cluster, "b")["state"] == "Released"
        })
        .await;
    assert!(!cluster.site().is_null());
    cluster.behave(|behaviour| behaviour.agents = true);
    cluster
        .until("gone", |cluster| cluster.site().is_null())
        .await;
    cluster
        .until("forgotten", |cluster| owner(cluster, "a").is_null())
        .await;
    for resource in [DAEMON_SETS, "/services", "batch/jobs"] {
        assert_eq!(
            cluster.api.list(resource),
            Vec::<Value>::new(),
            "{resource}"
        );
    }
    assert_eq!(cluster.api.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_is_gone_or_not_ready_never_holds_up_a_deletion() {
    let cluster = ready().await;
    cluster.behave(|behaviour| behaviour.agents = false);
    cluster.api.edit(|store| {
        store.holds_pods = true;
        store.remove(&Key::new("/nodes", "", "b"));
    });
    set_ready(&cluster.api, "a", "Unknown");
    delete(&cluster);
    cluster
        .until("gone", |cluster| cluster.site().is_null())
        .await;
    // whoever comes back is still told to put its share back
    cluster
        .until("released", |cluster| {
            owner(cluster, "a")["state"] == "Released"
        })
        .await;
}

#[tokio::test]
async fn a_silent_agent_holds_up_a_deletion_until_the_time_is_over() {
    let cluster = ready().await;
    cluster.behave(|behaviour| behaviour.agents = false);
    delete(&cluster);
    cluster
        .until("released", |cluster| {
            owner(cluster, "a")["state"] == "Released"
        })
        .await;
    cluster.pass(119);
    cluster.nudge("TunedWebServer").await;
    assert!(!cluster.site().is_null());
    cluster.pass(1);
    cluster
        .until("gone", |cluster| cluster.site().is_null())
        .await;
    cluster
        .until("an event", |cluster| {
            has_event(cluster, "RestoreIncomplete")
        })
        .await;
}

fn has_event(cluster: &Cluster, reason: &str) -> bool {
    cluster
        .api
        .list("events.k8s.io/events")
        .iter()
        .any(|event| event["reason"] == reason)
}

#[tokio::test]
async fn the_annotation_lets_a_resource_go_at_once() {
    let cluster = ready().await;
    cluster.behave(|behaviour| behaviour.agents = false);
    delete(&cluster);
    cluster
        .until("released", |cluster| {
            owner(cluster, "a")["state"] == "Released"
        })
        .await;
    cluster.api.edit(|store| {
        store.change(&Key::new(SERVERS, "web", SITE), |site| {
            site["metadata"]["annotations"]["tunedweb.io/skip-restore"] = json!("true");
        });
    });
    cluster
        .until("gone", |cluster| cluster.site().is_null())
        .await;
}

#[tokio::test]
async fn an_operator_killed_while_deleting_goes_on_where_it_was() {
    let mut cluster = ready().await;
    cluster.behave(|behaviour| behaviour.agents = false);
    delete(&cluster);
    cluster
        .until("released", |cluster| {
            owner(cluster, "a")["state"] == "Released"
        })
        .await;
    cluster.kill().await;
    cluster.behave(|behaviour| behaviour.agents = true);
    cluster.start().await;
    cluster
        .until("gone", |cluster| cluster.site().is_null())
        .await;
}

#[tokio::test]
async fn the_owner_of_a_resource_that_was_torn_away_is_released() {
    let mut cluster = ready().await;
    cluster.kill().await;
    cluster
        .api
        .edit(|store| store.remove(&Key::new(SERVERS, "web", SITE)));
    cluster.start().await;
    cluster
        .until("forgotten", |cluster| owner(cluster, "a").is_null())
        .await;
}

#[tokio::test]
async fn a_key_that_leaves_the_spec_is_released_on_each_node() {
    let cluster = ready().await;
    cluster.apply_site(&json!({}));
    cluster
        .until("forgotten", |cluster| owner(cluster, "a").is_null())
        .await;
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn draining_lets_go_of_every_node_and_keeps_the_resource() {
    let cluster = ready().await;
    add_deployment(&cluster.api);
    let drained = tunedweb_operator::drain(
        cluster.api.client(),
        OPERATOR_NAMESPACE,
        Duration::from_mins(1),
    );
    drained.await.unwrap();
    assert!(cluster.daemon_set().is_null());
    assert!(
        cluster.site()["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    cluster.until_condition("Ready", "False/Draining").await;
    cluster
        .until("forgotten", |cluster| owner(cluster, "a").is_null())
        .await;
    // nothing comes back while the mark is there
    cluster.nudge("TunedWebServer").await;
    assert!(cluster.daemon_set().is_null());
    assert_eq!(cluster.api.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_mark_of_a_former_installation_is_not_obeyed() {
    let cluster = Cluster::new();
    add_deployment(&cluster.api);
    let mark = json!({"data": {"deploymentUid": "another", "timeoutSeconds": "60"}});
    cluster
        .api
        .put("/configmaps", OPERATOR_NAMESPACE, "tunedweb-drain", mark);
    let mut cluster = cluster;
    cluster.start().await;
    cluster.apply_site(&json!({}));
    cluster.until_condition("Ready", "True/AsSpecified").await;
}

#[tokio::test]
async fn a_drain_that_takes_too_long_names_what_is_left() {
    let mut cluster = ready().await;
    cluster.kill().await;
    add_deployment(&cluster.api);
    let client = cluster.api.client();
    let error = tunedweb_operator::drain(client, OPERATOR_NAMESPACE, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("web/site"), "{error}");
}
