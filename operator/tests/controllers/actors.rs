//! What a cluster does by itself: the DaemonSet controller, kubelets and agents.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tunedweb_tuning::Plan;

use super::api_server::ApiServer;
use super::cluster::{DAEMON_SETS, TUNINGS};
use super::store::{Key, Store};

/// What kubelets and agents do.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// Kubelets start pods.
    pub(crate) kubelets: bool,
    /// Agents answer.
    pub(crate) agents: bool,
    /// Nodes whose init container fails.
    pub(crate) failing: BTreeSet<String>,
}

/// Kubelets, the DaemonSet controller and agents, after each change.
pub(crate) async fn play(api: ApiServer, behaviour: Arc<Mutex<Behaviour>>) {
    let mut changes = api.changes();
    loop {
        changes.borrow_and_update();
        let current = behaviour.lock().unwrap().clone();
        api.edit_if_needed(|store| {
            if current.kubelets {
                for set in of(store, DAEMON_SETS) {
                    roll_out(store, &set, &current.failing);
                }
            }
            if current.agents {
                for tuning in of(store, TUNINGS) {
                    answer(store, &tuning);
                }
            }
        });
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn of(store: &Store, resource: &str) -> Vec<(Key, Value)> {
    let objects = store
        .objects
        .iter()
        .filter(|(key, _)| key.resource == resource);
    objects
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

/// A pod of the current template on each node, and no other.
fn roll_out(store: &mut Store, (key, set): &(Key, Value), failing: &BTreeSet<String>) {
    let template = &set["spec"]["template"];
    let hash = template["metadata"]["annotations"]["tunedweb.io/template-hash"]
        .as_str()
        .unwrap();
    let nodes: Vec<String> = of(store, "/nodes")
        .into_iter()
        .map(|(key, _)| key.name)
        .collect();
    for (number, node) in nodes.iter().enumerate() {
        let pod_key = Key::new(
            "/pods",
            &key.namespace,
            &format!("{}-{node}-{hash}", key.name),
        );
        if !store.objects.contains_key(&pod_key) {
            let pod = pod(store, set, key, node, number, failing.contains(node));
            store.put(&pod_key, pod);
        }
    }
    for (pod_key, pod) in of(store, "/pods") {
        let is_ours = pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
        let found = &pod["metadata"]["annotations"]["tunedweb.io/template-hash"];
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if is_ours && (found != hash || !nodes.iter().any(|name| name == node)) {
            store.remove(&pod_key);
        }
    }
}

fn pod(store: &Store, set: &Value, key: &Key, node: &str, number: usize, fails: bool) -> Value {
    let template = &set["spec"]["template"];
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["spec"]["nodeName"] = json!(node);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": key.name,
        "uid": set["metadata"]["uid"], "controller": true,
    }]);
    let number = u8::try_from(number).unwrap();
    pod["status"] = json!({
        "podIP": Ipv4Addr::new(10, 0, 0, number).to_string(),
        "conditions": [{"type": "Ready", "status": if fails { "False" } else { "True" }}],
    });
    let volumes = template["spec"]["volumes"].as_array().unwrap();
    if let Some(plan) = volumes.iter().find(|volume| volume["name"] == "plan") {
        let name = plan["configMap"]["name"].as_str().unwrap();
        let map = &store.objects[&Key::new("/configmaps", &key.namespace, name)];
        let text = map["data"]["plan.json"].as_str().unwrap();
        let failures = json!([{
            "name": "vm.max_map_count", "wanted": "1", "state": "Absent", "reason": "no such key",
        }]);
        let report = json!({
            "version": 1, "planHash": Plan::hash(text.as_bytes()), "generation": 1,
            "outcome": if fails { "Failed" } else { "Applied" }, "applied": 1, "unchanged": 0,
            "failures": if fails { failures } else { json!([]) }, "hardNofile": 20000,
        });
        pod["status"]["initContainerStatuses"] = json!([{
            "name": "tune", "image": "", "imageID": "", "ready": !fails, "restartCount": 0,
            "state": {"terminated": {
                "exitCode": i32::from(fails), "message": report.to_string(),
            }},
        }]);
    }
    pod
}

/// The agent of a node carries out what its NodeTuning says.
fn answer(store: &mut Store, (key, tuning): &(Key, Value)) {
    let owners = tuning["spec"]["owners"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let answers: Vec<Value> = owners
        .iter()
        .map(|owner| {
            let state = match owner["state"].as_str() {
                Some("Active") => "Applied",
                Some(other) => other,
                None => "Failed",
            };
            json!({"uid": owner["uid"], "generation": owner["generation"], "state": state})
        })
        .collect();
    store.change(key, |tuning| {
        tuning["status"]["owners"] = json!(answers);
        tuning["status"]["observedGeneration"] = tuning["metadata"]["generation"].clone();
    });
}
