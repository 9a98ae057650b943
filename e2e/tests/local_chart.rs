//! The chart as Helm renders it. Where there is no Helm, each test that needs it is a named skip.

#[path = "chart/rendering.rs"]
mod rendering;

use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser as _};
use serde_json::{Value, json};

use rendering::{Objects, containers, read_yaml, render, repository, run_helm};

/// Renders or leaves the test, with the reason.
macro_rules! rendered {
    ($($argument:expr),*) => {
        match render(&[$($argument),*]) {
            Some(objects) => objects,
            None => return println!("SKIP {}: helm is not on PATH", test_name()),
        }
    };
}

fn test_name() -> String {
    std::thread::current()
        .name()
        .unwrap_or("a test of the chart")
        .to_owned()
}

#[test]
fn the_manifest_for_clusters_without_helm_is_what_the_chart_renders() {
    if !rendering::has_helm() {
        return println!("SKIP {}: helm is not on PATH", test_name());
    }
    let output = std::process::Command::new(repository().join("e2e/generate"))
        .arg("--manifest")
        .output()
        .expect("e2e/generate starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = std::fs::read(repository().join("manifests/install.yaml")).unwrap_or_default();
    assert!(
        found == output.stdout,
        "manifests/install.yaml is stale; mend: e2e/generate"
    );
}

#[test]
fn no_container_has_a_capability_a_writable_root_or_more_privileges_than_it_started_with() {
    let objects = rendered!();
    for (name, container) in containers(&objects) {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
        assert!(security["privileged"].is_null(), "{name}");
        assert!(
            !container["resources"]["requests"]["cpu"].is_null(),
            "{name}"
        );
        assert!(
            !container["resources"]["limits"]["memory"].is_null(),
            "{name}"
        );
    }
    for pod in objects.pods() {
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert!(pod["hostPID"].is_null() && pod["hostIPC"].is_null());
    }
}

#[test]
fn what_is_not_the_agent_fits_the_restricted_level() {
    let objects = rendered!();
    let pods = [
        objects.pod("Deployment", "tunedweb-operator"),
        objects.pod("Job", "tunedweb-drain"),
    ];
    for pod in pods {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert!(
            pod["volumes"].is_null() && pod["hostNetwork"].is_null(),
            "{pod}"
        );
    }
}

#[test]
fn the_agent_reaches_three_folders_of_kernel_keys_and_the_journal_and_nothing_else_of_the_node() {
    let objects = rendered!();
    let pod = objects.pod("DaemonSet", "tunedweb-agent");
    let mut mounts = BTreeSet::new();
    for volume in pod["volumes"].as_array().expect("volumes") {
        let mount = pod["containers"][0]["volumeMounts"]
            .as_array()
            .and_then(|mounts| mounts.iter().find(|mount| mount["name"] == volume["name"]))
            .expect("each volume is mounted");
        mounts.insert((
            volume["hostPath"]["path"].as_str(),
            mount["mountPath"].as_str(),
        ));
    }
    let expected = [
        ("/proc/sys/fs", "/host/proc/sys/fs"),
        ("/proc/sys/net", "/host/proc/sys/net"),
        ("/proc/sys/vm", "/host/proc/sys/vm"),
        ("/var/lib/tunedweb", "/var/lib/tunedweb"),
    ];
    assert_eq!(
        mounts,
        expected
            .map(|(host, inside)| (Some(host), Some(inside)))
            .into()
    );
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
}

#[test]
fn the_agents_namespace_says_what_its_pods_need_and_other_namespaces_need_nothing() {
    let objects = rendered!("--namespace=elsewhere");
    let namespaces: Vec<&Value> = objects.of_kind("Namespace").collect();
    assert_eq!(namespaces.len(), 1);
    let labels = &namespaces[0]["metadata"]["labels"];
    for mode in ["enforce", "audit", "warn"] {
        assert_eq!(
            labels[format!("pod-security.kubernetes.io/{mode}")],
            "privileged"
        );
    }
    let used: BTreeSet<&str> = objects
        .0
        .iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str())
        .collect();
    assert_eq!(used, BTreeSet::from(["elsewhere", "tunedweb-agent"]));
}

