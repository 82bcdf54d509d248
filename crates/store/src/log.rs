//! The write-ahead log: a journal of checksummed batches after a checkpoint, in one directory.
//!
//! ```text
//! FORMAT                    the format version; written last when a store is created
//! checkpoint-<revision>     all objects at a revision (an archive)
//! log-<revision>            the batches after a revision; there are two while a checkpoint is being written
//! *.tmp                     unfinished, removed at the next start
//! LOCK                      locked by the process that has the store open
//! ```
//! The log is preallocated with zeros in steps, so that a batch overwrites allocated bytes and its fdatasync writes no metadata
//! of the file system.

mod frame;
mod open;

use std::{
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

pub(crate) use open::create;
pub use open::is_store;

use crate::{
    Disk, DiskFile, Event, Journal, JournalError, Revision, Snapshot, Transformer, archive, disk::Sequential,
};

/// The step in which the log is preallocated.
const STEP: u64 = 512 << 10;
/// The number of bytes after which a checkpoint is synced, so that its dirty pages do not delay the sync of a batch.
const SYNC_INTERVAL: u64 = 4 << 20;
/// The buffer capacity that is retained for the next batch; a larger buffer is freed.
const SCRATCH: usize = 1 << 20;

/// The suffix of an unfinished file.
const UNFINISHED: &str = ".tmp";

fn log_name(base: Revision) -> String {
    format!("log-{base:020}")
}

fn checkpoint_name(revision: Revision) -> String {
    format!("checkpoint-{revision:020}")
}

/// The newest log file, which batches are appended to.
struct Tail {
    /// The revision after which the log starts.
    base: Revision,
    name: String,
    file: Box<dyn DiskFile>,
    /// The number of the log, which its frames contain.
    id: u32,
    /// The offset of the next frame.
    offset: u64,
    /// The end of the preallocated bytes.
    filled: u64,
}

impl Tail {
    /// Creates a log that starts after a revision, with space for the first batches.
    fn create(disk: &dyn Disk, base: Revision) -> Result<Self, CreateError> {
        let name = log_name(base);
        let unfinished = format!("{name}{UNFINISHED}");
        let (header, id) = frame::file_header(base);
        let offset = header.len() as u64;
        let prepare = || {
            let file = disk.create(&unfinished)?;
            let mut start = header.to_vec();
            start.resize(usize::try_from(STEP).unwrap_or(header.len()), 0);
            file.write_all_at(&start, 0)?;
            file.sync()?;
            Ok((file, start.len() as u64))
        };
        let (file, filled) = prepare().map_err(|error| {
            // Frees the disk space.
            let _ = disk.remove(&unfinished);
            CreateError::Before(error)
        })?;
        let named = disk.rename(&unfinished, &name).and_then(|()| disk.sync());
        named.map_err(CreateError::Naming)?;
        Ok(Self { base, name, file, id, offset, filled })
    }
}

/// Why a new log cannot be created.
#[derive(Debug)]
enum CreateError {
    /// The log was not created, and nothing has changed.
    Before(io::Error),
    /// It is unknown whether the new log exists after the next start, so the old one must not be appended to.
    Naming(io::Error),
}

impl From<CreateError> for io::Error {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Before(error) | CreateError::Naming(error) => error,
        }
    }
}

/// The write-ahead log.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    tail: Tail,
    /// The bytes of the log files before the tail, which the next start would have to replay.
    older: u64,
    frame: Vec<u8>,
    /// The minimum log in bytes between two checkpoints.
    min_bytes: u64,
    /// The size of the last checkpoint. The log may grow to it before the next one, which bounds the write amplification.
    checkpoint: u64,
    running: Option<Checkpoint>,
    transformer: Option<Arc<dyn Transformer>>,
    /// Whether a value in a file is stale; see [`crate::FromStorage`].
    is_stale: bool,
}

/// A checkpoint that is being written.
struct Checkpoint {
    thread: JoinHandle<io::Result<u64>>,
    stop: Arc<AtomicBool>,
}

