//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

/// Runs the controllers of TunedWebServer, NodeTuning and BenchmarkRun in a cluster.
#[derive(Debug, Parser)]
#[command(name = "tunedweb-operator", version, propagate_version = true)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What else than running the controllers.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// How to run the controllers.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What else than running the controllers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Have the running operator put all nodes back, and wait for it; for the time before it goes
    Drain(DrainArgs),
}

/// How to run the controllers.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Image of serving pods whose resource names none
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_SERVER_IMAGE",
        default_value = "localhost/tunedweb-server:0.1.0"
    )]
    pub server_image: String,

    /// Image of the init container that tunes
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_TUNER_IMAGE",
        default_value = "localhost/tunedweb-tuner:0.1.0"
    )]
    pub tuner_image: String,

    /// Image of load pods
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_LOADGEN_IMAGE",
        default_value = "localhost/tunedweb-loadgen:0.1.0"
    )]
    pub loadgen_image: String,

    /// Namespace that the operator runs in
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_NAMESPACE",
        default_value = "tunedweb-system"
    )]
    pub namespace: String,

    /// Namespace of the agents
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_AGENT_NAMESPACE",
        default_value = "tunedweb-agent"
    )]
    pub agent_namespace: String,

    /// Namespaces that may touch nodes, by their labels: KEY=VALUE,… or a LabelSelector in JSON
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_NODE_ACCESS_SELECTOR",
        default_value = "tunedweb.io/node-access=allowed",
        value_parser = parse_selector
    )]
    pub node_access_selector: NodeAccess,

    /// Address of /healthz, /readyz and /metrics
    #[arg(long, env = "TUNEDWEB_OPERATOR_ADMIN", default_value = "0.0.0.0:9180")]
    pub admin: SocketAddr,

    /// How long a deleted resource waits for its nodes to be put back, before it goes anyway
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_RESTORE_TIMEOUT",
        default_value = "120s",
        value_parser = parse_duration
    )]
    pub restore_timeout: Duration,

    /// How often everything is looked at without a reason, servers' reports included
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_DRIFT_INTERVAL",
        default_value = "5m",
        value_parser = parse_duration
    )]
    pub drift_interval: Duration,
}

/// How to drain.
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// Namespace that the operator runs in
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_NAMESPACE",
        default_value = "tunedweb-system"
    )]
    pub namespace: String,

    /// How long to wait; what is left then is named, and the exit code is 1
    #[arg(
        long,
        env = "TUNEDWEB_OPERATOR_TIMEOUT",
        default_value = "120s",
        value_parser = parse_duration
    )]
    pub timeout: Duration,

    /// Exit with 0 whatever is left; it is named all the same, and an uninstallation goes on
    #[arg(long, env = "TUNEDWEB_OPERATOR_BEST_EFFORT")]
    pub best_effort: bool,
}

/// Which namespaces may touch nodes.
#[derive(Clone, Debug)]
pub struct NodeAccess {
    /// Matches the labels of such a namespace.
    pub selector: Selector,
    /// What a namespace lacks, for people.
    pub shown: String,
}

fn parse_selector(text: &str) -> Result<NodeAccess, String> {
    let selector = if text.trim_start().starts_with('{') {
        let selector: LabelSelector = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Selector::try_from(selector).map_err(|e| e.to_string())?
    } else {
        let pairs: Result<Vec<_>, _> = text.split(',').map(parse_pair).collect();
        pairs?.into_iter().collect()
    };
    // an empty selector matches every namespace, which nobody means by leaving a value empty
    if selector.selects_all() {
        return Err("must name at least one label; `KEY=VALUE`".to_owned());
    }
    let shown = selector.to_string();
    Ok(NodeAccess { selector, shown })
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

/// A positive length of time such as `90s` or `5m`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    match Duration::try_from(parsed) {
        Ok(duration) if duration >= Duration::from_secs(1) => Ok(duration),
        _ => Err("must be at least 1s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;
    use kube::core::SelectorExt as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_has_the_same_word_as_environment_variable() {
        let command = Cli::command();
        let drain = command.find_subcommand("drain").unwrap();
        for option in command.get_arguments().chain(drain.get_arguments()) {
            let name = option.get_id().as_str();
            if ["help", "version"].contains(&name) {
                continue;
            }
            let expected = format!("TUNEDWEB_OPERATOR_{}", name.to_uppercase());
            assert_eq!(
                option.get_env().and_then(|name| name.to_str()),
                Some(&*expected)
            );
        }
    }

    #[test]
    fn a_selector_is_read_in_both_forms_and_never_selects_everything() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        for text in ["a=b", r#"{"matchLabels":{"a":"b"}}"#] {
            assert!(
                parse_selector(text).unwrap().selector.matches(&labels),
                "{text}"
            );
        }
        for text in ["", "{}", "a", "=b", "{", "a=b,"] {
            assert!(parse_selector(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_length_of_time_has_a_unit_and_is_not_zero() {
        assert_eq!(parse_duration("120s"), Ok(Duration::from_mins(2)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_mins(5)));
        for text in ["", "120", "-5s", "0s", "10ms"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
