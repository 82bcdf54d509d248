//! The store: the API for readers, writers and watchers.

use std::{
    collections::VecDeque,
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use parking_lot::{Mutex, MutexGuard};

use tokio::sync::oneshot;

use crate::{
    Cache, Conflict, Directory, Disk, Edit, Epoch, Event, EventFilter, Journal, Key, List, Object, OpenError,
    Page, Precondition, Prefix, Quota, Recent, Recovery, Remote, Revision, RevisionError, Snapshot, Ticket,
    Transformer, UpdateError, Usage, Watch, WatchBuffer, Write, WriteError, backup, committer::Shared,
    head::Head, journal::Memory, log::Log, remote::Engine, watch::Queue, write::Limit,
};

/// The number of attempts of an update. Each conflict means that another writer succeeded, so many are plausible.
const ATTEMPTS: usize = 1_000;

/// Options of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The bytes of replaced versions and of events that are retained for watches and reads at older revisions. If there are
    /// more, the largest collection loses its oldest events.
    pub history: usize,
    /// Which events are retained beyond that, if any.
    pub recent: Option<Recent>,
    /// How far a watcher may fall behind.
    pub watch_buffer: WatchBuffer,
    /// The maximum bytes of pending writes, above which further writes are rejected.
    pub pending: usize,
    /// The minimum bytes of the log between two checkpoints. If the objects are larger, the log may grow to their size.
    pub checkpoint: u64,
    /// The maximum bytes of the objects.
    pub quota: Quota,
    /// Transforms values on their way to the disk and back. Without one, they are stored and read unchanged.
    pub transformer: Option<Arc<dyn Transformer>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: 32 << 20,
            recent: None,
            watch_buffer: WatchBuffer { events: 4096, bytes: 16 << 20 },
            pending: 64 << 20,
            checkpoint: 64 << 20,
            quota: Quota::UNLIMITED,
            transformer: None,
        }
    }
}

/// The outcome of [`Store::update`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The key changed.
    Changed(Arc<Event>),
    /// The key is unchanged.
    Unchanged(Option<Arc<Object>>),
}

/// Statistics of a running store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The revision of the last write.
    pub revision: Revision,
    /// The oldest revision from which all collections can be read or watched; some collections have a longer history.
    pub oldest: Revision,
    /// The number of objects.
    pub objects: usize,
    /// The number of events in the history.
    pub history_events: usize,
    /// The bytes of the history.
    pub history_bytes: usize,
    /// The number of watches.
    pub watches: usize,
    /// The number of batches that were made durable since the start.
    pub batches: u64,
    /// The bytes after the last checkpoint, which the next start would have to replay.
    pub journal_bytes: u64,
    /// The bytes that objects use of the quota.
    pub usage: Usage,
    /// The number of writes that were rejected for the quota since the start.
    pub quota_rejections: u64,
}

/// Versioned objects in memory in front of a journal. Clones are handles to the same store.
///
/// When the last handle is dropped, accepted writes are made durable and the journal is closed.
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

struct Running {
    shared: Arc<Shared>,
    watch_buffer: WatchBuffer,
    transformer: Option<Arc<dyn Transformer>>,
    committer: Committer,
}

/// What commits writes.
enum Committer {
    /// A thread, which waits for the disk; `None` once it was joined.
    Thread(Mutex<Option<JoinHandle<()>>>),
    /// The thread of each writer, before the write returns, since there is no disk to wait for.
    Writers(Mutex<Memory>),
    /// A store elsewhere. The head is unused.
    Remote(Engine),
}

