//! The serving pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource,
    HTTPGetAction, HostPathVolumeSource, ObjectFieldSelector, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, Sysctl,
    Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use tunedweb_api::names::{ADMIN_PORT, JOURNAL_DIRECTORY, SERVER_CONTAINER, TUNE_CONTAINER};
use tunedweb_api::tuned_web_server::{self as api, Quantities, Resources, TolerationOperator};

use super::RenderedPlan;
use crate::nodes::{effect_word, node_selector};
use crate::tuned_web_server::resolve::{CONTENT_DIRECTORY, ResolvedServer};

/// User and group of everything that needs no other: "nobody" of the distributions without a shell.
const NOBODY: i64 = 65_532;

/// Between the server's own end of its drain and the kubelet's SIGKILL.
const GRACE_MARGIN_SECONDS: i64 = 5;

/// Folder of settings and plan, each in its own container.
const CONFIG_DIRECTORY: &str = "/etc/tunedweb";

/// The template without the annotation that names its hash.
pub(super) fn template(
    resolved: &ResolvedServer,
    settings: &ConfigMap,
    plan: Option<&RenderedPlan>,
    tuner_image: &str,
) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(super::labels(&resolved.name)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            node_selector: Some(node_selector(&resolved.placement)),
            tolerations: tolerations(&resolved.placement.tolerations),
            termination_grace_period_seconds: Some(
                i64::from(resolved.drain_seconds) + GRACE_MARGIN_SECONDS,
            ),
            security_context: Some(pod_security(resolved)),
            init_containers: plan.map(|_| vec![tune_container(tuner_image)]),
            containers: vec![server_container(resolved)],
            volumes: Some(volumes(resolved, settings, plan)),
            ..PodSpec::default()
        }),
    }
}

fn pod_security(resolved: &ResolvedServer) -> PodSecurityContext {
    let sysctls: Vec<Sysctl> = resolved
        .tuning
        .pod
        .iter()
        .map(|setting| Sysctl {
            name: setting.name.clone(),
            value: setting.value.clone(),
        })
        .collect();
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(NOBODY),
        run_as_group: Some(NOBODY),
        seccomp_profile: Some(runtime_default()),
        sysctls: (!sysctls.is_empty()).then_some(sysctls),
        ..PodSecurityContext::default()
    }
}

fn server_container(resolved: &ResolvedServer) -> Container {
    Container {
        name: SERVER_CONTAINER.to_owned(),
        image: Some(resolved.image.clone()),
        args: Some(vec![
            "--config".to_owned(),
            format!("{CONFIG_DIRECTORY}/{}", super::SETTINGS_FILE),
        ]),
        ports: Some(vec![
            port("http", resolved.network.container_port),
            port("admin", ADMIN_PORT),
        ]),
        // as long as a cold page cache may take to start from, looked at each second so that a
        // rolling update loses none
        startup_probe: Some(probe("/readyz", 1, 60)),
        readiness_probe: Some(probe("/readyz", 2, 2)),
        // half a minute without an answer of a thread that does nothing else is a hang
        liveness_probe: Some(probe("/healthz", 10, 3)),
        resources: Some(resources(&resolved.resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            mount("settings", CONFIG_DIRECTORY),
            mount("content", CONTENT_DIRECTORY),
        ]),
        ..Container::default()
    }
}

/// Writes the pod's own keys and the node's, under the node's journal.
fn tune_container(image: &str) -> Container {
    let text = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    Container {
        name: TUNE_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        args: Some(text(&[
            "apply",
            "--plan",
            &format!("{CONFIG_DIRECTORY}/{}", super::PLAN_FILE),
            "--journal",
            JOURNAL_DIRECTORY,
            "--termination-message",
            "/dev/termination-log",
        ])),
        env: Some(vec![EnvVar {
            name: "TUNEDWEB_TUNER_NODE".to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: Some("v1".to_owned()),
                    field_path: "spec.nodeName".to_owned(),
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        }]),
        // a few milliseconds and a few megabytes; a plan has at most 64 keys
        resources: Some(ResourceRequirements {
            requests: quantities(Some("10m"), Some("16Mi")),
            limits: quantities(None, Some("64Mi")),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            privileged: Some(true),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(false),
            run_as_user: Some(0),
            run_as_group: Some(0),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            mount("plan", CONFIG_DIRECTORY),
            VolumeMount {
                read_only: None,
                ..mount("journal", JOURNAL_DIRECTORY)
            },
        ]),
        ..Container::default()
    }
}

