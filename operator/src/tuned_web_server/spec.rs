//! What is wrong with a spec, without looking at the cluster. The API server has the same rules
//! (bounds and CEL); an object may be older than they are.

use std::collections::HashSet;

use tunedweb_api::TunedWebServerSpec;
use tunedweb_api::names::ADMIN_PORT;
use tunedweb_measure::Load;
use tunedweb_tuning::{CheckedTuning, check_sysctls};

/// First port that needs no privilege, where nothing else is set (`ip-sysctl`).
const UNPRIVILEGED_PORT_START: u16 = 1024;

/// The key that lowers it in a pod.
const UNPRIVILEGED_PORT_KEY: &str = "net.ipv4.ip_unprivileged_port_start";

/// A spec as it was checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    /// The tuning; none: it has problems.
    pub(crate) tuning: Option<CheckedTuning>,
    /// Everything that is wrong, with path, value and what is permitted.
    pub(crate) problems: Vec<String>,
}

/// Checks a spec.
pub(crate) fn check(spec: &TunedWebServerSpec) -> Checked {
    let mut problems: Vec<String> = Vec::new();
    let tuning = check_sysctls(&spec.tuning.sysctls, &spec.tuning.ulimits);
    if let Err(found) = &tuning {
        problems.extend(found.iter().map(ToString::to_string));
    }
    problems.extend(
        spec.server
            .problems("spec.server")
            .iter()
            .map(ToString::to_string),
    );
    problems.extend(port_problems(spec));
    problems.extend(benchmark_problems(spec));
    Checked {
        tuning: tuning.ok(),
        problems,
    }
}

fn port_problems(spec: &TunedWebServerSpec) -> Vec<String> {
    let port = spec.network.container_port;
    let mut problems = Vec::new();
    if port == ADMIN_PORT {
        problems.push(format!(
            "spec.network.containerPort is {port}: the server's admin port (probes, metrics); \
             use another"
        ));
    }
    if port < unprivileged_port_start(spec) {
        problems.push(format!(
            "spec.network.containerPort is {port}: below {UNPRIVILEGED_PORT_START}, and the server \
             runs without privileges; permitted: {UNPRIVILEGED_PORT_START} to 65535, or add \
             {UNPRIVILEGED_PORT_KEY} with at most {port} to spec.tuning.sysctls"
        ));
    }
    problems
}

fn unprivileged_port_start(spec: &TunedWebServerSpec) -> u16 {
    spec.tuning
        .sysctls
        .iter()
        .find(|setting| setting.name == UNPRIVILEGED_PORT_KEY)
        .and_then(|setting| setting.value.parse().ok())
        .map_or(UNPRIVILEGED_PORT_START, |start: u16| {
            start.min(UNPRIVILEGED_PORT_START)
        })
}

fn benchmark_problems(spec: &TunedWebServerSpec) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = HashSet::new();
    for benchmark in &spec.benchmarks {
        let place = format!("spec.benchmarks[{}]", benchmark.name);
        if !names.insert(benchmark.name.as_str()) {
            problems.push(format!("{place} stands twice; each name once"));
        }
        problems.extend(load_problem(&format!("{place}.load"), &benchmark.load));
    }
    problems
}

/// What is wrong with a load.
pub(crate) fn load_problem(place: &str, load: &Load) -> Option<String> {
    (u32::from(load.threads) > load.connections).then(|| {
        format!(
            "{place}.threads is {}: each thread needs a connection; permitted: at most \
             {place}.connections, which is {}",
            load.threads, load.connections
        )
    })
}

#[cfg(test)]
mod rules;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(changes: &Value) -> Vec<String> {
        let mut spec = json!({"content": {"configMap": {"name": "html"}}});
        for (name, value) in changes.as_object().unwrap() {
            spec[name] = value.clone();
        }
        check(&serde_json::from_value(spec).unwrap()).problems
    }

    #[test]
    fn the_shortest_spec_is_right() {
        assert_eq!(problems(&json!({})), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_path() {
        let found = problems(&json!({
            "network": {"containerPort": 80},
            "server": {"listener": {"backlog": 3_240_000}},
            "tuning": {"sysctls": [
                {"name": "net.ipv4.tcp_tw_recycle", "value": "1"},
                {"name": "net.ipv4.tcp_syncookies", "value": "0"},
            ]},
            "benchmarks": [
                {"name": "a", "load": {"threads": 9, "connections": 8}},
                {"name": "a"},
            ],
        }));
        for path in [
            "spec.network.containerPort is 80",
            "spec.server.listener.backlog",
            "spec.tuning.sysctls[net.ipv4.tcp_tw_recycle]",
            "spec.tuning.sysctls[net.ipv4.tcp_syncookies]",
            "spec.benchmarks[a].load.threads is 9",
            "spec.benchmarks[a] stands twice",
        ] {
            assert!(
                found.iter().any(|problem| problem.starts_with(path)),
                "{path}: {found:#?}"
            );
        }
        assert_eq!(found.len(), 6, "{found:#?}");
    }

    #[test]
    fn a_low_port_is_right_where_the_key_permits_it() {
        for (start, count) in [("80", 0), ("0", 0), ("81", 1), ("1024", 1)] {
            let found = problems(&json!({
                "network": {"containerPort": 80},
                "tuning": {"sysctls": [{"name": UNPRIVILEGED_PORT_KEY, "value": start}]},
            }));
            assert_eq!(found.len(), count, "{start}: {found:?}");
        }
    }

    #[test]
    fn the_admin_port_is_taken() {
        assert_eq!(
            problems(&json!({"network": {"containerPort": 9180}})).len(),
            1
        );
    }
}
