//! The walls between the packages, as `docs/architecture.md` draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// What must not be in a package, however it would get there. A name that ends with `*` stands for
/// all that begin so.
const ABSENT: [(&str, &[&str]); 10] = [
    ("tunedweb-config", PURE),
    ("tunedweb-tuning", PURE),
    ("tunedweb-measure", PURE),
    (
        "tunedweb-api",
        &["kube-client", "kube-runtime", "tokio", "hyper"],
    ),
    (
        "tunedweb-operator",
        &[
            "tunedweb-server",
            "tunedweb-tuner",
            "tunedweb-loadgen",
            "tunedweb-agent",
        ],
    ),
    (
        "tunedweb-agent",
        &["tunedweb-operator", "tunedweb-server", "tunedweb-loadgen"],
    ),
    (
        "kubectl-tunedweb",
        &[
            "tunedweb-operator",
            "tunedweb-server",
            "tunedweb-tuner",
            "tunedweb-loadgen",
            "tunedweb-agent",
        ],
    ),
    (
        "tunedweb-server",
        &[
            "kube*",
            "k8s-openapi",
            "tunedweb-api",
            "tunedweb-tuner",
            "tunedweb-measure",
        ],
    ),
    (
        "tunedweb-tuner",
        &["kube*", "k8s-openapi", "tunedweb-api", "tokio"],
    ),
    (
        "tunedweb-loadgen",
        &["kube*", "k8s-openapi", "tunedweb-api", "tunedweb-server"],
    ),
];

/// No I/O, no runtime, no Kubernetes.
const PURE: &[&str] = &["tokio", "hyper", "rustix", "kube*", "k8s-openapi"];

#[test]
fn no_package_contains_what_is_absent_on_purpose() {
    let mut found = Vec::new();
    for (package, absent) in ABSENT {
        let tree = crates_of(package);
        for name in absent.iter().flat_map(|pattern| matching(&tree, pattern)) {
            found.push(format!(
                "{package} contains {name}; see: cargo tree -p {package} -e normal -i {name}"
            ));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_package_depends_on_those_of_ours_that_the_architecture_allows_it() {
    let allowed = allowed_by_architecture();
    let mut problems = Vec::new();
    for (name, manifest) in manifests() {
        let Some(allowed) = allowed.get(&name) else {
            problems.push(format!("{name}: not in the table of docs/architecture.md"));
            continue;
        };
        let ours = names_of(&manifest, "dependencies").filter(|name| is_ours(name));
        for dependency in ours.filter(|name| !allowed.contains("all") && !allowed.contains(name)) {
            problems.push(format!("{name} depends on {dependency}"));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_package_shares_lints_versions_and_metadata_with_the_workspace() {
    let mut problems = Vec::new();
    for (name, manifest) in manifests() {
        if !is_inherited(manifest.get("lints")) {
            problems.push(format!("{name}: [lints] workspace = true is missing"));
        }
        for field in ["version", "edition", "rust-version", "license", "publish"] {
            if !is_inherited(manifest["package"].get(field)) {
                problems.push(format!(
                    "{name}: package.{field}.workspace = true is missing"
                ));
            }
        }
        let description = manifest["package"]
            .get("description")
            .and_then(Value::as_str);
        if description.is_none_or(str::is_empty) {
            problems.push(format!("{name}: package.description is missing"));
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = manifest.get(section).and_then(Value::as_table);
            for (dependency, source) in dependencies.into_iter().flatten() {
                if !is_inherited(Some(source)) {
                    problems.push(format!(
                        "{name}: {section}.{dependency}.workspace = true is missing"
                    ));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_package_has_its_walls() {
    let walled: BTreeSet<&str> = ABSENT.iter().map(|(package, _)| *package).collect();
    let packages = manifests();
    // the harness of the tests may use everything
    let open: Vec<&String> = packages
        .keys()
        .filter(|name| !walled.contains(name.as_str()))
        .collect();
    assert_eq!(open, ["tunedweb-e2e"]);
}

fn crates_of(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "tree",
            "--locked",
            "--offline",
            "-e",
            "normal",
            "--prefix",
            "none",
            "-p",
            package,
        ])
        .output()
        .expect("cargo runs");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo tree -p {package}: {problem}"
    );
    let tree = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    tree.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

fn matching<'a>(tree: &'a BTreeSet<String>, pattern: &str) -> Vec<&'a String> {
    let matches = |name: &&String| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *name == pattern,
    };
    tree.iter().filter(matches).collect()
}

/// The last column of the table in `docs/architecture.md`, by package.
fn allowed_by_architecture() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).expect("the document");
    let mut allowed = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [package, _folder, _is, ours] = cells[..] else {
            continue;
        };
        let package = package.trim_matches('`');
        if is_ours(package) {
            let names = ours.split(", ").map(|name| match name {
                "all" => name.to_owned(),
                name => format!("tunedweb-{name}"),
            });
            allowed.insert(package.to_owned(), names.collect());
        }
    }
    allowed
}

fn manifests() -> BTreeMap<String, Table> {
    let workspace = read_toml(&root().join("Cargo.toml"));
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("a list of members");
    members
        .iter()
        .map(|member| {
            let folder = member.as_str().expect("a folder");
            let manifest = read_toml(&root().join(folder).join("Cargo.toml"));
            let name = manifest["package"]["name"]
                .as_str()
                .expect("a name")
                .to_owned();
            (name, manifest)
        })
        .collect()
}

fn read_toml(path: &Path) -> Table {
    let text = std::fs::read_to_string(path).expect("a manifest");
    text.parse().expect("a manifest is TOML")
}

fn names_of(manifest: &Table, section: &str) -> impl Iterator<Item = String> {
    let table = manifest
        .get(section)
        .and_then(Value::as_table)
        .cloned()
        .unwrap_or_default();
    table.into_iter().map(|(name, _)| name)
}

fn is_inherited(value: Option<&Value>) -> bool {
    value
        .and_then(|value| value.get("workspace"))
        .and_then(Value::as_bool)
        == Some(true)
}

fn is_ours(package: &str) -> bool {
    package.starts_with("tunedweb-") || package == "kubectl-tunedweb"
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