fn volumes(
    resolved: &ResolvedServer,
    settings: &ConfigMap,
    plan: Option<&RenderedPlan>,
) -> Vec<Volume> {
    let of_config_map = |name: &str, config_map: String| Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map,
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![
        of_config_map("settings", settings.name_any()),
        // as a whole: a single file of it (subPath) would never change
        of_config_map("content", resolved.content_name.clone()),
    ];
    if let Some(plan) = plan {
        volumes.push(of_config_map("plan", plan.config_map.name_any()));
        volumes.push(Volume {
            name: "journal".to_owned(),
            host_path: Some(HostPathVolumeSource {
                path: JOURNAL_DIRECTORY.to_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            ..Volume::default()
        });
    }
    volumes
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("admin".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        localhost_profile: None,
    }
}

fn tolerations(tolerations: &[api::Toleration]) -> Option<Vec<Toleration>> {
    let one = |toleration: &api::Toleration| {
        let exists = toleration.operator == TolerationOperator::Exists;
        Toleration {
            key: (!toleration.key.is_empty()).then(|| toleration.key.clone()),
            operator: Some(if exists { "Exists" } else { "Equal" }.to_owned()),
            value: (!toleration.value.is_empty()).then(|| toleration.value.clone()),
            effect: toleration
                .effect
                .map(|effect| effect_word(effect).to_owned()),
            toleration_seconds: None,
        }
    };
    (!tolerations.is_empty()).then(|| tolerations.iter().map(one).collect())
}

fn resources(resources: &Resources) -> ResourceRequirements {
    let of = |amounts: &Quantities| quantities(amounts.cpu.as_deref(), amounts.memory.as_deref());
    ResourceRequirements {
        requests: of(&resources.requests),
        limits: of(&resources.limits),
        ..ResourceRequirements::default()
    }
}

fn quantities(cpu: Option<&str>, memory: Option<&str>) -> Option<BTreeMap<String, Quantity>> {
    let amounts: BTreeMap<String, Quantity> = [
        ("cpu", cpu.map(canonical_cpu)),
        ("memory", memory.map(canonical_memory)),
    ]
    .into_iter()
    .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount?))))
    .collect();
    (!amounts.is_empty()).then_some(amounts)
}

/// As the API server writes it, so that what comes back is what was sent: whole cores as such, other
/// amounts in thousandths.
fn canonical_cpu(text: &str) -> String {
    let thousandths: Option<u64> = if let Some(number) = text.strip_suffix('m') {
        number.parse().ok()
    } else {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let whole: Option<u64> = whole.parse().ok();
        let part: Option<u64> = format!("{part:0<3}").parse().ok();
        whole
            .zip(part)
            .and_then(|(whole, part)| whole.checked_mul(1000)?.checked_add(part))
    };
    match thousandths {
        Some(thousandths) if thousandths % 1000 == 0 => (thousandths / 1000).to_string(),
        Some(thousandths) => format!("{thousandths}m"),
        None => text.to_owned(),
    }
}

/// The same for memory: the largest unit of its kind (binary or decimal) that divides the amount.
fn canonical_memory(text: &str) -> String {
    const BINARY: [(&str, u64); 4] = [
        ("Ti", 1 << 40),
        ("Gi", 1 << 30),
        ("Mi", 1 << 20),
        ("Ki", 1 << 10),
    ];
    const DECIMAL: [(&str, u64); 4] = [
        ("T", 1_000_000_000_000),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
    ];
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &text[digits.len()..];
    let units = if unit.ends_with('i') { BINARY } else { DECIMAL };
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map_or(1, |(_, factor)| *factor);
    let Some(amount) = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
    else {
        return text.to_owned();
    };
    let largest = units
        .iter()
        .find(|(_, factor)| amount != 0 && amount % factor == 0);
    largest.map_or_else(
        || amount.to_string(),
        |(name, factor)| format!("{}{name}", amount / factor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_the_api_server_writes_them() {
        for (written, canonical) in [
            ("0.5", "500m"),
            ("1.25", "1250m"),
            ("2", "2"),
            ("2000m", "2"),
            ("100m", "100m"),
            ("1.0", "1"),
        ] {
            assert_eq!(canonical_cpu(written), canonical, "{written}");
        }
        for (written, canonical) in [
            ("64Mi", "64Mi"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1000k", "1M"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("0", "0"),
        ] {
            assert_eq!(canonical_memory(written), canonical, "{written}");
        }
    }
}
