//! From a spec and what was observed to one checked value, or to everything that stands in the way.
//! Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kube::ResourceExt as _;
use tunedweb_api::TunedWebServer;
use tunedweb_api::condition::Reason;
use tunedweb_api::names::ADMIN_PORT;
use tunedweb_api::tuned_web_server::{Benchmark, Network, Placement, Resources, Rollout};
use tunedweb_config::{Config, Settings, Ulimits};
use tunedweb_tuning::{
    CheckedTuning, Class, KUBERNETES_MINOR_MIN, SysctlSetting, UlimitName, UlimitSetting,
};

use super::spec::{self, Checked};
use crate::cli::NodeAccess;
use crate::content::Content;
use crate::hash;

/// Folder in a serving pod that is served.
pub(crate) const CONTENT_DIRECTORY: &str = "/srv/content";

/// What a spec asks for, checked against the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedServer {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) image: String,
    /// The settings file.
    pub(crate) settings: String,
    pub(crate) drain_seconds: u32,
    pub(crate) content_name: String,
    pub(crate) content_hash: String,
    pub(crate) tuning: ResolvedTuning,
    pub(crate) placement: Placement,
    pub(crate) resources: Resources,
    pub(crate) rollout: Rollout,
    pub(crate) network: Network,
    pub(crate) benchmarks: Vec<Benchmark>,
}

/// The keys by their way, in canonical form and in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvedTuning {
    /// Class A.
    pub(crate) pod: Vec<SysctlSetting>,
    /// Classes B and C.
    pub(crate) init: Vec<SysctlSetting>,
    /// Classes C and D.
    pub(crate) node: Vec<SysctlSetting>,
    /// Open files asked for.
    pub(crate) nofile: Option<u64>,
}

/// What a spec refers to, as it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References<'a> {
    /// Whether the namespace may touch nodes.
    pub(crate) has_node_access: bool,
    /// The content; none: there is none.
    pub(crate) content: Option<&'a Content>,
    /// Minor versions of the kubelets of the selected nodes.
    pub(crate) kubelet_minors: &'a [u32],
    /// How many nodes are selected.
    pub(crate) nodes: usize,
}

/// Something that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Resolves a spec. Obstacles come in the order in which a person would remove them.
pub(crate) fn resolve(
    server: &TunedWebServer,
    references: References<'_>,
    default_image: &str,
    access: &NodeAccess,
) -> Result<ResolvedServer, Vec<Obstacle>> {
    let spec = &server.spec;
    let Checked {
        tuning: checked,
        problems,
    } = spec::check(spec);
    let is_right = problems.is_empty();
    let mut obstacles: Vec<Obstacle> = problems.into_iter().map(invalid).collect();
    let minor = kubernetes_minor(references.kubelet_minors);
    let tuning = checked
        .as_ref()
        .map(|checked| resolve_tuning(checked, minor));
    let wanted = access_wanted(server, checked.as_ref(), minor);
    if !wanted.is_empty() && !references.has_node_access {
        obstacles.push(access_denied(&wanted, &access.shown));
    }
    if references.content.is_none() {
        obstacles.push(content_not_found(&spec.content.config_map.name));
    }
    if references.nodes == 0 {
        obstacles.push(no_nodes(&spec.placement));
    }
    let settings = settings(server, tuning.as_ref().and_then(|tuning| tuning.nofile));
    if let (true, Err(message)) = (is_right, &settings) {
        obstacles.push(invalid(message.clone()));
    }
    match (tuning, references.content, settings) {
        (Some(tuning), Some(content), Ok(settings)) if obstacles.is_empty() => Ok(ResolvedServer {
            namespace: server.namespace().unwrap_or_default(),
            name: server.name_any(),
            uid: server.uid().unwrap_or_default(),
            generation: server.metadata.generation.unwrap_or_default(),
            image: spec
                .image
                .clone()
                .unwrap_or_else(|| default_image.to_owned()),
            settings,
            drain_seconds: spec.server.timeouts.drain_seconds,
            content_name: spec.content.config_map.name.clone(),
            content_hash: content.hash.clone(),
            tuning,
            placement: spec.placement.clone(),
            resources: spec.pod.resources.clone(),
            rollout: spec.rollout.clone(),
            network: spec.network.clone(),
            benchmarks: spec.benchmarks.clone(),
        }),
        _ => Err(obstacles),
    }
}

impl ResolvedTuning {
    /// Changes with every wish, and with nothing else: editing what is not tuning keeps it.
    pub(crate) fn hash(&self) -> String {
        let Self {
            pod: _,
            init,
            node,
            nofile,
        } = self;
        let mut parts: Vec<String> = Vec::new();
        for (place, settings) in [("init", init), ("node", node)] {
            parts.push(place.to_owned());
            parts.extend(settings.iter().map(|s| format!("{}={}", s.name, s.value)));
        }
        parts.push(format!("nofile={nofile:?}"));
        hash::of_parts(parts.iter().map(String::as_bytes))
    }

