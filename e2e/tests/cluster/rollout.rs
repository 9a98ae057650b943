//! What restarts pods, and what does not.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tunedweb_api::condition::ConditionType;
use tunedweb_e2e::namespace::NodeAccess;
use tunedweb_e2e::{release, wait};

use crate::site::{REFUSED, Site, identities, message};

const OPERATOR: &str = "tunedweb-operator";

fn spec() -> serde_json::Value {
    json!({"tuning": {"sysctls": [{"name": "net.core.somaxconn", "value": "30000"}]}})
}

#[tokio::test]
async fn deleting_the_operators_pod_restarts_no_serving_pod() -> anyhow::Result<()> {
    let site = Site::ready("restart", spec()).await?;
    let pods = identities(&site.pods().await?);
    let set = site.daemon_set().await?;

    let operators = site.cluster.api::<Pod>(release::NAMESPACE);
    let selector = ListParams::default().labels("app.kubernetes.io/component=operator");
    let former = operators.list(&selector).await?;
    anyhow::ensure!(
        former.items.len() == 1,
        "one operator pod, not {}",
        former.items.len()
    );
    operators
        .delete_collection(&DeleteParams::default(), &selector)
        .await?;
    let deployments = site.cluster.api::<Deployment>(release::NAMESPACE);
    let look = async || {
        let pods = operators
            .list(&selector)
            .await
            .map_err(|error| error.to_string())?;
        let fresh = pods
            .iter()
            .all(|pod| pod.metadata.uid != former.items[0].metadata.uid);
        let found = deployments
            .get(OPERATOR)
            .await
            .map_err(|error| error.to_string())?;
        let available = found.status.and_then(|status| status.available_replicas);
        if fresh && available == Some(1) {
            Ok(())
        } else {
            Err(format!("{fresh} {available:?}"))
        }
    };
    wait::eventually(Duration::from_mins(2), "a new operator pod", look).await?;

    // The new operator has reconciled the site once it answers a change of the resource.
    let mut changed = spec();
    changed["network"] = json!({"service": {"port": 8000}});
    site.apply(changed).await?;
    site.wait_ready().await?;
    assert_eq!(identities(&site.pods().await?), pods);
    let after = site.daemon_set().await?;
    let template = |set: &Option<k8s_openapi::api::apps::v1::DaemonSet>| {
        set.as_ref().and_then(|set| set.metadata.generation)
    };
    assert_eq!(template(&after), template(&set));
    site.remove().await
}

#[tokio::test]
async fn editing_a_benchmark_or_the_service_restarts_no_pod() -> anyhow::Result<()> {
    let site = Site::ready("edits", spec()).await?;
    let pods = identities(&site.pods().await?);
    let mut changed = spec();
    changed["benchmarks"] = json!([{"name": "later", "load": {"connections": 7}}]);
    changed["network"] = json!({"service": {"port": 8001}});
    site.apply(changed).await?;
    site.wait_ready().await?;
    let services = site
        .cluster
        .api::<k8s_openapi::api::core::v1::Service>(site.namespace.name());
    let found = services.get("site").await?;
    let port = found
        .spec
        .and_then(|spec| spec.ports)
        .and_then(|ports| Some(ports.first()?.port));
    assert_eq!(port, Some(8001));
    assert_eq!(identities(&site.pods().await?), pods);
    site.remove().await
}

#[tokio::test]
async fn a_missing_content_is_named_and_what_served_keeps_serving() -> anyhow::Result<()> {
    let site = Site::ready("missing", json!({})).await?;
    let pods = site.pods().await?;
    let change = json!({"spec": {"content": {"configMap": {"name": "not-there"}}}});
    site.servers()
        .patch(
            "site",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(&change),
        )
        .await?;
    let reason = Some("ContentNotFound");
    let server = site
        .wait_condition(REFUSED, ConditionType::Ready, "False", reason)
        .await?;
    let text = message(&server, ConditionType::Ready);
    assert!(text.contains("not-there"), "{text}");
    assert_eq!(identities(&site.pods().await?), identities(&pods));
    let page = pods[0]
        .node
        .fetch(&format!("http://{}:8080/", pods[0].address))
        .await?;
    assert_eq!(page.status, 200);
    site.remove().await
}

#[tokio::test]
async fn a_spec_that_cannot_be_right_is_refused_with_field_value_and_range() -> anyhow::Result<()> {
    let site = Site::new("constant", NodeAccess::Allowed).await?;
    let cases = [
        (
            json!({"server": {"listener": {"backlog": 70_000}}}),
            ["spec.server.listener.backlog", "65535"],
        ),
        (
            json!({"network": {"containerPort": 80}}),
            ["spec.network.containerPort", "1024"],
        ),
        (
            sysctl("net.ipv4.tcp_tw_recycle", "1"),
            ["net.ipv4.tcp_tw_recycle", "4.12"],
        ),
        (
            sysctl("net.ipv4.tcp_syncookies", "0"),
            ["net.ipv4.tcp_syncookies", "\"0\""],
        ),
        (
            sysctl("net.core.somaxconn", "3240000"),
            ["3240000", "65535"],
        ),
    ];
    for (spec, words) in cases {
        let refusal = site.apply(spec.clone()).await;
        let text = format!(
            "{:?}",
            refusal
                .err()
                .ok_or_else(|| anyhow::anyhow!("accepted: {spec}"))?
        );
        assert!(
            words
                .iter()
                .all(|word| text.replace("\\\"", "\"").contains(word)),
            "{spec}: {text}"
        );
    }
    site.remove().await
}

fn sysctl(name: &str, value: &str) -> serde_json::Value {
    json!({"tuning": {"sysctls": [{"name": name, "value": value}]}})
}
