//! How much an import may take from the machine.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limits of an import. An archive that exceeds them is refused before anything of it is unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of all its layers together, uncompressed.
    pub unpacked_bytes: u64,
    /// The files, directories and links of all its layers together.
    pub entries: u64,
    /// How many bytes one compressed byte may become, once [`Limits::any_ratio_bytes`] were unpacked.
    pub ratio: u64,
    /// Up to here a file may be compressed by any ratio: a small one with many zeros is not an attack.
    pub any_ratio_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unpacked_bytes: 32 << 30, entries: 1_000_000, ratio: 200, any_ratio_bytes: 1 << 30 }
    }
}

/// An archive asks for more than the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OverLimit {
    #[error(
        "it unpacks to more than {0} bytes; if that is right, allow it with a larger --max-unpacked-bytes"
    )]
    Bytes(u64),
    #[error("it has more than {0} files, directories and links")]
    Entries(u64),
    #[error("it unpacks to more than {0} times its size, as archives do that are made to fill a disk")]
    Ratio(u64),
}

impl From<OverLimit> for io::Error {
    fn from(over: OverLimit) -> Self {
        Self::new(io::ErrorKind::InvalidData, over)
    }
}

/// Counts what was read.
pub(super) struct Counting<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R> Counting<R> {
    pub(super) fn new(inner: R) -> (Self, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        (Self { inner, count: count.clone() }, count)
    }
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Reads uncompressed bytes and fails as soon as they are too many.
pub(super) struct Limited<R> {
    inner: R,
    limits: Limits,
    /// The compressed bytes that were read.
    packed: Arc<AtomicU64>,
    read: u64,
}

impl<R: Read> Limited<R> {
    pub(super) fn new(inner: R, limits: Limits, packed: Arc<AtomicU64>) -> Self {
        Self { inner, limits, packed, read: 0 }
    }

    /// How much was read.
    pub(super) fn count(&self) -> u64 {
        self.read
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read = self.read.saturating_add(length as u64);
        if self.read > self.limits.unpacked_bytes {
            return Err(OverLimit::Bytes(self.limits.unpacked_bytes).into());
        }
        let packed = self.packed.load(Ordering::Relaxed);
        if self.read > self.limits.any_ratio_bytes && self.read > packed.saturating_mul(self.limits.ratio) {
            return Err(OverLimit::Ratio(self.limits.ratio).into());
        }
        Ok(length)
    }
}
