//! From an archive to images.
//!
//! ```text
//!   read all documents -> check every digest against content -> unpack into a staging directory -> move into the store
//! ```
//!
//! The store is changed in the last step alone. An import that fails earlier leaves it as it was; what a killed one
//! leaves of its staging directory is removed when the store is opened next.

use std::collections::{HashMap, HashSet};
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_oci::{Digest, architecture};

use super::archive::Archive;
use super::config::WholeConfig;
use super::layers::{MOST_LAYERS, Staging, Verified, free, layer_path, verify};
use super::limits::{Limits, OverLimit};
use super::manifest::{FoundImage, LayerFile, UnusableImage, images};
use super::name::tagged;
use super::store::{ImageError, ImageRecord, Images, Lock};

/// All names of the files that an import unpacks; they are held in memory.
const MOST_NAME_BYTES: u64 = 256 << 20;
/// How many layers are checked at once.
const MOST_THREADS: usize = 4;

/// An image whose documents were checked.
struct Checked {
    id: Digest,
    config: WholeConfig,
    layers: Vec<Layer>,
    tags: Vec<String>,
    digest: Option<Digest>,
    /// Whole names with digests.
    digests: Vec<String>,
}

struct Layer {
    file: LayerFile,
    /// The digest of the uncompressed layer.
    diff: Digest,
    /// Names the layer together with all that are below it.
    chain: Digest,
}

impl Images {
    /// Imports every image of an archive: an OCI layout (a directory or a tar file) or what `docker save` writes.
    /// `names` are added to the names that the archive gives, if it has one image only.
    pub fn import(&self, file: &Path, names: &[String]) -> Result<Vec<ImageRecord>, ImageError> {
        self.import_within(file, names, Limits::default())
    }

    /// The same, with other limits.
    pub fn import_within(
        &self,
        file: &Path,
        names: &[String],
        limits: Limits,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let unusable = |why: String| ImageError::Unusable { file: file.to_owned(), why };
        self.import_found(file, limits, VerifiedFiles::new(), |staging| {
            let archive = Archive::open(file, staging.path(), within_free_space(staging, limits))
                .map_err(|error| explained(error, file, "reading it".to_owned()))?;
            let mut found = images(&archive).map_err(|error| unusable(error.to_string()))?;
            match found.as_mut_slice() {
                [] => return Err(unusable("no image for this machine in it".to_owned())),
                [one] => one.tags.extend(names.iter().cloned()),
                _ if names.is_empty() => {}
                _ => return Err(unusable("it has several images, so they keep their own names".to_owned())),
            }
            Ok((archive, found))
        })
    }

    /// Checks, unpacks and stores images that were found; `file` is their name in messages, and `verified` are the layers
    /// that were checked already.
    pub(super) fn import_found(
        &self,
        file: &Path,
        limits: Limits,
        verified: VerifiedFiles,
        find: impl FnOnce(&Staging) -> Result<(Archive, Vec<FoundImage>), ImageError>,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let unusable =
            |error: UnusableImage| ImageError::Unusable { file: file.to_owned(), why: error.to_string() };
        let lock = self.lock()?;
        let staging = Staging::make(&self.snapshots()).map_err(ImageError::io(format!(
            "making a staging directory in {}",
            self.snapshots().display()
        )))?;
        let (archive, found) = find(&staging)?;
        let checked: Vec<Checked> =
            found.into_iter().map(|image| check(image).map_err(unusable)).collect::<Result<_, _>>()?;
        self.refuse_pinned_names(&checked, file)?;
        let new = self.verify_layers(&archive, &checked, &staging, file, (limits, verified))?;
        unpack_all(&archive, &checked, &staging, file, &new)?;
        self.commit(&lock, checked, &staging)
    }

    /// The names of what is part of Plumb are not an archive's to take.
    fn refuse_pinned_names(&self, images: &[Checked], file: &Path) -> Result<(), ImageError> {
        let known = self.list()?;
        let pinned = known.iter().filter(|record| record.pinned).flat_map(|record| &record.tags);
        let pinned: HashSet<&String> = pinned.collect();
        match images.iter().flat_map(|image| &image.tags).find(|tag| pinned.contains(tag)) {
            None => Ok(()),
            Some(tag) => Err(ImageError::Unusable {
                file: file.to_owned(),
                why: format!("it names an image {tag}, which is part of plumb; give the image another name"),
            }),
        }
    }

