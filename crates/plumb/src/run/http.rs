//! The server of `plumb run`: metrics, health, and pages of components. Plain HTTP, as upstream serves it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How many connections there are at once.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long answers may take once the process is to stop.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl PageResponse {
    /// A text.
    pub(crate) fn text(body: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// A text with another code.
    pub(crate) fn refusal(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, ..Self::text(body) }
    }

    /// A JSON value.
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self { content_type: "application/json", ..Self::text(value.to_string()) }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// The path.
    pub(crate) path: String,
    /// Whether the response should be JSON.
    pub(crate) json: bool,
}

impl PageRequest {
    fn new<B>(request: &Request<B>) -> Self {
        let accepts =
            |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("application/json"));
        let by_query =
            request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "format=json"));
        Self {
            path: request.uri().path().to_owned(),
            json: by_query || request.headers().get_all(ACCEPT).iter().any(accepts),
        }
    }
}

/// Handles requests.
pub(crate) type Handler = Arc<dyn Fn(&PageRequest) -> PageResponse + Send + Sync>;

/// Listens on an address as Go writes it: `:8942` is that port of every address.
pub(crate) async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let everywhere =
        address.strip_prefix(':').map(|port| [format!("[::]:{port}"), format!("0.0.0.0:{port}")]);
    let bound = match everywhere {
        // A machine may have no IPv6.
        Some([v6, v4]) => match TcpListener::bind(v6).await {
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => TcpListener::bind(v4).await,
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    bound.with_context(|| format!("listening on {address} (--address)"))
}

/// Serves until the shutdown, and then for as long as answers take, but not for long.
pub(crate) async fn serve(listener: TcpListener, handler: Handler, shutdown: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await.ok();
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) =
            accepted.inspect_err(|error| tracing::warn!(%error, "cannot accept a connection"))
        else {
            // Out of file descriptors, most likely: others have to be closed first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let handler = handler.clone();
        let respond = service_fn(move |request| respond(request, handler.clone()));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .serve_connection(TokioIo::new(stream), respond);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(FINISH_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections were cut that did not end in time");
    }
}

async fn respond(request: Request<Incoming>, handler: Handler) -> Result<Response<Full<Bytes>>, Infallible> {
    let page_request = PageRequest::new(&request);
    let page = if matches!(*request.method(), Method::GET | Method::HEAD) {
        // To render a large page, or to wait for its data, takes a while.
        tokio::task::spawn_blocking(move || handler(&page_request)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot answer a request");
            PageResponse::refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n")
        })
    } else {
        PageResponse::refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n")
    };
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = page.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    if page.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

/// An address for people: that of every address is this machine.
pub(crate) fn reached(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => ([127, 0, 0, 1], v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => ([127, 0, 0, 1], v6.port()).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_or_the_query_selects_json() {
        let request = |uri: &str, accept: Option<&str>| {
            let mut request = Request::builder().uri(uri);
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            PageRequest::new(&request.body(()).unwrap())
        };
        assert_eq!(request("/a/b?x=1", Some("*/*")), PageRequest { path: "/a/b".to_owned(), json: false });
        assert!(request("/a?x=1&format=json", None).json);
        assert!(request("/a", Some("text/html, application/json")).json);
    }
}