    pub(crate) fn ulimits(&self) -> Vec<UlimitSetting> {
        let nofile = self.nofile.map(|soft| UlimitSetting {
            name: UlimitName::Nofile,
            soft,
        });
        nofile.into_iter().collect()
    }

    /// Whether anything is asked for that has to be reported back.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            pod,
            init,
            node,
            nofile,
        } = self;
        pod.is_empty() && init.is_empty() && node.is_empty() && nofile.is_none()
    }
}

impl ResolvedServer {
    /// Hash of image, content, server settings and tuning: what a benchmark measures.
    pub(crate) fn serving_hash(&self) -> String {
        let tuning = self.tuning.hash();
        let pod: Vec<String> = self
            .tuning
            .pod
            .iter()
            .map(|s| format!("{}={}", s.name, s.value))
            .collect();
        let pod = pod.join(" ");
        let parts = [
            &self.image,
            &self.content_hash,
            &self.settings,
            &tuning,
            &pod,
        ];
        hash::of_parts(parts.map(String::as_bytes))
    }
}

/// The keys by their way under this version of Kubernetes.
pub(crate) fn resolve_tuning(checked: &CheckedTuning, minor: u32) -> ResolvedTuning {
    let of = |classes: &[Class]| {
        let mut settings = checked.settings_of(classes, minor, false);
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        settings
    };
    ResolvedTuning {
        pod: of(&[Class::PodSafe]),
        init: of(&[Class::PodInit, Class::NodeFromPod]),
        node: of(&[Class::NodeFromPod, Class::HostAgent]),
        nofile: checked.nofile(),
    }
}

/// The smallest safe list over the nodes counts.
pub(crate) fn kubernetes_minor(kubelet_minors: &[u32]) -> u32 {
    kubelet_minors
        .iter()
        .copied()
        .min()
        .unwrap_or(KUBERNETES_MINOR_MIN)
}

/// What in a spec needs a namespace that may touch nodes.
pub(crate) fn access_wanted(
    server: &TunedWebServer,
    checked: Option<&CheckedTuning>,
    minor: u32,
) -> Vec<String> {
    let classes = [Class::PodInit, Class::NodeFromPod, Class::HostAgent];
    let keys = checked.map(|checked| checked.settings_of(&classes, minor, false));
    let mut wanted: Vec<String> = keys
        .unwrap_or_default()
        .into_iter()
        .map(|setting| setting.name)
        .collect();
    wanted.sort_unstable();
    if !server.spec.placement.tolerations.is_empty() {
        wanted.push("spec.placement.tolerations".to_owned());
    }
    wanted
}

fn invalid(message: String) -> Obstacle {
    Obstacle {
        reason: Reason::InvalidSpec,
        message,
    }
}

fn access_denied(wanted: &[String], label: &str) -> Obstacle {
    Obstacle {
        reason: Reason::NodeAccessDenied,
        message: format!(
            "this namespace may not touch nodes, which these need: {}; an administrator permits it \
             by the label {label} on the namespace",
            wanted.join(", ")
        ),
    }
}

fn content_not_found(name: &str) -> Obstacle {
    Obstacle {
        reason: Reason::ContentNotFound,
        message: format!(
            "spec.content.configMap.name is {name:?}: there is no such ConfigMap in this namespace; \
             create it"
        ),
    }
}

fn no_nodes(placement: &Placement) -> Obstacle {
    let labels: Vec<String> = crate::nodes::node_selector(placement)
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    Obstacle {
        reason: Reason::NoNodesSelected,
        message: format!(
            "spec.placement selects no node: none has the labels {} and only taints that are \
             tolerated",
            labels.join(",")
        ),
    }
}

