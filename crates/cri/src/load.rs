//! The import of `plumb/load`, the image that is on every node, which is made from the binary itself.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plumb_oci::architecture;
use plumb_runtime::image::{Load, normalise};
use plumb_runtime::{Error, Result, Runtime as _};
use serde_json::json;
use tar::{Builder, EntryType, Header};
use tokio::time::{interval, timeout};

use crate::containerd::{Blob, Containerd, Source};
use crate::{Cri, api};

/// The label with the fingerprint of the files that the image was made of.
const MADE_OF: &str = "plumb.dev/made-of";
/// The label that exempts an image from garbage collection.
const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");
/// The timeout until the CRI finds an image that was imported over containerd's own API, and the polling interval.
const FOUND: Duration = Duration::from_secs(10);
const ASK: Duration = Duration::from_millis(50);

impl Cri {
    /// Imports the image of a program, unless it was imported before. Returns false if the runtime is not containerd, since the
    /// CRI itself cannot import images.
    pub async fn import_load(&self, load: &Load) -> Result<bool> {
        let state = &self.state;
        let name = normalise(&load.name);
        let files = load.files().map_err(failed(&load.program))?;
        let made_of = load.fingerprint(&files).map_err(failed(&load.program))?.to_string();
        let lease = format!("plumb-import-{}", state.cluster.replace('/', "-"));
        let Some(containerd) = Containerd::begin(state.images.clone(), lease).await? else {
            return Ok(false);
        };
        let before = containerd.labels(&name).await?;
        if before.is_none_or(|labels| labels.get(MADE_OF) != Some(&made_of)) {
            tracing::info!(image = name, "importing into the container runtime");
            let archive = state.folder.join("load.tar");
            let imported = import(&containerd, load, &name, files, made_of, &archive).await;
            if let Err(error) = fs::remove_file(&archive) {
                tracing::debug!(%error, "cannot remove the temporary archive of the image");
            }
            imported?;
        }
        containerd.finish().await;
        // containerd's CRI plugin learns of the image by an event, so it does not find it immediately.
        let mut tick = interval(ASK);
        let find = async {
            loop {
                tick.tick().await;
                if self.image_status(&name).await?.is_some() {
                    return Ok(true);
                }
            }
        };
        let late = |_| Error::DeadlineExceeded(format!("the container runtime does not find {name}"));
        timeout(FOUND, find).await.map_err(late)?
    }
}

fn failed(what: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::io(format!("making an image of {}", what.display()), &error)
}

async fn import(
    containerd: &Containerd,
    load: &Load,
    name: &str,
    files: Vec<(PathBuf, PathBuf)>,
    made_of: String,
    archive: &Path,
) -> Result<()> {
    let to = archive.to_owned();
    let make = move || {
        write_layer(&to, &files)?;
        Ok((Blob::from_file(&to)?, File::open(&to)?))
    };
    let made = tokio::task::spawn_blocking(make).await;
    let made = made.map_err(|error| Error::failed("making a layer", error))?;
    let (layer, file) = made.map_err(failed(archive))?;
    containerd.write(&layer, Box::new(file), api::Map::new()).await?;

    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": load.config(),
        "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
    })
    .to_string();
    let config_blob = Blob::from_bytes(config.as_bytes());
    containerd.write(&config_blob, bytes(config), api::Map::new()).await?;

    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config_blob.digest,
            "size": config_blob.size,
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer.digest,
            "size": layer.size,
        }],
    })
    .to_string();
    let manifest_blob = Blob::from_bytes(manifest.as_bytes());
    // These labels protect the blobs that the manifest refers to for as long as the manifest exists.
    let refers = [config_blob.digest, layer.digest].into_iter().enumerate();
    let labels = refers.map(|(at, digest)| (format!("containerd.io/gc.ref.content.{at}"), digest)).collect();
    containerd.write(&manifest_blob, bytes(manifest), labels).await?;
    let labels = [(MADE_OF.to_owned(), made_of), (PINNED.0.to_owned(), PINNED.1.to_owned())].into();
    containerd.name(name, &manifest_blob, labels).await
}

fn bytes(text: String) -> Source {
    Box::new(io::Cursor::new(text.into_bytes()))
}

/// Writes a layer with these files, each with its path in the image, and the directories that a container needs.
fn write_layer(archive: &Path, files: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    if let Some(folder) = archive.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut layer = Builder::new(File::create(archive)?);
    for (folder, mode) in Load::FOLDERS {
        let mut header = header(EntryType::Directory, mode, 0);
        layer.append_data(&mut header, format!("{folder}/"), io::empty())?;
    }
    for (place, text) in Load::TEXTS {
        let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
        layer.append_data(&mut header, place, text.as_bytes())?;
    }
    for (file, place) in files {
        let open = File::open(file)?;
        let mut header = header(EntryType::Regular, 0o755, open.metadata()?.len());
        layer.append_data(&mut header, place, open)?;
    }
    layer.finish()
}

/// A header without an owner and a time, so that the same files have the same digest.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}
