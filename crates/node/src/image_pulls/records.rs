//! The files of the records, in the kubelet's layout: `pulling/sha256-HASH` and `pulled/sha256-HASH`, by the name of the image and
//! by its id.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::access::Record;

/// The longest file that is read: a hundred secrets have 30 KB.
const LONGEST: u64 = 1 << 20;
/// The ending of a file that is being written.
const UNFINISHED: &str = "tmp";

/// An image that is about to be pulled: the kubelet's `ImagePullIntent`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

/// The directories of the records.
#[derive(Debug)]
pub(super) struct Records {
    pulling: PathBuf,
    pulled: PathBuf,
}

impl Records {
    /// Those in a directory, which is created when the first one is written.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { pulling: directory.join("pulling"), pulled: directory.join("pulled") }
    }

    pub(super) fn write_intent(&self, image: &str) -> io::Result<()> {
        let intent = Intent {
            kind: "ImagePullIntent".to_owned(),
            api_version: "kubelet.config.k8s.io/v1beta1".to_owned(),
            image: image.to_owned(),
        };
        write(&self.pulling, image, &serde_json::to_vec(&intent)?)
    }

    pub(super) fn has_intent(&self, image: &str) -> io::Result<bool> {
        let found: Option<Intent> = read(&self.pulling.join(file_name(image)))?;
        Ok(found.is_some_and(|intent| intent.image == image))
    }

    pub(super) fn remove_intent(&self, image: &str) -> io::Result<()> {
        remove(&self.pulling.join(file_name(image)))
    }

    /// The names of all images that are about to be pulled. Damaged files are left out, and stay.
    pub(super) fn intents(&self) -> io::Result<Vec<String>> {
        let files = files(&self.pulling)?;
        let intents = files.iter().filter_map(|file| readable::<Intent>(file));
        Ok(intents.map(|intent| intent.image).collect())
    }

    /// The record of an image.
    pub(super) fn pulled(&self, id: &str) -> io::Result<Option<Record>> {
        let found: Option<Record> = read(&self.pulled.join(file_name(id)))?;
        Ok(found.filter(|record| record.image_ref == id))
    }

    pub(super) fn write_pulled(&self, record: &Record) -> io::Result<()> {
        write(&self.pulled, &record.image_ref, &serde_json::to_vec(record)?)
    }

    /// Removes the records of other images than these that were last written before `until`.
    pub(super) fn prune(&self, present: &BTreeSet<&str>, until: Timestamp) -> io::Result<()> {
        for file in files(&self.pulled)? {
            let Some(record) = readable::<Record>(&file) else { continue };
            let is_old = record.last_updated_time.is_none_or(|at| at < until);
            if is_old && !present.contains(record.image_ref.as_str()) {
                remove(&file)?;
            }
        }
        Ok(())
    }
}

/// The name of the file of an image: names and ids have characters that files cannot have in their names.
fn file_name(image: &str) -> String {
    let mut name = "sha256-".to_owned();
    for byte in ring::digest::digest(&ring::digest::SHA256, image.as_bytes()).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The finished files of a directory; none if it does not exist.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_none_or(|end| end != UNFINISHED)).collect())
}

/// What a file says; none if it does not exist.
fn read<T: DeserializeOwned>(file: &Path) -> io::Result<Option<T>> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    opened.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// What a file says; none if it is damaged.
fn readable<T: DeserializeOwned>(file: &Path) -> Option<T> {
    match read(file) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "cannot read a record of an image pull");
            None
        }
    }
}

/// Writes a file, durably: a pull must not be forgotten.
fn write(directory: &Path, image: &str, text: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(file_name(image));
    let unfinished = path.with_extension(UNFINISHED);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(directory)?.sync_all()
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
