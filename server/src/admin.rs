//! The admin endpoint: `/healthz`, `/readyz`, `/metrics`, `/tuning`, on a port and a thread of its
//! own, so that it answers when the workers are busy.

mod metrics;

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tunedweb_config::TuningReport;

use crate::counters::Counters;
use crate::files::Files;
use crate::lifecycle::{Lifecycle, Stage};

/// Probes, a scraper, an operator and a person at once, with room to spare.
const CONNECTIONS_MAX: usize = 64;

/// For the head of a request; all clients are near.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// For a whole connection, so that none is held for ever.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);

/// After the kernel had no file for a connection.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A worker that has not run for so long hangs, most likely in a read from a dead disk; a busy one
/// runs many times a second.
const HANG: Duration = Duration::from_secs(30);

/// What the admin endpoint tells of.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) started: Instant,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) workers: Vec<Arc<Counters>>,
    pub(crate) files: Arc<Files>,
    pub(crate) tuning: TuningReport,
}

/// Serves until the process ends.
pub(crate) fn spawn(listener: TcpListener, state: Arc<State>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            if let Err(error) = runtime.block_on(serve(listener, state)) {
                tracing::error!(%error, "the admin endpoint has ended");
            }
        })?;
    Ok(())
}

async fn serve(listener: TcpListener, state: Arc<State>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let registry = Arc::new(metrics::registry(Arc::clone(&state)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "an admin connection is lost");
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let (state, registry) = (Arc::clone(&state), Arc::clone(&registry));
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &state, &registry);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an admin connection failed"),
                Err(_) => tracing::debug!("an admin connection took too long"),
            }
            drop(place);
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    state: &State,
    registry: &Registry,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/healthz" => state.health(),
        "/readyz" => state.readiness(),
        "/metrics" => metrics::answer(registry),
        "/tuning" => state.tuning(),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz, /metrics and /tuning\n",
        ),
    }
}

impl State {
    /// Healthy: every worker runs.
    fn health(&self) -> Response<Full<Bytes>> {
        let now_ms = self.started.elapsed().as_millis();
        let is_hung = |counters: &Arc<Counters>| {
            now_ms.saturating_sub(u128::from(counters.ticked_ms.value())) > HANG.as_millis()
        };
        match self
            .workers
            .iter()
            .filter(|counters| is_hung(counters))
            .count()
        {
            0 => text(StatusCode::OK, "ok\n"),
            hung => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{hung} workers have not run for {} s\n", HANG.as_secs()),
            ),
        }
    }

    /// Ready: clients may be sent here.
    fn readiness(&self) -> Response<Full<Bytes>> {
        match self.lifecycle.stage() {
            Stage::Serving => text(StatusCode::OK, "ok\n"),
            _ => text(StatusCode::SERVICE_UNAVAILABLE, "the server is ending\n"),
        }
    }

    fn tuning(&self) -> Response<Full<Bytes>> {
        match serde_json::to_vec_pretty(&self.tuning) {
            Ok(body) => response(StatusCode::OK, "application/json", body.into()),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", body.into())
}

fn response(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
