//! The rules of the API server and those of the operator, on the same specs.

use kube::core::cel::validate_cel;
use serde_json::{Value, json};
use tunedweb_api::BenchmarkRun;

use super::{check, load_problem};
use crate::testing::server;

fn sysctl(name: &str, value: &str) -> Value {
    json!({"tuning": {"sysctls": [{"name": name, "value": value}]}})
}

fn load(threads: u16, connections: u32) -> Value {
    json!({"threads": threads, "connections": connections})
}

#[test]
fn what_the_api_server_accepts_and_refuses_the_operator_does_too() {
    let port = |port: u16, start: &str| {
        let mut spec = sysctl("net.ipv4.ip_unprivileged_port_start", start);
        spec["network"] = json!({"containerPort": port});
        spec
    };
    let benchmark = |load: Value| json!({"benchmarks": [{"name": "a", "load": load}]});
    for (spec, is_right) in [
        (json!({}), true),
        (json!({"network": {"containerPort": 1024}}), true),
        (json!({"network": {"containerPort": 1023}}), false),
        (json!({"network": {"containerPort": 9180}}), false),
        (port(80, "80"), true),
        (port(80, "0"), true),
        (port(80, "81"), false),
        (port(80, "none"), false),
        (sysctl("net.ipv4.tcp_tw_recycle", "0"), false),
        (sysctl("net.ipv4.tcp_tw_recycle", "1"), false),
        (sysctl("net.ipv4.tcp_syncookies", "0"), false),
        (sysctl("net.ipv4.tcp_syncookies", "1"), true),
        (sysctl("net.ipv4.tcp_syncookies", "2"), true),
        (sysctl("net.ipv4.tcp_syncookies", "3"), false),
        (sysctl("net.core.somaxconn", "127"), false),
        (sysctl("net.core.somaxconn", "128"), true),
        (sysctl("net.core.somaxconn", "65535"), true),
        (sysctl("net.core.somaxconn", "65536"), false),
        (sysctl("net.core.somaxconn", "3240000"), false),
        (sysctl("net.core.somaxconn", "0x1000"), false),
        (sysctl("net.ipv4.tcp_max_syn_backlog", "16384"), true),
        (sysctl("net.ipv4.tcp_max_syn_backlog", "3240000"), false),
        (benchmark(load(2, 2)), true),
        (benchmark(load(3, 2)), false),
    ] {
        let server = server(&spec);
        let of_operator = check(&server.spec).problems;
        let of_api_server = validate_cel(&server);
        assert_eq!(of_api_server.is_ok(), is_right, "{spec}: {of_api_server:?}");
        assert_eq!(of_operator.is_empty(), is_right, "{spec}: {of_operator:?}");
    }
}

#[test]
fn the_load_of_a_run_is_held_to_the_same_rule() {
    for (threads, connections, is_right) in [(1, 1, true), (4, 4, true), (5, 4, false)] {
        let run: BenchmarkRun = serde_json::from_value(json!({
            "metadata": {"name": "r"},
            "spec": {"target": {"tunedWebServer": "site"}, "load": load(threads, connections)},
        }))
        .unwrap();
        assert_eq!(
            validate_cel(&run).is_ok(),
            is_right,
            "{threads} {connections}"
        );
        assert_eq!(
            load_problem("spec.load", &run.spec.load).is_none(),
            is_right
        );
    }
}
