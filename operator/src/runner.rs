//! Runs one controller: bounded, timed, with a back-off for each object.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use kube::Resource;
use kube::runtime::controller::{self, Action, ReconcileRequest};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{Instrument as _, info_span, warn};

use crate::context::Context;
use crate::metrics::{Kind, Outcome};

/// Objects visited at the same time by one controller. A visit mostly waits for the API server;
/// eight of them keep it busy and leave room for others.
const CONCURRENCY: u16 = 8;

/// For one visit. Ten times what a visit with every optional request takes on a slow API server.
const TIMEOUT: Duration = Duration::from_mins(1);

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// What a visit answers: when to come again.
pub(crate) type Visit<E> = Result<Action, E>;

/// Why a visit failed.
#[derive(Debug, thiserror::Error)]
enum Failure<E: std::error::Error + 'static> {
    #[error("reconcile")]
    Reconcile(#[source] E),
    #[error("reconcile within {TIMEOUT:?}")]
    TimedOut,
}

/// Visits each object that comes out of the queue, until the queue closes.
pub(crate) async fn run<K, E>(
    context: Arc<Context>,
    kind: Kind,
    store: Store<K>,
    queue: mpsc::Receiver<ObjectRef<K>>,
    reconcile: fn(Arc<K>, Arc<Context>) -> BoxFuture<'static, Visit<E>>,
) where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    E: std::error::Error + Send + 'static,
{
    let backoffs = Arc::new(Backoffs::default());
    let metrics = Arc::clone(&context.metrics);
    let requests =
        futures::stream::unfold((queue, metrics), move |(mut queue, metrics)| async move {
            let request = ReconcileRequest::from(queue.recv().await?);
            metrics.dequeued(kind);
            Some((Ok::<_, Infallible>(request), (queue, metrics)))
        });
    let (for_success, for_error) = (Arc::clone(&backoffs), backoffs);
    let visits = controller::applier(
        move |object: Arc<K>, context: Arc<Context>| {
            visit(object, context, kind, reconcile, Arc::clone(&for_success)).boxed()
        },
        move |object: Arc<K>, _: &Failure<E>, _| {
            Action::requeue(for_error.failed(&ObjectRef::from_obj(&*object)))
        },
        context,
        store,
        requests,
        controller::Config::default().concurrency(CONCURRENCY),
    );
    // failures are told where they happen; an object that is gone needs no visit
    visits.for_each(|_| futures::future::ready(())).await;
}

async fn visit<K, E>(
    object: Arc<K>,
    context: Arc<Context>,
    kind: Kind,
    reconcile: fn(Arc<K>, Arc<Context>) -> BoxFuture<'static, Visit<E>>,
    backoffs: Arc<Backoffs<K>>,
) -> Result<Action, Failure<E>>
where
    K: Resource<DynamicType = ()>,
    E: std::error::Error + 'static,
{
    let meta = object.meta();
    let span = info_span!(
        parent: None,
        "reconcile",
        kind = kind.as_str(),
        namespace = meta.namespace,
        name = meta.name,
        generation = meta.generation,
    );
    let reference = ObjectRef::from_obj(&*object);
    let metrics = Arc::clone(&context.metrics);
    async move {
        let started = Instant::now();
        let result = match tokio::time::timeout(TIMEOUT, reconcile(object, context)).await {
            Ok(result) => result.map_err(Failure::Reconcile),
            Err(_) => Err(Failure::TimedOut),
        };
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(Failure::Reconcile(_)) => Outcome::Failed,
            Err(Failure::TimedOut) => Outcome::TimedOut,
        };
        metrics.reconciled(kind, outcome, started.elapsed());
        match &result {
            Ok(_) => backoffs.succeeded(&reference),
            Err(failure) => warn!(error = failure as &dyn std::error::Error, "visit failed"),
        }
        result
    }
    .instrument(span)
    .await
}

/// Failures in a row, by object.
struct Backoffs<K: Resource<DynamicType = ()>>(Mutex<HashMap<ObjectRef<K>, u32>>);

impl<K: Resource<DynamicType = ()>> Default for Backoffs<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Resource<DynamicType = ()>> Backoffs<K> {
    fn succeeded(&self, object: &ObjectRef<K>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(object);
    }

    fn failed(&self, object: &ObjectRef<K>) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(object.clone()).or_default();
        *count = count.saturating_add(1);
        backoff(*count, &object.to_string())
    }
}

/// Twice as long each time up to the limit, then spread over its upper half, so that objects that
/// failed together do not come back together.
fn backoff(failures: u32, object: &str) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let full = doubled.min(BACKOFF_MAX);
    let mut hasher = DefaultHasher::new();
    (object, failures).hash(&mut hasher);
    let half = full / 2;
    half + half.mul_f64(share(hasher.finish()))
}

/// A number from 0 to 1 out of the upper 16 bits.
fn share(random: u64) -> f64 {
    let bits = u16::try_from(random >> 48).unwrap_or(u16::MAX);
    f64::from(bits) / f64::from(u16::MAX)
}

/// A length of time, longer or shorter by up to a tenth, the same for the same object: visits
/// without a reason are spread.
pub(crate) fn spread(interval: Duration, object: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    interval.mul_f64(0.9 + 0.2 * share(hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_to_its_limit_and_never_beyond() {
        for failures in 1..200 {
            let wait = backoff(failures, "web/site");
            assert!(
                wait >= BACKOFF_MIN / 2 && wait <= BACKOFF_MAX,
                "{failures}: {wait:?}"
            );
        }
        assert!(backoff(1, "web/site") <= BACKOFF_MIN);
        assert!(backoff(100, "web/site") >= BACKOFF_MAX / 2);
    }

    #[test]
    fn objects_that_failed_together_come_back_apart() {
        let waits: std::collections::HashSet<_> = (0..100)
            .map(|n| backoff(9, &format!("web/site-{n}")))
            .collect();
        assert!(waits.len() > 90, "{}", waits.len());
    }

    #[test]
    fn visits_without_a_reason_are_spread_by_a_tenth() {
        let interval = Duration::from_mins(5);
        for n in 0..100 {
            let wait = spread(interval, &format!("{n}"));
            assert!(wait >= interval.mul_f64(0.9) && wait <= interval.mul_f64(1.1));
        }
    }
}
