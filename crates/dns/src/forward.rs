//! Forwarding of queries to the resolvers of the machine.
//!
//! ```text
//!   question ──▶ cache ──▶ in flight already? ──▶ the first healthy server ──▶ UDP, then TCP if truncated
//!                              │ wait for the same response
//! ```
//!
//! A question in flight is not sent a second time. So a forwarding loop, in which a resolver of the machine queries this server,
//! ends with the timeout of one question and does not multiply.

mod exchange;
mod servers;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use parking_lot::Mutex;

use crate::cache::{Cache, Question, Reply};
use crate::message::Query;
use crate::metrics::Metrics;
use servers::Servers;

/// The servers to which questions are forwarded.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// The file with the servers, such as `/etc/resolv.conf`. It is read again when it changes. Without a file, no names are
    /// forwarded.
    pub resolv_conf: Option<PathBuf>,
    /// Reads the servers from the file.
    pub read: fn(&Path) -> io::Result<Vec<IpAddr>>,
    /// The port of the servers.
    pub port: u16,
    /// The addresses of this server, to which it does not forward.
    pub own: Vec<IpAddr>,
}

type Resolution = BoxFuture<'static, Option<Arc<Reply>>>;

/// Forwards questions.
pub(crate) struct Forwarder {
    servers: Servers,
    cache: Mutex<Cache>,
    in_flight: Mutex<HashMap<Question, WeakShared<Resolution>>>,
    metrics: Arc<Metrics>,
}

impl Forwarder {
    pub(crate) fn new(config: ForwardConfig, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            servers: Servers::new(config),
            cache: Mutex::default(),
            in_flight: Mutex::default(),
            metrics,
        })
    }

    /// The response to a question from the cache.
    pub(crate) fn cached(&self, question: &Question) -> Option<Arc<Reply>> {
        let found = self.cache.lock().get(question, Instant::now());
        self.metrics.cache(found.is_some());
        found
    }

    /// The number of cached responses.
    pub(crate) fn cached_len(&self) -> usize {
        self.cache.lock().len()
    }

    /// Resolves a query; `None` if no server responds.
    pub(crate) fn resolve(self: &Arc<Self>, query: &Query, question: Question) -> Shared<Resolution> {
        let mut in_flight = self.in_flight.lock();
        if let Some(same) = in_flight.get(&question).and_then(WeakShared::upgrade) {
            return same;
        }
        // The response may have arrived since the caller looked it up.
        if let Some(reply) = self.cache.lock().get(&question, Instant::now()) {
            return futures_util::future::ready(Some(reply)).boxed().shared();
        }
        // The entry is removed when the query completes, and when all futures that wait for it are dropped.
        let entry = InFlightEntry { forwarder: Arc::downgrade(self), question: question.clone() };
        let forwarder = self.clone();
        let query = query.clone();
        let resolution = async move {
            let reply = forwarder.query_servers(&query, &entry.question).await;
            drop(entry);
            reply
        };
        let resolution = resolution.boxed().shared();
        in_flight.extend(resolution.downgrade().map(|weak| (question, weak)));
        resolution
    }

    async fn query_servers(&self, query: &Query, question: &Question) -> Option<Arc<Reply>> {
        let (candidates, changed) = self.servers.candidates(Instant::now());
        if changed {
            self.cache.lock().clear();
        }
        let mut failed = None;
        for server in candidates {
            match self.query_server(query, server).await {
                Ok(reply) if reply.is_answer() => {
                    let reply = Arc::new(reply);
                    self.cache.lock().insert(question.clone(), reply.clone());
                    return Some(reply);
                }
                // The next server may be able to resolve the name.
                Ok(reply) => failed = Some(Arc::new(reply)),
                Err(error) => {
                    tracing::debug!(%server, %error, "a resolver of the machine does not respond");
                    self.servers.failed(server, Instant::now());
                }
            }
        }
        failed
    }

    async fn query_server(
        &self,
        query: &Query,
        server: SocketAddr,
    ) -> Result<Reply, exchange::ExchangeError> {
        let started = Instant::now();
        let reply = exchange::ask(query, server).await;
        self.metrics.forwarded(reply.is_ok(), started.elapsed());
        if reply.is_ok() {
            self.servers.worked(server);
        }
        reply
    }
}

impl Reply {
    /// Whether the response is about the name (`NOERROR`, `NXDOMAIN`), and not about a failure of the server.
    fn is_answer(&self) -> bool {
        matches!(self.code(), 0 | 3)
    }
}

/// The entry of a question in flight.
struct InFlightEntry {
    forwarder: Weak<Forwarder>,
    question: Question,
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        if let Some(forwarder) = self.forwarder.upgrade() {
            forwarder.in_flight.lock().remove(&self.question);
        }
    }
}
