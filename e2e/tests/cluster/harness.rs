//! That the cluster and the looks into it are what the other tests take them for.

use tunedweb_e2e::cluster::Cluster;
use tunedweb_e2e::namespace::{NodeAccess, TestNamespace};

#[tokio::test]
async fn two_workers_share_one_journal_and_one_kernel() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let [one, other] = cluster.workers() else {
        anyhow::bail!("{} workers, not 2", cluster.workers().len());
    };
    let mark = "/var/lib/tunedweb/seen-by-both";
    one.run(&["touch", mark]).await?;
    other.run(&["rm", mark]).await?;
    assert_eq!(
        one.sysctl("kernel.random.boot_id").await?,
        other.sysctl("kernel.random.boot_id").await?
    );
    Ok(())
}

#[tokio::test]
async fn a_new_network_namespace_has_keys_of_its_own() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let node = &cluster.workers()[0];
    let network = "net.core.somaxconn";
    let changed = [
        "unshare",
        "-n",
        "sh",
        "-c",
        "sysctl -qw net.core.somaxconn=77; sysctl -n net.core.somaxconn",
    ];
    assert_eq!(node.run(&changed).await?, "77\n");
    assert_ne!(node.sysctl(network).await?, "77");
    assert_ne!(node.sysctl_of_new_network(network).await?, "77");
    Ok(())
}

#[tokio::test]
async fn a_removed_namespace_is_gone() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let namespace = TestNamespace::create(&cluster, "harness", NodeAccess::Allowed).await?;
    let name = namespace.name().to_owned();
    let namespaces = cluster.api_of_cluster::<k8s_openapi::api::core::v1::Namespace>();
    let labels = namespaces
        .get(&name)
        .await?
        .metadata
        .labels
        .unwrap_or_default();
    assert_eq!(labels["tunedweb.io/node-access"], "allowed");
    namespace.remove().await?;
    assert!(namespaces.get_opt(&name).await?.is_none());
    Ok(())
}
