//! Nodes, pods and processes get what is asked for, and are put back.

use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tunedweb_api::condition::ConditionType;
use tunedweb_api::tuned_web_server::FailingNode;
use tunedweb_e2e::namespace::NodeAccess;
use tunedweb_e2e::wait;

use crate::site::{READY, REFUSED, Site, identities, message, uid};

/// A key that the tests raise on the node; no program of these nodes depends on it.
const NODE_KEY: &str = "vm.max_map_count";

fn tuned(map_count: &str) -> Value {
    json!({
        "server": {"listener": {"backlog": 30_000}},
        "tuning": {
            "sysctls": [
                {"name": "net.ipv4.tcp_fin_timeout", "value": "17"},
                {"name": "net.core.somaxconn", "value": "30000"},
                {"name": NODE_KEY, "value": map_count},
            ],
            "ulimits": [{"name": "nofile", "soft": 12_345}],
        },
    })
}

#[tokio::test]
async fn applying_tunes_the_workers_and_serves_the_content() -> anyhow::Result<()> {
    let site = Site::ready("tunes", tuned("300001")).await?;
    for pod in site.pods().await? {
        let process = pod.process().await?;
        let backlogs = process.backlogs(8080).await?;
        assert!(
            !backlogs.is_empty() && backlogs.iter().all(|b| *b == 30_000),
            "{backlogs:?}"
        );
        assert_eq!(process.open_files().await?.soft, 12_345);
        assert_eq!(process.sysctl("net.ipv4.tcp_fin_timeout").await?, "17");
        assert_eq!(pod.node.sysctl(NODE_KEY).await?, "300001");
        let page = pod
            .node
            .fetch(&format!("http://{}:8080/", pod.address))
            .await?;
        assert_eq!((page.status, page.body.as_str()), (200, "first\n"));
    }
    site.remove().await
}