#[test]
fn the_permissions_are_those_of_the_generated_files() {
    let objects = rendered!();
    for (kind, name, file) in [
        ("ClusterRole", "tunedweb-operator", "rbac-operator.yaml"),
        ("Role", "tunedweb-operator", "rbac-operator-namespace.yaml"),
        ("ClusterRole", "tunedweb-drain", "rbac-drain.yaml"),
        ("Role", "tunedweb-drain", "rbac-drain-namespace.yaml"),
        ("ClusterRole", "tunedweb-agent", "rbac-agent.yaml"),
    ] {
        let rules = read_yaml(&format!("charts/tunedweb/files/{file}"));
        assert!(
            rules.as_array().is_some_and(|rules| !rules.is_empty()),
            "{file}"
        );
        assert_eq!(objects.named(kind, name)["rules"], rules, "{file}");
    }
}

#[test]
fn the_definitions_are_the_generated_ones_and_stay_on_uninstallation_unless_told_otherwise() {
    for (keep, annotation) in [("true", json!("keep")), ("false", Value::Null)] {
        let objects = rendered!(&format!("--set=crds.keep={keep}"));
        for plural in ["tunedwebservers", "nodetunings", "benchmarkruns"] {
            let name = format!("{plural}.tunedweb.io");
            let definition = objects.named("CustomResourceDefinition", &name);
            assert_eq!(
                definition["metadata"]["annotations"]["helm.sh/resource-policy"],
                annotation
            );
            let generated = read_yaml(&format!("crds/{plural}.yaml"));
            let same = whole_numbers(&definition["spec"]) == whole_numbers(&generated["spec"]);
            assert!(same, "{name} differs from crds/{plural}.yaml");
        }
    }
    let objects = rendered!("--set=crds.install=false");
    assert_eq!(objects.of_kind("CustomResourceDefinition").count(), 0);
}

#[test]
fn the_programs_understand_what_the_chart_tells_them() {
    let objects = rendered!();
    let agent = &objects.pod("DaemonSet", "tunedweb-agent")["containers"][0];
    let options = tunedweb_agent::Options::try_parse_from(command_line(agent, &["--node=n1"]));
    let options = options.expect("the agent reads its arguments");
    assert_eq!(options.root.to_str(), Some("/host"));
    let known = variables_of(&tunedweb_agent::Options::command());
    assert_eq!(unknown_variables(agent, &known), Vec::<String>::new());

    let drain = &objects.pod("Job", "tunedweb-drain")["containers"][0];
    let parsed = tunedweb_operator::cli::Cli::try_parse_from(command_line(drain, &[]));
    parsed.expect("the operator reads the arguments of a drain");
    let command = tunedweb_operator::cli::Cli::command();
    let operator = &objects.pod("Deployment", "tunedweb-operator")["containers"][0];
    assert_eq!(
        unknown_variables(operator, &variables_of(&command)),
        Vec::<String>::new()
    );
    let subcommand = command.find_subcommand("drain").expect("a subcommand");
    assert_eq!(
        unknown_variables(drain, &variables_of(subcommand)),
        Vec::<String>::new()
    );
}

#[test]
fn the_drain_outlasts_the_wait_for_the_nodes_and_fits_into_helms_own_limit() {
    let objects = rendered!();
    let job = objects.named("Job", "tunedweb-drain");
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
    assert_eq!(
        objects.pod("Job", "tunedweb-drain")["serviceAccountName"],
        "tunedweb-drain"
    );
    for kind in [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ] {
        let annotations = &objects.named(kind, "tunedweb-drain")["metadata"]["annotations"];
        assert_eq!(
            annotations["helm.sh/hook-weight"], "-1",
            "{kind} is there before the Job"
        );
    }
    let seconds = |objects: &Objects| {
        let job = objects.named("Job", "tunedweb-drain");
        job["spec"]["activeDeadlineSeconds"]
            .as_u64()
            .expect("a deadline")
    };
    // helm waits five minutes for a hook unless it is told otherwise
    assert!(seconds(&objects) < 300);
    let objects = rendered!("--set=restoreTimeoutSeconds=600");
    assert_eq!(seconds(&objects), 720);
    let arguments = &objects.pod("Job", "tunedweb-drain")["containers"][0]["args"];
    assert!(
        arguments.to_string().contains("--timeout=660s"),
        "{arguments}"
    );
}

