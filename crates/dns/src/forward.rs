//! Forwarding to the resolvers of the machine.
//!
//! ```text
//!   question ──▶ cache ──▶ the same question under way? ──▶ the first server that works ──▶ UDP, and TCP if truncated
//!                              │ its response serves all
//! ```
//!
//! A question that is under way is not asked a second time. So a loop, where a resolver of the machine asks this server again, ends
//! with a timeout of one question and does not multiply.

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

/// To which servers questions are forwarded.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// The file that names them, as `/etc/resolv.conf` does. It is read again when it changes. Without one no name is
    /// forwarded.
    pub resolv_conf: Option<PathBuf>,
    /// Reads the servers from the file.
    pub read: fn(&Path) -> io::Result<Vec<IpAddr>>,
    /// The port of the servers.
    pub port: u16,
    /// Addresses of this server, which it does not forward to.
    pub own: Vec<IpAddr>,
}

type Asking = BoxFuture<'static, Option<Arc<Reply>>>;

/// Forwards questions.
pub(crate) struct Forwarder {
    servers: Servers,
    cache: Mutex<Cache>,
    underway: Mutex<HashMap<Question, WeakShared<Asking>>>,
    metrics: Arc<Metrics>,
}

impl Forwarder {
    pub(crate) fn new(config: ForwardConfig, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            servers: Servers::new(config),
            cache: Mutex::default(),
            underway: Mutex::default(),
            metrics,
        })
    }

    /// The response to a question from the cache.
    pub(crate) fn cached(&self, question: &Question) -> Option<Arc<Reply>> {
        let found = self.cache.lock().get(question, Instant::now());
        self.metrics.cache(found.is_some());
        found
    }

    /// How many responses are cached.
    pub(crate) fn cached_len(&self) -> usize {
        self.cache.lock().len()
    }

    /// Asks for the response to a query; `None` if no server has one.
    pub(crate) fn resolve(self: &Arc<Self>, query: &Query, question: Question) -> Shared<Asking> {
        let mut underway = self.underway.lock();
        if let Some(same) = underway.get(&question).and_then(WeakShared::upgrade) {
            return same;
        }
        // It may have been answered since the caller looked.
        if let Some(reply) = self.cache.lock().get(&question, Instant::now()) {
            return futures_util::future::ready(Some(reply)).boxed().shared();
        }
        // Removed when it is done, and when all who waited for it have gone.
        let entry = UnderwayEntry { forwarder: Arc::downgrade(self), question: question.clone() };
        let forwarder = self.clone();
        let query = query.clone();
        let asking = async move {
            let reply = forwarder.ask(&query, &entry.question).await;
            drop(entry);
            reply
        };
        let asking = asking.boxed().shared();
        underway.extend(asking.downgrade().map(|weak| (question, weak)));
        asking
    }

    async fn ask(&self, query: &Query, question: &Question) -> Option<Arc<Reply>> {
        let (candidates, changed) = self.servers.candidates(Instant::now());
        if changed {
            self.cache.lock().clear();
        }
        let mut failed = None;
        for server in candidates {
            match self.ask_one(query, server).await {
                Ok(reply) if reply.is_answer() => {
                    let reply = Arc::new(reply);
                    self.cache.lock().insert(question.clone(), reply.clone());
                    return Some(reply);
                }
                // The next one may know better.
                Ok(reply) => failed = Some(Arc::new(reply)),
                Err(error) => {
                    tracing::debug!(%server, %error, "a resolver of the machine does not answer");
                    self.servers.failed(server, Instant::now());
                }
            }
        }
        failed
    }

    async fn ask_one(&self, query: &Query, server: SocketAddr) -> Result<Reply, exchange::ExchangeError> {
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
    /// Whether it says something of the name, rather than that the server could not find out.
    fn is_answer(&self) -> bool {
        matches!(self.code(), 0 | 3)
    }
}

/// The entry of a question that is under way.
struct UnderwayEntry {
    forwarder: Weak<Forwarder>,
    question: Question,
}

impl Drop for UnderwayEntry {
    fn drop(&mut self) {
        if let Some(forwarder) = self.forwarder.upgrade() {
            forwarder.underway.lock().remove(&self.question);
        }
    }
}
