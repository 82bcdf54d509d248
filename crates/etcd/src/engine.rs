//! The remote of a store: transactions, reads that are up to date, and health.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use plumb_store::{Cache, Conflict, Edit, Event, Key, Precondition, Remote, Revision, Write, WriteError};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use crate::client::{CallError, Client, revision};
use crate::pending::{Pending, Transaction};
use crate::proto::{
    Compare, Comparison, DeleteRangeRequest, KeyValue, Operation, PutRequest, RangeRequest, RequestOp,
    TxnRequest, TxnResponse,
};
use crate::value::{Codec, signed, unsigned};

/// How long the cache may take to receive a revision.
const CATCH_UP: Duration = Duration::from_secs(10);
/// How often the health of etcd is checked.
const CHECK_HEALTH: Duration = Duration::from_secs(2);
/// How long transactions may take at the end.
const CLOSE: Duration = Duration::from_secs(10);

type Reply<T> = oneshot::Sender<Result<T, WriteError>>;

/// What all tasks share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) codec: Codec,
    pub(crate) cache: Cache,
    pub(crate) health: Health,
    /// Wakes the feed, which asks etcd for its progress.
    pub(crate) progress_wanted: Notify,
    /// Whether a reported progress is never ahead of the events. It was before etcd 3.4.31 and 3.5.13.
    pub(crate) progress_is_reliable: bool,
    pending: Arc<Pending>,
    refreshing: Mutex<Refreshing>,
}

/// Readers that wait for the cache to be up to date. One request to etcd serves all that came before it.
#[derive(Debug, Default)]
struct Refreshing {
    is_running: bool,
    next: Vec<Reply<()>>,
}

/// Whether etcd can be reached: the last outcome of each part that depends on it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Why the feed receives no changes.
    feed: Mutex<Option<Arc<str>>>,
    /// Why the last check failed.
    check: Mutex<Option<Arc<str>>>,
}

impl Health {
    /// Records why the feed receives no changes, or that it does.
    pub(crate) fn set_feed(&self, result: Result<(), String>) {
        *self.feed.lock() = result.err().map(Into::into);
    }

    fn result(&self) -> Result<(), WriteError> {
        let why = self.check.lock().clone().or_else(|| self.feed.lock().clone());
        why.map_or(Ok(()), |why| Err(WriteError::Unavailable(why)))
    }
}

impl Inner {
    pub(crate) fn new(client: Client, codec: Codec, cache: Cache, progress_is_reliable: bool) -> Self {
        Self {
            client,
            codec,
            cache,
            health: Health::default(),
            progress_wanted: Notify::new(),
            progress_is_reliable,
            pending: Arc::default(),
            refreshing: Mutex::default(),
        }
    }

