//! Whether the namespace's Pod Security level admits a serving pod. A DaemonSet is accepted in any
//! case, and would then stand there with no pod and no word.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use tracing::debug;
use tunedweb_api::condition::Reason;

use super::judge::Failure;
use super::render::RenderedServer;
use super::resolve::{Obstacle, ResolvedServer};
use crate::context::Context;
use crate::hash;
use crate::memory::Admission;

/// Words in the refusal of the Pod Security admission.
const VIOLATES: &str = "violates PodSecurity";

/// Asks the API server by a dry run, once for each template and labels of the namespace.
pub(crate) async fn check(
    context: &Context,
    resolved: &ResolvedServer,
    rendered: &RenderedServer,
) -> Option<Obstacle> {
    let labels = format!(
        "{:?}",
        context.cluster.namespace_labels(&resolved.namespace)
    );
    let parts = [rendered.template_hash.as_bytes(), labels.as_bytes()];
    let question = hash::of_parts(parts);
    if let Some(known) = context.memory.admission(&resolved.uid, &question) {
        return known.refusal.map(|refusal| obstacle(resolved, &refusal));
    }
    let refusal = match dry_run(context, resolved, rendered).await {
        Ok(()) => None,
        Err(kube::Error::Api(status)) if status.message.contains(VIOLATES) => {
            Some(without_pod_name(&status.message).to_owned())
        }
        Err(error) => {
            // quotas, webhooks or a missing service account are told by the DaemonSet's events
            debug!(
                error = &error as &dyn std::error::Error,
                "dry run of a serving pod"
            );
            return None;
        }
    };
    let admission = Admission {
        question,
        refusal: refusal.clone(),
    };
    context.memory.remember_admission(&resolved.uid, admission);
    refusal.map(|refusal| obstacle(resolved, &refusal))
}

async fn dry_run(
    context: &Context,
    resolved: &ResolvedServer,
    rendered: &RenderedServer,
) -> Result<(), kube::Error> {
    let template = rendered
        .daemon_set
        .spec
        .as_ref()
        .map(|spec| spec.template.clone());
    let template = template.unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.generate_name = Some(format!("{}-", resolved.name));
    metadata.namespace = Some(resolved.namespace.clone());
    let pod = Pod {
        metadata,
        spec: template.spec,
        status: None,
    };
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &resolved.namespace);
    pods.create(&parameters, &pod).await.map(drop)
}

fn obstacle(resolved: &ResolvedServer, refusal: &str) -> Obstacle {
    let advice = if resolved.tuning.init.is_empty() {
        "the pods fit the level restricted; see what the cluster adds to it".to_owned()
    } else {
        let keys: Vec<&str> = resolved
            .tuning
            .init
            .iter()
            .map(|s| s.name.as_str())
            .collect();
        format!(
            "label the namespace pod-security.kubernetes.io/enforce=privileged, or leave out the \
             keys that need an init container: {}",
            keys.join(", ")
        )
    };
    Obstacle {
        reason: Reason::PodSecurityDenied,
        message: format!("namespace {}: {refusal}; {advice}", resolved.namespace),
    }
}

/// Why the DaemonSet controller could not create pods, from its events.
pub(crate) async fn refused_pods(context: &Context, daemon_set: &DaemonSet) -> Option<Failure> {
    let namespace = daemon_set.namespace()?;
    let uid = daemon_set.uid()?;
    let events: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
    let fields = format!("involvedObject.uid={uid},reason=FailedCreate");
    let list = events.list(&ListParams::default().fields(&fields)).await;
    let latest = list.ok()?.into_iter().max_by_key(|event| {
        let series = event
            .series
            .as_ref()
            .and_then(|series| series.last_observed_time.clone());
        let seen = event.last_timestamp.as_ref().map(|time| time.0);
        series
            .map(|time| time.0)
            .or(seen)
            .or_else(|| event.event_time.as_ref().map(|time| time.0))
    })?;
    let message = latest.message?;
    let reason = if message.contains(VIOLATES) {
        Reason::PodSecurityDenied
    } else {
        Reason::PodsNotReady
    };
    Some(Failure::new(
        reason,
        format!("pods cannot be created: {}", without_pod_name(&message)),
    ))
}

/// The name in the text is another one each time.
fn without_pod_name(message: &str) -> &str {
    message
        .split_once("is forbidden: ")
        .map_or(message, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_the_same_for_every_pod() {
        let text = |name: &str| {
            format!("Error creating: pods \"{name}\" is forbidden: {VIOLATES} \"restricted\": x")
        };
        let (one, two) = (text("site-abcde"), text("site-fghij"));
        assert_eq!(without_pod_name(&one), without_pod_name(&two));
        assert_eq!(without_pod_name("exceeded quota"), "exceeded quota");
    }
}
