//! `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{Instrument as _, debug, info_span};

use crate::metrics::Metrics;

/// Connections at the same time: a kubelet, a scraper, a person, and room for each to be slow.
const CONNECTIONS_MAX: usize = 16;

/// For the head of a request, and for a whole connection's idleness: a kubelet gives up after 1 s.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// What the endpoint tells.
#[derive(Debug)]
pub(crate) struct Health {
    ready: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            ready: AtomicBool::new(false),
            metrics,
        }
    }

    /// From now on the controllers run.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
        self.metrics.ready.set(1);
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET is answered\n".to_owned(),
            );
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "alive\n".to_owned()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => {
                text(StatusCode::OK, "ready\n".to_owned())
            }
            "/readyz" => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "waiting for the first list of every watch; are the custom resources installed?\n"
                    .to_owned(),
            ),
            "/metrics" => text(StatusCode::OK, self.metrics.page()),
            _ => text(
                StatusCode::NOT_FOUND,
                "/healthz, /readyz, /metrics\n".to_owned(),
            ),
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Answers until the listener fails for good, which it does not.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "accept admin connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let health = Arc::clone(&health);
        let connection = async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = health.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                debug!(%error, "serve admin connection");
            }
            drop(permit);
        };
        tokio::spawn(connection.instrument(info_span!("admin")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(health: &Health, method: Method, path: &str) -> StatusCode {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap();
        health.answer(&request).status()
    }

    #[test]
    fn ready_comes_after_alive() {
        let health = Health::new(Arc::new(Metrics::new()));
        assert_eq!(status(&health, Method::GET, "/healthz"), StatusCode::OK);
        assert_eq!(
            status(&health, Method::GET, "/readyz"),
            StatusCode::SERVICE_UNAVAILABLE
        );
        health.set_ready();
        assert_eq!(status(&health, Method::GET, "/readyz"), StatusCode::OK);
        assert_eq!(status(&health, Method::GET, "/metrics"), StatusCode::OK);
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        let health = Health::new(Arc::new(Metrics::new()));
        assert_eq!(status(&health, Method::GET, "/"), StatusCode::NOT_FOUND);
        assert_eq!(
            status(&health, Method::POST, "/metrics"),
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
}
