//! The store itself: the door for readers, writers and watchers.

use std::{
    collections::VecDeque,
    fmt, io,
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    Conflict, Directory, Disk, Edit, Event, Expect, Interest, Journal, Key, List, Object, OpenError, Page,
    Patience, Recovery, Revision, RevisionError, Snapshot, Ticket, UpdateError, Watch, Write, WriteError,
    backup, committer::Shared, head::Head, journal::Memory, log::Log, watch::Queue,
};

/// How often an update is tried against other writers of the same key. Each loss means that another one won.
const ATTEMPTS: usize = 1_000;

/// What may be chosen about a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The bytes of replaced versions and of events that are remembered for watches and reads at older revisions.
    pub history: usize,
    /// How far a watcher may fall behind.
    pub patience: Patience,
    /// The most bytes that may wait for the disk before writers are refused.
    pub pending: usize,
    /// The least log in bytes between two checkpoints; with more objects than that, the log may grow to their size.
    pub checkpoint: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: 32 << 20,
            patience: Patience { events: 4096, bytes: 16 << 20 },
            pending: 64 << 20,
            checkpoint: 64 << 20,
        }
    }
}

/// What an [`Store::update`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The key changed.
    Changed(Arc<Event>),
    /// It stayed as it is.
    Kept(Option<Arc<Object>>),
}

/// Figures about a running store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The revision of the last write.
    pub revision: Revision,
    /// The oldest revision that can be read or watched from.
    pub oldest: Revision,
    /// How many objects there are.
    pub objects: usize,
    /// How many events are remembered.
    pub history_events: usize,
    /// What they cost in bytes.
    pub history_bytes: usize,
    /// How many watches there are.
    pub watches: usize,
    /// How many batches were made durable since the start.
    pub batches: u64,
    /// The bytes that a start would have to replay behind the last checkpoint.
    pub journal_bytes: u64,
}

/// Versioned objects in memory in front of a journal. Clones are doors to the same store.
///
/// When the last one is dropped, accepted writes are made durable and the journal is let go.
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

struct Running {
    shared: Arc<Shared>,
    patience: Patience,
    committer: Committer,
}

/// Who makes batches visible.
enum Committer {
    /// A thread, which waits for the disk. None once it was waited for.
    Thread(Mutex<Option<JoinHandle<()>>>),
    /// Whoever writes, before they go on: there is nothing to wait for.
    Writers(Mutex<Memory>),
}

