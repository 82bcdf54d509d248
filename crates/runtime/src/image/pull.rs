//! From a registry to an image of the store.
//!
//! ```text
//!   downloads/<digest>            a complete layer that is not in the store yet
//!   downloads/<digest>.partial    the part of a layer that was received; the next pull continues from there
//!   downloads/pull-…/             the layers of one pull, as an OCI layout: links to those above
//! ```
//!
//! A pull downloads layers that no image of the store has, several at once, checks each as soon as it is there, and then has
//! them imported as those of an archive are: with the same checks and the same limits.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use plumb_oci::{Credentials, Descriptor, Digest, Progress, PullError, Reference, Registry, Resolved};
use rustix::fs::{FlockOperation, flock};

use super::archive::Archive;
use super::config::WholeConfig;
use super::import::{VerifiedFiles, chains};
use super::layers::{free, verify};
use super::limits::Limits;
use super::manifest::{FoundImage, LayerFile, blob_path};
use super::store::{DOWNLOADS, ImageError, ImageRecord, Images};
use crate::error::{Error, Result};
use crate::rootfs::RootFs;

/// How long a download is retained for the next pull of the same layer.
const STALE: Duration = Duration::from_hours(24);
/// How long a pull may take to lock the directory that it made.
const UNLOCKED: Duration = Duration::from_mins(1);
const PULL: &str = "pull-";
/// Numbers the pulls of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// An image to pull.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The image.
    pub image: Reference,
    /// The credentials for its registry.
    pub credentials: Option<Credentials>,
    /// The limits of unpacking.
    pub limits: Limits,
}

/// Pulls an image, unless the store has the registry's image of this name. Downloads stay for the next pull if this
/// one fails.
pub async fn pull(
    images: &Arc<Images>,
    registry: &Registry,
    request: &PullRequest,
    progress: &Progress,
) -> Result<Arc<ImageRecord>> {
    let whole = registry.limits().whole;
    match tokio::time::timeout(whole, pull_within(images, registry, request, progress)).await {
        Ok(pulled) => pulled,
        Err(_) => Err(Error::failed(
            format!("pulling {}", request.image),
            format!("not complete after {whole:?}; the next pull continues the downloads"),
        )),
    }
}

async fn pull_within(
    images: &Arc<Images>,
    registry: &Registry,
    request: &PullRequest,
    progress: &Progress,
) -> Result<Arc<ImageRecord>> {
    let PullRequest { image, credentials, limits } = request;
    if let Some(own) = images.find(&image.to_string())?.filter(|found| found.pinned) {
        return Ok(own);
    }
    let resolved = registry.resolve(image, credentials.as_ref()).await;
    let resolved = resolved.map_err(registry_error("failed to resolve reference"))?;
    let names =
        Names { tag: image.tag().map(|_| image.to_string()), digest: image.with_digest(resolved.digest()) };
    if let Some(there) = add_names(images, resolved.config_digest(), &names).await? {
        return Ok(there);
    }
    let config = resolved.config().await.map_err(registry_error("failed to download"))?.to_vec();
    let missing = missing(images, image, &config, resolved.layers())?;
    let directory = make_directory(images, &missing)?;
    let (layers, verified) =
        download(images, registry, &resolved, missing, (&directory, *limits), progress).await?;
    let found = FoundImage {
        config,
        layers: resolved.layers().iter().map(|layer| layer_file(layer.digest)).collect(),
        tags: names.tag.into_iter().collect(),
        digest: None,
        digests: vec![names.digest],
    };
    let (images, image, limits) = (images.clone(), image.to_string(), *limits);
    let importing = tokio::task::spawn_blocking(move || {
        let imported = images.import_pulled(&directory, found, &image, (limits, verified));
        // One that the system could not unpack now is there for the next pull; one that cannot be used is not.
        if !matches!(imported, Err(ImageError::Io { .. })) {
            for layer in layers {
                // Another pull of the same layer may have removed it.
                let _ = fs::remove_file(layer);
            }
        }
        if let Err(error) = sweep_downloads(&images.downloads(), UNLOCKED) {
            tracing::warn!(%error, "old downloads could not be removed");
        }
        imported
    });
    let imported = importing.await.map_err(|error| Error::failed("unpacking an image", error))?;
    Ok(Arc::new(imported?))
}

