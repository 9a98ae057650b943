//! Builds every object of a resolved server. Pure: the same for the same input, so that neither a
//! restart nor an upgrade of the operator restarts a pod.

mod pod;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource as _;
use tunedweb_api::TunedWebServer;
use tunedweb_api::names::{
    COMPONENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, PLAN_GENERATION_ANNOTATION,
    PLAN_HASH_ANNOTATION, SERVER_COMPONENT, SERVER_LABEL, TEMPLATE_HASH_ANNOTATION,
};
use tunedweb_api::tuned_web_server::ServiceType;
use tunedweb_tuning::{Owner, PLAN_VERSION, Plan, PlanContext};

use super::resolve::{ResolvedServer, ResolvedTuning};
use crate::hash;

/// Every object of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RenderedServer {
    pub(crate) settings: ConfigMap,
    /// None where no key goes through the init container.
    pub(crate) plan: Option<RenderedPlan>,
    pub(crate) service: Service,
    pub(crate) daemon_set: DaemonSet,
    /// What each pod of this template carries.
    pub(crate) template_hash: String,
}

/// The plan of the init container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RenderedPlan {
    pub(crate) config_map: ConfigMap,
    /// What its report names.
    pub(crate) hash: String,
}

/// A plan cannot be put into JSON.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    #[error("encode the plan")]
    Plan(#[source] serde_json::Error),
    #[error("encode the pod template")]
    Template(#[source] serde_json::Error),
}

/// Name of the settings file in its `ConfigMap`.
const SETTINGS_FILE: &str = "server.toml";
/// Name of the plan file in its `ConfigMap`.
const PLAN_FILE: &str = "plan.json";

/// The generation at which the tuning last changed: that of the live `DaemonSet` while the wishes
/// are the same, so that editing what is not tuning restarts no pod.
pub(crate) fn plan_generation(
    tuning: &ResolvedTuning,
    generation: i64,
    live: Option<&DaemonSet>,
) -> i64 {
    let annotation = |name: &str| live?.metadata.annotations.as_ref()?.get(name);
    let same = annotation(PLAN_HASH_ANNOTATION).is_some_and(|hash| *hash == tuning.hash());
    let before = annotation(PLAN_GENERATION_ANNOTATION).and_then(|text| text.parse().ok());
    before.filter(|_| same).unwrap_or(generation)
}

/// Renders everything.
pub(crate) fn render(
    server: &TunedWebServer,
    resolved: &ResolvedServer,
    plan_generation: i64,
    tuner_image: &str,
) -> Result<RenderedServer, RenderError> {
    let owner = server
        .controller_owner_ref(&())
        .into_iter()
        .collect::<Vec<_>>();
    let settings = config_map(
        resolved,
        &owner,
        "settings",
        SETTINGS_FILE,
        &resolved.settings,
    );
    let plan = render_plan(resolved, &owner, plan_generation)?;
    let mut template = pod::template(resolved, &settings, plan.as_ref(), tuner_image);
    let encoded = serde_json::to_vec(&template).map_err(RenderError::Template)?;
    let template_hash = hash::short(&hash::of_parts([encoded.as_slice()])).to_owned();
    annotate(&mut template, &template_hash);
    Ok(RenderedServer {
        service: service(resolved, &owner),
        daemon_set: daemon_set(resolved, &owner, plan_generation, template),
        settings,
        plan,
        template_hash,
    })
}

fn render_plan(
    resolved: &ResolvedServer,
    owner: &[OwnerReference],
    generation: i64,
) -> Result<Option<RenderedPlan>, RenderError> {
    if resolved.tuning.init.is_empty() {
        return Ok(None);
    }
    let plan = Plan {
        version: PLAN_VERSION,
        owner: Owner {
            uid: resolved.uid.clone(),
            resource: format!("{}/{}", resolved.namespace, resolved.name),
            generation,
        },
        context: PlanContext::Pod,
        sysctls: resolved.tuning.init.clone(),
        ulimits: resolved.tuning.ulimits(),
    };
    let text = plan.to_json().map_err(RenderError::Plan)?;
    Ok(Some(RenderedPlan {
        hash: Plan::hash(text.as_bytes()),
        config_map: config_map(resolved, owner, "plan", PLAN_FILE, &text),
    }))
}

/// Labels of everything that belongs to a server.
pub(crate) fn labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = selector(name);
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    labels
}

/// Labels that select serving pods. They never change: a DaemonSet's selector cannot.
fn selector(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (SERVER_LABEL.to_owned(), name.to_owned()),
        (COMPONENT_LABEL.to_owned(), SERVER_COMPONENT.to_owned()),
    ])
}

fn metadata(resolved: &ResolvedServer, owner: &[OwnerReference], name: String) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(resolved.namespace.clone()),
        name: Some(name),
        labels: Some(labels(&resolved.name)),
        owner_references: Some(owner.to_vec()),
        ..ObjectMeta::default()
    }
}

fn config_map(
    resolved: &ResolvedServer,
    owner: &[OwnerReference],
    what: &str,
    file: &str,
    text: &str,
) -> ConfigMap {
    let hash = hash::of_parts([file.as_bytes(), text.as_bytes()]);
    let name = format!("{}-{what}-{}", resolved.name, hash::short(&hash));
    ConfigMap {
        metadata: metadata(resolved, owner, name),
        data: Some(BTreeMap::from([(file.to_owned(), text.to_owned())])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

fn service(resolved: &ResolvedServer, owner: &[OwnerReference]) -> Service {
    let settings = &resolved.network.service;
    let (kind, is_external) = match settings.kind {
        ServiceType::ClusterIP => ("ClusterIP", false),
        ServiceType::NodePort => ("NodePort", true),
        ServiceType::LoadBalancer => ("LoadBalancer", true),
    };
    Service {
        metadata: metadata(resolved, owner, resolved.name.clone()),
        spec: Some(ServiceSpec {
            type_: Some(kind.to_owned()),
            selector: Some(selector(&resolved.name)),
            ports: Some(vec![ServicePort {
                name: Some("http".to_owned()),
                port: i32::from(settings.port),
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String("http".to_owned())),
                ..ServicePort::default()
            }]),
            external_traffic_policy: is_external
                .then(|| format!("{:?}", settings.external_traffic_policy)),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn daemon_set(
    resolved: &ResolvedServer,
    owner: &[OwnerReference],
    plan_generation: i64,
    template: PodTemplateSpec,
) -> DaemonSet {
    let mut metadata = metadata(resolved, owner, resolved.name.clone());
    metadata.annotations = Some(BTreeMap::from([
        (PLAN_HASH_ANNOTATION.to_owned(), resolved.tuning.hash()),
        (
            PLAN_GENERATION_ANNOTATION.to_owned(),
            plan_generation.to_string(),
        ),
    ]));
    DaemonSet {
        metadata,
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(selector(&resolved.name)),
                ..LabelSelector::default()
            },
            template,
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    // the old pod of a node serves until the new one is ready
                    max_surge: Some(count_or_share(&resolved.rollout.max_unavailable)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            ..DaemonSetSpec::default()
        }),
        ..DaemonSet::default()
    }
}

fn count_or_share(text: &str) -> IntOrString {
    text.parse()
        .map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
}

fn annotate(template: &mut PodTemplateSpec, hash: &str) {
    let metadata = template.metadata.get_or_insert_default();
    metadata
        .annotations
        .get_or_insert_default()
        .insert(TEMPLATE_HASH_ANNOTATION.to_owned(), hash.to_owned());
}

#[cfg(test)]
mod tests;
