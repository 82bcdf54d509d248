//! The allocation journal of a node: allocations are on disk before they are actuated.
//!
//! It has an entry per pod, in a store of its own: checksummed, and many writes share one sync. A journal that cannot
//! be read does not prevent a start: it is moved aside and reported, and the allocations are rebuilt from the pods'
//! statuses and the actual resources in the runtime.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plumb_resize::status::Allocation;
use plumb_store::{Event, Key, KeyError, OpenError, Options, Prefix, Store, Ticket, Write, WriteError};
use serde::{Deserialize, Serialize};

use crate::allocator::PodInfo;
use crate::cpus::CpuAssignments;

/// The journal entry of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Its allocation, and the state of a pending resize.
    pub allocation: Allocation,
    /// Since when the resize has been pending: milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Containers that were stopped for a resize and must be started again, whatever their exit code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarting: Vec<String>,
    /// The exclusive CPUs of its containers, by name.
    #[serde(default, skip_serializing_if = "CpuAssignments::is_empty")]
    pub cpus: CpuAssignments,
}

impl Entry {
    /// The entry of a pod with this allocation.
    pub fn new(info: &PodInfo, allocation: Allocation) -> Self {
        Self {
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            allocation,
            since: None,
            restarting: Vec::new(),
            cpus: CpuAssignments::new(),
        }
    }
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store could not be opened, and not because it is damaged.
    #[error("open the allocation journal")]
    Open(#[source] OpenError),
    /// The damaged journal could not be moved aside.
    #[error("move the damaged journal aside to {}", .to.display())]
    MoveAside {
        /// The destination.
        to: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The node's name or the pod's uid is no valid key.
    #[error("name an entry of the journal")]
    Name(#[from] KeyError),
    /// The entry was not written.
    #[error("write to the allocation journal")]
    Write(#[from] WriteError),
}

/// The journal of one node. Several nodes of one process may share a store.
#[derive(Clone)]
pub struct Journal {
    store: Store,
    node: String,
}

/// The contents of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JournalContents {
    /// The entries, by the pods' uids.
    pub entries: BTreeMap<String, Entry>,
    /// The entries that could not be read, one line each.
    pub damage: Vec<String>,
}

/// Opens a store for journals in a directory; returns it, and the damage of the existing one, if any.
///
/// A store that is damaged, or that this program cannot read, is moved aside and replaced with an empty one.
pub fn open_store(directory: &Path) -> Result<(Store, Option<String>), JournalError> {
    // There are no watches, so little history is needed.
    let options = || Options { history: 64 << 10, checkpoint: 4 << 20, ..Options::default() };
    match Store::open(directory, options()) {
        Ok(store) => Ok((store, None)),
        Err(error @ (OpenError::Damaged(_) | OpenError::Format { .. } | OpenError::NotAStore { .. })) => {
            move_aside(directory)?;
            let store = Store::open(directory, options()).map_err(JournalError::Open)?;
            Ok((store, Some(error.to_string())))
        }
        Err(error) => Err(JournalError::Open(error)),
    }
}

/// What follows the name of a damaged journal that was moved aside, before a number.
const DAMAGED: &str = ".damaged-";

/// Whether this is the name of a damaged journal that [`open_store`] has moved aside, for a journal of the other name.
pub fn is_moved_aside(name: &str, journal: &str) -> bool {
    name.strip_prefix(journal).is_some_and(|rest| rest.starts_with(DAMAGED))
}

/// Renames a directory to the first free `<name>.damaged-<n>` in the same directory.
fn move_aside(directory: &Path) -> Result<(), JournalError> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = |n: u32| directory.with_file_name(format!("{name}{DAMAGED}{n}"));
    let to = (1..u32::MAX).map(aside).find(|path| !path.exists()).unwrap_or_else(|| aside(0));
    fs::rename(directory, &to).map_err(|source| JournalError::MoveAside { to, source })
}

impl Journal {
    /// The journal of a node in a store.
    pub fn new(store: Store, node: impl Into<String>) -> Self {
        Self { store, node: node.into() }
    }

    /// Reads all entries. One that cannot be decoded is skipped and reported as damage.
    pub fn read(&self) -> Result<JournalContents, JournalError> {
        let prefix = Prefix::new(self.node.clone())?;
        let mut found = JournalContents::default();
        for object in self.store.snapshot().iter(&prefix) {
            let uid = object.key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
            match serde_json::from_slice(&object.value) {
                Ok(entry) => {
                    found.entries.insert(uid, entry);
                }
                Err(error) => found.damage.push(format!("the entry of pod {uid}: {error}")),
            }
        }
        Ok(found)
    }

    /// Writes an entry. It is durable once the ticket resolves.
    pub fn write(&self, uid: &str, entry: &Entry) -> Result<Ticket<Arc<Event>>, JournalError> {
        // Plain data of our own types, with string keys only, always has a JSON form.
        let bytes = serde_json::to_vec(entry).unwrap_or_default();
        Ok(self.store.write(Write::put(self.key(uid)?, bytes)))
    }

    /// Deletes the entry of a pod. Idempotent.
    pub async fn delete(&self, uid: &str) -> Result<(), JournalError> {
        match self.store.write(Write::delete(self.key(uid)?)).await {
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn key(&self, uid: &str) -> Result<Key, JournalError> {
        Ok(Key::new(format!("{}/{uid}", self.node))?)
    }
}