    /// Checks the content of every layer that is not in the store against all of its digests, and answers by the
    /// chain what unpacking each takes. Nothing is changed.
    fn verify_layers(
        &self,
        archive: &Archive,
        images: &[Checked],
        staging: &Staging,
        file: &Path,
        (limits, known): (Limits, VerifiedFiles),
    ) -> Result<HashMap<Digest, Verified>, ImageError> {
        let unusable = |why: String| ImageError::Unusable { file: file.to_owned(), why };
        let mut new: Vec<&Layer> = Vec::new();
        let mut chains: HashSet<Digest> = HashSet::new();
        for layer in images.iter().flat_map(|image| &image.layers) {
            if chains.insert(layer.chain) && self.stored(&layer.chain)?.is_none() {
                new.push(layer);
            }
        }
        let files = verify_files(archive, &new, file, limits, known)?;
        let mut total = Verified::default();
        let mut verified_chains: HashMap<Digest, Verified> = HashMap::new();
        for layer in new {
            let verified = files.get(&(layer.file.clone(), layer.diff)).copied().unwrap_or_default();
            verified_chains.insert(layer.chain, verified);
            // A layer counts as often as it is unpacked: once for each stack of layers that it is on top of.
            total = total.and(verified);
            if total.bytes > limits.unpacked_bytes {
                return Err(unusable(OverLimit::Bytes(limits.unpacked_bytes).to_string()));
            }
            if total.entries > limits.entries {
                return Err(unusable(OverLimit::Entries(limits.entries).to_string()));
            }
            if total.name_bytes > MOST_NAME_BYTES {
                return Err(unusable(format!("its file names take more than {MOST_NAME_BYTES} bytes")));
            }
        }
        let free = free(staging.path()).map_err(ImageError::io("looking for free space"))?;
        if total.disk() > free.bytes || total.entries > free.inodes {
            return Err(unusable(format!(
                "it takes {} bytes and {} files, and {} bytes and {} files are free in {}; remove images that no \
                 pod uses with `plumb image rm`",
                total.disk(),
                total.entries,
                free.bytes,
                free.inodes,
                self.snapshots().display()
            )));
        }
        Ok(verified_chains)
    }

    /// Moves the new layers into the store, and writes the records. If that fails, what was changed is changed back.
    fn commit(
        &self,
        lock: &Lock,
        images: Vec<Checked>,
        staging: &Staging,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let before = self.list()?;
        let commit = || -> Result<Vec<ImageRecord>, ImageError> {
            staging.move_into(&self.snapshots()).map_err(ImageError::io("moving layers into the store"))?;
            let mut records = Vec::new();
            for image in images {
                let record = self.record(image)?;
                self.put(lock, &record)?;
                records.push(record);
            }
            Ok(records)
        };
        commit().inspect_err(|_| {
            if let Err(error) = self.restore(lock, &before) {
                tracing::warn!(%error, "what a failed import changed could not be changed back");
            }
        })
    }

    fn record(&self, image: Checked) -> Result<ImageRecord, ImageError> {
        let mut size = 0;
        for layer in &image.layers {
            size += self.stored(&layer.chain)?.unwrap_or(0);
        }
        let mut tags = image.tags;
        let mut digests = image.digests;
        if let Some(digest) = &image.digest {
            digests.extend(tags.iter().map(|tag| format!("{}@{digest}", without_tag(tag))));
        }
        let id = image.id.to_string();
        if let Some(before) = self.list()?.iter().find(|record| record.id == id) {
            // The same image under another name.
            tags.extend_from_slice(&before.tags);
            digests.extend_from_slice(&before.digests);
        }
        for names in [&mut tags, &mut digests] {
            names.sort();
            names.dedup();
        }
        Ok(ImageRecord {
            id,
            tags,
            digests,
            config: image.config.config,
            layers: image.layers.iter().rev().map(|layer| layer_path(&layer.chain)).collect(),
            size,
            imported_at: Timestamp::now(),
            pinned: false,
        })
    }
}

/// Layers whose content was checked, and the digest of the uncompressed layer that it was checked against.
pub(super) type VerifiedFiles = HashMap<(LayerFile, Digest), Verified>;