fn registry_error(doing: &'static str) -> impl Fn(PullError) -> Error {
    move |error| match error {
        PullError::Io { doing, source } => Error::io(doing, &source),
        other => Error::failed(doing, other),
    }
}

/// The names that a registry has for an image.
struct Names {
    tag: Option<String>,
    digest: String,
}

/// Adds the names to an image that the store has already.
async fn add_names(images: &Arc<Images>, id: Digest, names: &Names) -> Result<Option<Arc<ImageRecord>>> {
    let id = id.to_string();
    let Some(found) = images.list()?.into_iter().find(|record| record.id == id) else { return Ok(None) };
    let has_tag = names.tag.as_ref().is_none_or(|tag| found.tags.contains(tag));
    if has_tag && found.digests.contains(&names.digest) {
        return Ok(Some(found));
    }
    let (images, tag, digest) = (images.clone(), names.tag.clone(), names.digest.clone());
    let adding = tokio::task::spawn_blocking(move || images.add_names(&id, tag, digest));
    let added = adding.await.map_err(|error| Error::failed("naming an image", error))?;
    Ok(added?)
}

/// The layers that the store does not have on top of those below them, and their digests when they are uncompressed.
fn missing(
    images: &Images,
    image: &Reference,
    config: &[u8],
    layers: &[Descriptor],
) -> Result<Vec<(Descriptor, Digest)>> {
    let unusable = |why: String| ImageError::Unusable { file: PathBuf::from(image.to_string()), why };
    let config: WholeConfig = serde_json::from_slice(config)
        .map_err(|error| unusable(format!("a configuration that is not understood: {error}")))?;
    let mut missing: Vec<(Descriptor, Digest)> = Vec::new();
    let diffs = config.rootfs.diff_ids.iter().copied();
    for ((layer, diff), chain) in layers.iter().zip(diffs).zip(chains(&config.rootfs.diff_ids)) {
        let is_new = missing.iter().all(|(other, _)| other.digest != layer.digest);
        if is_new && images.stored(&chain)?.is_none() {
            missing.push((layer.clone(), diff));
        }
    }
    Ok(missing)
}

fn make_directory(images: &Images, missing: &[(Descriptor, Digest)]) -> Result<PullDirectory> {
    let downloads = images.downloads();
    let doing = |error: io::Error| Error::io(format!("downloading to {}", downloads.display()), &error);
    let bytes = missing.iter().fold(0_u64, |sum, (layer, _)| sum.saturating_add(layer.size));
    let free = free(&downloads).map_err(doing)?.bytes;
    if bytes > free {
        return Err(Error::failed(
            format!("downloading to {}", downloads.display()),
            format!(
                "it takes {bytes} bytes, and {free} are free; remove images that no pod uses with `plumb image rm`"
            ),
        ));
    }
    PullDirectory::make(&downloads).map_err(doing)
}

/// Downloads layers, several at once, and checks each as soon as it is there. Returns their paths, and those whose
/// content is right. The import checks the others again, and returns the error.
async fn download(
    images: &Images,
    registry: &Registry,
    resolved: &Resolved,
    layers: Vec<(Descriptor, Digest)>,
    (directory, limits): (&PullDirectory, Limits),
    progress: &Progress,
) -> Result<(Vec<PathBuf>, VerifiedFiles)> {
    let downloads = images.downloads();
    let one = |(layer, diff): (Descriptor, Digest)| {
        let downloads = &downloads;
        async move {
            let path = resolved.layer(&layer, downloads, progress).await;
            let path = path.map_err(registry_error("failed to download"))?;
            directory
                .add(&path, layer.digest)
                .map_err(|error| Error::io(format!("storing the layer {}", layer.digest), &error))?;
            let (folder, file) = (directory.path.clone(), layer_file(layer.digest));
            let checking = tokio::task::spawn_blocking(move || {
                let archive = Archive::Directory(RootFs::open(&folder).ok()?);
                let verified = verify(&archive, &file, diff, limits).ok()?;
                Some(((file, diff), verified))
            });
            Ok::<_, Error>((path, checking))
        }
    };
    let parallel = registry.limits().parallel_layers.max(1);
    let downloaded: Vec<_> = stream::iter(layers).map(one).buffer_unordered(parallel).try_collect().await?;
    let (mut paths, mut verified) = (Vec::new(), VerifiedFiles::new());
    for (path, checking) in downloaded {
        paths.push(path);
        verified.extend(checking.await.ok().flatten());
    }
    Ok((paths, verified))
}

