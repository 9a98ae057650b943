//! Asks serving pods what they reached and what they serve.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{ETAG, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::{Instrument as _, debug_span};
use tunedweb_api::names::ADMIN_PORT;
use tunedweb_config::TuningReport;

/// For one pod, all of its requests together. A pod that is slower is asked again later.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A report is about 2 KiB; one that is a hundred times as long is none.
const REPORT_BYTES_MAX: usize = 256 * 1024;

/// Asks serving pods.
pub trait PodReader: Send + Sync + 'static {
    /// What the server asked the kernel for and got.
    fn tuning(&self, pod: IpAddr) -> BoxFuture<'_, Result<TuningReport, ReadError>>;

    /// Whether each file is served with its entity tag.
    fn serves<'a>(
        &'a self,
        pod: SocketAddr,
        etags: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<bool, ReadError>>;
}

/// Why a pod's answer is missing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No connection.
    #[error("connect to the serving pod")]
    Connect(#[source] std::io::Error),
    /// No HTTP.
    #[error("send the request to the serving pod")]
    Send(#[source] hyper::Error),
    /// Another answer than 200.
    #[error("the serving pod answered {0}")]
    Status(StatusCode),
    /// The answer broke off or is too long.
    #[error("read the answer of the serving pod")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Not a report.
    #[error("decode the report of the serving pod")]
    Decode(#[source] serde_json::Error),
    /// Too slow.
    #[error("the serving pod did not answer within {TIMEOUT:?}")]
    TimedOut,
}

/// Asks over HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpPodReader;

impl PodReader for HttpPodReader {
    fn tuning(&self, pod: IpAddr) -> BoxFuture<'_, Result<TuningReport, ReadError>> {
        Box::pin(limited(read_tuning(SocketAddr::new(pod, ADMIN_PORT))))
    }

    fn serves<'a>(
        &'a self,
        pod: SocketAddr,
        etags: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<bool, ReadError>> {
        Box::pin(limited(has_etags(pod, etags)))
    }
}

async fn limited<T>(
    reading: impl Future<Output = Result<T, ReadError>> + Send,
) -> Result<T, ReadError> {
    tokio::time::timeout(TIMEOUT, reading)
        .await
        .unwrap_or(Err(ReadError::TimedOut))
}

async fn read_tuning(address: SocketAddr) -> Result<TuningReport, ReadError> {
    let mut connection = connect(address).await?;
    let response = send(&mut connection, address, Method::GET, "/tuning").await?;
    if response.status() != StatusCode::OK {
        return Err(ReadError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), REPORT_BYTES_MAX);
    let bytes = body.collect().await.map_err(ReadError::Read)?.to_bytes();
    serde_json::from_slice(&bytes).map_err(ReadError::Decode)
}

async fn has_etags(address: SocketAddr, etags: &[(String, String)]) -> Result<bool, ReadError> {
    let mut connection = connect(address).await?;
    for (file, etag) in etags {
        // a server may close after any number of responses
        if connection.ready().await.is_err() {
            connection = connect(address).await?;
        }
        let path = format!("/{file}");
        let response = send(&mut connection, address, Method::HEAD, &path).await?;
        let served = response.headers().get(ETAG);
        if served.is_none_or(|served| served.as_bytes() != etag.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, ReadError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(ReadError::Connect)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ReadError::Send)?;
    // ends with the sender; its errors come out of the requests
    tokio::spawn(async move { drop(connection.await) }.instrument(debug_span!("pod connection")));
    Ok(sender)
}

async fn send(
    connection: &mut SendRequest<Empty<Bytes>>,
    address: SocketAddr,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, ReadError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string())
        .body(Empty::new())
        .map_err(|error| ReadError::Read(Box::new(error)))?;
    connection
        .send_request(request)
        .await
        .map_err(ReadError::Send)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each path with its own name as entity tag, and closes after `requests`.
    async fn server(requests: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let left = std::sync::atomic::AtomicUsize::new(requests);
                let service = service_fn(move |request: Request<Incoming>| {
                    let last = left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1;
                    let mut response =
                        Response::builder().header(ETAG, format!("{:?}", request.uri().path()));
                    if last {
                        response = response.header("connection", "close");
                    }
                    let response = response.body(Full::new(Bytes::new())).unwrap();
                    async move { Ok::<_, Infallible>(response) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        address
    }

    fn etags(names: &[&str]) -> Vec<(String, String)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), format!("\"/{name}\"")))
            .collect()
    }

    #[tokio::test]
    async fn a_pod_serves_when_every_tag_is_the_expected_one() {
        for requests in [1, 2, 100] {
            let address = server(requests).await;
            assert!(
                HttpPodReader
                    .serves(address, &etags(&["a", "b", "c"]))
                    .await
                    .unwrap()
            );
            let mut other = etags(&["a", "b"]);
            other[1].1 = "\"old\"".to_owned();
            assert!(!HttpPodReader.serves(address, &other).await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_report_that_is_none_and_a_closed_port_are_errors() {
        let address = server(1).await;
        assert!(matches!(
            read_tuning(address).await,
            Err(ReadError::Decode(_))
        ));
        let closed = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let refused = HttpPodReader.serves(closed, &etags(&["a"])).await;
        assert!(matches!(refused, Err(ReadError::Connect(_))));
    }
}
