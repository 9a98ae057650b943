//! The admin port: `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{Instrument as _, debug, info_span};

use crate::health::Health;

/// A kubelet and a few scrapers; who comes after them waits in the listener's queue.
const CONNECTIONS_MAX: usize = 16;
/// A probe has a timeout of 1 s by default; who needs longer than this for a head is no probe.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// What the admin port shows.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) health: Arc<Health>,
    pub(crate) registry: Arc<Registry>,
}

/// Why the admin port is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The port is taken or the address is not this node's.
    #[error("listen on admin address {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
}

/// Takes the port.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, AdminError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AdminError::Listen { address, source })
}

/// Answers for ever.
pub(crate) async fn serve(listener: TcpListener, shown: Shown) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = answer_all(stream, shown.clone());
                let guarded = async move {
                    connection.await;
                    drop(permit);
                };
                tokio::spawn(guarded.instrument(info_span!("admin")));
            }
            // out of file descriptors, most likely: others must end first
            Err(error) => {
                debug!(%error, "admin connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer_all(stream: TcpStream, shown: Shown) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(
            request.method(),
            request.uri().path(),
            &shown,
            Instant::now(),
        );
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "admin connection broke");
    }
}

fn answer(method: &Method, path: &str, shown: &Shown, now: Instant) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    }
    match path {
        "/healthz" if shown.health.is_alive(now) => text(StatusCode::OK, "ok\n"),
        "/healthz" => text(StatusCode::SERVICE_UNAVAILABLE, "the loop is stuck\n"),
        "/readyz" if shown.health.is_ready() => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "no answer from the API server yet\n",
        ),
        "/metrics" => metrics(&shown.registry),
        _ => text(StatusCode::NOT_FOUND, "/healthz, /readyz, /metrics\n"),
    }
}

/// Content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    let mut body = String::new();
    if prometheus_client::encoding::text::encode(&mut body, registry).is_err() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "metrics not encoded\n");
    }
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(OPEN_METRICS),
    );
    response
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn shown(start: Instant) -> Shown {
        let mut registry = Registry::default();
        Metrics::register(&mut registry).synced(true, Duration::from_millis(1));
        Shown {
            health: Arc::new(Health::new(Duration::from_mins(1), start)),
            registry: Arc::new(registry),
        }
    }

    #[test]
    fn the_probes_tell_a_stuck_loop_and_a_missing_watch_apart() {
        let start = Instant::now();
        let shown = shown(start);
        let status = |path, now| answer(&Method::GET, path, &shown, now).status();
        assert_eq!(status("/healthz", start), StatusCode::OK);
        assert_eq!(status("/readyz", start), StatusCode::SERVICE_UNAVAILABLE);
        shown.health.watching();
        assert_eq!(status("/readyz", start), StatusCode::OK);
        let later = start + Duration::from_hours(1);
        assert_eq!(status("/healthz", later), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/readyz", later), StatusCode::OK);
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        let start = Instant::now();
        let shown = shown(start);
        let status = |method, path| answer(&method, path, &shown, start).status();
        assert_eq!(status(Method::GET, "/"), StatusCode::NOT_FOUND);
        assert_eq!(
            status(Method::POST, "/healthz"),
            StatusCode::METHOD_NOT_ALLOWED
        );
    }

    #[test]
    fn the_metrics_carry_the_prefix_and_closed_labels() {
        let mut body = String::new();
        prometheus_client::encoding::text::encode(&mut body, &shown(Instant::now()).registry)
            .expect("metrics encode");
        for line in [
            "tunedweb_agent_syncs_total{outcome=\"done\"} 1",
            "tunedweb_agent_sync_duration_seconds_count 1",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }
}
