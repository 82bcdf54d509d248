//! The limits of open connections for each class of clients, so that the process does not run out of file descriptors, and so
//! that nodes and administrators can connect when other clients have used up theirs. Permits for handshakes are shared by source
//! address ([`handshakes`](super::handshakes)).
//!
//! The class of a client is known after the TLS handshake, from its certificate. So a connection first takes a permit for the
//! handshake, and then one of its class:
//!
//! ```text
//! accept ──▶ handshake ──▶ shared (every client)
//!                     └──▶ reserved (nodes, administrators, the scheduler and the controller manager), if no shared one is free
//!                     └──▶ waits for a shared one, with at most half of the permits for handshakes, while the server closes
//!                          connections that are not in use ([`candidates`](super::candidates))
//!                     └──▶ 429 Too Many Requests
//! ```

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};

use super::{
    Limits,
    activity::Activity,
    candidates::{Candidate, Candidates},
    handshakes::{Handshakes, Queued},
    heads::{Heads, Http2Head},
};
use crate::{authn::Peer, user::User};

/// The share of the reserved connections that one user may have, so that a node cannot keep others out.
const SHARE_OF_RESERVED: usize = 8;

/// The part of all connections that is closed at a time when no permit is free, so that a flood of new connections does
/// not sort all of them for each.
const BATCHES: usize = 128;

/// Metrics of connections, for `/metrics`.
#[derive(Debug, Default)]
pub struct ConnectionMetrics {
    /// TLS handshakes that failed.
    pub failed_handshakes: AtomicU64,
    /// Connections that are open, those in the handshake included.
    pub open: AtomicU64,
    /// Connections that were refused because too many were open.
    pub rejected: AtomicU64,
    /// Connections that were closed for new ones, because too many were open.
    pub evicted: AtomicU64,
    /// Connections that were closed because the client did not read a response.
    pub stalled: AtomicU64,
    /// Failures to accept, such as for a lack of file descriptors.
    pub accept_errors: AtomicU64,
}

/// The permits of connections.
#[derive(Debug)]
pub(super) struct Connections {
    handshakes: Arc<Handshakes>,
    shared: Arc<Semaphore>,
    all_shared: usize,
    reserved: Arc<Semaphore>,
    /// Connections that wait for a shared permit after the handshake.
    waiting: Semaphore,
    /// The number of reserved permits of each user.
    reserved_by: Mutex<HashMap<String, usize>>,
    most_reserved_by_one: usize,
    open: watch::Sender<usize>,
    /// The connections with a shared permit, some of which are closed when no permit is free.
    candidates: Candidates,
    /// The budgets of incomplete request heads.
    heads: Arc<Heads>,
    /// How many connections were admitted.
    admissions: Arc<AtomicU64>,
    /// Whether the log has a warning about refused connections; there is one until half of the permits are free again.
    warned: AtomicBool,
    pub(super) metrics: Arc<ConnectionMetrics>,
}

impl Connections {
    pub(super) fn new(limits: &Limits, metrics: Arc<ConnectionMetrics>) -> Arc<Self> {
        let permits = |many: usize| many.min(Semaphore::MAX_PERMITS);
        let all_handshakes = permits(limits.handshakes.max(2));
        let all_shared = permits(limits.connections.max(1));
        Arc::new(Self {
            handshakes: Handshakes::new(all_handshakes),
            shared: Arc::new(Semaphore::new(all_shared)),
            all_shared,
            reserved: Arc::new(Semaphore::new(permits(limits.reserved_connections))),
            waiting: Semaphore::new(all_handshakes / 2),
            reserved_by: Mutex::default(),
            most_reserved_by_one: (limits.reserved_connections / SHARE_OF_RESERVED).max(1),
            open: watch::Sender::new(0),
            candidates: Candidates::new(),
            heads: Heads::new(limits.heads),
            admissions: Arc::default(),
            warned: AtomicBool::new(false),
            metrics,
        })
    }

    /// Queues a connection for a permit for its handshake.
    pub(super) fn queue(&self, remote: SocketAddr) -> Queued {
        self.handshakes.enter(remote)
    }

