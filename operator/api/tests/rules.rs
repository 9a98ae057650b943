//! What the API server accepts and refuses by the rules of the schemas, and in which words.

use kube::core::cel::{Validator, validate_cel, validate_cel_update};
use serde_json::{Value, json};
use tunedweb_api::{BenchmarkRun, TunedWebServer, custom_resource_definitions};

fn server(name: &str, changes: &Value) -> TunedWebServer {
    let mut spec = json!({"content": {"configMap": {"name": "html"}}});
    for (name, value) in changes.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a server")
}

fn run(name: &str, connections: u32) -> BenchmarkRun {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"target": {"tunedWebServer": "site"}, "load": {"connections": connections}},
    }))
    .expect("a run")
}

fn said(refused: Result<(), kube::core::cel::ValidationErrors>) -> String {
    let errors = refused.expect_err("refused").into_vec();
    errors
        .iter()
        .map(|error| error.message.clone())
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
fn a_name_that_children_cannot_carry_is_refused() {
    let longest = "a".repeat(40);
    for name in ["site", "a", "a-1", longest.as_str()] {
        assert!(validate_cel(&server(name, &json!({}))).is_ok(), "{name}");
    }
    let too_long = "a".repeat(41);
    for name in ["1site", "a.b", "a-", too_long.as_str()] {
        let said = said(validate_cel(&server(name, &json!({}))));
        assert!(said.contains(name) && said.contains("1 to 40"), "{said}");
    }
}

#[test]
fn a_refusal_names_field_value_and_what_is_permitted() {
    for (changes, parts) in [
        (
            json!({"network": {"containerPort": 80}}),
            vec!["spec.network.containerPort", "80", "1024 to 65535"],
        ),
        (
            json!({"network": {"containerPort": 9180}}),
            vec!["network.containerPort", "9180"],
        ),
        (
            json!({"tuning": {"sysctls": [{"name": "net.core.somaxconn", "value": "3240000"}]}}),
            vec!["net.core.somaxconn", "3240000", "128 to 65535"],
        ),
        (
            json!({"tuning": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "0"}]}}),
            vec!["net.ipv4.tcp_syncookies", "\"0\"", "1 or 2"],
        ),
        (
            json!({"tuning": {"sysctls": [{"name": "net.ipv4.tcp_tw_recycle", "value": "1"}]}}),
            vec!["net.ipv4.tcp_tw_recycle", "4.12"],
        ),
    ] {
        let said = said(validate_cel(&server("site", &changes)));
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_run_cannot_be_changed_after_it_was_made() {
    let before = run("r", 10);
    assert!(validate_cel_update(&before, &before).is_ok());
    let said = said(validate_cel_update(&run("r", 11), &before));
    assert!(said.contains("create another BenchmarkRun"), "{said}");
}

#[test]
fn a_run_s_name_fits_into_a_label() {
    assert!(validate_cel(&run(&"a".repeat(63), 1)).is_ok());
    assert!(validate_cel(&run(&"a".repeat(64), 1)).is_err());
}

/// Defaults are written by the API server before the rules are looked at.
#[test]
fn what_is_left_out_passes_the_rules_by_its_default() {
    let definition = &custom_resource_definitions()[0];
    let schema = definition.spec.versions[0]
        .schema
        .as_ref()
        .expect("a schema");
    let schema = serde_json::to_value(&schema.open_api_v3_schema).expect("JSON");
    let shortest = json!({
        "apiVersion": "tunedweb.io/v1alpha1",
        "kind": "TunedWebServer",
        "metadata": {"name": "site"},
        "spec": {"content": {"configMap": {"name": "html"}}},
    });
    let validated = Validator::new().validate(&schema, &shortest, None);
    assert!(validated.is_ok(), "{validated:?}");
}

/// The API server refuses definitions whose rules could cost too much: everything is bounded.
#[test]
fn every_text_list_and_map_is_bounded() {
    for definition in custom_resource_definitions() {
        let name = definition.metadata.name.clone().expect("a name");
        let schema = definition.spec.versions[0]
            .schema
            .clone()
            .expect("a schema");
        let schema = serde_json::to_value(schema.open_api_v3_schema).expect("JSON");
        let mut unbounded = Vec::new();
        find_unbounded(&schema, &name, &mut unbounded);
        assert_eq!(unbounded, Vec::<String>::new());
    }
}

fn find_unbounded(schema: &Value, path: &str, unbounded: &mut Vec<String>) {
    // conditions and times are of Kubernetes
    if path.ends_with(".conditions") || schema["format"] == "date-time" {
        return;
    }
    let has = |field: &str| !schema[field].is_null();
    let is_bounded = match schema["type"].as_str() {
        Some("string") => has("enum") || has("maxLength"),
        Some("array") => has("maxItems"),
        Some("object") if has("additionalProperties") => has("maxProperties"),
        _ => true,
    };
    if !is_bounded {
        unbounded.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        find_unbounded(field, &format!("{path}.{name}"), unbounded);
    }
    for inner in ["items", "additionalProperties"] {
        if has(inner) {
            find_unbounded(&schema[inner], &format!("{path}.{inner}"), unbounded);
        }
    }
}
