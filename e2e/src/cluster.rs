//! The cluster that the environment names (`KUBECONFIG`).

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use tunedweb_api::names::{SERVER_CONTAINER, SERVER_LABEL};

use crate::probe::{Node, ProbeError, Process};

/// Why the cluster does not answer as asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No Kubernetes configuration was found, or it cannot be used.
    #[error("read the cluster's address and credentials; e2e/test --up makes a cluster")]
    Configure {
        /// Why.
        source: kube::Error,
    },
    /// The API server refused or did not answer.
    #[error("list {what}")]
    List {
        /// What was asked for.
        what: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// A pod runs on a node that was not there when the nodes were listed.
    #[error("find node {node} of pod {pod}")]
    FindNode {
        /// The node.
        node: String,
        /// The pod.
        pod: String,
    },
}

/// A cluster of kind nodes.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    nodes: Vec<Node>,
    workers: Vec<Node>,
}

impl Cluster {
    /// The cluster that `KUBECONFIG` names, with its nodes in the order of their names.
    pub async fn connect() -> Result<Self, ClusterError> {
        let client = Client::try_default()
            .await
            .map_err(|source| ClusterError::Configure { source })?;
        let objects = Api::<NodeObject>::all(client.clone())
            .list(&ListParams::default())
            .await
            .map_err(|source| ClusterError::List {
                what: "the nodes",
                source,
            })?;
        let nodes = objects.iter().map(probe_of).collect();
        let workers = objects
            .iter()
            .filter(|node| takes_pods(node))
            .map(probe_of)
            .collect();
        Ok(Self {
            client,
            nodes,
            workers,
        })
    }

    /// The client that the cluster was asked with.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of one kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// The objects of one kind that belong to no namespace.
    pub fn api_of_cluster<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client())
    }

    /// Every node, the control plane included.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes that take pods without a toleration.
    pub fn workers(&self) -> &[Node] {
        &self.workers
    }

    /// The pods that serve one `TunedWebServer`, in the order of their nodes; those that are on
    /// their way out are left out.
    pub async fn serving_pods(
        &self,
        namespace: &str,
        server: &str,
    ) -> Result<Vec<ServingPod>, ClusterError> {
        let selector = ListParams::default().labels(&format!("{SERVER_LABEL}={server}"));
        let pods = self
            .api::<Pod>(namespace)
            .list(&selector)
            .await
            .map_err(|source| ClusterError::List {
                what: "the serving pods",
                source,
            })?;
        let mut serving = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| self.serving_pod(pod).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        serving.sort_by(|a, b| a.node.name.cmp(&b.node.name));
        Ok(serving)
    }

    /// None: a pod of the resource whose server does not run (yet), or a load pod.
    fn serving_pod(&self, pod: &Pod) -> Result<Option<ServingPod>, ClusterError> {
        let Some(found) = running_server(pod) else {
            return Ok(None);
        };
        let node = self
            .nodes
            .iter()
            .find(|node| node.name == found.node)
            .ok_or_else(|| ClusterError::FindNode {
                node: found.node.to_owned(),
                pod: pod.name_any(),
            })?;
        Ok(Some(ServingPod {
            name: pod.name_any(),
            node: node.clone(),
            address: found.address.to_owned(),
            container_id: found.container_id.to_owned(),
            restarts: found.restarts,
            ready: found.ready,
        }))
    }
}

/// A pod whose server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingPod {
    /// Its name, which changes when the pod is replaced.
    pub name: String,
    /// Where it runs.
    pub node: Node,
    /// Its address, reached from every node.
    pub address: String,
    /// The server's container, which changes when the server is restarted.
    pub container_id: String,
    /// How often the server was restarted.
    pub restarts: i32,
    /// Whether the server's readiness probe passes.
    pub ready: bool,
}

impl ServingPod {
    /// The server's process.
    pub async fn process(&self) -> Result<Process, ProbeError> {
        self.node.process(&self.container_id).await
    }
}

fn probe_of(node: &NodeObject) -> Node {
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let address = addresses
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.clone())
        .next();
    Node {
        name: node.name_any(),
        address: address.unwrap_or_default(),
    }
}

fn takes_pods(node: &NodeObject) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    !taints
        .into_iter()
        .any(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()))
}

struct RunningServer<'a> {
    node: &'a str,
    address: &'a str,
    container_id: &'a str,
    restarts: i32,
    ready: bool,
}

fn running_server(pod: &Pod) -> Option<RunningServer<'_>> {
    let status = pod.status.as_ref()?;
    let server = status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == SERVER_CONTAINER)?;
    server.state.as_ref()?.running.as_ref()?;
    Some(RunningServer {
        node: pod.spec.as_ref()?.node_name.as_deref()?,
        address: status.pod_ip.as_deref()?,
        container_id: server.container_id.as_deref()?,
        restarts: server.restart_count,
        ready: server.ready,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &serde_json::Value) -> NodeObject {
        serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {"taints": taints},
            "status": {"addresses": [
                {"type": "Hostname", "address": "worker"},
                {"type": "InternalIP", "address": "172.18.0.3"},
            ]},
        }))
        .unwrap()
    }

    fn pod(state: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "site-x"},
            "spec": {"nodeName": "worker", "containers": []},
            "status": {
                "podIP": "10.244.1.2",
                "containerStatuses": [{
                    "name": "server", "containerID": "containerd://abc", "restartCount": 2,
                    "ready": true, "image": "", "imageID": "", "state": state,
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_known_by_its_name_and_internal_address() {
        let known = probe_of(&node(&json!([])));
        assert_eq!(
            known,
            Node {
                name: "worker".into(),
                address: "172.18.0.3".into()
            }
        );
    }

    #[test]
    fn a_tainted_node_is_no_worker_unless_the_taint_only_prefers() {
        assert!(takes_pods(&node(&json!([]))));
        assert!(takes_pods(&node(
            &json!([{"key": "a", "effect": "PreferNoSchedule"}])
        )));
        assert!(!takes_pods(&node(
            &json!([{"key": "a", "effect": "NoSchedule"}])
        )));
    }

    #[test]
    fn a_pod_serves_once_its_server_runs() {
        let running = pod(&json!({"running": {}}));
        let found = running_server(&running).unwrap();
        assert_eq!((found.node, found.address), ("worker", "10.244.1.2"));
        assert_eq!(
            (found.container_id, found.restarts),
            ("containerd://abc", 2)
        );
        assert!(running_server(&pod(&json!({"waiting": {}}))).is_none());
    }
}
