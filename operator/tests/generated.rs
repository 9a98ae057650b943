//! Files that are generated from the code: compared here, rewritten when asked.

use std::fs;
use std::path::{Path, PathBuf};

use tunedweb_operator::rbac::{Holder, rules_yaml};

#[path = "support/reference.rs"]
mod reference;

/// Set to 1, the test rewrites the files instead of comparing them.
const BLESS: &str = "TUNEDWEB_BLESS";

#[test]
fn every_generated_file_is_as_the_code_says() {
    let mut stale = Vec::new();
    for (path, text) in files() {
        let path = repository().join(path);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("make folder");
            fs::write(&path, text).expect("write file");
        } else {
            stale.push(path.display().to_string());
        }
    }
    assert!(
        stale.is_empty(),
        "stale: {stale:#?}\nmend: e2e/generate, or without Helm {BLESS}=1 cargo test -p \
         tunedweb-operator --test generated"
    );
}

#[test]
fn no_definition_is_left_over_in_a_generated_folder() {
    let known: Vec<PathBuf> = files()
        .into_iter()
        .map(|(path, _)| repository().join(path))
        .collect();
    for folder in ["crds", "charts/tunedweb/files/crds"] {
        for entry in fs::read_dir(repository().join(folder)).expect("read folder") {
            let path = entry.expect("read entry").path();
            assert!(
                known.contains(&path),
                "{} is generated from nothing",
                path.display()
            );
        }
    }
}

fn files() -> Vec<(String, String)> {
    let mut files = vec![
        (
            "charts/tunedweb/files/rbac-operator.yaml".to_owned(),
            rules_yaml(Holder::Operator),
        ),
        (
            "charts/tunedweb/files/rbac-operator-namespace.yaml".to_owned(),
            rules_yaml(Holder::OperatorNamespace),
        ),
        (
            "charts/tunedweb/files/rbac-drain.yaml".to_owned(),
            rules_yaml(Holder::Drain),
        ),
        (
            "charts/tunedweb/files/rbac-drain-namespace.yaml".to_owned(),
            rules_yaml(Holder::DrainNamespace),
        ),
        (
            "charts/tunedweb/files/rbac-agent.yaml".to_owned(),
            rules_yaml(Holder::Agent),
        ),
        ("docs/api.md".to_owned(), reference::markdown()),
    ];
    for definition in tunedweb_api::custom_resource_definitions() {
        let yaml = serde_yaml_ng::to_string(&definition).expect("a definition is YAML");
        let text = format!("# Generated from operator/api/src. Do not edit.\n{yaml}");
        let name = &definition.spec.names.plural;
        files.push((format!("crds/{name}.yaml"), text.clone()));
        files.push((format!("charts/tunedweb/files/crds/{name}.yaml"), text));
    }
    files
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
