//! A connection, from the handshake to its end.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Buf;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::{Service, ServiceExt as _};

use super::{
    Limits, Shutdown,
    activity::{Activity, Tracked},
    candidates::Candidate,
    connections::{ConnectionPermit, Connections, Open},
    handshakes::Queued,
    heads::MAX_HEAD,
    permitted::PermittedConnection,
};
use crate::{
    authn::{CertificateIdentity, Peer},
    discard::discard,
    error::ApiError,
};

/// The bytes of one request body that an HTTP/2 client may send before the server reads them, as kube-apiserver's.
const STREAM_WINDOW: u32 = 256 << 10;

/// The bytes of a response that HTTP/2 buffers besides its last chunk.
const MAX_UNSENT: usize = 64 << 10;

/// The timeout of a handshake while more than half of the permits for handshakes are in use.
const PRESSED_HANDSHAKE: Duration = Duration::from_secs(2);

/// A response with this extension is for a user, who may pause: its timeout is [`Limits::interactive_progress`].
#[derive(Clone, Copy, Debug)]
pub struct Interactive;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The shared state of all connections of a server.
pub(super) struct Shared<S> {
    pub(super) service: S,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) limits: Limits,
    pub(super) connections: Arc<Connections>,
    pub(super) shutdown: Shutdown,
    /// Closed when open connections are to be cancelled.
    pub(super) cut: watch::Receiver<()>,
}

impl<S: Clone> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            tls: Arc::clone(&self.tls),
            limits: self.limits,
            connections: Arc::clone(&self.connections),
            shutdown: self.shutdown.clone(),
            cut: self.cut.clone(),
        }
    }
}

/// Serves a connection until it ends or is cancelled.
pub(super) async fn serve<S, B>(
    stream: TcpStream,
    remote: SocketAddr,
    accepted: (Queued, Open),
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
        served = converse(stream, remote, accepted, shared) => if let Err(error) = served {
            // Clients that disconnect or send garbage are common, and must not fill the log.
            tracing::debug!(%remote, %error, "connection ended");
        },
        _ = cut.changed() => tracing::debug!(%remote, "connection cut"),
    }
}

/// Establishes a connection, and responds to its requests.
async fn converse<S, B>(
    stream: TcpStream,
    remote: SocketAddr,
    (queued, open): (Queued, Open),
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
    let (limits, connections) = (shared.limits, Arc::clone(&shared.connections));
    let (tls, shutdown) = (Arc::clone(&shared.tls), &mut shared.shutdown);
    let in_handshake = tokio::select! {
        permit = timeout(limits.handshake, queued.permit()) => permit.ok().flatten(),
        () = shutdown.requested() => return Ok(()),
    };
    let Some(in_handshake) = in_handshake else {
        connections.metrics.rejected.fetch_add(1, Relaxed);
        return Err("too many handshakes are under way".into());
    };
    let established = establish(stream, remote, tls, &connections, limits, shutdown).await?;
    let Some(Established { stream, is_http2, peer, permit }) = established else { return Ok(()) };
    drop(in_handshake);

    let activity = connections.activity();
    let candidate = connections.register(&permit, &peer, &activity);
    let unknown = unauthenticated(activity.clone(), peer.clone(), limits);
    let head = is_http2.then(|| connections.http2_head());
    let io = PermittedConnection::new(stream, activity.clone(), peer.clone(), head, permit, open);
    let io = TokioIo::new(io);
    let respond = {
        let (service, shutdown, activity) =
            (shared.service.clone(), shared.shutdown.clone(), activity.clone());
        service_fn(move |mut request: Request<Incoming>| {
            let in_flight = activity.begin();
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(shutdown.clone());
            let response = service.clone().oneshot(request);
            async move {
                response.await.map(|response| {
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                        in_flight.upgrade();
                    }
                    let interactive = response.extensions().get::<Interactive>().is_some();
                    response.map(|body| Tracked::new(body, in_flight, interactive))
                })
            }
        })
    };
    let shutdown = shared.shutdown;
    let farewell = activity.idle_for(limits.farewell);
    let stalled = stalled(activity.clone(), connections, limits);

    if is_http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .max_send_buf_size(MAX_UNSENT)
            .keep_alive_interval(limits.ping_after)
            .keep_alive_timeout(limits.ping_answer);
        let idle = activity.idle_for(limits.request_head);
        let idle = async {
            tokio::select! {
                () = idle => {}
                () = unknown => {}
            }
        };
        drive(http.serve_connection(io, respond), shutdown, idle, stalled, farewell, candidate).await
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.request_head).max_header_size(MAX_HEAD);
        let connection = http.serve_connection(io, respond).with_upgrades();
        // The timeout above closes idle connections of authenticated clients.
        drive(connection, shutdown, unknown, stalled, farewell, candidate).await
    }
}

/// Returns when a client that is not authenticated sends no request.
async fn unauthenticated(activity: Activity, peer: Peer, limits: Limits) {
    activity.idle_while_unknown(limits.unauthenticated_head, || peer.is_authenticated()).await;
}

