//! The loop that accepts connections.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use plumb_supervise::{Backoff, Exponential};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tower::Service;

use super::{
    Limits, Listener, Shutdown,
    connection::{self, Shared},
    connections::{Connections, Open},
    handshakes::Queued,
};

/// The delay after a failure to accept that may be temporary, such as a lack of file descriptors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(50), Duration::from_secs(1));

/// How long connections may take to close after the server has cancelled them.
const CUT: Duration = Duration::from_millis(100);

/// The keep-alive time of TCP, after which the connection of a machine that is gone is closed.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were open after [`Limits::drain`], and that the server closed.
    pub cut: usize,
}

/// Serves connections until the shutdown, then waits for requests.
pub async fn serve<S, B>(
    listener: Listener,
    tls: Arc<ServerConfig>,
    limits: Limits,
    service: S,
    shutdown: Shutdown,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (cut, cut_seen) = watch::channel(());
    let connections = Connections::new(&limits, Arc::clone(&listener.metrics));
    let drain = limits.drain;
    let shared = Shared {
        service,
        tls,
        limits,
        connections: Arc::clone(&connections),
        shutdown: shutdown.clone(),
        cut: cut_seen,
    };

    // Open connections outlive a restart of the loop.
    let (from, into) = (&listener, &connections);
    let accepting = move || {
        let shared = shared.clone();
        let serve = move |stream, remote, permits| {
            tokio::spawn(connection::serve(stream, remote, permits, shared.clone()));
        };
        accept(from, into, serve, shutdown.clone())
    };
    listener.supervisor.finish(&listener.task, accepting).await;

    // The listener is closed, so that new clients are refused at once.
    drop(listener);
    tracing::info!(connections = connections.open(), "no more connections; waiting for requests under way");
    if timeout(drain, connections.all_closed()).await.is_ok() {
        return Drained { cut: 0 };
    }
    let standing = connections.open();
    tracing::warn!(connections = standing, "closing connections that did not end in time");
    drop(cut);
    // Connections are cancelled; this is the time that they need. The handler of an upgraded connection closes it.
    drop(timeout(CUT, connections.all_closed()).await);
    Drained { cut: standing }
}

/// Accepts connections until the shutdown, and passes each to `serve`, with its place in the queue for handshakes and its entry
/// among the open connections. It does not wait for a permit: the next connection may be of another source.
async fn accept(
    listener: &Listener,
    connections: &Arc<Connections>,
    serve: impl Fn(TcpStream, SocketAddr, (Queued, Open)),
    mut shutdown: Shutdown,
) {
    let mut backoff = Backoff::new(DELAYS);
    loop {
        let accepted = tokio::select! {
            accepted = listener.inner.accept() => accepted,
            () = shutdown.requested() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                backoff.reset();
                prepare(&stream);
                let accepted = (connections.queue(remote), connections.opened());
                serve(stream, remote, accepted);
            }
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                connections.metrics.accept_errors.fetch_add(1, Relaxed);
                if backoff.failures() == 0 {
                    tracing::error!(%error, "cannot accept a connection; trying again with a backoff");
                }
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
            }
        }
    }
}

/// Sets the options of a new connection. If that fails the connection is broken, which its use will show.
fn prepare(stream: &TcpStream) {
    // Responses and events are small and must not be delayed.
    drop(stream.set_nodelay(true));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    drop(SockRef::from(stream).set_tcp_keepalive(&keepalive));
}

/// Whether a failure to accept concerns only that connection.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
