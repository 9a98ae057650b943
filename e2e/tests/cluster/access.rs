//! Who may touch nodes, and who may not.

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tunedweb_api::NodeTuning;
use tunedweb_api::condition::ConditionType;
use tunedweb_e2e::namespace::NodeAccess;

use crate::site::{READY, REFUSED, Site, message};

/// Namespace of the agents (the chart's default).
const AGENT_NAMESPACE: &str = "tunedweb-agent";

#[tokio::test]
async fn a_namespace_without_the_label_gets_nothing_but_the_reason() -> anyhow::Result<()> {
    let site = Site::new("denied", NodeAccess::Denied).await?;
    let key = json!({"name": "net.core.somaxconn", "value": "30000"});
    site.apply(json!({"tuning": {"sysctls": [key]}})).await?;
    let reason = Some("NodeAccessDenied");
    let server = site
        .wait_condition(REFUSED, ConditionType::Stalled, "True", reason)
        .await?;
    let text = message(&server, ConditionType::Stalled);
    assert!(text.contains("tunedweb.io/node-access"), "{text}");

    assert!(site.daemon_set().await?.is_none());
    let name = site.namespace.name();
    let all = ListParams::default();
    assert_eq!(
        site.cluster.api::<Pod>(name).list(&all).await?.items.len(),
        0
    );
    assert_eq!(
        site.cluster
            .api::<Service>(name)
            .list(&all)
            .await?
            .items
            .len(),
        0
    );
    let maps = site.cluster.api::<ConfigMap>(name).list(&all).await?;
    let names: Vec<_> = maps.iter().map(kube::ResourceExt::name_any).collect();
    assert!(
        names
            .iter()
            .all(|name| ["html", "kube-root-ca.crt"].contains(&name.as_str())),
        "{names:?}"
    );
    site.remove().await
}

#[tokio::test]
async fn a_site_with_safe_keys_only_runs_under_the_restricted_pod_security_level()
-> anyhow::Result<()> {
    let site = Site::new("restricted", NodeAccess::Denied).await?;
    enforce(&site, "restricted").await?;
    let key = json!({"name": "net.ipv4.tcp_fin_timeout", "value": "17"});
    site.apply(json!({"tuning": {"sysctls": [key]}})).await?;
    site.wait_ready().await?;
    for pod in site.pods().await? {
        assert_eq!(
            pod.process()
                .await?
                .sysctl("net.ipv4.tcp_fin_timeout")
                .await?,
            "17"
        );
    }
    site.remove().await
}

/// Sets the namespace's Pod Security level.
async fn enforce(site: &Site, level: &str) -> anyhow::Result<()> {
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let namespaces = site.cluster.api_of_cluster::<Namespace>();
    let change = Patch::Merge(&label);
    namespaces
        .patch(site.namespace.name(), &PatchParams::default(), &change)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_pod_security_level_that_forbids_the_init_container_is_named() -> anyhow::Result<()> {
    let site = Site::new("refused", NodeAccess::Allowed).await?;
    enforce(&site, "baseline").await?;
    let key = json!({"name": "net.core.somaxconn", "value": "30000"});
    site.apply(json!({"tuning": {"sysctls": [key]}})).await?;
    let reason = Some("PodSecurityDenied");
    let server = site
        .wait_condition(READY, ConditionType::Ready, "False", reason)
        .await?;
    let text = message(&server, ConditionType::Ready);
    assert!(
        text.contains("pod-security.kubernetes.io/enforce"),
        "{text}"
    );
    site.remove().await
}

#[tokio::test]
async fn an_agents_token_writes_its_own_nodes_object_and_no_other() -> anyhow::Result<()> {
    let site = Site::new("token", NodeAccess::Denied).await?;
    let pods = site
        .cluster
        .api::<Pod>(AGENT_NAMESPACE)
        .list(&ListParams::default())
        .await?;
    let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let [worker, other] = site.cluster.workers() else {
        anyhow::bail!("two workers needed")
    };
    let agent = pods
        .iter()
        .find(|pod| node_of(pod).as_deref() == Some(&worker.name))
        .context("no agent on the worker")?;

    let tunings: Api<NodeTuning> = Api::all(as_pod(&site, agent).await?);
    let touch = json!({"status": {"bootID": "written-by-a-test"}});
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let own = tunings
        .patch_status(&worker.name, &dry, &Patch::Merge(&touch))
        .await;
    assert!(own.is_ok(), "{own:?}");
    let denied = tunings
        .patch_status(&other.name, &dry, &Patch::Merge(&touch))
        .await;
    let text = format!(
        "{:?}",
        denied.expect_err("another node's status must not be writable")
    );
    assert!(
        text.contains("403") || text.contains("ValidatingAdmissionPolicy"),
        "{text}"
    );
    let spec = json!({"spec": {"owners": []}});
    let denied = tunings
        .patch(&worker.name, &dry, &Patch::Merge(&spec))
        .await;
    assert!(denied.is_err(), "the spec is the operator's");
    site.remove().await
}

/// A client with a token as the kubelet gives it to this pod: bound to the pod and so to its node.
async fn as_pod(site: &Site, pod: &Pod) -> anyhow::Result<Client> {
    let spec = pod.spec.as_ref().context("a pod has a spec")?;
    let account = spec
        .service_account_name
        .as_deref()
        .context("no service account")?;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        site.cluster.api(AGENT_NAMESPACE);
    let request: TokenRequest = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "audiences": [],
            "expirationSeconds": 600,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid(),
            },
        },
    }))?;
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    let mut config = Config::infer().await?;
    config.auth_info = kube::config::AuthInfo {
        token: Some(answer.status.context("no token")?.token.into()),
        ..kube::config::AuthInfo::default()
    };
    Ok(Client::try_from(config)?)
}

#[tokio::test]
async fn no_serving_pod_carries_a_kubernetes_token_or_a_capability() -> anyhow::Result<()> {
    let site = Site::ready("tokens", json!({})).await?;
    for pod in site.pods().await? {
        let pid = pod.process().await?.pid;
        let status = pod
            .node
            .run(&["cat", &format!("/proc/{pid}/status")])
            .await?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Seccomp:"), "2", "a filter");
        assert!(!field("Uid:").starts_with("0 "), "{}", field("Uid:"));
        let token = format!("/proc/{pid}/root/var/run/secrets/kubernetes.io");
        assert!(
            pod.node.run(&["ls", &token]).await.is_err(),
            "a token is mounted"
        );
        let touch = format!("/proc/{pid}/root/touched");
        assert!(
            pod.node.run(&["touch", &touch]).await.is_err(),
            "the root file system is writable"
        );
    }
    site.remove().await
}