/// Checks the content of layers that are not known yet, each file once and several at a time.
fn verify_files(
    archive: &Archive,
    layers: &[&Layer],
    file: &Path,
    limits: Limits,
    known: VerifiedFiles,
) -> Result<VerifiedFiles, ImageError> {
    let mut files: Vec<(&LayerFile, Digest)> = Vec::new();
    let mut seen: HashSet<(&LayerFile, Digest)> = HashSet::new();
    for layer in layers {
        if seen.insert((&layer.file, layer.diff)) && !known.contains_key(&(layer.file.clone(), layer.diff)) {
            files.push((&layer.file, layer.diff));
        }
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(files.len()).min(MOST_THREADS);
    let (next, bytes, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::new());
    let work = || {
        // No further layer is read once they are too many bytes together, or one is bad.
        while !failed.load(Ordering::Relaxed) && bytes.load(Ordering::Relaxed) <= limits.unpacked_bytes {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((layer, diff)) = files.get(index) else { break };
            let verified = verify(archive, layer, *diff, limits);
            match &verified {
                Ok(verified) => _ = bytes.fetch_add(verified.bytes, Ordering::Relaxed),
                Err(_) => failed.store(true, Ordering::Relaxed),
            }
            results.lock().push((index, verified));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(index, _)| *index);
    let complete = results.len() == files.len();
    let mut verified = known;
    for (index, result) in results {
        let (layer, diff) = files[index];
        let doing = || format!("reading the layer {:?}", layer.name);
        verified.insert((layer.clone(), diff), result.map_err(|error| error.explained(file, doing()))?);
    }
    if complete {
        Ok(verified)
    } else {
        let why = OverLimit::Bytes(limits.unpacked_bytes).to_string();
        Err(ImageError::Unusable { file: file.to_owned(), why })
    }
}

/// Unpacks all new layers into the staging directory.
fn unpack_all(
    archive: &Archive,
    images: &[Checked],
    staging: &Staging,
    file: &Path,
    new: &HashMap<Digest, Verified>,
) -> Result<(), ImageError> {
    let unwritten = |error| ImageError::io("writing layers to disk")(error);
    thread::scope(|scope| {
        let mut syncs = Vec::new();
        for image in images {
            let mut below = Vec::new();
            for layer in &image.layers {
                let verified = new.get(&layer.chain);
                if let Some(verified) = verified.filter(|_| !staging.has(&layer.chain)) {
                    staging
                        .unpack(archive, &layer.file, layer.diff, layer.chain, &below, *verified)
                        .map_err(|error| {
                            error.explained(file, format!("unpacking the layer {:?}", layer.file.name))
                        })?;
                    // The disk writes while the next layer is unpacked.
                    if syncs.last().is_none_or(thread::ScopedJoinHandle::is_finished) {
                        syncs.push(scope.spawn(|| staging.sync()));
                    }
                }
                below.insert(0, (layer.chain, verified.is_some()));
            }
        }
        // The kernel reports an error of writing once: the last sync may not see it.
        for sync in syncs {
            let synced = sync.join().unwrap_or_else(|_| Err(io::Error::other("syncing broke off")));
            synced.map_err(unwritten)?;
        }
        staging.sync().map_err(unwritten)
    })
}

/// Checks an image's documents: for which machine it is, its layers' digests, its names.
fn check(image: FoundImage) -> Result<Checked, UnusableImage> {
    let config: WholeConfig = serde_json::from_slice(&image.config).map_err(UnusableImage::Config)?;
    if (!config.os.is_empty() && config.os != "linux")
        || (!config.architecture.is_empty() && config.architecture != architecture())
    {
        return Err(UnusableImage::Platform { os: config.os, architecture: config.architecture });
    }
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(UnusableImage::LayerCount);
    }
    if image.layers.len() > MOST_LAYERS {
        return Err(UnusableImage::TooManyLayers { count: image.layers.len(), most: MOST_LAYERS });
    }
    let diffs = config.rootfs.diff_ids.iter().copied();
    let files = image.layers.into_iter().zip(diffs).zip(chains(&config.rootfs.diff_ids));
    let layers = files.map(|((file, diff), chain)| Layer { file, diff, chain }).collect();
    let mut tags: Vec<String> = image.tags.iter().map(|tag| tagged(tag)).collect::<Result<_, _>>()?;
    tags.sort();
    tags.dedup();
    Ok(Checked {
        id: Digest::of(&image.config),
        config,
        layers,
        tags,
        digest: image.digest,
        digests: image.digests,
    })
}

/// Of each layer, the digest that names it together with all that are below it.
pub(super) fn chains(diffs: &[Digest]) -> Vec<Digest> {
    let mut chains: Vec<Digest> = Vec::new();
    for diff in diffs {
        let chain = match chains.last() {
            None => *diff,
            Some(below) => Digest::of(format!("{below} {diff}").as_bytes()),
        };
        chains.push(chain);
    }
    chains
}

/// An error of the archive is distinguished from one of the operating system.
pub(super) fn explained(error: io::Error, file: &Path, doing: String) -> ImageError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
            ImageError::Unusable { file: file.to_owned(), why: format!("{doing}: {error}") }
        }
        _ => ImageError::Io { doing: format!("{}: {doing}", file.display()), source: error },
    }
}

/// A compressed archive is uncompressed into the staging directory, and must not fill the disk either.
fn within_free_space(staging: &Staging, limits: Limits) -> Limits {
    let free = free(staging.path()).map_or(u64::MAX, |free| free.bytes);
    Limits { unpacked_bytes: limits.unpacked_bytes.min(free), ..limits }
}

fn without_tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}