/// A connection after its handshake.
struct Established {
    stream: TlsStream<TcpStream>,
    is_http2: bool,
    peer: Peer,
    /// Its permit in the limits of connections.
    permit: ConnectionPermit,
}

/// Performs the handshake, and admits the connection. Returns none if the client does not use TLS, or at the shutdown: the
/// client has not sent a request yet.
async fn establish(
    stream: TcpStream,
    remote: SocketAddr,
    tls: Arc<ServerConfig>,
    connections: &Arc<Connections>,
    limits: Limits,
    shutdown: &mut Shutdown,
) -> Result<Option<Established>, BoxError> {
    let handshake = timeout(limits.handshake, handshake(stream, tls));
    let done = tokio::select! {
        done = handshake => done.map_err(BoxError::from).and_then(|done| Ok(done?)),
        () = pressed(Arc::clone(connections)) => Err("too many handshakes are under way".into()),
        () = shutdown.requested() => return Ok(None),
    };
    if !matches!(done, Ok(Some(_))) {
        connections.metrics.failed_handshakes.fetch_add(1, Relaxed);
    }
    let Some(stream) = done? else { return Ok(None) };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| CertificateIdentity::read(chain.first()?));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let user = certificate.as_ref().map(|certificate| Arc::clone(certificate.user()));
    let admitted = tokio::select! {
        admitted = Arc::clone(connections).admit(user, limits.handshake) => admitted,
        () = shutdown.requested() => return Ok(None),
    };
    let Some(permit) = admitted else {
        // No other connection waits for this response.
        if connections.is_pressed() {
            return Err("too many connections are open".into());
        }
        let refused: BoxFuture<'static, _> = Box::pin(refuse(stream, is_http2));
        drop(timeout(limits.farewell, refused).await);
        return Err("too many connections are open".into());
    };
    Ok(Some(Established { stream, is_http2, peer: Peer::new(remote, certificate), permit }))
}

/// Returns when a handshake has timed out while more than half of the permits for handshakes are in use.
async fn pressed(connections: Arc<Connections>) {
    loop {
        sleep(PRESSED_HANDSHAKE).await;
        if connections.is_pressed() {
            return;
        }
    }
}

/// Returns when the client does not read.
async fn stalled(activity: Activity, connections: Arc<Connections>, limits: Limits) {
    activity.stalled(limits.progress, limits.interactive_progress).await;
    connections.metrics.stalled.fetch_add(1, Relaxed);
}

/// The TLS handshake. `None` if the client does not use TLS; it gets a response that says so.
async fn handshake(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    // The first byte of TLS is not one of HTTP.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        let answer = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
                      this server speaks https: begin its address with https://\n";
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection, and the response might be lost.
        let mut unread = stream.take(64 << 10);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await?;
        return Ok(None);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(Some)
}

/// A connection that can be shut down gracefully.
trait Drain: Future<Output = Result<(), hyper::Error>> {
    fn drain(self: Pin<&mut Self>);
}

impl<S, B> Drain for http1::UpgradeableConnection<TokioIo<PermittedConnection>, S>
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

impl<S, B> Drain for http2::Connection<TokioIo<PermittedConnection>, S, TokioExecutor>
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

/// Runs the connection. At the shutdown, or after `idle`, it is shut down gracefully, and dropped after `farewell`: HTTP/2
/// waits for an answer of the client, which may not come. So is one of an authenticated client that is closed for another
/// connection; that of a client without credentials is dropped at once, and so is any when the client has `stalled`.
async fn drive(
    connection: impl Drain,
    mut shutdown: Shutdown,
    idle: impl Future<Output = ()>,
    stalled: impl Future<Output = ()>,
    farewell: impl Future<Output = ()>,
    mut candidate: Option<Candidate>,
) -> Result<(), BoxError> {
    const STALLED: &str = "the client does not read a response";
    let mut connection = std::pin::pin!(connection);
    let mut stalled = std::pin::pin!(stalled);
    let evicted = async {
        match &mut candidate {
            Some(candidate) => candidate.evicted().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = shutdown.requested() => {}
        () = idle => {}
        is_authenticated = evicted => {
            // Another client waits for the permit of this one. A request of an authenticated client may have begun since the
            // connection was idle, and gets its response.
            if !is_authenticated {
                return Err("closed for another connection: too many are open".into());
            }
        }
        () = stalled.as_mut() => return Err(STALLED.into()),
    }
    connection.as_mut().drain();
    tokio::select! {
        ended = connection => Ok(ended?),
        () = stalled => Err(STALLED.into()),
        () = farewell => Ok(()),
    }
}

/// Responds with 429 to the requests on a connection over the limit, until the client closes it.
async fn refuse(stream: TlsStream<TcpStream>, is_http2: bool) -> Result<(), BoxError> {
    let io = TokioIo::new(stream);
    let respond = service_fn(|mut request: Request<Incoming>| async move {
        discard(request.body_mut()).await;
        Ok::<_, Infallible>(ApiError::too_many_requests().to_response().map(Full::new))
    });
    if is_http2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(io, respond).await?;
    } else {
        http1::Builder::new().keep_alive(false).serve_connection(io, respond).await?;
    }
    Ok(())
}
