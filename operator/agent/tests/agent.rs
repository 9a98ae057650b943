//! The program itself, between an API server on loopback and a tree of files in place of the
//! kernel's.

#[path = "agent/api_server.rs"]
mod api_server;
#[path = "agent/node.rs"]
mod node;

use serde_json::{Value, json};

use api_server::ApiServer;
use node::Node;

fn spec(generation: i64, owners: &Value) -> Value {
    json!({
        "apiVersion": "tunedweb.io/v1alpha1",
        "kind": "NodeTuning",
        "metadata": {"name": "n1", "uid": "nt", "generation": generation},
        "spec": {"owners": owners},
    })
}

fn owner(state: &str, sysctls: &[(&str, &str)]) -> Value {
    let sysctls: Vec<Value> = sysctls
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!([{"uid": "u1", "resource": "web/site", "generation": 3, "state": state, "sysctls": sysctls}])
}

/// Answers the status once its observed generation is this one.
fn status_of(api: &ApiServer, generation: i64) -> Value {
    api.wait_for_status(|status| status["observedGeneration"] == generation)
}

fn applied(status: &Value) -> &Value {
    &status["conditions"][0]
}

#[test]
fn wishes_are_carried_out_acknowledged_and_reported_key_by_key() {
    let api = ApiServer::start();
    let wishes = [
        ("vm.max_map_count", "262144"),
        ("net.core.rmem_max", "16777216"),
    ];
    api.put(spec(5, &owner("Active", &wishes)));
    let node = Node::start(&api);
    let status = status_of(&api, 5);

    assert_eq!(node.read("vm/max_map_count"), "262144");
    assert_eq!(node.read("net/core/rmem_max"), "16777216");
    let acknowledged = &status["owners"][0];
    assert_eq!(acknowledged["uid"], "u1");
    assert_eq!(acknowledged["generation"], 3);
    assert_eq!(acknowledged["state"], "Applied");
    assert_eq!(applied(&status)["status"], "True");
    assert_eq!(applied(&status)["observedGeneration"], 5);
    let key = status["keys"].as_array().and_then(|keys| {
        keys.iter()
            .find(|key| key["name"] == "vm.max_map_count")
            .cloned()
    });
    let key = key.expect("the key is reported");
    assert_eq!(key["baseline"], "65530");
    assert_eq!(key["found"], "262144");
    assert_eq!(status["bootID"].as_str().map(str::len), Some(36));
    assert!(status["facts"]["memoryBytes"].as_u64() > Some(0));
}

#[test]
fn in_steady_state_nothing_is_written_to_the_api_server() {
    let api = ApiServer::start();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let node = Node::start(&api);
    status_of(&api, 1);
    node.wait_for_metric("tunedweb_agent_syncs_total{outcome=\"done\"}", 3);
    assert_eq!(api.status_writes(), 1);
}

#[test]
fn a_key_that_others_change_is_written_again() {
    let api = ApiServer::start();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let node = Node::start(&api);
    status_of(&api, 1);
    node.write("vm/max_map_count", "1000");
    node.wait_for_metric("tunedweb_agent_keys_rewritten_total", 1);
    assert_eq!(node.read("vm/max_map_count"), "262144");
}

#[test]
fn a_released_owner_is_put_back_and_acknowledged() {
    let api = ApiServer::start();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let node = Node::start(&api);
    status_of(&api, 1);
    api.put(spec(2, &owner("Released", &[])));
    let status = status_of(&api, 2);
    assert_eq!(node.read("vm/max_map_count"), "65530");
    assert_eq!(status["owners"][0]["state"], "Released");
    assert_eq!(status["keys"], json!([]));
    api.put(spec(3, &json!([])));
    let status = status_of(&api, 3);
    assert_eq!(status["owners"], json!([]));
    assert_eq!(applied(&status)["reason"], "NotRequested");
}

#[test]
fn a_value_that_others_changed_is_left_and_the_acknowledgement_says_so() {
    let api = ApiServer::start();
    let mut node = Node::prepare();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    node.run(&api);
    status_of(&api, 1);
    node.stop();
    node.write("vm/max_map_count", "300000");
    api.put(spec(2, &owner("Released", &[])));
    node.run(&api);
    let status = status_of(&api, 2);
    assert_eq!(node.read("vm/max_map_count"), "300000");
    assert_eq!(status["owners"][0]["state"], "Released");
    let message = status["owners"][0]["message"].as_str().expect("a message");
    assert!(message.contains("vm.max_map_count"), "{message}");
}

#[test]
fn a_key_that_the_node_lacks_fails_its_owner_whole_and_names_the_key() {
    let api = ApiServer::start();
    let wishes = [
        ("vm.max_map_count", "262144"),
        ("net.core.wmem_max", "16777216"),
    ];
    api.put(spec(1, &owner("Active", &wishes)));
    let node = Node::start(&api);
    let status = status_of(&api, 1);
    assert_eq!(node.read("vm/max_map_count"), "65530");
    assert_eq!(applied(&status)["status"], "False");
    assert_eq!(applied(&status)["reason"], "TuningFailed");
    for text in [
        &applied(&status)["message"],
        &status["owners"][0]["message"],
    ] {
        let text = text.as_str().expect("a message");
        assert!(text.contains("net.core.wmem_max"), "{text}");
    }
    assert_eq!(status["owners"][0]["state"], "Failed");
}

#[test]
fn ending_the_agent_leaves_the_node_as_it_is() {
    let api = ApiServer::start();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let mut node = Node::start(&api);
    status_of(&api, 1);
    let ended = node.stop();
    assert_eq!(ended.code(), Some(0));
    assert_eq!(node.read("vm/max_map_count"), "262144");
    assert_eq!(api.status_writes(), 1);
}

#[test]
fn an_object_that_it_cannot_read_is_reported_on_it_and_the_next_one_is_followed() {
    let api = ApiServer::start();
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let node = Node::start(&api);
    status_of(&api, 1);
    api.put(spec(2, &owner("Hibernating", &[])));
    let status = api.wait_for_status(|status| applied(status)["reason"] == "Undecodable");
    let message = applied(&status)["message"].as_str().expect("a message");
    assert!(message.contains("Hibernating"), "{message}");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["owners"][0]["state"], "Applied");
    assert_eq!(node.read("vm/max_map_count"), "262144");
    api.put(spec(3, &owner("Released", &[])));
    status_of(&api, 3);
    assert_eq!(node.read("vm/max_map_count"), "65530");
}

#[test]
fn a_node_without_its_object_is_ready_and_waits() {
    let api = ApiServer::start();
    let node = Node::start(&api);
    node.wait_until_ready();
    assert_eq!(api.status_writes(), 0);
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    status_of(&api, 1);
    assert_eq!(node.read("vm/max_map_count"), "262144");
}

#[test]
fn a_status_that_is_refused_is_offered_again() {
    let api = ApiServer::start();
    api.refuse_status_writes(2);
    api.put(spec(1, &owner("Active", &[("vm.max_map_count", "262144")])));
    let _node = Node::start(&api);
    let status = status_of(&api, 1);
    assert_eq!(status["owners"][0]["state"], "Applied");
}

#[test]
fn a_command_line_without_the_nodes_name_is_a_usage_error() {
    let output = std::process::Command::new(node::PROGRAM)
        .env_remove("TUNEDWEB_AGENT_NODE")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_admin_port_that_is_taken_ends_it_with_the_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = std::process::Command::new(node::PROGRAM)
        .args(["--node=n1", "--admin", &address])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}
