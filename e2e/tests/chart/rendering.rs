//! Runs Helm and finds things in what it renders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_json::Value;

/// What was rendered, hooks included.
pub(crate) struct Objects(pub(crate) Vec<Value>);

impl Objects {
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    pub(crate) fn named<'a>(&'a self, kind: &'a str, name: &str) -> &'a Value {
        let mut found = self
            .of_kind(kind)
            .filter(|object| object["metadata"]["name"] == name);
        let found = found.next();
        assert!(found.is_some(), "no {kind} {name} is rendered");
        found.expect("asserted")
    }

    /// The pod spec of a workload.
    pub(crate) fn pod<'a>(&'a self, kind: &'a str, name: &str) -> &'a Value {
        &self.named(kind, name)["spec"]["template"]["spec"]
    }

    /// The pod specs of all workloads.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        let workloads = self
            .0
            .iter()
            .filter(|object| object["spec"]["template"].is_object());
        workloads.map(|object| &object["spec"]["template"]["spec"])
    }
}

/// Every container with its name.
pub(crate) fn containers(objects: &Objects) -> Vec<(&str, &Value)> {
    let mut containers = Vec::new();
    for pod in objects.pods() {
        assert!(
            pod["initContainers"].is_null(),
            "none so far; look at them too"
        );
        for container in pod["containers"].as_array().expect("containers") {
            containers.push((container["name"].as_str().expect("a name"), container));
        }
    }
    assert_eq!(containers.len(), 3, "operator, agent and drain");
    containers
}

/// The chart with these arguments besides; none without Helm.
pub(crate) fn render(arguments: &[&str]) -> Option<Objects> {
    let output = run_helm(arguments)?;
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "helm template {arguments:?}: {problem}"
    );
    let text = String::from_utf8(output.stdout).expect("helm writes UTF-8");
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let objects = documents.map(|document| Value::deserialize(document).expect("YAML"));
    Some(Objects(
        objects.filter(|object| !object.is_null()).collect(),
    ))
}

/// `helm template` under the oldest Kubernetes supported, unless an argument says otherwise.
pub(crate) fn run_helm(arguments: &[&str]) -> Option<Output> {
    if !has_helm() {
        return None;
    }
    let output = Command::new("helm")
        .args(["template", "tunedweb"])
        .arg(repository().join("charts/tunedweb"))
        .args(["--namespace=tunedweb-system", "--kube-version=1.33.0"])
        .args(arguments)
        .output();
    Some(output.expect("helm starts"))
}

pub(crate) fn has_helm() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("helm").is_file())
}

pub(crate) fn read_yaml(path: &str) -> Value {
    let text = std::fs::read_to_string(repository().join(path)).expect(path);
    serde_yaml_ng::from_str(&text).expect(path)
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