/// The settings file.
fn settings(server: &TunedWebServer, nofile: Option<u64>) -> Result<String, String> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let settings = Settings {
        root: CONTENT_DIRECTORY.into(),
        listen: SocketAddr::new(any, server.spec.network.container_port),
        admin: Some(SocketAddr::new(any, ADMIN_PORT)),
        ulimits: Ulimits { nofile },
        server: server.spec.server.clone(),
    };
    let text = settings
        .to_toml()
        .map_err(|problems| problems.to_string())?;
    Config::try_from(settings).map_err(|problems| problems.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{access, server};

    fn content() -> Content {
        Content {
            version: "1".to_owned(),
            hash: "c0ffee".to_owned(),
            etags: Vec::new(),
        }
    }

    fn outcome(
        spec: &Value,
        change: impl FnOnce(&mut References<'_>),
    ) -> Result<ResolvedServer, Vec<Obstacle>> {
        let content = content();
        let mut references = References {
            has_node_access: true,
            content: Some(&content),
            kubelet_minors: &[33, 34],
            nodes: 2,
        };
        change(&mut references);
        resolve(&server(spec), references, "image:1", &access())
    }

    fn reasons(spec: &Value, change: impl FnOnce(&mut References<'_>)) -> Vec<Reason> {
        outcome(spec, change)
            .unwrap_err()
            .into_iter()
            .map(|obstacle| obstacle.reason)
            .collect()
    }

    const KEYS: [(&str, &str); 4] = [
        ("net.core.somaxconn", "65535"),
        ("net.ipv4.tcp_fin_timeout", "15"),
        ("vm.max_map_count", "262144"),
        ("net.core.rmem_max", "16777216"),
    ];

    fn tuned() -> Value {
        let sysctls: Vec<Value> = KEYS
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        json!({"tuning": {"sysctls": sysctls, "ulimits": [{"name": "nofile", "soft": 16384}]}})
    }

    #[test]
    fn each_key_goes_its_way() {
        let resolved = outcome(&tuned(), |_| {}).unwrap().tuning;
        let names = |settings: &[SysctlSetting]| -> Vec<String> {
            settings
                .iter()
                .map(|setting| setting.name.clone())
                .collect()
        };
        assert_eq!(names(&resolved.pod), ["net.ipv4.tcp_fin_timeout"]);
        assert_eq!(
            names(&resolved.init),
            ["net.core.somaxconn", "vm.max_map_count"]
        );
        assert_eq!(
            names(&resolved.node),
            ["net.core.rmem_max", "vm.max_map_count"]
        );
        assert_eq!(resolved.nofile, Some(16_384));
    }

    #[test]
    fn everything_in_the_way_is_told_at_once() {
        let mut spec = tuned();
        spec["network"] = json!({"containerPort": 80});
        let found = reasons(&spec, |references| {
            references.has_node_access = false;
            references.content = None;
            references.nodes = 0;
        });
        let expected = [
            Reason::InvalidSpec,
            Reason::NodeAccessDenied,
            Reason::ContentNotFound,
            Reason::NoNodesSelected,
        ];
        assert_eq!(found, expected);
        let found = reasons(&tuned(), |references| references.has_node_access = false);
        assert_eq!(found, [Reason::NodeAccessDenied]);
    }

    #[test]
    fn safe_keys_and_limits_need_no_node_access_and_tolerations_do() {
        let denied = |references: &mut References<'_>| references.has_node_access = false;
        let safe = json!({"tuning": {
            "sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "15"}],
            "ulimits": [{"name": "nofile", "soft": 16384}],
        }});
        assert!(outcome(&safe, denied).is_ok());
        let tolerating = json!({"placement": {"tolerations": [{"key": "x"}]}});
        assert_eq!(reasons(&tolerating, denied), [Reason::NodeAccessDenied]);
    }

    #[test]
    fn the_message_of_a_denial_names_the_keys_and_the_label() {
        let found = outcome(&tuned(), |references| references.has_node_access = false).unwrap_err();
        for part in [
            "net.core.rmem_max",
            "net.core.somaxconn",
            "vm.max_map_count",
            "allowed",
        ] {
            assert!(
                found[0].message.contains(part),
                "{part}: {}",
                found[0].message
            );
        }
        assert!(!found[0].message.contains("tcp_fin_timeout"));
    }

    #[test]
    fn the_tuning_hash_follows_wishes_and_nothing_else() {
        let first = outcome(&tuned(), |_| {}).unwrap();
        let mut other = tuned();
        other["benchmarks"] = json!([{"name": "a"}]);
        other["server"] = json!({"workers": 2});
        let second = outcome(&other, |_| {}).unwrap();
        assert_eq!(first.tuning.hash(), second.tuning.hash());
        assert_ne!(first.serving_hash(), second.serving_hash());
        other["tuning"]["ulimits"] = json!([]);
        assert_ne!(
            outcome(&other, |_| {}).unwrap().tuning.hash(),
            first.tuning.hash()
        );
    }

    #[test]
    fn a_benchmark_or_a_service_does_not_change_what_is_measured() {
        let first = outcome(&tuned(), |_| {}).unwrap();
        let mut other = tuned();
        other["benchmarks"] = json!([{"name": "a"}]);
        other["network"] = json!({"service": {"type": "NodePort"}});
        assert_eq!(
            first.serving_hash(),
            outcome(&other, |_| {}).unwrap().serving_hash()
        );
    }

    #[test]
    fn the_settings_file_is_what_the_server_reads() {
        let resolved = outcome(&tuned(), |_| {}).unwrap();
        let settings = Settings::parse(&resolved.settings).unwrap();
        assert_eq!(settings.ulimits.nofile, Some(16_384));
        assert_eq!(settings.listen.port(), 8080);
        assert_eq!(settings.admin.map(|admin| admin.port()), Some(ADMIN_PORT));
    }
}
