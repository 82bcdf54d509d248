//! The HTTPS server: accepts connections, reads reviews up to a limit, writes responses.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use plumb_supervise::{Backoff, Exponential};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

/// Responds to admission reviews.
pub trait Reviewer: Send + Sync {
    /// Responds to a review. `None` if the body is not a review.
    fn review<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Reports how long the transfer of a review took.
    fn transferred(&self, transfer: Transfer) {
        let _ = transfer;
    }
}

/// How long the server took for a review, apart from the reviewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The time from the head of the request until its body was read.
    pub read: Duration,
    /// The time from the response until the connection had sent it, or had ended.
    pub write: Duration,
    /// The total time, from the head of the request.
    pub total: Duration,
}

/// The maximum size of a review, upstream's limit.
pub const MAX_BODY: usize = 5 << 20;
/// The maximum number of open connections. An API server opens one for each concurrent request.
const CONNECTIONS: usize = 1024;
/// The timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The timeout of the head of a request, and of an idle connection.
const HEAD: Duration = Duration::from_mins(2);
/// The timeout of a body.
const BODY: Duration = Duration::from_secs(10);
/// How long to wait after failures to accept, such as a process out of file descriptors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(50), Duration::from_secs(1));

/// The certificate of the server; new connections use a renewed one.
#[derive(Debug)]
pub struct ServingCertificate(RwLock<Arc<CertifiedKey>>);

impl ServingCertificate {
    /// Starts with a certificate.
    pub fn new(certified: Arc<CertifiedKey>) -> Self {
        Self(RwLock::new(certified))
    }

    /// Replaces the certificate for new connections.
    pub fn replace(&self, certified: Arc<CertifiedKey>) {
        *self.0.write() = certified;
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

/// The minimum version of TLS (`--min-tls-version`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinTls {
    /// `tls1_2`.
    #[default]
    V1_2,
    /// `tls1_3`.
    V1_3,
}

/// The settings of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The minimum version.
    pub oldest: MinTls,
    /// The cipher suites of TLS 1.2, by the names that the IANA gives them; all if there is none (`--tls-ciphers`).
    pub ciphers: Vec<String>,
}

impl TlsSettings {
    fn allows(&self, suite: SupportedCipherSuite) -> bool {
        let name = suite.suite().as_str();
        suite.tls13().is_some()
            || self.ciphers.is_empty()
            || self.ciphers.iter().any(|cipher| Some(cipher.as_str()) == name)
    }
}

/// The TLS configuration with a certificate that may change.
pub fn tls(
    certificate: Arc<ServingCertificate>,
    settings: &TlsSettings,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| settings.allows(*suite));
    let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
    let versions = match settings.oldest {
        MinTls::V1_2 if has_tls12 => &BOTH[..],
        MinTls::V1_2 | MinTls::V1_3 => &BOTH[..1],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts and serves connections until the future is dropped, which closes them.
pub async fn serve(listener: &TcpListener, tls: Arc<ServerConfig>, reviewer: Arc<dyn Reviewer>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut backoff = Backoff::new(DELAYS);
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, remote)) => {
                backoff.reset();
                let tls = tls.clone();
                let reviewer = reviewer.clone();
                connections.spawn(async move {
                    if let Err(error) = connection(stream, tls, reviewer).await {
                        tracing::debug!(%remote, %error, "connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                if backoff.failures() == 0 {
                    tracing::error!(%error, "cannot accept a connection; trying again with a backoff");
                }
                backoff.wait().await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    reviewer: Arc<dyn Reviewer>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let accepted = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await;
    let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let respond = service_fn(move |request| {
        let reviewer = reviewer.clone();
        async move { Ok::<_, Infallible>(respond(request, reviewer).await) }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD);
    http.serve_connection(TokioIo::new(stream), respond).await
}

async fn respond(request: Request<Incoming>, reviewer: Arc<dyn Reviewer>) -> Response<Answer> {
    let began = Instant::now();
    let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|content_type| {
        content_type.to_str().is_ok_and(|content_type| content_type.starts_with("application/json"))
    });
    if request.method() != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "an admission review is posted");
    }
    if !is_json {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expect application/json");
    }
    let body = match timeout(BODY, Limited::new(request.into_body(), MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, "request payload too large");
        }
        Ok(Err(_)) | Err(_) => return refused(StatusCode::BAD_REQUEST, "the body did not arrive"),
    };
    let read = began.elapsed();
    match reviewer.review(&body).await {
        Some(answer) => {
            let written = Written { reviewer, began, read, answered: Instant::now() };
            let body = Full::new(Bytes::from(answer));
            let mut response = Response::new(Answer { body, _written: Some(written) });
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        None => refused(StatusCode::BAD_REQUEST, "this is no admission review"),
    }
}

/// The body of a response. The connection drops it once it has taken all of it.
struct Answer {
    body: Full<Bytes>,
    _written: Option<Written>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reports the times of a review when it is dropped.
struct Written {
    reviewer: Arc<dyn Reviewer>,
    began: Instant,
    read: Duration,
    answered: Instant,
}

impl Drop for Written {
    fn drop(&mut self) {
        let write = self.answered.elapsed();
        let total = self.began.elapsed();
        self.reviewer.transferred(Transfer { read: self.read, write, total });
    }
}

fn refused(status: StatusCode, why: &'static str) -> Response<Answer> {
    let body = Full::new(Bytes::from_static(why.as_bytes()));
    let mut response = Response::new(Answer { body, _written: None });
    *response.status_mut() = status;
    response
}
