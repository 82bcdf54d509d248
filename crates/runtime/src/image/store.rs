//! Which images there are.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_oci::{Digest, normalise};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::config::ImageConfig;
use super::layers::is_layer_path;
use super::pull::sweep_downloads;
use crate::shim::{load, store};

const RECORDS: &str = "records";
pub(super) const SNAPSHOTS: &str = "snapshots";
pub(super) const DOWNLOADS: &str = "downloads";
const LOCK_FILE: &str = "lock";
/// The directory of images that are being imported.
pub(super) const UNFINISHED: &str = ".new";
/// Layers have set-user programs in them that other users of the machine must not reach.
const CLOSED: u32 = 0o700;

/// Why something could not be done with images.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// The error.
        source: io::Error,
    },
    /// The archive is none, or not one of ours.
    #[error("{}: {why}", file.display())]
    Unusable {
        /// The archive.
        file: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// The content does not match its digest.
    #[error("{what} has the digest {found} instead of {expected}: the archive is damaged or was changed")]
    Digest {
        /// The file or blob.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
}

impl ImageError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl From<ImageError> for crate::Error {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Io { doing, source } => Self::io(doing, &source),
            other => Self::InvalidArgument(other.to_string()),
        }
    }
}

/// An image that is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageRecord {
    /// The digest of its configuration, with `sha256:` before it.
    pub id: String,
    /// The whole names with tags that lead to it.
    pub tags: Vec<String>,
    /// The whole names with digests that lead to it.
    pub digests: Vec<String>,
    /// How to run it.
    pub config: ImageConfig,
    /// Its layers' folders, relative to [`Images::snapshots`], the uppermost first.
    pub layers: Vec<PathBuf>,
    /// The disk it takes, in bytes.
    pub size: u64,
    /// When it was imported.
    pub imported_at: Timestamp,
    /// It cannot be removed.
    pub pinned: bool,
}

/// The images in a folder. Several processes may use it at once.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// When the folder of records was last changed, as of this reading.
    as_of: Option<SystemTime>,
    records: Vec<Arc<ImageRecord>>,
    /// Some records could not be read, so it is not known which layers are in use.
    incomplete: bool,
}

