use serde_json::{Value, json};

use super::*;
use crate::content::Content;
use crate::testing::{access, server};
use crate::tuned_web_server::resolve::{References, resolve};

fn rendered_for(spec: &Value, live: Option<&DaemonSet>) -> RenderedServer {
    let content = Content {
        version: "1".to_owned(),
        hash: "c".to_owned(),
        etags: Vec::new(),
    };
    let references = References {
        has_node_access: true,
        content: Some(&content),
        kubelet_minors: &[33],
        nodes: 1,
    };
    let server = server(spec);
    let resolved = resolve(&server, references, "server:1", &access()).unwrap();
    let generation = plan_generation(&resolved.tuning, resolved.generation, live);
    render(&server, &resolved, generation, "tuner:1").unwrap()
}

fn tuned() -> Value {
    json!({"tuning": {"sysctls": [
        {"name": "net.core.somaxconn", "value": "65535"},
        {"name": "net.ipv4.tcp_fin_timeout", "value": "15"},
        {"name": "vm.max_map_count", "value": "262144"},
    ]}})
}

fn pod_spec(rendered: &RenderedServer) -> Value {
    let daemon_set = serde_json::to_value(&rendered.daemon_set).unwrap();
    daemon_set["spec"]["template"]["spec"].clone()
}

#[test]
fn without_keys_off_the_safe_list_the_pod_fits_the_restricted_level() {
    let rendered = rendered_for(
        &json!({
            "network": {"containerPort": 80},
            "tuning": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]},
        }),
        None,
    );
    let pod = pod_spec(&rendered);
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(pod["securityContext"]["sysctls"][0]["value"], "80");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(container["readOnlyRootFilesystem"], true);
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(volume["configMap"].is_object(), "{volume}");
    }
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        assert_eq!(pod[field], Value::Null, "{field}");
    }
}

#[test]
fn no_pod_carries_a_token() {
    for spec in [json!({}), tuned()] {
        let pod = pod_spec(&rendered_for(&spec, None));
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["enableServiceLinks"], false);
    }
}

#[test]
fn the_init_container_alone_is_privileged_and_sees_the_journal_alone() {
    let rendered = rendered_for(&tuned(), None);
    let pod = pod_spec(&rendered);
    let tune = &pod["initContainers"][0];
    assert_eq!(tune["securityContext"]["privileged"], true);
    assert_eq!(
        pod["containers"][0]["securityContext"]["privileged"],
        Value::Null
    );
    let host_paths: Vec<&Value> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|volume| volume["hostPath"].is_object())
        .collect();
    assert_eq!(host_paths.len(), 1);
    assert_eq!(host_paths[0]["hostPath"]["path"], "/var/lib/tunedweb");
    let mounts = pod["containers"][0]["volumeMounts"].to_string();
    assert!(!mounts.contains("journal"), "{mounts}");
}

#[test]
fn the_plan_is_one_that_the_tuner_reads() {
    let plan = rendered_for(&tuned(), None).plan.unwrap();
    let text = &plan.config_map.data.unwrap()[PLAN_FILE];
    let checked = Plan::parse(text.as_bytes()).unwrap();
    assert_eq!(checked.hash, plan.hash);
    assert_eq!(checked.owner.resource, "web/site");
    assert_eq!(checked.owner.generation, 3);
    let names: Vec<&str> = checked
        .tuning
        .sysctls()
        .iter()
        .map(|s| s.key.name)
        .collect();
    assert_eq!(names, ["net.core.somaxconn", "vm.max_map_count"]);
}

#[test]
fn editing_a_benchmark_or_the_service_leaves_the_pod_template_byte_identical() {
    let first = rendered_for(&tuned(), None);
    let mut edited = tuned();
    edited["benchmarks"] = json!([{"name": "a", "trigger": "OnChange"}]);
    edited["network"] = json!({"service": {"type": "NodePort", "port": 8080}});
    let mut live = first.daemon_set.clone();
    let annotations = live.metadata.annotations.as_mut().unwrap();
    annotations.insert(PLAN_GENERATION_ANNOTATION.to_owned(), "1".to_owned());
    let second = rendered_for(&edited, Some(&live));
    let third = rendered_for(&tuned(), Some(&live));
    let template = |rendered: &RenderedServer| {
        serde_json::to_string(&rendered.daemon_set.spec.as_ref().unwrap().template).unwrap()
    };
    assert_eq!(template(&second), template(&third));
    assert_ne!(second.service, third.service);
    assert_ne!(
        second.template_hash, first.template_hash,
        "the plan carries generation 1"
    );
}

#[test]
fn another_wish_carries_the_generation_at_which_it_was_made() {
    let mut live = rendered_for(&tuned(), None).daemon_set;
    let annotations = live.metadata.annotations.as_mut().unwrap();
    annotations.insert(PLAN_GENERATION_ANNOTATION.to_owned(), "1".to_owned());
    let mut edited = tuned();
    edited["tuning"]["sysctls"][2]["value"] = json!("300000");
    let second = rendered_for(&edited, Some(&live));
    let annotations = second.daemon_set.metadata.annotations.unwrap();
    assert_eq!(annotations[PLAN_GENERATION_ANNOTATION], "3");
}

#[test]
fn a_rolling_update_surges_and_never_takes_a_serving_pod_first() {
    for (setting, surge) in [("10%", json!("10%")), ("3", json!(3))] {
        let rendered = rendered_for(&json!({"rollout": {"maxUnavailable": setting}}), None);
        let daemon_set = serde_json::to_value(&rendered.daemon_set).unwrap();
        let strategy = &daemon_set["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(strategy, &json!({"maxSurge": surge, "maxUnavailable": 0}));
    }
}

#[test]
fn the_drain_fits_into_the_grace_period() {
    let rendered = rendered_for(&json!({"server": {"timeouts": {"drainSeconds": 90}}}), None);
    assert_eq!(pod_spec(&rendered)["terminationGracePeriodSeconds"], 95);
}

#[test]
fn a_policy_for_outside_traffic_is_only_sent_where_there_is_such_traffic() {
    let policy = |kind: &str| {
        let service = json!({"type": kind, "externalTrafficPolicy": "Local"});
        let rendered = rendered_for(&json!({"network": {"service": service}}), None);
        rendered.service.spec.unwrap().external_traffic_policy
    };
    assert_eq!(policy("ClusterIP"), None);
    assert_eq!(policy("NodePort").as_deref(), Some("Local"));
}

#[test]
fn the_longest_name_leaves_room_for_every_child() {
    let mut server = server(&tuned());
    server.metadata.name = Some("a".repeat(40));
    let content = Content {
        version: "1".to_owned(),
        hash: "c".to_owned(),
        etags: Vec::new(),
    };
    let references = References {
        has_node_access: true,
        content: Some(&content),
        kubelet_minors: &[],
        nodes: 1,
    };
    let resolved = resolve(&server, references, "server:1", &access()).unwrap();
    let rendered = render(&server, &resolved, 1, "tuner:1").unwrap();
    for name in [
        rendered.settings.metadata.name,
        rendered.plan.unwrap().config_map.metadata.name,
    ] {
        assert!(name.unwrap().len() <= 63);
    }
}
