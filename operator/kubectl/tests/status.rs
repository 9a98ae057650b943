//! `status` over objects as a cluster holds them: each folder has the objects and what is printed.
//! With `TUNEDWEB_BLESS=1` the printed files are rewritten.

use std::path::{Path, PathBuf};

use kubectl_tunedweb::status::{Observed, Summary};
use serde::Deserialize as _;
use serde_json::Value;

/// Reads `tests/status/NAME.yaml`.
fn observed(name: &str) -> Observed {
    let text = std::fs::read_to_string(fixture(name, "yaml")).expect("a fixture");
    let mut objects: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).expect("a YAML document"))
        .collect();
    let mut of_kind = |kind: &str| {
        let (these, others): (Vec<Value>, Vec<Value>) =
            objects.drain(..).partition(|object| object["kind"] == kind);
        objects = others;
        these
    };
    let mut servers = read(of_kind("TunedWebServer"));
    Observed {
        server: servers.pop().expect("one TunedWebServer"),
        tunings: read(of_kind("NodeTuning")),
        pods: read(of_kind("Pod")),
        problems: Vec::new(),
    }
}

fn read<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    let objects = objects.into_iter().map(serde_json::from_value);
    objects
        .collect::<Result<_, _>>()
        .expect("objects fit their kind")
}

fn fixture(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/status/{name}.{extension}"))
}

/// Compares with `tests/status/NAME.txt`.
fn assert_printed(name: &str, summary: &Summary) {
    let path = fixture(name, "txt");
    let printed = summary.to_string();
    if std::env::var_os("TUNEDWEB_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &printed).expect("a writable folder");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        printed == wanted,
        "{} differs; printed is:\n{printed}\nmend: TUNEDWEB_BLESS=1 cargo test -p kubectl-tunedweb",
        path.display()
    );
}

#[test]
fn a_site_in_order_shows_its_nodes_figures_and_what_deleting_puts_back() {
    let summary = Summary::of(&observed("ready"));
    assert!(summary.ready);
    assert_printed("ready", &summary);
}

#[test]
fn a_site_in_trouble_names_each_node_its_keys_and_why() {
    let summary = Summary::of(&observed("trouble"));
    assert!(!summary.ready);
    assert_printed("trouble", &summary);
}

#[test]
fn a_resource_that_nobody_looked_at_yet_is_not_ready_and_has_nothing_to_put_back() {
    let summary = Summary::of(&observed("new"));
    assert!(!summary.ready);
    assert!(summary.on_delete.is_empty());
    assert_printed("new", &summary);
}

#[test]
fn readiness_of_an_older_generation_is_not_readiness() {
    let mut observed = observed("ready");
    observed.server.metadata.generation = Some(4);
    let summary = Summary::of(&observed);
    assert!(!summary.ready);
    assert!(
        summary
            .conditions
            .iter()
            .all(|condition| condition.outdated)
    );
    assert!(
        summary
            .to_string()
            .contains("answers generation 3, the spec is at 4")
    );
}

#[test]
fn what_could_not_be_read_is_named() {
    let mut observed = observed("ready");
    observed.tunings.clear();
    observed
        .problems
        .push("NodeTunings could not be listed: forbidden".to_owned());
    let text = Summary::of(&observed).to_string();
    assert!(text.ends_with("Not shown: NodeTunings could not be listed: forbidden\n"));
}

#[test]
fn programs_get_the_words_of_the_api() {
    let json = serde_json::to_value(Summary::of(&observed("ready"))).expect("a value");
    assert_eq!(json["ready"], true);
    assert_eq!(json["nodes"][0]["keys"][0]["state"], "Applied");
    assert_eq!(
        json["benchmarks"][0]["result"]["requestsPerSecond"],
        121_034
    );
    assert_eq!(json["onDelete"][1]["afterwards"], "65530");
    assert_eq!(json["conditions"][0]["type"], "Ready");
}

#[test]
fn a_cluster_that_cannot_be_found_is_an_error_with_its_cause() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-tunedweb"))
        .args(["status", "site", "--kubeconfig", "/nowhere/kubeconfig"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/nowhere/kubeconfig"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_command_line_without_a_name_is_a_usage_error() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-tunedweb"))
        .arg("status")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
}