impl Store {
    /// Opens the store in a directory, or makes a new one in an empty or missing directory.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Directory::lock(directory)?), options)
    }

    /// Opens the store on any [`Disk`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let (log, recovery) = Log::open(disk, &options)?;
        Self::start(Box::new(log), recovery, options)
    }

    /// Starts a store on any [`Journal`] that knew this.
    pub fn start(journal: Box<dyn Journal>, known: Recovery, options: Options) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::new(known.finish(), options.pending));
        shared.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        let committer = thread::Builder::new()
            .name("store-commit".into())
            .spawn({
                let shared = shared.clone();
                move || shared.commit_all(journal)
            })
            .map_err(OpenError::Thread)?;
        let committer = Committer::Thread(Mutex::new(Some(committer)));
        Ok(Self { running: Arc::new(Running { shared, patience: options.patience, committer }) })
    }

    /// A store that nothing outlives: without a disk, and without a thread of its own. What is written is visible, and
    /// watchers are told of it, before the write returns.
    ///
    /// It is for simulations: where nothing waits for a disk, nothing happens while the simulated time stands still.
    pub fn in_memory(options: &Options) -> Self {
        let shared = Arc::new(Shared::new(Recovery::new(0, options.history).finish(), options.pending));
        let committer = Committer::Writers(Mutex::new(Memory));
        Self { running: Arc::new(Running { shared, patience: options.patience, committer }) }
    }

    /// The store as it is now. All reads of one snapshot agree with each other.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared().present.load_full()
    }

    /// The revision of the last write.
    pub fn revision(&self) -> Revision {
        self.shared().present.load().revision
    }

    /// The object at a key.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.shared().present.load().get(key).cloned()
    }

    /// The object at a key as it was at a revision.
    pub fn get_at(&self, key: &Key, revision: Revision) -> Result<Option<Arc<Object>>, RevisionError> {
        self.shared().present.load().get_at(key, revision).map(Option::<&_>::cloned)
    }

    /// A page of objects.
    pub fn list(&self, list: &List) -> Result<Page, RevisionError> {
        self.snapshot().list(list)
    }

    /// A page of those objects that are wanted; see [`Snapshot::list_where`].
    pub fn list_where(
        &self,
        list: &List,
        wanted: impl FnMut(&Object) -> bool,
    ) -> Result<Page, RevisionError> {
        self.snapshot().list_where(list, wanted)
    }

    /// Writes one key. The event is what happened.
    pub fn write(&self, write: Write) -> Ticket<Arc<Event>> {
        let mut head = self.shared().head.lock();
        let outcome = head.write(write);
        self.ticket(head, outcome)
    }

    /// Writes several keys: all or none, durable and visible together, with one revision after the other.
    pub fn transact(&self, writes: Vec<Write>) -> Ticket<Vec<Arc<Event>>> {
        let mut head = self.shared().head.lock();
        let outcome = head.transact(writes);
        self.ticket(head, outcome)
    }

    /// Reads a key, lets the function decide, and writes; again if another writer came between.
    /// The function answers `None` to leave the key as it is.
    ///
    /// It sees all writes accepted so far, durable or not, so that many updates of one key can share one batch.
    /// Whatever it decides, a refusal too, is told only when what it saw is durable. It runs without any lock.
    pub fn update<E>(
        &self,
        key: &Key,
        mut decide: impl FnMut(Option<&Arc<Object>>) -> Result<Option<Edit>, E>,
    ) -> Ticket<Updated, UpdateError<E>> {
        for _ in 0..ATTEMPTS {
            let current = self.shared().head.lock().get(key).cloned();
            let edit = match decide(current.as_ref()) {
                Ok(Some(edit)) => edit,
                Ok(None) => return self.answer(Ok(Updated::Kept(current))),
                Err(refusal) => return self.answer(Err(UpdateError::Refused(refusal))),
            };
            let expect =
                current.as_ref().map_or(Expect::Absent, |object| Expect::Revision(object.mod_revision));
            let write = Write { key: key.clone(), expect, edit };
            let mut head = self.shared().head.lock();
            match head.write(write) {
                Ok(event) => return self.ticket(head, Ok(Updated::Changed(event))),
                // Another writer came between, unless there never was anything to delete.
                Err(WriteError::Conflict(conflict)) if conflict.current != current => {}
                Err(error) => return self.ticket(head, Err(error.into())),
            }
        }
        self.answer(Err(WriteError::Contended(key.clone()).into()))
    }

    /// The object at a key as writers see it: with all writes accepted so far, durable or not.
    ///
    /// For a writer whose decision takes too long for [`Store::update`], such as one that asks others: it decides
    /// over this, writes with [`Store::attempt`], and begins again after a conflict. Whatever it tells anybody of
    /// what it saw waits for [`Store::settled`].
    pub fn newest(&self, key: &Key) -> Option<Arc<Object>> {
        self.shared().head.lock().get(key).cloned()
    }

    /// Waits until everything accepted so far is durable.
    pub fn settled(&self) -> Ticket<()> {
        self.answer(Ok(()))
    }

    /// Writes several keys like [`Store::transact`], but tells of a conflict at once, so that whoever lost against
    /// another writer can decide again in time for the same batch.
    ///
    /// What a conflict shows may not be durable yet; see [`Store::newest`].
    pub fn attempt(&self, writes: Vec<Write>) -> Result<Ticket<Vec<Arc<Event>>>, Conflict> {
        let mut head = self.shared().head.lock();
        let outcome = match <[Write; 1]>::try_from(writes) {
            // One write needs no state to fall back to.
            Ok([write]) => head.write(write).map(|event| vec![event]),
            Err(writes) => head.transact(writes),
        };
        match outcome {
            Err(WriteError::Conflict(conflict)) => Err(conflict),
            outcome => Ok(self.ticket(head, outcome)),
        }
    }

    /// Follows what happens after a revision: exactly the events of interest beyond it, each once.
    pub fn watch(&self, interest: Interest, from: Revision) -> Result<Watch, RevisionError> {
        let shared = self.shared();
        let mut ready = VecDeque::new();
        // The long way back is gone without holding anybody up ...
        let near = shared.present.load_full();
        near.check(from)?;
        ready.extend(near.history.of(&interest, from).cloned());
        // ... and only what came meanwhile while the present stands still.
        let (id, queue) = shared.hub.hold(|index| {
            let now = shared.present.load_full();
            now.check(near.revision)?;
            ready.extend(now.history.of(&interest, near.revision).cloned());
            let queue = Arc::new(Queue::new(now.revision, self.running.patience));
            Ok((index.insert(&interest, queue.clone()), queue))
        })?;
        Ok(Watch::new(shared.hub.clone(), id, interest, queue, from, ready))
    }

    /// Writes a consistent copy of the present, to be read by [`crate::restore`], while the store goes on.
    pub fn backup(&self, writer: impl io::Write) -> io::Result<Revision> {
        let snapshot = self.snapshot();
        backup::write(&snapshot, writer)?;
        Ok(snapshot.revision)
    }

    /// Whether writes are taken, or else why not.
    pub fn writable(&self) -> Result<(), WriteError> {
        self.shared().head.lock().writable()
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let now = shared.present.load_full();
        Stats {
            revision: now.revision,
            oldest: now.oldest(),
            objects: now.len(),
            history_events: now.history.len(),
            history_bytes: now.history.bytes(),
            watches: shared.hub.len(),
            batches: shared.batches.load(Ordering::Relaxed),
            journal_bytes: shared.journal_bytes.load(Ordering::Relaxed),
        }
    }

    /// Takes no more writes, makes the accepted ones durable, ends all watches and lets the journal go.
    ///
    /// Reads go on.
    pub fn close(&self) {
        self.running.close();
    }

    fn shared(&self) -> &Shared {
        &self.running.shared
    }

    /// An answer drawn from the head, given when that is durable.
    fn answer<T, E>(&self, outcome: Result<T, E>) -> Ticket<T, E> {
        self.ticket(self.shared().head.lock(), outcome)
    }

    fn ticket<T, E>(&self, mut head: MutexGuard<'_, Head>, outcome: Result<T, E>) -> Ticket<T, E> {
        // What is durable already can be told at once.
        let gate = (head.revision() > self.revision()).then(|| head.join());
        drop(head);
        if gate.is_some() {
            match &self.running.committer {
                Committer::Thread(_) => _ = self.shared().bell.notify_one(),
                Committer::Writers(memory) => self.shared().commit_waiting(&mut *memory.lock()),
            }
        }
        Ticket::new(outcome, gate)
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
        self.shared.bell.notify_one();
        let thread = match &self.committer {
            Committer::Thread(thread) => thread.lock().take(),
            Committer::Writers(memory) => {
                self.shared.commit_waiting(&mut *memory.lock());
                self.shared.hub.close();
                None
            }
        };
        if let Some(committer) = thread {
            // Waking a watcher may drop the last store on the committer's own thread, which cannot wait for itself.
            if committer.thread().id() != thread::current().id() {
                // It catches panics itself.
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
