//! What the agent counts.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Handles of every metric of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    syncs: Family<OutcomeLabel, Counter>,
    sync_duration: Histogram,
    status_writes: Family<OutcomeLabel, Counter>,
    watch_errors: Counter,
    keys_rewritten: Counter,
    keys: Gauge,
    owners_failed: Gauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the variants are label values")]
enum Outcome {
    done,
    failed,
}

/// From half a millisecond, what an undisturbed sync takes, to the half minute that it may wait for
/// the node's lock.
const SYNC_SECONDS: [f64; 7] = [0.000_5, 0.002, 0.01, 0.05, 0.25, 2.0, 30.0];

impl Metrics {
    /// Registers every metric.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("tunedweb_agent");
        let metrics = Self {
            syncs: Family::default(),
            sync_duration: Histogram::new(SYNC_SECONDS),
            status_writes: Family::default(),
            watch_errors: Counter::default(),
            keys_rewritten: Counter::default(),
            keys: Gauge::default(),
            owners_failed: Gauge::default(),
        };
        registry.register(
            "syncs",
            "Comparisons of the node with what is wanted",
            metrics.syncs.clone(),
        );
        registry.register_with_unit(
            "sync_duration",
            "Time of a comparison and what followed from it",
            Unit::Seconds,
            metrics.sync_duration.clone(),
        );
        registry.register(
            "status_writes",
            "Writes of the NodeTuning's status",
            metrics.status_writes.clone(),
        );
        registry.register(
            "watch_errors",
            "Breaks of the watch of the NodeTuning",
            metrics.watch_errors.clone(),
        );
        registry.register(
            "keys_rewritten",
            "Kernel keys that others had changed and that were written again",
            metrics.keys_rewritten.clone(),
        );
        registry.register(
            "keys",
            "Kernel keys that a resource wants on this node",
            metrics.keys.clone(),
        );
        registry.register(
            "owners_failed",
            "Resources whose wishes could not be met or put back on this node",
            metrics.owners_failed.clone(),
        );
        metrics
    }

    /// A comparison ended after this long.
    pub(crate) fn synced(&self, done: bool, took: Duration) {
        self.syncs.get_or_create(&label(done)).inc();
        self.sync_duration.observe(took.as_secs_f64());
    }

    /// What a comparison found.
    pub(crate) fn found(&self, keys: usize, rewritten: usize) {
        self.keys.set(gauge(keys));
        self.keys_rewritten
            .inc_by(u64::try_from(rewritten).unwrap_or(u64::MAX));
    }

    /// Owners whose wishes could not be met or put back.
    pub(crate) fn owners_failed(&self, count: usize) {
        self.owners_failed.set(gauge(count));
    }

    /// The status was written, or not.
    pub(crate) fn wrote_status(&self, done: bool) {
        self.status_writes.get_or_create(&label(done)).inc();
    }

    /// The watch broke and is made anew.
    pub(crate) fn watch_broke(&self) {
        self.watch_errors.inc();
    }
}

fn label(done: bool) -> OutcomeLabel {
    let outcome = if done { Outcome::done } else { Outcome::failed };
    OutcomeLabel { outcome }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
