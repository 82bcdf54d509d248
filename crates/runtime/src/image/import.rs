//! From an archive to an image.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use jiff::Timestamp;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use ring::digest::{Context, SHA256, digest};
use serde::Deserialize;

use super::archive::{Archive, Compression};
use super::config::WholeConfig;
use super::name::normalise;
use super::store::{ImageError, ImageRecord, Images, Turn, UNFINISHED};
use super::unpack::unpack;
use crate::hex::hex;
use crate::mountinfo::escaped;

/// An index may lead to an index, but not for ever.
const DEEPEST_INDEX: u32 = 4;
const LAYER: &str = "fs";

/// An image as an archive describes it.
struct Found {
    config: Vec<u8>,
    layers: Vec<Layer>,
    tags: Vec<String>,
    digest: Option<String>,
}

struct Layer {
    file: String,
    /// Of the file as it is in the archive, where the archive says it.
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciIndex {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Images {
    /// Imports every image of an archive: an OCI layout (a folder or a tar file) or what `docker save` writes.
    /// `names` are added to the names that the archive gives, if it has one image only.
    pub fn import(&self, file: &Path, names: &[String]) -> Result<Vec<ImageRecord>, ImageError> {
        let turn = self.turn()?;
        let scratch = self.snapshots().join(format!("{UNFINISHED}-archive"));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(ImageError::io(format!("making {}", scratch.display())))?;
        let imported = self.import_into(&turn, file, names, &scratch);
        let _ = fs::remove_dir_all(&scratch);
        imported
    }

    fn import_into(
        &self,
        turn: &Turn,
        file: &Path,
        names: &[String],
        scratch: &Path,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let unusable = |why: &str| ImageError::Unusable { file: file.to_owned(), why: why.to_owned() };
        let archive =
            Archive::open(file, scratch).map_err(ImageError::io(format!("reading {}", file.display())))?;
        let mut found = if archive.has("manifest.json") {
            docker_archive(&archive).map_err(|why| unusable(&why))?
        } else if archive.has("index.json") {
            oci_layout(&archive).map_err(|why| unusable(&why))?
        } else {
            return Err(unusable(
                "neither an OCI layout nor a docker archive: no index.json and no manifest.json",
            ));
        };
        match found.as_mut_slice() {
            [] => return Err(unusable("no image for this machine in it")),
            [one] => one.tags.extend(names.iter().cloned()),
            _ if names.is_empty() => {}
            _ => return Err(unusable("it has several images, so they keep their own names")),
        }
        found.into_iter().map(|image| self.import_one(turn, &archive, image, file)).collect()
    }

    fn import_one(
        &self,
        turn: &Turn,
        archive: &Archive,
        image: Found,
        file: &Path,
    ) -> Result<ImageRecord, ImageError> {
        let unusable = |why: String| ImageError::Unusable { file: file.to_owned(), why };
        let config: WholeConfig = serde_json::from_slice(&image.config)
            .map_err(|error| unusable(format!("a configuration that is not understood: {error}")))?;
        if (!config.os.is_empty() && config.os != "linux")
            || (!config.architecture.is_empty() && config.architecture != architecture())
        {
            return Err(unusable(format!("it is for {} on {}", config.os, config.architecture)));
        }
        if config.rootfs.diff_ids.len() != image.layers.len() {
            return Err(unusable("its configuration names another number of layers than it has".into()));
        }
        let (mut stack, mut chain, mut size) = (Vec::<PathBuf>::new(), String::new(), 0);
        for (layer, diff) in image.layers.iter().zip(&config.rootfs.diff_ids) {
            chain =
                if chain.is_empty() { diff.clone() } else { sha256(format!("{chain} {diff}").as_bytes()) };
            let (folder, bytes) = self.layer(archive, layer, diff, &chain, &stack)?;
            stack.insert(0, folder);
            size += bytes;
        }
        let mut tags: Vec<String> = image.tags.iter().map(|tag| normalise(tag)).collect();
        tags.sort();
        tags.dedup();
        let mut digests: Vec<String> = match &image.digest {
            Some(digest) => tags.iter().map(|tag| format!("{}@{digest}", without_tag(tag))).collect(),
            None => Vec::new(),
        };
        let id = sha256(&image.config);
        let before = self.list()?.iter().find(|record| record.id == id).cloned();
        if let Some(before) = before {
            // The same image under another name.
            for (names, more) in [(&mut tags, &before.tags), (&mut digests, &before.digests)] {
                names.extend_from_slice(more);
                names.sort();
                names.dedup();
            }
        }
        let record = ImageRecord {
            id,
            tags,
            digests,
            config: config.config,
            layers: stack,
            size,
            imported_at: Timestamp::now(),
            pinned: false,
        };
        self.put(turn, &record)?;
        Ok(record)
    }

    /// Unpacks a layer on top of those below it, unless that was done before.
    fn layer(
        &self,
        archive: &Archive,
        layer: &Layer,
        diff: &str,
        chain: &str,
        below: &[PathBuf],
    ) -> Result<(PathBuf, u64), ImageError> {
        let doing = |what: &str| ImageError::io(format!("{what} the layer {}", layer.file));
        let read_size = |folder: &Path| -> Option<u64> {
            fs::read_to_string(folder.join("size")).ok()?.trim().parse().ok()
        };
        let name = snapshot_name(chain);
        let base = self.snapshots();
        let done = base.join(&name);
        if let Some(size) = read_size(&done) {
            return Ok((Path::new(&name).join(LAYER), size));
        }
        let unfinished = base.join(format!("{UNFINISHED}-{name}"));
        for folder in [&unfinished, &done] {
            if folder.exists() {
                fs::remove_dir_all(folder).map_err(doing("removing what is left of"))?;
            }
        }
        for part in [LAYER, "work", "merged"] {
            fs::create_dir_all(unfinished.join(part)).map_err(doing("making room for"))?;
        }
        if let Some(expected) = &layer.digest {
            check(archive.file(&layer.file).map_err(doing("reading"))?, expected, &layer.file)?;
        }
        let file = archive.file(&layer.file).map_err(doing("reading"))?;
        let (size, found) = apply(file, &base, below, &unfinished).map_err(doing("unpacking"))?;
        if found != diff {
            let _ = fs::remove_dir_all(&unfinished);
            let what = format!("the layer {}", layer.file);
            return Err(ImageError::Digest { what, expected: diff.to_owned(), found });
        }
        let finish = || -> io::Result<()> {
            for part in ["work", "merged"] {
                fs::remove_dir_all(unfinished.join(part))?;
            }
            fs::write(unfinished.join("size"), size.to_string())?;
            // A layer that is there is whole, also after a power failure.
            rustix::fs::syncfs(fs::File::open(&unfinished)?)?;
            fs::rename(&unfinished, &done)
        };
        finish().map_err(doing("finishing"))?;
        Ok((Path::new(&name).join(LAYER), size))
    }
}

/// All layers' names have to fit into one page of mount options, so a name is not the whole digest.
pub(super) fn snapshot_name(chain: &str) -> String {
    chain.trim_start_matches("sha256:").chars().take(20).collect()
}

/// Unpacks, on a thread whose mounts nobody else sees, onto the stack of layers below.
fn apply(
    layer: impl Read + Send,
    base: &Path,
    below: &[PathBuf],
    unfinished: &Path,
) -> io::Result<(u64, String)> {
    let upper = unfinished.join(LAYER);
    if below.is_empty() {
        return read_layer(layer, &upper);
    }
    let merged = unfinished.join("merged");
    let lower: Vec<String> =
        below.iter().map(|path| base.join(path).to_string_lossy().into_owned()).collect();
    let work = unfinished.join("work");
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), escaped(&upper), escaped(&work));
    let none: Option<&str> = None;
    thread::scope(|scope| {
        let unpacking = scope.spawn(|| -> io::Result<(u64, String)> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // The folder is this thread's own now, as the mounts are.
            nix::unistd::chdir(base)?;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?;
            let read = read_layer(layer, &merged);
            umount2(&merged, MntFlags::MNT_DETACH)?;
            read
        });
        unpacking.join().unwrap_or_else(|_| Err(io::Error::other("unpacking broke off")))
    })
}

