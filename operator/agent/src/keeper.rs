//! The loop: follow the node's `NodeTuning`, keep the node as it asks, say what came of it.

use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{DeserializeGuard, Resource as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tracing::{info, warn};
use tunedweb_api::{NodeTuning, NodeTuningSpec, NodeTuningStatus};
use tunedweb_tuner::{ProcTree, SyncReport, TuneError, Tuner};
use tunedweb_tuning::NodeFacts;

use crate::health::Health;
use crate::metrics::Metrics;
use crate::status;

/// Field manager of everything that the agent writes.
pub(crate) const FIELD_MANAGER: &str = "tunedweb-agent";

/// How long the API server may take to accept a status.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// First pause after a round that failed; it doubles up to the drift interval.
const RETRY_FIRST: Duration = Duration::from_secs(2);

/// Keeps one node.
pub(crate) struct Keeper {
    node: String,
    client: Client,
    tuner: Arc<Tuner<ProcTree>>,
    drift_interval: Duration,
    metrics: Metrics,
    health: Arc<Health>,
    known: Option<Known>,
    failures: u32,
}

/// What the API server last said of the node's `NodeTuning`.
#[derive(Debug)]
struct Known {
    uid: Option<String>,
    generation: i64,
    /// The spec, or why it cannot be read.
    spec: Result<NodeTuningSpec, String>,
    status: NodeTuningStatus,
}

/// What kept a round from its end.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("tune the node")]
    Tune(#[source] TuneError),
    #[error("carry the tuner's work to its end")]
    Join(#[source] tokio::task::JoinError),
    #[error("write the status of the NodeTuning")]
    Write(#[source] kube::Error),
    #[error("write the status of the NodeTuning within {} s", WRITE_TIMEOUT.as_secs())]
    WriteTimeout,
}

impl Keeper {
    pub(crate) fn new(
        node: String,
        client: Client,
        tuner: Tuner<ProcTree>,
        drift_interval: Duration,
        metrics: Metrics,
        health: Arc<Health>,
    ) -> Self {
        Self {
            client,
            tuner: Arc::new(tuner),
            node,
            drift_interval,
            metrics,
            health,
            known: None,
            failures: 0,
        }
    }

    /// Goes on until `stopped`. Nothing is undone then.
    pub(crate) async fn keep(mut self, stopped: impl Future<Output = ()>) {
        let watched = Api::<DeserializeGuard<NodeTuning>>::all(self.client.clone());
        let mut changes = pin!(watcher::watch_object(watched, &self.node).default_backoff());
        let mut stopped = pin!(stopped);
        let mut due = tokio::time::Instant::now();
        loop {
            self.health.beat(Instant::now());
            tokio::select! {
                () = &mut stopped => return,
                Some(change) = changes.next() => match change {
                    Ok(object) => {
                        self.health.watching();
                        if self.learn(object) {
                            due = tokio::time::Instant::now();
                        }
                    }
                    Err(error) => {
                        self.metrics.watch_broke();
                        warn!(error = %chain(&error), "watch broke; the node is kept as last told");
                    }
                },
                () = tokio::time::sleep_until(due) => {
                    let pause = self.round().await;
                    due = tokio::time::Instant::now() + pause;
                }
            }
        }
    }

    /// Takes in what the API server says; true where there is something new to do.
    fn learn(&mut self, object: Option<DeserializeGuard<NodeTuning>>) -> bool {
        let Some(object) = object else {
            info!("this node has no NodeTuning; its keys are left as they are");
            self.known = None;
            return false;
        };
        let metadata = object.meta();
        let mut news = Known {
            uid: metadata.uid.clone(),
            generation: metadata.generation.unwrap_or_default(),
            spec: Err(String::new()),
            status: NodeTuningStatus::default(),
        };
        let former = self.known.take().filter(|known| known.uid == news.uid);
        match object.0 {
            Ok(readable) => {
                news.spec = Ok(readable.spec);
                news.status = readable.status.unwrap_or_default();
            }
            Err(unreadable) => {
                news.spec = Err(unreadable.error);
                news.status = former
                    .as_ref()
                    .map(|known| known.status.clone())
                    .unwrap_or_default();
            }
        }
        let is_news = former.is_none_or(|known| {
            known.generation != news.generation || known.spec.is_ok() != news.spec.is_ok()
        });
        self.known = Some(news);
        is_news
    }

    /// Compares, mends and reports; answers when to do it again.
    async fn round(&mut self) -> Duration {
        let Some(known) = &self.known else {
            return self.drift_interval;
        };
        let (tuned, wanted) = self.compare(known).await;
        let written = if wanted == known.status {
            Ok(())
        } else {
            self.write(&wanted).await
        };
        if let (Ok(()), Some(known)) = (&written, &mut self.known) {
            known.status = wanted;
        }
        let Err(error) = tuned.and(written) else {
            self.failures = 0;
            return jittered(self.drift_interval, random());
        };
        warn!(error = %chain(&error), "round failed; it will be tried again");
        let pause = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        jittered(pause.min(self.drift_interval), random())
    }

    /// Brings the node to what is wanted, and says what its status should be.
    async fn compare(&self, known: &Known) -> (Result<(), RoundError>, NodeTuningStatus) {
        let Known {
            generation,
            status: former,
            ..
        } = known;
        let result = match &known.spec {
            Ok(spec) => self.sync(spec).await,
            Err(error) => {
                let now = Timestamp::now();
                return (Ok(()), status::undecodable(former, *generation, error, now));
            }
        };
        let now = Timestamp::now();
        let (result, wanted) = match result {
            Ok((report, facts)) => (
                Ok(()),
                status::after_sync(former, *generation, &report, facts, now),
            ),
            Err(error) => {
                let text = chain(&error);
                (
                    Err(error),
                    status::after_failure(former, *generation, &text, now),
                )
            }
        };
        self.metrics.owners_failed(status::owners_failed(&wanted));
        (result, wanted)
    }

    async fn sync(&self, spec: &NodeTuningSpec) -> Result<(SyncReport, NodeFacts), RoundError> {
        let wishes = status::wishes(spec);
        let tuner = Arc::clone(&self.tuner);
        let begun = Instant::now();
        let work = tokio::task::spawn_blocking(move || {
            let report = tuner.sync(&wishes)?;
            let facts = tuner.facts()?;
            Ok((report, facts))
        });
        let result = match work.await {
            Ok(result) => result.map_err(RoundError::Tune),
            Err(error) => Err(RoundError::Join(error)),
        };
        self.metrics.synced(result.is_ok(), begun.elapsed());
        if let Ok((report, _)) = &result {
            self.metrics
                .found(report.keys.len(), report.rewritten.len());
            for name in &report.rewritten {
                warn!(
                    key = name,
                    "others had changed this key; it was written again"
                );
            }
        }
        result
    }

    async fn write(&self, status: &NodeTuningStatus) -> Result<(), RoundError> {
        let api = Api::<NodeTuning>::all(self.client.clone());
        let mut object = NodeTuning::new(&self.node, NodeTuningSpec::default());
        object.status = Some(status.clone());
        let mut patch = serde_json::to_value(&object).map_err(kube::Error::SerdeError);
        if let Ok(serde_json::Value::Object(fields)) = &mut patch {
            fields.remove("spec"); // the operator's
        }
        let patch = Patch::Apply(patch.map_err(RoundError::Write)?);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let call = api.patch_status(&self.node, &parameters, &patch);
        let result = match tokio::time::timeout(WRITE_TIMEOUT, call).await {
            Ok(answer) => answer.map(drop).map_err(RoundError::Write),
            Err(_) => Err(RoundError::WriteTimeout),
        };
        self.metrics.wrote_status(result.is_ok());
        if result.is_ok() {
            info!(generation = status.observed_generation, "status written");
        }
        result
    }
}

/// The interval give or take a tenth, so that the nodes of a cluster do not keep in step.
fn jittered(interval: Duration, random: u64) -> Duration {
    let thousandths = 900 + u32::try_from(random % 200).unwrap_or_default();
    interval * thousandths / 1000
}

/// The standard library seeds each of these anew.
fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// An error and what caused it, on one line. The Kubernetes client prints its causes itself.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_varies_by_a_tenth_and_no_more() {
        let minute = Duration::from_mins(1);
        assert_eq!(jittered(minute, 0), Duration::from_secs(54));
        assert_eq!(jittered(minute, 100), minute);
        for random in 0..400 {
            let pause = jittered(minute, random);
            assert!(pause >= Duration::from_secs(54) && pause < Duration::from_secs(66));
        }
    }
}
