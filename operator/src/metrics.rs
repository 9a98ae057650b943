//! What the operator counts. Labels are closed enums, never names or texts.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Kind {
    TunedWebServer,
    NodeTuning,
    BenchmarkRun,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TunedWebServer => "TunedWebServer",
            Self::NodeTuning => "NodeTuning",
            Self::BenchmarkRun => "BenchmarkRun",
        }
    }
}

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    Done,
    Failed,
    TimedOut,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: Kind,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: Kind,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    durations: Family<KindLabel, Histogram, fn() -> Histogram>,
    undecodable: Family<KindLabel, Counter>,
    queued: Family<KindLabel, Gauge>,
    pub(crate) writes: Counter,
    pub(crate) events_published: Counter,
    pub(crate) events_dropped: Counter,
    pub(crate) watch_errors: Counter,
    pub(crate) owners_dropped: Counter,
    pub(crate) probes_failed: Counter,
    pub(crate) ready: Gauge,
}

/// A millisecond to about 65 s, the time limit of a reconciliation.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 9))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("tunedweb_operator");
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which version this is", build);
        let metrics = Self {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(durations),
            undecodable: Family::default(),
            queued: Family::default(),
            writes: Counter::default(),
            events_published: Counter::default(),
            events_dropped: Counter::default(),
            watch_errors: Counter::default(),
            owners_dropped: Counter::default(),
            probes_failed: Counter::default(),
            ready: Gauge::default(),
            registry,
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register(
            "reconciles",
            "Reconciliations, by kind and how they ended",
            self.reconciles.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Length of a reconciliation",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "undecodable_objects",
            "Visits to objects that do not fit this operator's schema",
            self.undecodable.clone(),
        );
        registry.register(
            "queued",
            "Requests for visits that wait for a controller",
            self.queued.clone(),
        );
        for (name, help, counter) in [
            (
                "writes",
                "Objects and statuses sent to the API server",
                &self.writes,
            ),
            (
                "events_published",
                "Events published",
                &self.events_published,
            ),
            (
                "events_dropped",
                "Events that the API server did not take",
                &self.events_dropped,
            ),
            (
                "watch_errors",
                "Interruptions of watches",
                &self.watch_errors,
            ),
            (
                "owners_dropped",
                "Wishes left out because a node has too many owners",
                &self.owners_dropped,
            ),
            (
                "probes_failed",
                "Serving pods that did not answer the operator",
                &self.probes_failed,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "ready",
            "1 once every watch has its first list",
            self.ready.clone(),
        );
        self
    }

    pub(crate) fn reconciled(&self, kind: Kind, outcome: Outcome, duration: Duration) {
        self.reconciles
            .get_or_create(&ReconcileLabels { kind, outcome })
            .inc();
        self.durations
            .get_or_create(&KindLabel { kind })
            .observe(duration.as_secs_f64());
    }

    pub(crate) fn undecodable(&self, kind: Kind) {
        self.undecodable.get_or_create(&KindLabel { kind }).inc();
    }

    /// One more request for a visit waits.
    pub(crate) fn enqueued(&self, kind: Kind) {
        self.queued.get_or_create(&KindLabel { kind }).inc();
    }

    /// A request was taken.
    pub(crate) fn dequeued(&self, kind: Kind) {
        self.queued.get_or_create(&KindLabel { kind }).dec();
    }

    /// The page of `/metrics` (OpenMetrics).
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut page, &self.registry);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_metric_with_its_unit() {
        let metrics = Metrics::new();
        metrics.reconciled(Kind::NodeTuning, Outcome::Failed, Duration::from_millis(20));
        metrics.undecodable(Kind::BenchmarkRun);
        metrics.enqueued(Kind::NodeTuning);
        metrics.enqueued(Kind::NodeTuning);
        metrics.dequeued(Kind::NodeTuning);
        let page = metrics.page();
        for part in [
            "tunedweb_operator_reconciles_total{kind=\"NodeTuning\",outcome=\"Failed\"} 1",
            "tunedweb_operator_reconcile_duration_seconds_count{kind=\"NodeTuning\"} 1",
            "tunedweb_operator_undecodable_objects_total{kind=\"BenchmarkRun\"} 1",
            "tunedweb_operator_build_info{version=",
            "tunedweb_operator_queued{kind=\"NodeTuning\"} 1",
            "tunedweb_operator_events_dropped_total 0",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
