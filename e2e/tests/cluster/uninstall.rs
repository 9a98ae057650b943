//! Uninstalling with a resource present.

use kube::ResourceExt as _;
use serde_json::json;
use tunedweb_e2e::release;

use crate::site::{READY, Site};
use tunedweb_e2e::wait;

const NODE_KEY: &str = "vm.max_map_count";

#[tokio::test]
async fn uninstalling_with_a_live_resource_restores_the_nodes_and_keeps_the_resource()
-> anyhow::Result<()> {
    let key = json!({"name": NODE_KEY, "value": "300008"});
    let site = Site::new("uninstall", tunedweb_e2e::namespace::NodeAccess::Allowed).await?;
    let before = site.cluster.workers()[0].sysctl(NODE_KEY).await?;
    site.apply(json!({"tuning": {"sysctls": [key]}})).await?;
    site.wait_ready().await?;
    assert_eq!(site.cluster.workers()[0].sysctl(NODE_KEY).await?, "300008");

    release::uninstall().await?;
    for node in site.cluster.workers() {
        assert_eq!(node.sysctl(NODE_KEY).await?, before, "on {}", node.name);
    }
    let left = site.resource().await?;
    assert!(left.finalizers().is_empty(), "{:?}", left.finalizers());
    assert!(site.daemon_set().await?.is_none());

    // A new installation does not obey the former one's drain mark.
    release::install().await?;
    site.wait_ready().await?;
    let look = async || match site.cluster.workers()[0].sysctl(NODE_KEY).await {
        Ok(value) if value == "300008" => Ok(()),
        other => Err(format!("{other:?}")),
    };
    wait::eventually(READY, "the key set again", look).await?;
    site.remove().await
}
