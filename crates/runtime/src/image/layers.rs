//! Layers: checked, unpacked into a staging directory, moved into the store.
//!
//! ```text
//!   snapshots/<chain>/fs                what a layer changes, on top of those below it
//!   snapshots/<chain>/size              the bytes of its files
//!   snapshots/<chain>/chain             the whole digest that the directory is named by
//!   snapshots/.new-import/<chain>/…     the same, of an import that is not finished
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use plumb_oci::{Digest, Digesting};

use super::archive::{Archive, Compression};
use super::import::explained;
use super::limits::{Counting, Limited, Limits};
use super::manifest::LayerFile;
use super::store::{ImageError, Images, UNFINISHED};
use super::unpack::{scan, unpack};

/// As many as Docker takes. All their names have to fit into one page of mount options.
pub(super) const MOST_LAYERS: usize = 127;
/// Digits of a digest that name a directory, for the same reason.
const NAME_DIGITS: usize = 20;
pub(super) const FILES: &str = "fs";
const SIZE: &str = "size";
const CHAIN: &str = "chain";
/// Every file takes a block, however small it is.
const BLOCK: u64 = 4096;

/// The name of a layer's directory in the store.
pub(super) fn layer_name(chain: &Digest) -> String {
    let mut name = chain.hex();
    name.truncate(NAME_DIGITS);
    name
}

/// A layer's files, relative to the snapshots.
pub(super) fn layer_path(chain: &Digest) -> PathBuf {
    Path::new(&layer_name(chain)).join(FILES)
}

/// Whether this can be a path that [`layer_path`] answers.
pub(super) fn is_layer_path(path: &Path) -> bool {
    path.to_str().and_then(|path| path.strip_suffix("/fs")).is_some_and(|name| {
        name.len() == NAME_DIGITS && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Writes beside a layer's files what [`Images::stored`] reads. Only once the files are complete.
pub(super) fn describe(directory: &Path, chain: &Digest, size: u64) -> io::Result<()> {
    fs::write(directory.join(CHAIN), chain.to_string())?;
    fs::write(directory.join(SIZE), size.to_string())
}

impl Images {
    /// The bytes of a layer's files, if the layer is in the store.
    pub(super) fn stored(&self, chain: &Digest) -> Result<Option<u64>, ImageError> {
        let directory = self.snapshots().join(layer_name(chain));
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let Some(size) = read(SIZE).and_then(|size| size.trim().parse().ok()) else { return Ok(None) };
        // Stores of older versions do not have it.
        match read(CHAIN) {
            Some(found) if found != chain.to_string() => Err(ImageError::Unusable {
                file: directory,
                why: format!(
                    "another layer, {found}, has the same short name as {chain}; remove its images first"
                ),
            }),
            _ => Ok(Some(size)),
        }
    }
}

/// Why a layer is rejected.
#[derive(Debug)]
pub(super) enum LayerError {
    /// The content does not match the digest.
    Digest {
        expected: Digest,
        found: Digest,
    },
    Io(io::Error),
}

impl From<io::Error> for LayerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl LayerError {
    pub(super) fn explained(self, file: &Path, doing: String) -> ImageError {
        match self {
            Self::Io(error) => explained(error, file, doing),
            Self::Digest { expected, found } => {
                ImageError::Digest { what: format!("{}: {doing}: it", file.display()), expected, found }
            }
        }
    }
}

/// The size of an unpacked layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verified {
    /// The bytes of the uncompressed layer.
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) name_bytes: u64,
}

impl Verified {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            entries: self.entries.saturating_add(other.entries),
            name_bytes: self.name_bytes.saturating_add(other.name_bytes),
        }
    }

    /// The disk that it takes at most.
    pub(super) fn disk(&self) -> u64 {
        self.entries.saturating_mul(BLOCK).saturating_add(self.bytes)
    }
}

/// Checks a layer against all of its digests, and that it can be unpacked within the limits. Changes nothing.
pub(super) fn verify(
    archive: &Archive,
    layer: &LayerFile,
    diff: Digest,
    limits: Limits,
) -> Result<Verified, LayerError> {
    let mut file = Digesting::new(archive.file(&layer.name)?);
    let (verified, found) = {
        let mut plain = Digesting::new(uncompressed(&mut file, limits)?);
        let scanned = scan(&mut plain, limits.entries)?;
        let (found, plain) = plain.finish_with()?;
        let (entries, name_bytes) = (scanned.entries, scanned.name_bytes);
        (Verified { bytes: plain.count(), entries, name_bytes }, found)
    };
    if found != diff {
        return Err(LayerError::Digest { expected: diff, found });
    }
    match (layer.digest, file.finish()?) {
        (Some(expected), found) if expected != found => Err(LayerError::Digest { expected, found }),
        _ => Ok(verified),
    }
}

fn uncompressed<'a>(mut file: impl Read + 'a, limits: Limits) -> io::Result<Limited<Box<dyn Read + 'a>>> {
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic)?;
    let compression = Compression::of(&magic);
    let (file, packed) = Counting::new(io::Cursor::new(magic).chain(file));
    Ok(Limited::new(compression.reader(file), limits, packed))
}

