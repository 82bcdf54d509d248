//! What is on disk: the directories of volumes, and the records that say whose they are.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::VolumeId;
use crate::volumes::mounted;

/// The file that describes the volume of a directory, as the kubelet has it.
const RECORD: &str = "vol_data.json";
/// The longest record that is read: they are written by this agent, below a directory that drivers can write to.
const LONGEST: u64 = 64 << 10;

/// What a directory is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    /// The name of the persistent volume, or of the volume in the pod.
    #[serde(rename = "specVolID")]
    pub(super) name: String,
    pub(super) volume_handle: String,
    pub(super) driver_name: String,
    pub(super) node_name: String,
    /// The name of the `VolumeAttachment`; empty if the volume is not attached.
    #[serde(rename = "attachmentID")]
    pub(super) attachment_id: String,
    /// `Persistent` or `Ephemeral`.
    pub(super) volume_lifecycle_mode: String,
    /// `Block`, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) volume_mode: String,
}

impl Record {
    pub(super) fn id(&self) -> VolumeId {
        VolumeId { driver: self.driver_name.clone(), handle: self.volume_handle.clone() }
    }

    pub(super) fn is_block(&self) -> bool {
        self.volume_mode == "Block"
    }
}

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
}

/// A directory with a record.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) directory: PathBuf,
    pub(super) record: Record,
}

impl Recorded {
    /// Where a pod has the volume.
    pub(super) fn target(&self) -> PathBuf {
        self.directory.join(if self.record.is_block() { "device" } else { "mount" })
    }

    /// Where the volume is staged.
    pub(super) fn staging(&self) -> PathBuf {
        self.directory.join("globalmount")
    }

    /// Writes the record, durably: what the driver does next must not be forgotten.
    pub(super) fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let text = serde_json::to_vec(&self.record)?;
        let path = self.directory.join(RECORD);
        if fs::read(&path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        let new = self.directory.join(".vol_data.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Removes the directory, unless something is still mounted there.
    pub(super) fn remove(&self) -> io::Result<()> {
        mounted::remove(&self.directory)
    }
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The directory of registration sockets.
    pub(super) fn registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// Makes the directories that drivers mount into their pods.
    pub(super) fn make(&self) -> io::Result<()> {
        ["plugins_registry", "plugins", "pods"]
            .iter()
            .try_for_each(|name| fs::create_dir_all(self.root.join(name)))
    }

    fn staged_root(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }

    /// Where a volume is staged.
    pub(super) fn staged(&self, record: Record) -> Recorded {
        let directory = plumb_csi::staging_directory(&record.volume_handle);
        Recorded { directory: self.staged_root().join(&record.driver_name).join(directory), record }
    }

    fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    fn published_root(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes/kubernetes.io~csi")
    }

    /// Where a pod has a volume.
    pub(super) fn published(&self, uid: &str, record: Record) -> Recorded {
        Recorded { directory: self.published_root(uid).join(&record.name), record }
    }

    /// The volumes that are staged, or may be.
    pub(super) fn all_staged(&self) -> io::Result<Vec<Recorded>> {
        let mut found = Vec::new();
        for driver in entries(&self.staged_root())? {
            for directory in entries(&driver)? {
                found.extend(read(directory));
            }
        }
        Ok(found)
    }

    /// The volumes that a pod has, or may have.
    pub(super) fn all_published(&self, uid: &str) -> io::Result<Vec<Recorded>> {
        Ok(entries(&self.published_root(uid))?.into_iter().filter_map(read).collect())
    }

    /// The uids of the pods that have directories.
    pub(super) fn pods(&self) -> io::Result<Vec<String>> {
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(entries(&self.root.join("pods"))?.into_iter().filter_map(name).collect())
    }

    /// The volumes that all pods have, or may have.
    pub(super) fn published_to_all(&self) -> io::Result<Vec<Recorded>> {
        let mut found = Vec::new();
        for uid in self.pods()? {
            found.extend(self.all_published(&uid)?);
        }
        Ok(found)
    }

    /// Removes what is left of a pod without volumes.
    pub(super) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        mounted::remove(&self.pod(uid))
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The record of a directory. A directory without one is of a volume that no driver was called about.
fn read(directory: PathBuf) -> Option<Recorded> {
    let path = directory.join(RECORD);
    let found = fs::symlink_metadata(&path).ok()?;
    if !found.is_file() || found.len() > LONGEST {
        return None;
    }
    match serde_json::from_slice(&fs::read(&path).ok()?) {
        Ok(record) => Some(Recorded { directory, record }),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the record of a volume cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_was_called_about_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        assert!(layout.all_staged().unwrap().is_empty() && layout.pods().unwrap().is_empty());
        let record = Record {
            name: "pvc-1".into(),
            volume_handle: "../../etc".into(),
            driver_name: "d.example".into(),
            ..Record::default()
        };
        let staged = layout.staged(record.clone());
        assert!(staged.directory.starts_with(folder.path().join("plugins/kubernetes.io/csi/d.example")));
        staged.write().unwrap();
        layout.published("uid", record.clone()).write().unwrap();
        // A directory whose record was never written is no volume.
        fs::create_dir_all(folder.path().join("pods/uid/volumes/kubernetes.io~csi/other")).unwrap();
        assert_eq!(layout.all_staged().unwrap()[0].record, record);
        let published = layout.published_to_all().unwrap();
        assert_eq!(published.len(), 1);
        assert!(published[0].target().ends_with("pvc-1/mount"));
        published[0].remove().unwrap();
        staged.remove().unwrap();
        assert!(layout.all_staged().unwrap().is_empty());
        layout.remove_pod("uid").unwrap();
        assert!(layout.pods().unwrap().is_empty());
    }
}