/// Unpacks, and answers the size and the digest of what was unpacked.
fn read_layer(mut layer: impl Read, root: &Path) -> io::Result<(u64, String)> {
    let mut magic = [0; 4];
    let mut seen = 0;
    while seen < magic.len() {
        match layer.read(&mut magic[seen..])? {
            0 => break,
            more => seen += more,
        }
    }
    let whole = (&magic[..seen]).chain(layer);
    let mut plain =
        Hashing { inner: Compression::of(&magic[..seen]).reader(whole)?, context: Context::new(&SHA256) };
    let size = unpack(&mut plain, root)?;
    // What pads the archive counts as well.
    io::copy(&mut plain, &mut io::sink())?;
    Ok((size, format!("sha256:{}", hex(plain.context.finish().as_ref()))))
}

struct Hashing<R> {
    inner: R,
    context: Context,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.context.update(&buffer[..length]);
        Ok(length)
    }
}

fn check(file: impl Read, expected: &str, what: &str) -> Result<(), ImageError> {
    let mut hashing = Hashing { inner: file, context: Context::new(&SHA256) };
    io::copy(&mut hashing, &mut io::sink()).map_err(ImageError::io(format!("reading {what}")))?;
    let found = format!("sha256:{}", hex(hashing.context.finish().as_ref()));
    if found == expected {
        Ok(())
    } else {
        Err(ImageError::Digest { what: what.to_owned(), expected: expected.to_owned(), found })
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, bytes).as_ref()))
}

