//! One connection, from the handshake to its end.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::{Service, ServiceExt as _};

use super::{
    Limits, Peer, Shutdown,
    activity::{Activity, Tracked},
    place::Placed,
};
use crate::authn::CertificateIdentity;

/// What a head may hold in total: selectors in a query can be long.
const MAX_HEAD: u32 = 256 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What all connections of a server share.
pub(super) struct Shared<S> {
    pub(super) service: S,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) limits: Limits,
    pub(super) failed_handshakes: Arc<AtomicU64>,
    pub(super) shutdown: Shutdown,
    /// Closed when what still stands is to be cut.
    pub(super) cut: watch::Receiver<()>,
}

impl<S: Clone> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            tls: Arc::clone(&self.tls),
            limits: self.limits.clone(),
            failed_handshakes: Arc::clone(&self.failed_handshakes),
            shutdown: self.shutdown.clone(),
            cut: self.cut.clone(),
        }
    }
}

/// Serves a connection to its end, or until it is cut.
pub(super) async fn serve<S, B>(
    stream: TcpStream,
    remote: SocketAddr,
    place: OwnedSemaphorePermit,
    shared: Shared<S>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<BoxError>,
{
    let mut cut = shared.cut.clone();
    tokio::select! {
        served = converse(stream, remote, place, shared) => if let Err(error) = served {
            // Clients that go away or talk nonsense are everyday life, and cheap for them to cause.
            tracing::debug!(%remote, %error, "connection ended");
        },
        _ = cut.changed() => tracing::debug!(%remote, "connection cut"),
    }
}

async fn converse<S, B>(
    stream: TcpStream,
    remote: SocketAddr,
    place: OwnedSemaphorePermit,
    mut shared: Shared<S>,
) -> Result<(), BoxError>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<BoxError>,
{
    let handshake = timeout(shared.limits.handshake, handshake(stream, Arc::clone(&shared.tls)));
    let stream = tokio::select! {
        done = handshake => {
            if !matches!(done, Ok(Ok(Some(_)))) {
                shared.failed_handshakes.fetch_add(1, Relaxed);
            }
            match done.map_err(|_| "the tls handshake takes too long")?? {
                Some(stream) => stream,
                None => return Ok(()),
            }
        }
        // Nobody has asked for anything yet.
        () = shared.shutdown.requested() => return Ok(()),
    };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| CertificateIdentity::read(chain.first()?));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Peer::new(remote, certificate);

    let activity = Activity::new();
    let respond = {
        let (service, shutdown, activity) =
            (shared.service.clone(), shared.shutdown.clone(), activity.clone());
        service_fn(move |mut request: Request<Incoming>| {
            let under_way = activity.begin();
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(shutdown.clone());
            let response = service.clone().oneshot(request);
            async move { response.await.map(|response| response.map(|body| Tracked::new(body, under_way))) }
        })
    };
    let io = Placed::new(stream, place);
    let Shared { limits, shutdown, .. } = shared;
    let farewell = activity.idle_for(limits.farewell);

    if is_http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(MAX_HEAD)
            .keep_alive_interval(limits.ping_after)
            .keep_alive_timeout(limits.ping_answer);
        let idle = activity.idle_for(limits.request_head);
        drive(http.serve_connection(io, respond), shutdown, idle, farewell).await
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.request_head);
        let connection = http.serve_connection(io, respond).with_upgrades();
        // How long it may be idle is what the timeout above says.
        drive(connection, shutdown, std::future::pending(), farewell).await
    }
}

/// The handshake. `None` if the client does not speak TLS and was told so.
async fn handshake(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    // TLS begins with a byte that no method of HTTP does.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        let answer = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
                      this server speaks https: begin its address with https://\n";
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // To close with something unread would reset the connection, and the answer might be lost on the way.
        let mut unread = stream.take(64 << 10);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await?;
        return Ok(None);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(Some)
}

/// A connection that can be asked to end when what is under way has ended.
trait Drain: Future<Output = Result<(), hyper::Error>> {
    fn drain(self: Pin<&mut Self>);
}

impl<S, B> Drain for http1::UpgradeableConnection<Placed, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    fn drain(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S, B> Drain for http2::Connection<Placed, S, TokioExecutor>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn drain(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs the connection. At the shutdown, or when it was `idle`, it is asked to end when what is under way has, and
/// dropped when the `farewell` is over, which begins then: HTTP/2 wants it answered, and a peer may not.
async fn drive(
    connection: impl Drain,
    mut shutdown: Shutdown,
    idle: impl Future<Output = ()>,
    farewell: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = shutdown.requested() => {}
        () = idle => {}
    }
    connection.as_mut().drain();
    tokio::select! {
        ended = connection => Ok(ended?),
        () = farewell => Ok(()),
    }
}
