//! The loop that lets connections in, and sees them out.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};
use tower::Service;

use super::{
    Limits, Listener, Shutdown,
    connection::{self, Shared},
};

/// How long to wait after a failure to accept that time may heal: a process out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// After how long a silent connection is probed, so that a client whose machine is gone does not hold its place.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that still stood when time was up, and were cut.
    pub cut: usize,
}

/// Serves connections until the shutdown, then sees out what is under way.
pub async fn serve<S, B>(
    listener: Listener,
    tls: Arc<ServerConfig>,
    limits: Limits,
    service: S,
    mut shutdown: Shutdown,
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
    let places = Places::new(limits.connections);
    let drain = limits.drain;
    let failed_handshakes = Arc::clone(&listener.failed_handshakes);
    let shared =
        Shared { service, tls, limits, failed_handshakes, shutdown: shutdown.clone(), cut: cut_seen };

    loop {
        let next = async {
            let place = places.take().await?;
            Some((place, listener.inner.accept().await))
        };
        let (place, accepted) = tokio::select! {
            Some(next) = next => next,
            () = shutdown.requested() => break,
        };
        match accepted {
            Ok((stream, remote)) => {
                prepare(&stream);
                tokio::spawn(connection::serve(stream, remote, place, shared.clone()));
            }
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    () = shutdown.requested() => break,
                }
            }
        }
    }

    // Whoever comes now is told at once that nobody is here.
    drop(listener);
    tracing::info!(connections = places.taken(), "no more connections; waiting for requests under way");
    if timeout(drain, places.all_free()).await.is_ok() {
        return Drained { cut: 0 };
    }
    let standing = places.taken();
    tracing::warn!(connections = standing, "cutting what did not end in time");
    drop(cut);
    // They are told; this is for the moment that it takes them. An upgraded connection is its handler's to end.
    drop(timeout(PAUSE, places.all_free()).await);
    Drained { cut: standing }
}

/// As many places as connections may stand.
struct Places {
    free: Arc<Semaphore>,
    all: u32,
    /// Whether it was told that none is free, so that it is told once and not with every connection that waits.
    told: AtomicBool,
}

impl Places {
    fn new(connections: usize) -> Self {
        let all = u32::try_from(connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(all as usize)), all, told: AtomicBool::new(false) }
    }

    /// Waits for a free place. `None` never comes: nobody closes the semaphore.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            if self.taken() <= self.all as usize / 2 {
                self.told.store(false, Relaxed);
            }
            return Some(place);
        }
        if !self.told.swap(true, Relaxed) {
            tracing::warn!(connections = self.all, "as many connections as may be: further ones wait");
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Waits until every place is free.
    async fn all_free(&self) {
        drop(self.free.acquire_many(self.all).await);
    }

    fn taken(&self) -> usize {
        self.all as usize - self.free.available_permits()
    }
}

/// Sets what a new connection needs. If it cannot be set the connection is broken, which its use will show.
fn prepare(stream: &TcpStream) {
    // Answers and events are small and wanted now.
    drop(stream.set_nodelay(true));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    drop(SockRef::from(stream).set_tcp_keepalive(&keepalive));
}

/// Whether the failure is that of the one connection that was to be accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