    /// Waits until the cache has a revision.
    async fn reached(&self, revision: Revision) -> Result<(), Arc<str>> {
        let waiting = self.cache.wait_for(revision);
        match timeout(CATCH_UP, waiting).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(format!("the watch of etcd is behind revision {revision}").into()),
        }
    }

    async fn transact(&self, mut prepared: Prepared) -> Result<Vec<Arc<Event>>, WriteError> {
        let response = self.client.txn(std::mem::take(&mut prepared.request)).await.map_err(failed)?;
        let at = response.header.as_ref().map_or(0, |header| unsigned(header.revision));
        if !response.succeeded {
            return Err(self.conflict(&prepared, &response, at).await);
        }
        // The outcome is known, but not what readers find, so the response must not be a success.
        self.reached(at).await.map_err(WriteError::Unknown)?;
        let lost = || WriteError::Unknown(format!("the event of revision {at} is not in the cache").into());
        prepared.keys.iter().map(|(key, _)| self.cache.event(key, at).ok_or_else(lost)).collect()
    }

    /// The conflict of a transaction, once the cache has the object that caused it: the next attempt reads it there.
    async fn conflict(&self, prepared: &Prepared, response: &TxnResponse, at: Revision) -> WriteError {
        let mut first = None;
        let mut awaited = 0;
        for ((key, condition), found) in prepared.keys.iter().zip(&response.responses) {
            let kv = found.range.as_ref().and_then(|range| range.kvs.first());
            if condition.holds(kv) {
                continue;
            }
            // The revision of a deletion is not known; it is not later than that of the response.
            awaited = awaited.max(kv.map_or(at, |kv| unsigned(kv.mod_revision)));
            if first.is_none() {
                let current = match kv.map(|kv| self.codec.decode(kv)).transpose() {
                    Ok(object) => object.map(Arc::new),
                    Err(error) => return WriteError::Rejected(error.to_string().into()),
                };
                first = Some(Conflict { key: key.clone(), expected: condition.precondition, current });
            }
        }
        if let Err(error) = self.catch_up(awaited).await {
            return error;
        }
        match first {
            Some(conflict) => conflict.into(),
            None => WriteError::Rejected("etcd reports a conflict, but no precondition fails".into()),
        }
    }

    /// Waits until the cache has everything up to a revision at which it may have no event.
    async fn catch_up(&self, revision: Revision) -> Result<(), WriteError> {
        if self.cache.revision() >= revision {
            return Ok(());
        }
        if self.progress_is_reliable {
            self.progress_wanted.notify_one();
            return self.reached(revision).await.map_err(WriteError::Unavailable);
        }
        let at = self.write_barrier().await?;
        self.reached(at).await.map_err(WriteError::Unavailable)
    }

    /// Writes a key whose event follows all earlier ones, and returns its revision.
    async fn write_barrier(&self) -> Result<Revision, WriteError> {
        let put = PutRequest { key: self.codec.layout.barrier(), value: Bytes::new() };
        let request = TxnRequest { success: vec![Operation::Put(put).into()], ..TxnRequest::default() };
        let response = self.client.txn(request).await.map_err(unavailable)?;
        Ok(unsigned(revision(response.header)))
    }

    /// Brings the cache up to date.
    async fn refresh(&self) -> Result<(), WriteError> {
        if !self.progress_is_reliable {
            let at = self.write_barrier().await?;
            return self.reached(at).await.map_err(WriteError::Unavailable);
        }
        let root = self.codec.layout.root().as_bytes();
        let now = unsigned(self.client.revision(root).await.map_err(unavailable)?);
        self.catch_up(now).await
    }

    /// Serves the readers that wait, and those that come meanwhile.
    async fn refresh_all(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut refreshing = self.refreshing.lock();
                if refreshing.next.is_empty() {
                    refreshing.is_running = false;
                    return;
                }
                std::mem::take(&mut refreshing.next)
            };
            let result = self.refresh().await;
            for reply in waiting {
                // The reader may be gone.
                let _ = reply.send(result.clone());
            }
        }
    }
}

/// A transaction as etcd gets it.
struct Prepared {
    keys: Vec<(Key, Condition)>,
    request: TxnRequest,
}

/// The condition of a write.
#[derive(Clone, Copy)]
struct Condition {
    precondition: Precondition,
    deletes: bool,
}

impl Condition {
    fn compares(self, path: &[u8]) -> Vec<Compare> {
        let compare = |comparison, revision| Compare::mod_revision(path.to_vec(), comparison, revision);
        let exists = || compare(Comparison::Greater, 0);
        let mut all = match self.precondition {
            Precondition::Anything => vec![],
            Precondition::Absent => vec![compare(Comparison::Equal, 0)],
            Precondition::Present => vec![exists()],
            // 0 is the revision of a missing key.
            Precondition::Revision(revision) => vec![compare(Comparison::Equal, signed(revision).max(1))],
        };
        if self.deletes {
            all.push(exists());
        }
        all
    }

    fn holds(self, kv: Option<&KeyValue>) -> bool {
        let holds = match self.precondition {
            Precondition::Anything => true,
            Precondition::Absent => kv.is_none(),
            Precondition::Present => kv.is_some(),
            Precondition::Revision(revision) => kv.is_some_and(|kv| unsigned(kv.mod_revision) == revision),
        };
        holds && (kv.is_some() || !self.deletes)
    }
}

