//! Asks serving pods what is not known of them yet: within limits, and the same thing once.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::Instant;
use tracing::debug;

use crate::content::Content;
use crate::context::Context;
use crate::pods;

/// Pods asked at the same time.
const CONCURRENCY: usize = 16;

/// For all pods together; those that were not asked are next time. A visit has 60 s.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What is to be known of each ready pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Questions<'a> {
    /// Whether the server's report is needed.
    pub(crate) wants_report: bool,
    /// The content that has to arrive.
    pub(crate) content: &'a Content,
    /// Port that the content is served on.
    pub(crate) port: u16,
}

/// Asks each of these pods, all of them ready, what it has not answered yet.
pub(crate) async fn probe(context: &Context, pods: &[&Pod], questions: Questions<'_>) {
    let deadline = Instant::now() + TIMEOUT;
    futures::stream::iter(pods)
        .for_each_concurrent(CONCURRENCY, |pod| async move {
            let asked = tokio::time::timeout_at(deadline, ask(context, pod, questions));
            if asked.await.is_err() {
                context.metrics.probes_failed.inc();
            }
        })
        .await;
}

/// Whether a pod was seen to serve this content.
pub(crate) fn serves(context: &Context, pod: &Pod, wanted: &Content) -> bool {
    let known = pod
        .uid()
        .map(|uid| context.memory.pod(&uid))
        .unwrap_or_default();
    known.content.as_ref() == Some(&wanted.hash)
}

async fn ask(context: &Context, pod: &Pod, questions: Questions<'_>) {
    let (Some(uid), Some(address)) = (pod.uid(), pods::address(pod)) else {
        return;
    };
    let known = context.memory.pod(&uid);
    let now = context.now();
    let interval = SignedDuration::try_from(context.options.drift_interval);
    let is_fresh = known.tuning.as_ref().is_some_and(|(_, read)| {
        interval
            .as_ref()
            .is_ok_and(|interval| now.duration_since(*read) < *interval)
    });
    if questions.wants_report && !is_fresh {
        match context.reader.tuning(address).await {
            Ok(report) => {
                context
                    .memory
                    .remember_pod(&uid, |pod| pod.tuning = Some((report, now)));
            }
            Err(error) => failed(context, pod, &error),
        }
    }
    if known.content.as_ref() != Some(&questions.content.hash) {
        let address = SocketAddr::new(address, questions.port);
        match context
            .reader
            .serves(address, &questions.content.etags)
            .await
        {
            Ok(true) => {
                let hash = questions.content.hash.clone();
                context
                    .memory
                    .remember_pod(&uid, |pod| pod.content = Some(hash));
            }
            Ok(false) => {}
            Err(error) => failed(context, pod, &error),
        }
    }
}

fn failed(context: &Context, pod: &Pod, error: &(dyn std::error::Error + 'static)) {
    context.metrics.probes_failed.inc();
    debug!(pod = pod.name_any(), error, "serving pod did not answer");
}
