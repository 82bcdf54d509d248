//! The unconfirmed updates on disk, which an agent sends after its restart.
//!
//! ```text
//!   updates/<container>    the resources that the runtime has to confirm, and those of the cgroup before
//! ```
//!
//! Files are not synced: after a crash of the machine no container is running.

use std::path::{Path, PathBuf};
use std::{fs, io};

use plumb_runtime::types::{ContainerId, LinuxResources, SandboxId};
use plumb_runtime::{Error, Result};
use serde::{Deserialize, Serialize};

/// The directory of the files.
const UPDATES: &str = "updates";

/// An update that the runtime has yet to confirm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) sandbox: SandboxId,
    pub(super) resources: LinuxResources,
    /// The resources of the cgroup before the update.
    pub(super) before: LinuxResources,
}

/// The updates of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    folder: PathBuf,
}

impl Journal {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.join(UPDATES) }
    }

    /// Reads all entries. An entry that cannot be decoded was being written when the agent died, so its cgroup is unchanged.
    pub(super) fn read(&self) -> Vec<(ContainerId, Entry)> {
        let Ok(files) = fs::read_dir(&self.folder) else { return Vec::new() };
        let entry = |file: fs::DirEntry| {
            let entry = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
            Some((ContainerId::from(file.file_name().into_string().ok()?), entry))
        };
        files.flatten().filter_map(entry).collect()
    }

    /// Writes the entry of a container.
    pub(super) fn write(&self, id: &ContainerId, entry: &Entry) -> Result<()> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(entry)?;
            match fs::write(self.path(id), &text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(&self.folder)?;
                    fs::write(self.path(id), &text)
                }
                written => written,
            }
        };
        write().map_err(|error| Error::io(format!("writing {}", self.path(id).display()), &error))
    }

    /// Removes the entry of a container.
    pub(super) fn remove(&self, id: &ContainerId) {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a confirmed update, which may be sent again");
            }
            _ => {}
        }
    }

    fn path(&self, id: &ContainerId) -> PathBuf {
        // Runtimes use the ids as names of directories, so they are valid file names.
        self.folder.join(id.as_str().replace('/', "_"))
    }
}