#[tokio::test]
async fn deleting_restores_every_node_and_leaves_no_child_object() -> anyhow::Result<()> {
    let site = Site::new("restores", NodeAccess::Allowed).await?;
    let node = site.cluster.workers()[0].clone();
    let before = node.sysctl(NODE_KEY).await?;
    let owner = uid(&site.apply(tuned("300002")).await?);
    site.wait_ready().await?;
    assert_eq!(node.sysctl(NODE_KEY).await?, "300002");

    site.servers()
        .delete("site", &DeleteParams::default())
        .await?;
    wait::eventually(READY, "the resource gone", async || {
        match site.servers().get_opt("site").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    for node in site.cluster.workers() {
        assert_eq!(node.sysctl(NODE_KEY).await?, before, "on {}", node.name);
    }
    let look = async || {
        let owners: Vec<_> = site
            .node_tunings()
            .await
            .map_err(|error| error.to_string())?;
        let left = owners
            .iter()
            .flat_map(|node| &node.spec.owners)
            .filter(|o| o.uid == owner);
        if left.count() == 0 {
            Ok(())
        } else {
            Err("the owner stands in a NodeTuning".to_owned())
        }
    };
    wait::eventually(REFUSED, "the owner forgotten", look).await?;
    assert_no_child_object(&site).await?;
    site.remove().await
}

/// Garbage collection follows deletion, so children are waited for.
async fn assert_no_child_object(site: &Site) -> anyhow::Result<()> {
    use k8s_openapi::api::{apps::v1::DaemonSet, batch::v1::Job, core::v1};
    let list = ListParams::default().labels("app.kubernetes.io/managed-by=tunedweb-operator");
    let namespace = site.namespace.name();
    let sets = site.cluster.api::<DaemonSet>(namespace);
    let (pods, jobs) = (
        site.cluster.api::<v1::Pod>(namespace),
        site.cluster.api::<Job>(namespace),
    );
    let (services, maps) = (
        site.cluster.api::<v1::Service>(namespace),
        site.cluster.api::<v1::ConfigMap>(namespace),
    );
    let look = async || {
        let counts = async {
            Ok::<_, kube::Error>([
                sets.list(&list).await?.items.len(),
                pods.list(&list).await?.items.len(),
                jobs.list(&list).await?.items.len(),
                services.list(&list).await?.items.len(),
                maps.list(&list).await?.items.len(),
            ])
        };
        match counts.await {
            Ok([0, 0, 0, 0, 0]) => Ok(()),
            other => Err(format!("sets, pods, jobs, services, maps: {other:?}")),
        }
    };
    Ok(wait::eventually(Duration::from_mins(1), "no child object", look).await?)
}

#[tokio::test]
async fn a_changed_key_a_changed_setting_and_changed_content_arrive() -> anyhow::Result<()> {
    let site = Site::ready("changes", tuned("300003")).await?;
    let mut spec = tuned("300004");
    spec["server"]["listener"]["backlog"] = json!(20_000);
    spec["tuning"]["sysctls"][1]["value"] = json!("20000");
    site.apply(spec).await?;
    site.wait_ready().await?;
    let pods = site.pods().await?;
    for pod in &pods {
        assert_eq!(pod.node.sysctl(NODE_KEY).await?, "300004");
        let backlogs = pod.process().await?.backlogs(8080).await?;
        assert!(
            !backlogs.is_empty() && backlogs.iter().all(|b| *b == 20_000),
            "{backlogs:?}"
        );
    }

    site.set_content(&json!({"index.html": "second\n"})).await?;
    for pod in &pods {
        let url = format!("http://{}:8080/", pod.address);
        let look = async || match pod.node.fetch(&url).await {
            Ok(page) if page.body == "second\n" => Ok(()),
            other => Err(format!("{other:?}")),
        };
        // The kubelet renews a ConfigMap volume about once a minute.
        wait::eventually(Duration::from_mins(2), "the new content", look).await?;
    }
    assert_eq!(
        identities(&site.pods().await?),
        identities(&pods),
        "new content restarts no pod"
    );
    site.remove().await
}

#[tokio::test]
async fn a_key_that_leaves_the_spec_is_put_back() -> anyhow::Result<()> {
    let site = Site::new("leaves", NodeAccess::Allowed).await?;
    let node = site.cluster.workers()[0].clone();
    let before = node.sysctl(NODE_KEY).await?;
    site.apply(tuned("300005")).await?;
    site.wait_ready().await?;
    assert_eq!(node.sysctl(NODE_KEY).await?, "300005");
    site.apply(json!({})).await?;
    site.wait_ready().await?;
    let look = async || match node.sysctl(NODE_KEY).await {
        Ok(value) if value == before => Ok(()),
        other => Err(format!("{other:?}")),
    };
    wait::eventually(READY, "the former value", look).await?;
    site.remove().await
}

#[tokio::test]
async fn a_key_of_the_host_network_is_kept_by_the_agent_and_put_back() -> anyhow::Result<()> {
    // Only the host network namespace of a node has this key at the value that its agent sets.
    let (key, wanted) = ("net.ipv4.tcp_max_orphans", "140001");
    let site = Site::new("host", NodeAccess::Allowed).await?;
    let node = site.cluster.workers()[0].clone();
    let spec = json!({"tuning": {"sysctls": [{"name": key, "value": wanted}]}});
    let Ok(before) = node.sysctl(key).await else {
        site.apply(spec).await?;
        let server = site
            .wait_condition(READY, ConditionType::Tuned, "False", None)
            .await?;
        let status = format!("{:?}", server.status);
        assert!(status.contains(key), "{status}");
        tunedweb_e2e::skip(
            "a_key_of_the_host_network_is_kept_by_the_agent_and_put_back",
            "the nodes are containers, whose network namespace lacks host-only keys; that it is named was shown",
        );
        return site.remove().await;
    };
    site.apply(spec).await?;
    site.wait_ready().await?;
    assert_eq!(node.sysctl(key).await?, wanted);
    let look = async || match node.sysctl(key).await {
        Ok(value) if value == before => Ok(()),
        other => Err(format!("{other:?}")),
    };
    site.servers()
        .delete("site", &DeleteParams::default())
        .await?;
    wait::eventually(READY, "the former value", look).await?;
    site.remove().await
}

#[tokio::test]
async fn an_open_file_limit_beyond_the_nodes_is_not_permitted_and_the_site_serves_all_the_same()
-> anyhow::Result<()> {
    let site = Site::new("limit", NodeAccess::Allowed).await?;
    let hard = site.cluster.workers()[0].default_open_files().await?.hard;
    if hard >= 1_048_576 {
        tunedweb_e2e::skip(
            "an_open_file_limit_beyond_the_nodes_is_not_permitted_and_the_site_serves_all_the_same",
            "the nodes permit every limit that the schema does",
        );
        return site.remove().await;
    }
    site.apply(json!({"tuning": {"ulimits": [{"name": "nofile", "soft": 1_048_576}]}}))
        .await?;
    let reason = Some("LimitNotPermitted");
    let server = site
        .wait_condition(READY, ConditionType::Tuned, "False", reason)
        .await?;
    let text = message(&server, ConditionType::Tuned);
    assert!(
        text.contains("1048576") && text.contains(&hard.to_string()),
        "{text}"
    );
    site.wait_condition(READY, ConditionType::Serving, "True", None)
        .await?;
    for pod in site.pods().await? {
        assert_eq!(pod.process().await?.open_files().await?.soft, hard);
        let page = pod
            .node
            .fetch(&format!("http://{}:8080/", pod.address))
            .await?;
        assert_eq!(page.status, 200);
    }
    site.remove().await
}

#[tokio::test]
async fn a_value_that_no_node_can_hold_changes_nothing_and_what_served_keeps_serving()
-> anyhow::Result<()> {
    let site = Site::ready("holds", tuned("300006")).await?;
    let pods = site.pods().await?;
    // Only a node can tell which algorithms its kernel has; all or nothing, so the other key must
    // not move either.
    let mut spec = tuned("300007");
    let unknown = json!({"name": "net.ipv4.tcp_congestion_control", "value": "nosuchthing"});
    spec["tuning"]["sysctls"]
        .as_array_mut()
        .context("a list")?
        .push(unknown);
    site.apply(spec).await?;
    let look = async || {
        let server = site.resource().await.map_err(|error| error.to_string())?;
        let status = server.status.unwrap_or_default();
        let named = |node: &FailingNode| node.message.contains("tcp_congestion_control");
        if status.nodes.failing.iter().any(named) {
            Ok(server.metadata)
        } else {
            Err(format!("{status:?}"))
        }
    };
    wait::eventually(READY, "the key named", look).await?;
    site.wait_condition(REFUSED, ConditionType::Ready, "False", Some("TuningFailed"))
        .await?;
    assert_eq!(pods[0].node.sysctl(NODE_KEY).await?, "300006");
    assert_eq!(identities(&site.pods().await?), identities(&pods));
    let page = pods[0]
        .node
        .fetch(&format!("http://{}:8080/", pods[0].address))
        .await?;
    assert_eq!(page.status, 200);
    site.remove().await
}