#[test]
fn the_quota_for_the_systems_priority_goes_with_it() {
    assert_eq!(rendered!().of_kind("ResourceQuota").count(), 1);
    let objects = rendered!("--set=agent.priorityClassName=");
    assert_eq!(objects.of_kind("ResourceQuota").count(), 0);
    assert!(objects.pod("DaemonSet", "tunedweb-agent")["priorityClassName"].is_null());
}

#[test]
fn an_admin_port_that_is_open_to_the_network_is_probed_there() {
    let objects = rendered!();
    let probe = |objects: &Objects| {
        let pod = objects.pod("DaemonSet", "tunedweb-agent");
        pod["containers"][0]["livenessProbe"]["httpGet"]["host"].clone()
    };
    assert_eq!(probe(&objects), "127.0.0.1");
    assert_eq!(
        probe(&rendered!("--set=agent.admin.address=0.0.0.0")),
        Value::Null
    );
}

#[test]
fn a_value_that_cannot_be_right_is_refused_with_its_path() {
    for (value, path) in [
        ("--set=agent.driftInterval=5", "driftInterval"),
        ("--set=agent.driftIntervalSeconds=1", "driftIntervalSeconds"),
        ("--set=agent.maxUnavailable=0%", "maxUnavailable"),
        ("--set=agent.namespace=Upper", "namespace"),
        ("--set=agent.admin.address=10.0.0.1", "address"),
        ("--set=crds.keep=sometimes", "keep"),
        ("--set=images.server=", "server"),
        ("--set=restoreTimeoutSeconds=0", "restoreTimeoutSeconds"),
        (
            "--set-json=nodeAccess.namespaceSelector={\"matchLabels\":null}",
            "namespaceSelector",
        ),
        ("--set=operator.resources.limits.memory=lots", "memory"),
    ] {
        let Some(output) = run_helm(&[value]) else {
            return println!("SKIP {}: helm is not on PATH", test_name());
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is accepted");
        assert!(message.contains(path), "{value}: {message}");
    }
}

#[test]
fn a_kubernetes_that_is_too_old_is_refused() {
    let Some(output) = run_helm(&["--kube-version=1.32.9"]) else {
        return println!("SKIP {}: helm is not on PATH", test_name());
    };
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains(">=1.33.0"));
}

#[test]
fn the_schema_knows_exactly_the_values_that_there_are() {
    let values = read_yaml("charts/tunedweb/values.yaml");
    let schema = std::fs::read_to_string(repository().join("charts/tunedweb/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema.expect("a schema")).expect("JSON");
    assert_same_fields("", &values, &schema);
}

/// Helm writes 1 for what was 1.0.
fn whole_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(whole_numbers).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), whole_numbers(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Maps whose keys are the user's are described by `additionalProperties` and end the descent.
fn assert_same_fields(path: &str, values: &Value, schema: &Value) {
    let Some(properties) = schema["properties"]
        .as_object()
        .filter(|_| values.is_object())
    else {
        return;
    };
    let known: BTreeSet<&String> = properties.keys().filter(|name| *name != "global").collect();
    let given = values.as_object().expect("an object");
    let open_ended = path.ends_with("namespaceSelector");
    assert!(
        open_ended || known == given.keys().collect(),
        "{path}: {known:?}, {given:?}"
    );
    for (name, value) in given {
        assert_same_fields(&format!("{path}.{name}"), value, &properties[name]);
    }
}

fn command_line(container: &Value, more: &[&str]) -> Vec<String> {
    let arguments = container["args"].as_array().into_iter().flatten();
    let arguments = arguments
        .filter_map(Value::as_str)
        .chain(more.iter().copied());
    ["program"]
        .into_iter()
        .chain(arguments)
        .map(str::to_owned)
        .collect()
}

fn variables_of(command: &clap::Command) -> BTreeSet<String> {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    variables
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn unknown_variables(container: &Value, known: &BTreeSet<String>) -> Vec<String> {
    let given = container["env"].as_array().into_iter().flatten();
    given
        .filter_map(|variable| variable["name"].as_str())
        .filter(|name| *name != "RUST_LOG" && !known.contains(*name))
        .map(str::to_owned)
        .collect()
}