/// No other process changes the store while this is held.
pub(super) struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Images {
    /// Whether a directory has images. Creates nothing.
    pub fn exist_in(folder: &Path) -> bool {
        [RECORDS, SNAPSHOTS, DOWNLOADS].iter().all(|part| folder.join(part).is_dir())
    }

    /// The images in this folder, which is made if it is not there.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, ImageError> {
        let folder = folder.into();
        // Layers are unpacked by a thread with a working directory of its own.
        let folder =
            std::path::absolute(&folder).map_err(ImageError::io(format!("finding {}", folder.display())))?;
        for part in [RECORDS, SNAPSHOTS, DOWNLOADS] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(ImageError::io(format!("making {}", path.display())))?;
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(CLOSED))
            .map_err(ImageError::io(format!("closing {}", folder.display())))?;
        let images = Self { folder, known: Mutex::default() };
        // Left over by an import that was killed.
        let _lock = images.lock()?;
        images.sweep()?;
        if let Err(error) = sweep_downloads(&images.downloads(), Duration::ZERO) {
            tracing::warn!(%error, "old downloads of images could not be looked through");
        }
        Ok(images)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The directory of layers.
    pub fn snapshots(&self) -> PathBuf {
        self.folder.join(SNAPSHOTS)
    }

    pub(super) fn lock(&self) -> Result<Lock, ImageError> {
        let path = self.folder.join(LOCK_FILE);
        let doing = || format!("locking {}", path.display());
        let file = File::options().create(true).write(true).truncate(false).open(&path);
        let file = file.map_err(ImageError::io(doing()))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| ImageError::io(doing())(errno.into()))?;
        Ok(Lock(file))
    }

    /// All of them, by id.
    pub fn list(&self) -> Result<Vec<Arc<ImageRecord>>, ImageError> {
        let folder = self.folder.join(RECORDS);
        let doing = || format!("reading {}", folder.display());
        let changed =
            fs::metadata(&folder).and_then(|found| found.modified()).map_err(ImageError::io(doing()))?;
        let mut known = self.known.lock();
        if known.as_of == Some(changed) {
            return Ok(known.records.clone());
        }
        let mut records: Vec<Arc<ImageRecord>> = Vec::new();
        let mut incomplete = false;
        for entry in fs::read_dir(&folder).map_err(ImageError::io(doing()))? {
            let path = entry.map_err(ImageError::io(doing()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                match read_record(&path) {
                    Ok(record) => records.push(Arc::new(record)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        incomplete = true;
                        tracing::warn!(path = %path.display(), %error, "an image's record cannot be read");
                    }
                }
            }
        }
        records.sort_by(|a, b| a.id.cmp(&b.id));
        *known = Known { as_of: Some(changed), records: records.clone(), incomplete };
        Ok(records)
    }

    /// The one of this name, digest or id; an id may be without `sha256:` and shortened.
    pub fn find(&self, name: &str) -> Result<Option<Arc<ImageRecord>>, ImageError> {
        let records = self.list()?;
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        let is_id = hex.len() >= 12 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let whole = normalise(name);
        let by_name = records.iter().find(|record| {
            record.tags.contains(&whole) || record.digests.contains(&whole) || record.id == name
        });
        let by_id = || {
            let mut matching = records.iter().filter(|record| is_id && digits(&record.id).starts_with(hex));
            matching.next().filter(|_| matching.next().is_none())
        };
        Ok(by_name.or_else(by_id).cloned())
    }

    /// Adds or replaces a record. Other records lose its names.
    pub(super) fn put(&self, _lock: &Lock, record: &ImageRecord) -> Result<(), ImageError> {
        for other in self.list()? {
            if other.id != record.id && other.tags.iter().any(|tag| record.tags.contains(tag)) {
                let mut without = ImageRecord::clone(&other);
                without.tags.retain(|tag| !record.tags.contains(tag));
                self.write(&without)?;
            }
        }
        self.write(record)
    }

    fn write(&self, record: &ImageRecord) -> Result<(), ImageError> {
        let path = self.record_of(&record.id)?;
        store(&path, record, true).map_err(ImageError::io(format!("writing {}", path.display())))?;
        self.known.lock().as_of = None;
        Ok(())
    }

    fn record_of(&self, id: &str) -> Result<PathBuf, ImageError> {
        let records = self.folder.join(RECORDS);
        match id.parse::<Digest>() {
            Ok(id) => Ok(records.join(format!("{}.json", id.hex()))),
            Err(error) => Err(ImageError::Unusable { file: records, why: format!("an image's id: {error}") }),
        }
    }

    /// Restores the records, and removes layers that were added since.
    pub(super) fn restore(&self, _lock: &Lock, before: &[Arc<ImageRecord>]) -> Result<(), ImageError> {
        for added in self.list()?.iter().filter(|now| !before.iter().any(|record| record.id == now.id)) {
            let path = self.record_of(&added.id)?;
            fs::remove_file(&path).map_err(ImageError::io(format!("removing {}", path.display())))?;
        }
        for record in before {
            self.write(record)?;
        }
        self.known.lock().as_of = None;
        self.sweep()
    }

    /// Removes a name, or, by its id or its last name, an image. Layers that no other image needs go with it.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        let lock = self.lock()?;
        let Some(found) = self.find(name)? else { return Ok(()) };
        let whole = normalise(name);
        let mut rest = ImageRecord::clone(&found);
        rest.tags.retain(|tag| *tag != whole);
        if rest.tags.len() < found.tags.len() && !rest.tags.is_empty() {
            return self.put(&lock, &rest);
        }
        let path = self.record_of(&found.id)?;
        fs::remove_file(&path).map_err(ImageError::io(format!("removing {}", path.display())))?;
        self.known.lock().as_of = None;
        self.sweep()
    }

    /// Removes layers that belong to no image. Only under the store's lock. A layer that cannot be removed is logged:
    /// it must not keep the runtime from starting.
    fn sweep(&self) -> Result<(), ImageError> {
        let records = self.list()?;
        if self.known.lock().incomplete {
            tracing::warn!("some images' records cannot be read, so no layer is removed");
            return Ok(());
        }
        let used: HashSet<PathBuf> = records
            .iter()
            .flat_map(|record| record.layers.iter().filter_map(|layer| layer.parent().map(Path::to_owned)))
            .collect();
        let folder = self.snapshots();
        let doing = || format!("sweeping {}", folder.display());
        for entry in fs::read_dir(&folder).map_err(ImageError::io(doing()))? {
            let entry = entry.map_err(ImageError::io(doing()))?;
            if used.contains(Path::new(&entry.file_name())) {
                continue;
            }
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "a layer that no image uses could not be removed");
            }
        }
        Ok(())
    }
}

/// A record, if its id names the file that it is in and its layers are layers of the store.
fn read_record(path: &Path) -> io::Result<ImageRecord> {
    let record: ImageRecord = load(path)?;
    let is_own = record.id.parse::<Digest>().is_ok_and(|id| path.file_stem() == Some(OsStr::new(&id.hex())));
    if is_own && record.layers.iter().all(|layer| is_layer_path(layer)) {
        Ok(record)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "its id or its layers are not what they can be"))
    }
}

/// An id without the prefix before its digits.
fn digits(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}
