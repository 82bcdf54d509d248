//! The files of pods on this node: their volumes and their logs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::node::Node;

/// The directories of logs of each pod that has volumes or logs on disk, by uid. Empty if pods are virtual: several
/// virtual nodes share one directory, and their pods write nothing there.
pub(crate) async fn on_disk(node: &Node) -> io::Result<BTreeMap<String, Vec<PathBuf>>> {
    let Some(volumes) = node.volumes.clone() else { return Ok(BTreeMap::new()) };
    let log_root = node.sandbox_defaults.log_root.clone();
    let listed = tokio::task::spawn_blocking(move || {
        let mut pods: BTreeMap<String, Vec<PathBuf>> =
            volumes.known()?.into_iter().map(|uid| (uid, Vec::new())).collect();
        for directory in directories(&log_root)? {
            let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // <namespace>_<name>_<uid>
            if let [_, _, uid] = name.split('_').collect::<Vec<_>>()[..] {
                pods.entry(uid.to_owned()).or_default().push(directory);
            }
        }
        Ok(pods)
    });
    listed.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Why the files of a pod could not be removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoveError {
    /// Its volumes could not be removed.
    #[error("removing the volumes")]
    Volumes(#[source] io::Error),
    /// Its logs could not be removed.
    #[error("removing the logs in {}", .directory.display())]
    Logs {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The task panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
}

/// Removes the volumes of a pod, and these directories of its logs. Idempotent.
pub(crate) async fn remove(node: &Node, uid: &str, logs: Vec<PathBuf>) -> Result<(), RemoveError> {
    if let Some(volumes) = &node.volumes {
        volumes.clear(uid).await.map_err(RemoveError::Volumes)?;
    }
    let removed = tokio::task::spawn_blocking(move || {
        logs.iter().try_for_each(|logs| match std::fs::remove_dir_all(logs) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(RemoveError::Logs { directory: logs.clone(), source })
            }
            _ => Ok(()),
        })
    });
    removed.await?
}

fn directories(root: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(root) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
