//! `/metrics` in the OpenMetrics text format: the counters of all workers, summed when asked.

use std::fmt;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::State;
use crate::counters::{Counter, Counters};
use crate::http::status::StatusClass;

/// OpenMetrics 1.0.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that is measured, under `tunedweb_server_`.
pub(super) fn registry(state: Arc<State>) -> Registry {
    let mut registry = Registry::with_prefix("tunedweb_server");
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The server that runs", build);
    registry.register_collector(Box::new(Metrics(state)));
    registry
}

pub(super) fn answer(registry: &Registry) -> Response<Full<Bytes>> {
    let mut body = String::new();
    match text::encode(&mut body, registry) {
        Ok(()) => super::response(StatusCode::OK, MEDIA_TYPE, body.into()),
        Err(error) => super::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[derive(Debug)]
struct Metrics(Arc<State>);

/// One of the numbers of a worker.
type Of = fn(&Counters) -> &Counter;

/// Name, meaning and number.
type Row = (&'static str, &'static str, Of);

const COUNTERS: &[Row] = &[
    (
        "connections_accepted",
        "Connections accepted, those dropped included",
        |c| &c.accepted,
    ),
    (
        "connections_dropped",
        "Connections closed at once: the worker had as many as it may have",
        |c| &c.dropped,
    ),
    ("connections_closed", "Connections that ended", |c| {
        &c.closed
    }),
    (
        "accept_failures",
        "Times that a connection waited for lack of open files or memory",
        |c| &c.accept_failures,
    ),
    (
        "request_timeouts",
        "Requests that did not arrive in time (408)",
        |c| &c.request_timeouts,
    ),
    (
        "send_timeouts",
        "Responses that the client did not take in time",
        |c| &c.send_timeouts,
    ),
    ("responses_aborted", "Responses cut short", |c| &c.aborted),
    (
        "cache_hits",
        "Files found without asking the file system",
        |c| &c.cache_hits,
    ),
    ("cache_misses", "Files looked up in the file system", |c| {
        &c.cache_misses
    }),
    ("panics", "Connections or workers ended by a panic", |c| {
        &c.panics
    }),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(state) = self;
        let sum = |of: &dyn Fn(&Counters) -> u64| state.workers.iter().map(|w| of(w)).sum::<u64>();
        let mut requests = encoder.encode_descriptor(
            "requests",
            "Requests answered",
            None,
            MetricType::Counter,
        )?;
        for class in StatusClass::ALL {
            let labels = [("status", class.label())];
            let value = sum(&|counters| counters.requests(class));
            ConstCounter::new(value).encode(requests.encode_family(&labels)?)?;
        }
        let mut connections = encoder.encode_descriptor(
            "connections",
            "Open connections",
            None,
            MetricType::Gauge,
        )?;
        let states: [(&str, Of); 3] = [
            ("idle", |c| &c.idle),
            ("reading", |c| &c.reading),
            ("writing", |c| &c.writing),
        ];
        for (name, of) in states {
            let labels = [("state", name)];
            let value = sum(&|counters| of(counters).value());
            gauge(value).encode(connections.encode_family(&labels)?)?;
        }
        for (name, help, of) in COUNTERS {
            let value = ConstCounter::new(sum(&|counters| of(counters).value()));
            value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)?;
        }
        let sent = ConstCounter::new(sum(&|counters| counters.sent_bytes.value()));
        let help = "Bytes of responses given to the kernel";
        sent.encode(encoder.encode_descriptor(
            "sent",
            help,
            Some(&Unit::Bytes),
            sent.metric_type(),
        )?)?;
        self.encode_files(&mut encoder)?;
        self.encode_accept_queue(&mut encoder)
    }
}

impl Metrics {
    fn encode_files(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.files.figures();
        let evicted = ConstCounter::new(figures.evicted);
        let help = "Entries dropped to make room or for want of use";
        let kind = evicted.metric_type();
        evicted.encode(encoder.encode_descriptor("cache_evictions", help, None, kind)?)?;
        for (name, help, unit, value) in [
            (
                "cache_entries",
                "Entries of the open-file cache",
                None,
                figures.entries,
            ),
            (
                "cache_open_files",
                "Files that the cache keeps open",
                None,
                figures.open_files,
            ),
            (
                "cache_content",
                "Contents that the cache keeps in memory",
                Some(&Unit::Bytes),
                figures.content_bytes,
            ),
        ] {
            let value = gauge(value as u64);
            value.encode(encoder.encode_descriptor(name, help, unit, value.metric_type())?)?;
        }
        Ok(())
    }

    fn encode_accept_queue(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let waiting = gauge(self.0.workers.iter().map(|w| w.accept_queue.value()).sum());
        let help = "Connections that wait to be accepted";
        let kind = waiting.metric_type();
        waiting.encode(encoder.encode_descriptor("accept_queue", help, None, kind)?)
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