/// The request for a transaction.
fn prepare(codec: &Codec, writes: Vec<Write>) -> Result<Prepared, WriteError> {
    let mut prepared = Prepared { keys: Vec::with_capacity(writes.len()), request: TxnRequest::default() };
    for write in writes {
        let (key, precondition, edit) = write.into_parts();
        let path = codec.layout.path(&key);
        let condition = Condition { precondition, deletes: matches!(edit, Edit::Delete) };
        let operation = match edit {
            Edit::Delete => Operation::Delete(DeleteRangeRequest { key: path.clone() }),
            Edit::Put { value, attributes } => {
                let failed =
                    |error: plumb_store::TransformerError| WriteError::Transform(error.to_string().into());
                let value = codec.encode(&key, value.encode(0), &attributes).map_err(failed)?;
                Operation::Put(PutRequest { key: path.clone(), value })
            }
        };
        let request = &mut prepared.request;
        request.compare.extend(condition.compares(&path));
        request.success.push(operation.into());
        let read = RangeRequest { key: path, ..RangeRequest::default() };
        request.failure.push(RequestOp::from(Operation::Range(read)));
        prepared.keys.push((key, condition));
    }
    Ok(prepared)
}

/// The error of a transaction.
fn failed(error: CallError) -> WriteError {
    let text = error.to_string().into();
    match error {
        CallError::Unreachable(_) => WriteError::Unavailable(text),
        CallError::Rejected(_) => WriteError::Rejected(text),
        CallError::Unknown(_) => WriteError::Unknown(text),
    }
}

/// The error of a request that has no effect on objects.
fn unavailable(error: CallError) -> WriteError {
    match failed(error) {
        WriteError::Unknown(text) => WriteError::Unavailable(text),
        other => other,
    }
}

/// Checks from time to time whether etcd can be reached.
pub(crate) async fn check_health(inner: Arc<Inner>) {
    loop {
        sleep(CHECK_HEALTH).await;
        let checked = inner.client.revision(inner.codec.layout.root().as_bytes()).await;
        *inner.health.check.lock() = checked.err().map(|error| error.to_string().into());
    }
}

/// The remote of a store on etcd.
pub(crate) struct Etcd {
    inner: Arc<Inner>,
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

impl Etcd {
    pub(crate) fn new(inner: Arc<Inner>, runtime: Runtime) -> Self {
        Self { inner, runtime: Mutex::new(Some(runtime)) }
    }

    /// Runs a task on the runtime of this remote; without one, the reply is dropped.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }
}

impl Remote for Etcd {
    fn transact(&self, writes: Vec<Write>, reply: Reply<Vec<Arc<Event>>>) {
        let begun = || -> Result<(Transaction, Prepared), WriteError> {
            let transaction = self.inner.pending.begin()?;
            Ok((transaction, prepare(&self.inner.codec, writes)?))
        };
        match begun() {
            Err(error) => _ = reply.send(Err(error)),
            Ok((_, prepared)) if prepared.keys.is_empty() => _ = reply.send(Ok(Vec::new())),
            Ok((transaction, prepared)) => {
                let inner = Arc::clone(&self.inner);
                self.spawn(async move {
                    let outcome = inner.transact(prepared).await;
                    // Before the reply: its receiver finds nothing pending.
                    drop(transaction);
                    let _ = reply.send(outcome);
                });
            }
        }
    }

    fn sync(&self, reply: Reply<()>) {
        let pending = Arc::clone(&self.inner.pending);
        self.spawn(async move {
            pending.sync().await;
            let _ = reply.send(Ok(()));
        });
    }

    fn refresh(&self, reply: Reply<()>) {
        if self.runtime.lock().is_none() {
            return;
        }
        let mut refreshing = self.inner.refreshing.lock();
        refreshing.next.push(reply);
        if !std::mem::replace(&mut refreshing.is_running, true) {
            drop(refreshing);
            self.spawn(Arc::clone(&self.inner).refresh_all());
        }
    }

    fn writable(&self) -> Result<(), WriteError> {
        self.inner.health.result()
    }

    fn close(&self) {
        self.inner.pending.close(CLOSE);
        if let Some(runtime) = self.runtime.lock().take() {
            // Without waiting: this may be called on a thread of another runtime.
            runtime.shutdown_background();
        }
        self.inner.refreshing.lock().next.clear();
    }
}
