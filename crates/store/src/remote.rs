//! The seam to a store elsewhere, such as etcd: it makes writes durable, and reports all changes in their order.
//!
//! ```text
//!  writers ──▶ Store ──▶ Remote::transact ──▶ the store elsewhere ◀── other writers
//!                                                      │ watch
//!  readers, watchers ◀── Store ◀── Cache::apply ◀──────┘
//! ```
//!
//! What the embedded engine has in memory is a cache here: the current snapshot, its history and the dispatcher. An event gets
//! its revision from the store elsewhere, so that all events of one transaction have the same one.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    Change, Edit, Event, EventFilter, Key, MAX_TRANSACTION, Object, Options, Quota, Recent, Record, Recovery,
    RecoveryError, Revision, Snapshot, Usage, Value, Write, WriteError,
    committer::Shared,
    head::{apply, check_size},
    ticket::Transacted,
    write::Limit,
};

/// A store elsewhere.
///
/// Its methods do not block. A reply is dropped only when the remote is closed.
pub trait Remote: fmt::Debug + Send + Sync + 'static {
    /// Writes several keys: all or none. The reply is sent when the [`Cache`] has the revision of the write.
    ///
    /// A precondition is compared with the objects of the remote, and not with those of the cache. When a conflict is reported,
    /// the cache has the object of the conflict or a later one.
    fn transact(&self, writes: Vec<Write>, reply: oneshot::Sender<Result<Vec<Arc<Event>>, WriteError>>);

    /// Replies when the outcome of every transaction is known that was begun before.
    fn sync(&self, reply: oneshot::Sender<Result<(), WriteError>>);

    /// Replies when the cache has every write that was acknowledged to any client before.
    fn refresh(&self, reply: oneshot::Sender<Result<(), WriteError>>);

    /// Whether the remote can be reached, or why not.
    fn writable(&self) -> Result<(), WriteError>;

    /// Begins no further transaction, and waits until the outcome of those is known that were begun.
    fn close(&self);
}

/// What waits for a revision.
type Waiter = (Revision, oneshot::Sender<()>);

/// A copy of the objects of a [`Remote`], with their recent history, which the remote keeps up to date.
///
/// One thread at a time may change it. Clones are handles to the same cache.
#[derive(Debug, Clone)]
pub struct Cache {
    shared: Arc<Shared>,
    waiting: Arc<Mutex<Vec<Waiter>>>,
    history: usize,
    recent: Option<Recent>,
}

