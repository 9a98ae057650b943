//! A site of one test: its resource, its content, and waiting for what becomes of it.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tunedweb_api::condition::{self, ConditionType};
use tunedweb_api::{NodeTuning, TunedWebServer};
use tunedweb_e2e::cluster::{Cluster, ServingPod};
use tunedweb_e2e::namespace::{NodeAccess, TestNamespace};
use tunedweb_e2e::wait;

/// A site is ready well within this: pods start in seconds, a rollout replaces one pod after
/// another, each with its drain.
pub(crate) const READY: Duration = Duration::from_secs(150);
/// A refusal shows as soon as the operator has seen the resource.
pub(crate) const REFUSED: Duration = Duration::from_secs(30);

/// The site of one test, in a namespace of its own.
pub(crate) struct Site {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// The namespace.
    pub(crate) namespace: TestNamespace,
}

impl Site {
    /// Makes a namespace with the content `index.html`, and no resource yet.
    pub(crate) async fn new(word: &str, access: NodeAccess) -> anyhow::Result<Self> {
        let cluster = Cluster::connect().await?;
        let namespace = TestNamespace::create(&cluster, word, access).await?;
        let site = Self { cluster, namespace };
        site.set_content(&json!({"index.html": "first\n"})).await?;
        Ok(site)
    }

    /// A ready site with this spec (without `content`).
    pub(crate) async fn ready(word: &str, spec: Value) -> anyhow::Result<Self> {
        let site = Self::new(word, NodeAccess::Allowed).await?;
        site.apply(spec).await?;
        site.wait_ready().await?;
        Ok(site)
    }

    /// Applies the resource as `kubectl apply --server-side` does; the content is added.
    pub(crate) async fn apply(&self, mut spec: Value) -> anyhow::Result<TunedWebServer> {
        spec["content"] = json!({"configMap": {"name": "html"}});
        let object = json!({
            "apiVersion": "tunedweb.io/v1alpha1",
            "kind": "TunedWebServer",
            "metadata": {"name": "site"},
            "spec": spec,
        });
        let manager = PatchParams::apply("cluster-test")
            .force()
            .validation_strict();
        let applied = self
            .servers()
            .patch("site", &manager, &Patch::Apply(&object))
            .await;
        Ok(applied?)
    }

    /// Replaces what is served.
    pub(crate) async fn set_content(&self, files: &Value) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "html"}, "data": files,
        });
        let manager = PatchParams::apply("cluster-test").force();
        let maps: Api<ConfigMap> = self.cluster.api(self.namespace.name());
        maps.patch("html", &manager, &Patch::Apply(&object))
            .await
            .context("set the content")?;
        Ok(())
    }

    /// The resource as it is now.
    pub(crate) async fn resource(&self) -> anyhow::Result<TunedWebServer> {
        Ok(self.servers().get("site").await?)
    }

    /// The resources of the namespace.
    pub(crate) fn servers(&self) -> Api<TunedWebServer> {
        self.cluster.api(self.namespace.name())
    }

    /// The site's `DaemonSet`, if there is one.
    pub(crate) async fn daemon_set(&self) -> anyhow::Result<Option<DaemonSet>> {
        let sets: Api<DaemonSet> = self.cluster.api(self.namespace.name());
        let list = sets.list(&kube::api::ListParams::default()).await?;
        Ok(list.items.into_iter().next())
    }

    /// Waits until the present generation is ready on every node.
    pub(crate) async fn wait_ready(&self) -> anyhow::Result<TunedWebServer> {
        self.wait_condition(READY, ConditionType::Ready, "True", None)
            .await
    }

    /// Waits until a condition of the present generation has a status and, if given, a reason.
    pub(crate) async fn wait_condition(
        &self,
        limit: Duration,
        kind: ConditionType,
        status: &str,
        reason: Option<&str>,
    ) -> anyhow::Result<TunedWebServer> {
        let wanted = format!("{}={status} {}", kind.as_str(), reason.unwrap_or_default());
        let look = async || {
            let server = self
                .servers()
                .get("site")
                .await
                .map_err(|error| error.to_string())?;
            let found = server
                .status
                .as_ref()
                .and_then(|s| condition::find(&s.conditions, kind));
            let met = found.is_some_and(|found| {
                found.status == status
                    && found.observed_generation == server.metadata.generation
                    && reason.is_none_or(|reason| found.reason == reason)
            });
            if met {
                Ok(server)
            } else {
                Err(format!("{:?}", server.status))
            }
        };
        Ok(wait::eventually(limit, &wanted, look).await?)
    }

    /// The serving pods, one a worker and each ready.
    pub(crate) async fn pods(&self) -> anyhow::Result<Vec<ServingPod>> {
        let pods = self
            .cluster
            .serving_pods(self.namespace.name(), "site")
            .await?;
        anyhow::ensure!(
            pods.len() == self.cluster.workers().len(),
            "a pod a worker, not {pods:?}"
        );
        anyhow::ensure!(
            pods.iter().all(|pod| pod.ready),
            "each pod ready, not {pods:?}"
        );
        Ok(pods)
    }

    /// Deletes resource and namespace, and waits until both are gone.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        Ok(self.namespace.remove().await?)
    }

    /// What the agents say of the owner, for messages only.
    pub(crate) async fn node_tunings(&self) -> anyhow::Result<Vec<NodeTuning>> {
        let list = self.cluster.api_of_cluster::<NodeTuning>();
        Ok(list.list(&kube::api::ListParams::default()).await?.items)
    }
}

/// Message of a condition of a resource.
pub(crate) fn message(server: &TunedWebServer, kind: ConditionType) -> String {
    let conditions = server.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.filter(|found| found.type_ == kind.as_str());
    found.map(|found| found.message.clone()).collect()
}

/// Names of pods and server processes: equal as long as nothing was restarted.
pub(crate) fn identities(pods: &[ServingPod]) -> Vec<(String, String)> {
    pods.iter()
        .map(|pod| (pod.name.clone(), pod.container_id.clone()))
        .collect()
}

/// UID of the resource.
pub(crate) fn uid(server: &TunedWebServer) -> String {
    server.uid().unwrap_or_default()
}
