//! The part of a layer that was downloaded so far, in a file that outlives the process.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::mpsc;

use crate::digest::{Digest, Hasher};

/// Names files of downloads that take place while another one of the same layer does.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The part of a layer that is there. No other download writes to its file.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    length: u64,
    /// Some of it was there before this download.
    resumed: bool,
}

impl Partial {
    /// Opens the part that is there of a layer of this size, or an empty one.
    pub(crate) fn open(directory: &Path, digest: Digest, size: u64) -> io::Result<Self> {
        let path = directory.join(format!("{}.partial", digest.hex()));
        let options = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options
        };
        let file = options().open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Another download writes to it. This one must neither wait for that nor disturb it.
            let other = format!(
                "{}.{}-{}.partial",
                digest.hex(),
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            );
            let path = directory.join(other);
            let file = options().truncate(true).open(&path)?;
            return Ok(Self { path, file, hasher: Hasher::default(), length: 0, resumed: false });
        }
        let mut partial = Self { path, file, hasher: Hasher::default(), length: 0, resumed: false };
        if partial.file.metadata()?.len() > size {
            partial.restart()?;
            return Ok(partial);
        }
        let mut buffer = vec![0; 1 << 20];
        loop {
            match partial.file.read(&mut buffer)? {
                0 => break,
                length => {
                    partial.hasher.update(&buffer[..length]);
                    partial.length += length as u64;
                }
            }
        }
        partial.resumed = partial.length > 0;
        Ok(partial)
    }

    /// How much of the layer is there.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether some of it was there before this download.
    pub(crate) fn was_resumed(&self) -> bool {
        self.resumed
    }

    /// Begins anew.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = Hasher::default();
        self.length = 0;
        self.resumed = false;
        Ok(())
    }

    /// Writes what is received until the sender is dropped. On a thread that may block.
    pub(crate) fn write_all(&mut self, mut received: mpsc::Receiver<Bytes>) -> io::Result<()> {
        while let Some(bytes) = received.blocking_recv() {
            self.file.write_all(&bytes)?;
            self.hasher.update(&bytes);
            self.length += bytes.len() as u64;
        }
        Ok(())
    }

    /// The digest of what is there.
    pub(crate) fn digest(&self) -> Digest {
        self.hasher.clone().finish()
    }

    /// Gives the complete layer its name.
    pub(crate) fn complete(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }

    /// Removes what is there.
    pub(crate) fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}