impl Journal for Log {
    fn append(&mut self, batch: &[Arc<Event>]) -> Result<(), JournalError> {
        frame::encode(&mut self.frame, self.tail.id, batch, self.transformer.as_deref())?;
        let tail = &mut self.tail;
        let end = tail.offset + self.frame.len() as u64;
        let failed = |action: &'static str, source| {
            let file = self.disk.describe(&tail.name);
            JournalError::Failed { action, file, source }
        };
        while tail.filled < end {
            let step = vec![0; usize::try_from(STEP - tail.filled % STEP).unwrap_or(0)];
            match tail.file.write_all_at(&step, tail.filled) {
                Ok(()) => tail.filled += step.len() as u64,
                Err(source) if is_full(&source) => {
                    return Err(JournalError::Full { file: self.disk.describe(&tail.name), source });
                }
                Err(source) => return Err(failed("fill", source)),
            }
        }
        tail.file.write_all_at(&self.frame, tail.offset).map_err(|source| failed("write", source))?;
        tail.file.sync().map_err(|source| failed("sync", source))?;
        tail.offset = end;
        if self.frame.capacity() > SCRATCH {
            self.frame = Vec::new();
        }
        Ok(())
    }

    fn maintain(&mut self, durable: &Snapshot) -> Result<(), JournalError> {
        if let Some(running) = self.running.take_if(|running| running.thread.is_finished()) {
            self.finish_checkpoint(running);
        }
        if self.running.is_none() && self.tail.offset >= self.min_bytes.max(self.checkpoint) {
            self.start_checkpoint(durable)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.older + self.tail.offset
    }
}

impl Log {
    /// Starts a new log, and writes a checkpoint of the state before it in the background.
    fn start_checkpoint(&mut self, durable: &Snapshot) -> Result<(), JournalError> {
        let tail = match Tail::create(self.disk.as_ref(), durable.revision) {
            Ok(tail) => tail,
            Err(CreateError::Before(error)) => {
                // Retries when the old log has doubled.
                self.checkpoint = self.tail.offset.saturating_mul(2);
                tracing::warn!(%error, "cannot create a new log, continuing with the old one");
                return Ok(());
            }
            Err(CreateError::Naming(source)) => {
                let file = self.disk.describe(&log_name(durable.revision));
                return Err(JournalError::Failed { action: "name", file, source });
            }
        };
        self.older += self.tail.offset;
        self.tail = tail;
        let stop = Arc::new(AtomicBool::new(false));
        let started = thread::Builder::new().name("store-checkpoint".into()).spawn({
            let disk = self.disk.clone();
            let durable = durable.clone();
            let stop = stop.clone();
            let transformer = self.transformer.clone();
            move || {
                let continues = || !stop.load(Ordering::Relaxed);
                write_checkpoint(disk.as_ref(), &durable, transformer.as_deref(), &continues)
            }
        });
        match started {
            Ok(thread) => self.running = Some(Checkpoint { thread, stop }),
            Err(error) => tracing::warn!(%error, "cannot start a checkpoint"),
        }
        Ok(())
    }

    fn finish_checkpoint(&mut self, checkpoint: Checkpoint) {
        match checkpoint.thread.join() {
            Ok(Ok(size)) => {
                self.checkpoint = size;
                self.older = 0;
            }
            // No log was removed, so nothing is lost. The next attempt follows when the log has grown again.
            Ok(Err(error)) => tracing::warn!(%error, "checkpoint failed"),
            Err(_) => tracing::error!("checkpoint panicked"),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.store(true, Ordering::Relaxed);
            // Waits for the thread, which uses the disk. Its result is not needed.
            let _ = running.thread.join();
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Writes a checkpoint of all objects, then removes the logs and checkpoints that it supersedes.
fn write_checkpoint(
    disk: &dyn Disk,
    snapshot: &Snapshot,
    transformer: Option<&dyn Transformer>,
    continues: &dyn Fn() -> bool,
) -> io::Result<u64> {
    let name = checkpoint_name(snapshot.revision);
    let unfinished = format!("{name}{UNFINISHED}");
    let file = Sequential { file: disk.create(&unfinished)?, offset: 0 };
    let mut out = BufWriter::with_capacity(256 << 10, SyncingWriter { file, synced: 0 });
    let written = archive::write(snapshot, &mut out, transformer, continues);
    let size = match written.and_then(|size| out.flush().map(|()| size)) {
        Ok(size) => size,
        Err(error) => {
            // Free the disk space.
            let _ = disk.remove(&unfinished);
            return Err(error);
        }
    };
    out.get_ref().file.file.sync()?;
    disk.rename(&unfinished, &name)?;
    disk.sync()?;
    for old in disk.names()? {
        if open::Name::parse(&old).is_some_and(|old| old.revision() < snapshot.revision) {
            disk.remove(&old)?;
        }
    }
    Ok(size)
}

/// A writer that syncs its file every few megabytes.
struct SyncingWriter {
    file: Sequential,
    synced: u64,
}

impl Write for SyncingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        if self.file.offset - self.synced >= SYNC_INTERVAL {
            self.file.file.sync()?;
            self.synced = self.file.offset;
        }
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