    /// Whether more than half of the permits for handshakes are in use.
    pub(super) fn is_pressed(&self) -> bool {
        self.handshakes.is_pressed()
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(super) fn opened(self: &Arc<Self>) -> Open {
        self.open.send_modify(|open| *open += 1);
        self.metrics.open.fetch_add(1, Relaxed);
        Open(Arc::clone(self))
    }

    /// A permit for a client after its handshake; `None` if too many are open until the timeout.
    pub(super) fn admit(
        self: Arc<Self>,
        user: Option<Arc<User>>,
        limit: Duration,
    ) -> BoxFuture<'static, Option<ConnectionPermit>> {
        // Boxed since the compiler cannot tell otherwise that the connection's future may go to another thread.
        Box::pin(async move { self.admit_in_time(user, limit).await })
    }

    async fn admit_in_time(
        self: &Arc<Self>,
        user: Option<Arc<User>>,
        limit: Duration,
    ) -> Option<ConnectionPermit> {
        if let Ok(permit) = Arc::clone(&self.shared).try_acquire_owned() {
            if self.shared.available_permits() > self.all_shared / 2 {
                self.warned.store(false, Relaxed);
            }
            return Some(ConnectionPermit { _permit: permit, reserved: None });
        }
        let user = user.filter(|user| is_reserved_for(user));
        if let Some(permit) = user.and_then(|user| self.reserve(&user)) {
            return Some(permit);
        }
        if !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                "too many connections are open: unused ones are closed, further ones wait, and are refused with 429"
            );
        }
        let evicted = self.candidates.evict((self.all_shared / BATCHES).max(1));
        self.metrics.evicted.fetch_add(evicted, Relaxed);
        let waited = match self.waiting.try_acquire() {
            Ok(_waiting) => timeout(limit, Arc::clone(&self.shared).acquire_owned()).await.ok(),
            Err(_) => None,
        };
        let permit =
            waited.and_then(Result::ok).map(|permit| ConnectionPermit { _permit: permit, reserved: None });
        if permit.is_none() {
            self.metrics.rejected.fetch_add(1, Relaxed);
        }
        permit
    }

    fn reserve(self: &Arc<Self>, user: &User) -> Option<ConnectionPermit> {
        let mut reserved_by = self.reserved_by.lock();
        let held = reserved_by.get(user.name()).copied().unwrap_or(0);
        if held >= self.most_reserved_by_one {
            return None;
        }
        let permit = Arc::clone(&self.reserved).try_acquire_owned().ok()?;
        reserved_by.insert(user.name().to_owned(), held + 1);
        let reserved = Reserved { connections: Arc::clone(self), user: user.name().to_owned() };
        Some(ConnectionPermit { _permit: permit, reserved: Some(reserved) })
    }

    /// The activity of an admitted connection.
    pub(super) fn activity(&self) -> Activity {
        self.admissions.fetch_add(1, Relaxed);
        Activity::new(Arc::clone(&self.heads), Arc::clone(&self.admissions))
    }

    /// What counts the heads of an admitted connection over HTTP/2.
    pub(super) fn http2_head(&self) -> Http2Head {
        Http2Head::new(Arc::clone(&self.heads))
    }

    /// Registers a connection as one that may be closed for another. A reserved permit is of no use to others.
    pub(super) fn register(
        &self,
        permit: &ConnectionPermit,
        peer: &Peer,
        activity: &Activity,
    ) -> Option<Candidate> {
        permit.reserved.is_none().then(|| self.candidates.add(peer.clone(), activity.clone()))
    }

    /// Waits until no connection is open.
    pub(super) async fn all_closed(&self) {
        // An error means that the sender was dropped, which `self` owns.
        drop(self.open.subscribe().wait_for(|open| *open == 0).await);
    }

    pub(super) fn open(&self) -> usize {
        *self.open.borrow()
    }
}

/// Whether connections are reserved for a user: nodes and control-plane components, without which the cluster stops, and administrators.
fn is_reserved_for(user: &User) -> bool {
    user.is_in("system:nodes")
        || user.is_in("system:masters")
        || matches!(user.name(), "system:kube-scheduler" | "system:kube-controller-manager")
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open(Arc<Connections>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.open.fetch_sub(1, Relaxed);
        self.0.open.send_modify(|open| *open -= 1);
    }
}

/// The permit of a connection.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    reserved: Option<Reserved>,
}

#[derive(Debug)]
struct Reserved {
    connections: Arc<Connections>,
    user: String,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut reserved_by = self.connections.reserved_by.lock();
        if let Some(held) = reserved_by.get_mut(&self.user) {
            *held -= 1;
            if *held == 0 {
                reserved_by.remove(&self.user);
            }
        }
    }
}