impl Cache {
    /// Creates a cache with all objects at a revision.
    pub fn new(
        objects: impl IntoIterator<Item = Object>,
        revision: Revision,
        options: &Options,
    ) -> Result<Self, RecoveryError> {
        let snapshot = snapshot(objects, revision, options.history, options.recent.clone())?;
        Ok(Self {
            shared: Arc::new(Shared::of_cache(snapshot)),
            waiting: Arc::default(),
            history: options.history,
            recent: options.recent.clone(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// The revision up to which the cache has all changes.
    pub fn revision(&self) -> Revision {
        self.shared.current.load().revision
    }

    /// Applies changes in the order of their revisions: all changes up to the last revision. Changes that the cache has are
    /// skipped.
    pub fn apply(&self, changes: impl IntoIterator<Item = (Revision, Record)>) {
        let before = self.snapshot();
        let mut objects = before.objects.clone();
        let mut events = Vec::new();
        for (revision, record) in changes {
            if revision <= before.revision {
                continue;
            }
            let change = match record {
                Record::Put(object) => match objects.get(&object.key).cloned() {
                    None => Change::Created(Arc::new(object)),
                    // All versions share the allocation of the key.
                    Some(previous) => {
                        let current = Arc::new(Object { key: previous.key.clone(), ..object });
                        Change::Updated { current, previous }
                    }
                },
                Record::Delete(key) => match objects.get(&key).cloned() {
                    Some(previous) => Change::Deleted(previous),
                    None => continue,
                },
            };
            let event = Arc::new(Event { revision, change });
            apply(&mut objects, &event);
            events.push(event);
        }
        let current = self.shared.publish(&events, objects);
        self.shared.dispatcher.dispatch(&events);
        self.resolve(current.revision);
    }

    /// Advances to a revision up to which there are no further changes.
    pub fn progress(&self, revision: Revision) {
        let before = self.snapshot();
        if revision <= before.revision {
            return;
        }
        let current = Arc::new(Snapshot { revision, ..Snapshot::clone(&before) });
        self.shared.dispatcher.with_index(|_| self.shared.current.store(current));
        self.shared.dispatcher.progress(revision);
        self.resolve(revision);
    }

    /// Replaces all objects, after changes were missed. All watches end as [`crate::WatchEnd::Lagged`], and earlier revisions
    /// are compacted.
    pub fn reset(
        &self,
        objects: impl IntoIterator<Item = Object>,
        revision: Revision,
    ) -> Result<(), RecoveryError> {
        let replacing = Arc::new(snapshot(objects, revision, self.history, self.recent.clone())?);
        self.shared.dispatcher.replace(revision, || self.shared.current.store(replacing));
        self.resolve(revision);
        Ok(())
    }

    /// Resolves when the cache has a revision.
    pub fn wait_for(&self, revision: Revision) -> oneshot::Receiver<()> {
        let (reached, waiter) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        // With the lock: the revision is published before the waiters are resolved.
        if self.revision() >= revision {
            // The receiver is returned below.
            let _ = reached.send(());
        } else {
            waiting.push((revision, reached));
        }
        waiter
    }

    /// Whether anything waits for a later revision.
    pub fn is_awaited(&self) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.retain(|(_, waiter)| !waiter.is_closed());
        !waiting.is_empty()
    }

    fn resolve(&self, revision: Revision) {
        let reached: Vec<_> =
            self.waiting.lock().extract_if(.., |(awaited, _)| *awaited <= revision).collect();
        for (_, waiter) in reached {
            // The waiter may have been dropped.
            let _ = waiter.send(());
        }
    }

    /// The event of a key at a revision, if the history has it.
    pub fn event(&self, key: &Key, revision: Revision) -> Option<Arc<Event>> {
        let snapshot = self.snapshot();
        let filter = EventFilter::prefix(key.into());
        let mut changes = snapshot.changes(&filter, revision.checked_sub(1)?).ok()?;
        changes.find(|event| event.revision == revision && event.key() == key).cloned()
    }
}

fn snapshot(
    objects: impl IntoIterator<Item = Object>,
    revision: Revision,
    history: usize,
    recent: Option<Recent>,
) -> Result<Snapshot, RecoveryError> {
    let mut recovery = Recovery::new(revision, history);
    for object in objects {
        recovery.load(object)?;
    }
    let mut snapshot = recovery.finish();
    snapshot.history.retain(revision, recent);
    Ok(snapshot)
}

/// The remote of a store, and the quota of its objects, which the remote does not know.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) quota: Quota,
    pub(crate) quota_rejections: AtomicU64,
}

impl Engine {
    /// The bytes of the objects in the cache.
    pub(crate) fn usage(&self, current: &Snapshot) -> Usage {
        Usage { bytes: current.bytes(), quota: self.quota }
    }

    /// Sends a transaction, unless it exceeds a limit.
    pub(crate) fn transact(&self, current: &Snapshot, writes: Vec<Write>) -> Transacted {
        let (reply, transacted) = oneshot::channel();
        match self.check(current, writes) {
            Ok(writes) => self.remote.transact(writes, reply),
            Err(error) => {
                let is_quota = matches!(
                    error,
                    WriteError::QuotaExceeded { .. } | WriteError::NamespaceQuotaExceeded { .. }
                );
                self.quota_rejections.fetch_add(u64::from(is_quota), Ordering::Relaxed);
                // The receiver is returned below.
                let _ = reply.send(Err(error));
            }
        }
        transacted
    }

    /// The writes with encoded values, if each is within the limits. Quotas are compared with the cache, which other writers
    /// may be ahead of.
    fn check(&self, current: &Snapshot, writes: Vec<Write>) -> Result<Vec<Write>, WriteError> {
        let mut size = 0;
        let mut checked = Vec::with_capacity(writes.len());
        for write in writes {
            let Write { key, precondition, edit, limit } = write;
            let edit = match edit {
                Edit::Delete => Edit::Delete,
                Edit::Put { value, attributes } => {
                    // The revision is not known yet; the remote inserts it when it reads the value.
                    let value = value.encode(0);
                    check_size(&key, &value, &attributes)?;
                    size += value.len();
                    let quota = match limit {
                        Limit::None => None,
                        Limit::Quota => Some(self.quota),
                        Limit::Margin => Some(self.quota.with_margin()),
                    };
                    if let Some(quota) = quota {
                        current.objects.check_put(&key, value.len() + attributes.size(), quota)?;
                    }
                    Edit::Put { value: Value::Plain(value), attributes }
                }
            };
            checked.push(Write { key, precondition, edit, limit });
        }
        if size > MAX_TRANSACTION { Err(WriteError::TransactionTooLarge(size)) } else { Ok(checked) }
    }
}