/// The staging directory of an import. It is removed when this is dropped.
pub(super) struct Staging(PathBuf);

impl Staging {
    /// Creates the directory, after removing an old one. Only under the store's lock.
    pub(super) fn make(snapshots: &Path) -> io::Result<Self> {
        let path = snapshots.join(format!("{UNFINISHED}-import"));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether a layer was unpacked here.
    pub(super) fn has(&self, chain: &Digest) -> bool {
        self.0.join(layer_name(chain)).exists()
    }

    /// Unpacks a layer onto those below it, the uppermost first, of which some may be here as well (`true`).
    pub(super) fn unpack(
        &self,
        archive: &Archive,
        layer: &LayerFile,
        diff: Digest,
        chain: Digest,
        below: &[(Digest, bool)],
        verified: Verified,
    ) -> Result<(), LayerError> {
        let name = layer_name(&chain);
        let directory = self.0.join(&name);
        for part in [FILES, "work", "merged"] {
            fs::create_dir_all(directory.join(part))?;
        }
        // It is the layer that was verified, or the digest differs: more is not read of it.
        let limits = Limits { unpacked_bytes: verified.bytes, ratio: u64::MAX, ..Limits::default() };
        let file = archive.file(&layer.name)?;
        let (size, found) = if below.is_empty() {
            read_layer(file, limits, &directory.join(FILES))?
        } else {
            self.onto(below, &name, |merged| read_layer(file, limits, merged))?
        };
        if found != diff {
            return Err(LayerError::Digest { expected: diff, found });
        }
        for part in ["work", "merged"] {
            fs::remove_dir_all(directory.join(part))?;
        }
        Ok(describe(&directory, &chain, size)?)
    }

    /// Does something to the layers below, on a thread whose mounts no other sees; the changes go to the layer of
    /// this name.
    fn onto<T: Send>(
        &self,
        below: &[(Digest, bool)],
        name: &str,
        change: impl FnOnce(&Path) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        // Relative, so that the names of all layers fit into one page of mount options.
        let lower = below
            .iter()
            .map(|(chain, here)| format!("{}{}/{FILES}", if *here { "" } else { "../" }, layer_name(chain)));
        let lower: Vec<String> = lower.collect();
        let options = format!("lowerdir={},upperdir={name}/{FILES},workdir={name}/work", lower.join(":"));
        let merged = self.0.join(name).join("merged");
        let none: Option<&str> = None;
        thread::scope(|scope| {
            let unpacking = scope.spawn(|| -> io::Result<T> {
                unshare(CloneFlags::CLONE_NEWNS)?;
                // The working directory is this thread's own now, as the mounts are.
                nix::unistd::chdir(&self.0)?;
                mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
                mount_overlay(&merged, &options)?;
                let changed = change(&merged);
                umount2(&merged, MntFlags::MNT_DETACH)?;
                changed
            });
            unpacking.join().unwrap_or_else(|_| Err(io::Error::other("unpacking broke off")))
        })
    }

    /// Has all of it be on disk: a layer that is in the store is complete, also after a power failure.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.0)?)?)
    }

    /// Moves all layers into the store.
    pub(super) fn move_into(&self, snapshots: &Path) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let to = snapshots.join(entry.file_name());
            // What is there is not complete: a complete layer would not have been unpacked again.
            match fs::remove_dir_all(&to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(entry.path(), to)?;
        }
        File::open(snapshots)?.sync_all()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove a staging directory of images before the next start");
        }
    }
}

/// Mounts an overlay of which nothing is synced when it is unmounted: without `volatile` each layer would wait for all that
/// was written to the file system, also by others. [`Staging::sync`] does so once.
fn mount_overlay(merged: &Path, options: &str) -> nix::Result<()> {
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let mount = |options: &str| mount(Some("overlay"), merged, Some("overlay"), flags, Some(options));
    match mount(&format!("{options},volatile")) {
        // A kernel before 5.10, or no space for one more option in the page that they have to fit into.
        Err(Errno::EINVAL) => mount(options),
        mounted => mounted,
    }
}

/// Unpacks, and answers the bytes of all files and the digest of what was unpacked.
fn read_layer(file: impl Read, limits: Limits, root: &Path) -> io::Result<(u64, Digest)> {
    let mut plain = Digesting::new(uncompressed(file, limits)?);
    let size = unpack(&mut plain, root)?;
    // The padding of the tar file counts as well.
    Ok((size, plain.finish()?))
}

/// The free space for images.
pub(super) struct Free {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// The free space of a file system, without a twentieth of its size, which is reserved.
pub(super) fn free(path: &Path) -> io::Result<Free> {
    let found = rustix::fs::statvfs(path)?;
    let without_reserve = |free: u64, all: u64| free.saturating_sub(all / 20);
    let inodes = match found.f_files {
        // Some file systems make them as they go.
        0 => u64::MAX,
        all => without_reserve(found.f_favail, all),
    };
    let blocks = without_reserve(found.f_bavail, found.f_blocks);
    Ok(Free { bytes: blocks.saturating_mul(found.f_frsize), inodes })
}