impl Store {
    /// Opens the store in a directory, or creates one in an empty or missing directory.
    ///
    /// If a value on the disk is stale ([`Transformer`]), all objects are written to a new checkpoint, and the files before it
    /// are removed, before this returns.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Directory::lock(directory)?), options)
    }

    /// Opens the store on any [`Disk`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let (mut log, recovery) = Log::open(disk, &options)?;
        if log.is_stale() {
            log.rewrite(&recovery.snapshot())?;
        }
        Self::start(Box::new(log), recovery, options)
    }

    /// Starts a store on any [`Journal`], from the state that was recovered from it.
    pub fn start(journal: Box<dyn Journal>, recovery: Recovery, options: Options) -> Result<Self, OpenError> {
        let mut durable = recovery.finish();
        durable.history.retain(durable.revision, options.recent);
        let shared = Arc::new(Shared::new(durable, options.pending, options.quota));
        shared.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        let committer = thread::Builder::new()
            .name("store-commit".into())
            .spawn({
                let shared = shared.clone();
                move || shared.commit_all(journal)
            })
            .map_err(OpenError::Thread)?;
        let committer = Committer::Thread(Mutex::new(Some(committer)));
        let Options { watch_buffer, transformer, .. } = options;
        Ok(Self { running: Arc::new(Running { shared, watch_buffer, transformer, committer }) })
    }

    /// Creates a store without a disk and without a thread. A write is visible, and dispatched to watchers, before it returns.
    ///
    /// It is for simulations, in which nothing may happen while the simulated clock is stopped. [`Options::recent`] is ignored,
    /// since it has a clock.
    pub fn in_memory(options: &Options) -> Self {
        let empty = Recovery::new(0, options.history).finish();
        let shared = Arc::new(Shared::new(empty, options.pending, options.quota));
        let committer = Committer::Writers(Mutex::new(Memory));
        let Options { watch_buffer, transformer, .. } = options.clone();
        Self { running: Arc::new(Running { shared, watch_buffer, transformer, committer }) }
    }

    /// Creates a store on a remote, which keeps the cache up to date.
    pub fn on(remote: Arc<dyn Remote>, cache: &Cache, options: &Options) -> Self {
        let Options { watch_buffer, transformer, quota, .. } = options.clone();
        let committer = Committer::Remote(Engine { remote, quota, quota_rejections: AtomicU64::new(0) });
        let shared = cache.shared().clone();
        Self { running: Arc::new(Running { shared, watch_buffer, transformer, committer }) }
    }

    /// The current snapshot. All reads of one snapshot are consistent.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared().current.load_full()
    }

    /// The revision of the last write.
    pub fn revision(&self) -> Revision {
        self.shared().current.load().revision
    }

    /// The object at a key.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.shared().current.load().get(key).cloned()
    }

    /// The object at a key as it was at a revision.
    pub fn get_at(&self, key: &Key, revision: Revision) -> Result<Option<Arc<Object>>, RevisionError> {
        self.shared().current.load().get_at(key, revision).map(Option::<&_>::cloned)
    }

    /// A page of objects.
    pub fn list(&self, list: &List) -> Result<Page, RevisionError> {
        self.snapshot().list(list)
    }

    /// A page of the objects that match; see [`Snapshot::list_where`].
    pub fn list_where(
        &self,
        list: &List,
        wanted: impl FnMut(&Object) -> bool,
    ) -> Result<Page, RevisionError> {
        self.snapshot().list_where(list, wanted)
    }

    /// Writes one key. The ticket resolves to the event.
    pub fn write(&self, write: Write) -> Ticket<Arc<Event>> {
        if let Some(engine) = self.engine() {
            return Ticket::decided_elsewhere(
                engine.transact(&self.snapshot(), vec![write]),
                |mut events| events.pop(),
            );
        }
        let mut head = self.shared().head.lock();
        let outcome = head.write(write);
        self.ticket(head, outcome)
    }

    /// Writes several keys: all or none, durable and visible together, with consecutive revisions.
    pub fn transact(&self, writes: Vec<Write>) -> Ticket<Vec<Arc<Event>>> {
        if let Some(engine) = self.engine() {
            return Ticket::decided_elsewhere(engine.transact(&self.snapshot(), writes), Some);
        }
        let mut head = self.shared().head.lock();
        let outcome = head.transact(writes);
        self.ticket(head, outcome)
    }

    /// Reads a key, lets a function decide on the change, and writes; retries if another writer changed the key meanwhile. The
    /// function returns `None` to leave the key unchanged. It is called without a lock.
    ///
    /// The function observes all writes accepted so far, durable or not, so that many updates of one key can share one batch.
    /// The ticket resolves, also to an error, only when the observed state is durable.
    pub fn update<E>(
        &self,
        key: &Key,
        mut decide: impl FnMut(Option<&Arc<Object>>) -> Result<Option<Edit>, E>,
    ) -> Ticket<UpdateOutcome, UpdateError<E>> {
        if self.engine().is_some() {
            return Ticket::new(self.update_remote(key, decide), None);
        }
        for _ in 0..ATTEMPTS {
            let (epoch, current) = {
                let head = self.shared().head.lock();
                (head.epoch(), head.get(key).cloned())
            };
            let edit = match decide(current.as_ref()) {
                Ok(Some(edit)) => edit,
                Ok(None) => return self.resolve_in(epoch, Ok(UpdateOutcome::Unchanged(current))),
                Err(refusal) => return self.resolve_in(epoch, Err(UpdateError::Refused(refusal))),
            };
            let precondition = current
                .as_ref()
                .map_or(Precondition::Absent, |object| Precondition::Revision(object.mod_revision));
            let write = Write { key: key.clone(), precondition, edit, limit: Limit::None };
            let mut head = self.shared().head.lock();
            if head.epoch() != epoch {
                continue;
            }
            match head.write(write) {
                Ok(event) => return self.ticket(head, Ok(UpdateOutcome::Changed(event))),
                // Another writer changed the key, unless it did not exist and this is a deletion.
                Err(WriteError::Conflict(conflict)) if conflict.current != current => {}
                Err(error) => return self.ticket(head, Err(error.into())),
            }
        }
        self.resolve(Err(WriteError::Contended(key.clone()).into()))
    }

    /// An update of an object of a remote. It blocks, since the outcome of each attempt decides whether there is another one.
    fn update_remote<E>(
        &self,
        key: &Key,
        mut decide: impl FnMut(Option<&Arc<Object>>) -> Result<Option<Edit>, E>,
    ) -> Result<UpdateOutcome, UpdateError<E>> {
        self.refresh().wait()?;
        for _ in 0..ATTEMPTS {
            let current = self.get(key);
            let edit = match decide(current.as_ref()) {
                Ok(Some(edit)) => edit,
                Ok(None) => return Ok(UpdateOutcome::Unchanged(current)),
                Err(refusal) => return Err(UpdateError::Refused(refusal)),
            };
            let precondition = current
                .as_ref()
                .map_or(Precondition::Absent, |object| Precondition::Revision(object.mod_revision));
            let write = Write { key: key.clone(), precondition, edit, limit: Limit::None };
            match self.write(write).wait() {
                Ok(event) => return Ok(UpdateOutcome::Changed(event)),
                // Another writer changed the key, unless it did not exist and this is a deletion.
                Err(WriteError::Conflict(conflict)) if conflict.current.as_deref() != current.as_deref() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(WriteError::Contended(key.clone()).into())
    }

    /// The object at a key with all writes accepted so far, durable or not.
    ///
    /// This is for a writer whose decision takes too long for [`Store::update`], for example because it calls a webhook. It
    /// reads the [`Store::epoch`], decides on this state, writes with [`Store::try_transact`], and starts again after a
    /// conflict. It must await [`Store::sync_in`] before it reveals the state to a client.
    ///
    /// On a [`Remote`], it is the object in the cache, which another writer may be ahead of.
    pub fn get_uncommitted(&self, key: &Key) -> Option<Arc<Object>> {
        if self.engine().is_some() {
            return self.get(key);
        }
        self.shared().head.lock().get(key).cloned()
    }

    /// The revision of the last accepted write, durable or not.
    pub fn accepted(&self) -> Revision {
        if self.engine().is_some() {
            return self.revision();
        }
        self.shared().head.lock().revision()
    }

    /// The current epoch, to which the results of [`Store::get_uncommitted`] belong until it changes.
    pub fn epoch(&self) -> Epoch {
        self.shared().head.lock().epoch()
    }

    /// Resolves when all writes accepted so far are durable.
    pub fn sync(&self) -> Ticket<()> {
        let Some(engine) = self.engine() else { return self.resolve(Ok(())) };
        let (reply, synced) = oneshot::channel();
        engine.remote.sync(reply);
        Ticket::new(Ok(()), Some(synced))
    }

    /// Resolves when reads return every write that was acknowledged before, also by other processes.
    ///
    /// The embedded store has no other writers, so it resolves at once.
    pub fn refresh(&self) -> Ticket<()> {
        let Some(engine) = self.engine() else { return Ticket::new(Ok(()), None) };
        let (reply, refreshed) = oneshot::channel();
        engine.remote.refresh(reply);
        Ticket::new(Ok(()), Some(refreshed))
    }

    /// Resolves when reads return the writes up to a revision, if they have happened.
    pub fn wait_for(&self, revision: Revision) -> Ticket<()> {
        if self.revision() >= revision { Ticket::new(Ok(()), None) } else { self.refresh() }
    }

    /// Whether other processes may write, too.
    pub fn is_shared(&self) -> bool {
        self.engine().is_some()
    }

    /// Resolves when all writes accepted so far are durable. Fails if writes of the epoch were rolled back.
    pub fn sync_in(&self, epoch: Epoch) -> Ticket<()> {
        self.resolve_in(epoch, Ok(()))
    }

    /// Writes several keys like [`Store::transact`], but returns a conflict immediately, so that a retry can be part of the same
    /// batch.
    ///
    /// The object in the conflict may not be durable yet; see [`Store::get_uncommitted`]. If the epoch has changed, the first
    /// write is a conflict.
    ///
    /// On a [`Remote`], a conflict is returned by the ticket.
    pub fn try_transact(
        &self,
        epoch: Epoch,
        writes: Vec<Write>,
    ) -> Result<Ticket<Vec<Arc<Event>>>, Conflict> {
        if self.engine().is_some() {
            return Ok(self.transact(writes));
        }
        let mut head = self.shared().head.lock();
        if let Some(first) = writes.first().filter(|_| head.epoch() != epoch) {
            let current = head.get(&first.key).cloned();
            return Err(Conflict { key: first.key.clone(), expected: first.precondition, current });
        }
        let outcome = match <[Write; 1]>::try_from(writes) {
            // A single write needs no copy of the state to roll back to.
            Ok([write]) => head.write(write).map(|event| vec![event]),
            Err(writes) => head.transact(writes),
        };
        match outcome {
            Err(WriteError::Conflict(conflict)) => Err(conflict),
            outcome => Ok(self.ticket(head, outcome)),
        }
    }

    /// Watches a subtree from a revision. The watch returns exactly the matching events after it, each once.
    pub fn watch(&self, filter: EventFilter, from: Revision) -> Result<Watch, RevisionError> {
        let shared = self.shared();
        let mut ready = VecDeque::new();
        // Most events are read from the history without the lock ...
        let recent = shared.current.load_full();
        recent.check(&filter.prefix, from)?;
        ready.extend(recent.history.events(&filter, from).cloned());
        // ... and only the events since then with the lock, while no snapshot can be published.
        let (id, queue) = shared.dispatcher.with_index(|index| {
            let now = shared.current.load_full();
            now.check(&filter.prefix, recent.revision)?;
            ready.extend(now.history.events(&filter, recent.revision).cloned());
            let queue = Arc::new(Queue::new(now.revision, self.running.watch_buffer));
            Ok((index.insert(&filter, queue.clone()), queue))
        })?;
        Ok(Watch::new(shared.dispatcher.clone(), id, filter, queue, from, ready))
    }

    /// Writes a consistent copy of the current state for [`crate::restore`]. The store remains usable meanwhile.
    pub fn backup(&self, writer: impl io::Write) -> io::Result<Revision> {
        let snapshot = self.snapshot();
        backup::write(&snapshot, writer, self.running.transformer.as_deref())?;
        Ok(snapshot.revision)
    }

    /// Whether the store accepts writes, or why not.
    pub fn writable(&self) -> Result<(), WriteError> {
        if let Some(engine) = self.engine() {
            return engine.remote.writable();
        }
        self.shared().head.lock().writable()
    }

    /// The bytes that objects use of the quota, with all writes accepted so far.
    pub fn usage(&self) -> Usage {
        if let Some(engine) = self.engine() {
            return engine.usage(&self.snapshot());
        }
        self.shared().head.lock().usage()
    }

    /// The current statistics.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let now = shared.current.load_full();
        let (usage, quota_rejections) = if let Some(engine) = self.engine() {
            (engine.usage(&now), engine.quota_rejections.load(Ordering::Relaxed))
        } else {
            let head = shared.head.lock();
            (head.usage(), head.quota_rejections())
        };
        Stats {
            revision: now.revision,
            oldest: now.oldest(&Prefix::everything()),
            objects: now.len(),
            history_events: now.history.len(),
            history_bytes: now.history.bytes(),
            watches: shared.dispatcher.len(),
            batches: shared.batches.load(Ordering::Relaxed),
            journal_bytes: shared.journal_bytes.load(Ordering::Relaxed),
            usage,
            quota_rejections,
        }
    }

    /// Rejects further writes, makes the accepted ones durable, ends all watches and closes the journal.
    ///
    /// Reads still work.
    pub fn close(&self) {
        self.running.close();
    }

    fn shared(&self) -> &Shared {
        &self.running.shared
    }

    fn engine(&self) -> Option<&Engine> {
        match &self.running.committer {
            Committer::Remote(engine) => Some(engine),
            Committer::Thread(_) | Committer::Writers(_) => None,
        }
    }

    /// A ticket for an outcome derived from the head. It resolves when the head is durable.
    fn resolve<T, E>(&self, outcome: Result<T, E>) -> Ticket<T, E> {
        self.ticket(self.shared().head.lock(), outcome)
    }

    /// A ticket for an outcome derived from the head in an epoch. It fails if the epoch has changed.
    fn resolve_in<T, E: From<WriteError>>(&self, epoch: Epoch, outcome: Result<T, E>) -> Ticket<T, E> {
        if self.engine().is_some() {
            return Ticket::new(outcome, None);
        }
        let head = self.shared().head.lock();
        let outcome = if head.epoch() == epoch {
            outcome
        } else {
            Err(WriteError::Full("writes on which this one depends were rolled back".into()).into())
        };
        self.ticket(head, outcome)
    }

    fn ticket<T, E>(&self, mut head: MutexGuard<'_, Head>, outcome: Result<T, E>) -> Ticket<T, E> {
        // If the head is durable already, the ticket resolves immediately.
        let committed = (head.revision() > self.revision()).then(|| head.add_ticket());
        drop(head);
        if committed.is_some() {
            match &self.running.committer {
                Committer::Thread(_) => _ = self.shared().work_pending.notify_one(),
                Committer::Writers(memory) => self.shared().commit_pending(&mut *memory.lock()),
                // Its head is unused.
                Committer::Remote(_) => {}
            }
        }
        Ticket::new(outcome, committed)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.stats()).finish()
    }
}

impl Running {
    fn close(&self) {
        self.shared.head.lock().close();
        self.shared.work_pending.notify_one();
        let thread = match &self.committer {
            Committer::Thread(thread) => thread.lock().take(),
            Committer::Writers(memory) => {
                self.shared.commit_pending(&mut *memory.lock());
                self.shared.dispatcher.close();
                None
            }
            Committer::Remote(engine) => {
                engine.remote.close();
                self.shared.dispatcher.close();
                None
            }
        };
        if let Some(committer) = thread {
            // Waking a watcher may drop the last store on the committer's thread, which cannot join itself.
            if committer.thread().id() != thread::current().id() {
                // The committer catches panics, so joining does not fail.
                let _ = committer.join();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}