fn layer_file(digest: Digest) -> LayerFile {
    LayerFile { name: blob_path(digest), digest: Some(digest) }
}

impl Images {
    /// The directory of downloads.
    pub(super) fn downloads(&self) -> PathBuf {
        self.folder().join(DOWNLOADS)
    }

    fn import_pulled(
        &self,
        directory: &PullDirectory,
        found: FoundImage,
        image: &str,
        (limits, verified): (Limits, VerifiedFiles),
    ) -> Result<ImageRecord, ImageError> {
        let archive = RootFs::open(&directory.path).map(Archive::Directory);
        let archive = archive.map_err(ImageError::io(format!("opening {}", directory.path.display())))?;
        let image = Path::new(image);
        let mut imported = self.import_found(image, limits, verified, |_| Ok((archive, vec![found])))?;
        imported
            .pop()
            .ok_or_else(|| ImageError::Unusable { file: image.to_owned(), why: "no image".to_owned() })
    }

    /// Adds names to an image; `None` if it was removed.
    fn add_names(
        &self,
        id: &str,
        tag: Option<String>,
        digest: String,
    ) -> Result<Option<Arc<ImageRecord>>, ImageError> {
        let lock = self.lock()?;
        let Some(found) = self.list()?.into_iter().find(|record| record.id == id) else { return Ok(None) };
        let mut record = ImageRecord::clone(&found);
        record.tags.extend(tag);
        record.digests.push(digest);
        for names in [&mut record.tags, &mut record.digests] {
            names.sort();
            names.dedup();
        }
        self.put(&lock, &record)?;
        Ok(Some(Arc::new(record)))
    }
}

/// Removes remains of killed pulls, and downloads that no pull has needed in a while. A directory without a lock
/// stays for as long as a pull may take to lock it.
pub(super) fn sweep_downloads(downloads: &Path, unlocked: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(downloads)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(file) = File::open(&path) else { continue };
        let found = file.metadata()?;
        let age = found.modified().ok().and_then(|modified| now.duration_since(modified).ok());
        let is_stale = age.is_some_and(|age| age >= if found.is_dir() { unlocked } else { STALE });
        // A pull holds a lock on the directories that it uses.
        if is_stale && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let removed = if found.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "an old download could not be removed");
            }
        }
    }
    Ok(())
}

/// The layers of one pull, in the form of an OCI layout. It is removed when this is dropped.
struct PullDirectory {
    path: PathBuf,
    /// Locked for as long as the directory is in use.
    _lock: File,
    blobs: PathBuf,
}

impl PullDirectory {
    fn make(downloads: &Path) -> io::Result<Self> {
        let name = format!("{PULL}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = downloads.join(name);
        // Left over by a process that had the same pid.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        let blobs =
            path.join(blob_path(Digest::of(b""))).parent().map_or_else(|| path.clone(), Path::to_owned);
        fs::create_dir_all(&blobs)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock, blobs })
    }

    /// Adds a layer by a link: another pull of it may be done earlier than this one, and remove its file.
    fn add(&self, layer: &Path, digest: Digest) -> io::Result<()> {
        fs::hard_link(layer, self.blobs.join(digest.hex()))
    }
}

impl Drop for PullDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the directory of a pull stays until the next start");
        }
    }
}