fn docker_archive(archive: &Archive) -> Result<Vec<Found>, String> {
    let text = archive.text("manifest.json").map_err(|error| error.to_string())?;
    let manifests: Vec<DockerManifest> =
        serde_json::from_slice(&text).map_err(|error| format!("manifest.json: {error}"))?;
    let mut found = Vec::new();
    for manifest in manifests {
        let config = archive.text(&manifest.config).map_err(|error| error.to_string())?;
        let layers = manifest.layers.into_iter().map(|file| Layer { file, digest: None }).collect();
        let tags = manifest.repo_tags.unwrap_or_default();
        found.push(Found { config, layers, tags, digest: None });
    }
    Ok(found)
}

fn oci_layout(archive: &Archive) -> Result<Vec<Found>, String> {
    let text = archive.text("index.json").map_err(|error| error.to_string())?;
    let index: OciIndex = serde_json::from_slice(&text).map_err(|error| format!("index.json: {error}"))?;
    let mut found = Vec::new();
    for descriptor in index.manifests {
        let name = ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
            .iter()
            .find_map(|key| descriptor.annotations.get(*key))
            // A bare tag is not a name.
            .filter(|name| name.contains(['/', ':']))
            .cloned();
        if let Some(manifest) = manifest_of(archive, &descriptor, 0)? {
            found.push(oci_image(archive, &manifest, name)?);
        }
    }
    Ok(found)
}

/// The manifest for this machine behind a descriptor, through indexes.
fn manifest_of(archive: &Archive, descriptor: &Descriptor, depth: u32) -> Result<Option<Descriptor>, String> {
    let other = |platform: &Platform| platform.os != "linux" || platform.architecture != architecture();
    if descriptor.platform.as_ref().is_some_and(other) || depth > DEEPEST_INDEX {
        return Ok(None);
    }
    if !descriptor.media_type.contains("index") && !descriptor.media_type.contains("manifest.list") {
        return Ok(Some(descriptor.clone()));
    }
    let index: OciIndex =
        serde_json::from_slice(&blob(archive, &descriptor.digest)?).map_err(|error| error.to_string())?;
    for descriptor in &index.manifests {
        if let Some(found) = manifest_of(archive, descriptor, depth + 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn oci_image(archive: &Archive, descriptor: &Descriptor, name: Option<String>) -> Result<Found, String> {
    let manifest: OciManifest =
        serde_json::from_slice(&blob(archive, &descriptor.digest)?).map_err(|error| error.to_string())?;
    let layers = manifest
        .layers
        .iter()
        .map(|layer| Ok(Layer { file: blob_path(&layer.digest)?, digest: Some(layer.digest.clone()) }));
    Ok(Found {
        config: blob(archive, &manifest.config.digest)?,
        layers: layers.collect::<Result<_, String>>()?,
        tags: name.into_iter().collect(),
        digest: Some(descriptor.digest.clone()),
    })
}

fn blob_path(digest: &str) -> Result<String, String> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex.map(|hex| format!("blobs/sha256/{hex}"))
        .ok_or_else(|| format!("a digest that is not understood: {digest}"))
}

/// A description by its digest, which is checked.
fn blob(archive: &Archive, digest: &str) -> Result<Vec<u8>, String> {
    let path = blob_path(digest)?;
    let text = archive.text(&path).map_err(|error| error.to_string())?;
    match sha256(&text) {
        found if found == digest => Ok(text),
        found => Err(format!("{path} has the digest {found}")),
    }
}

fn without_tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}

/// This machine, as images call it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
