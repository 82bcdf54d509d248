//! The promises of the node, on disk before anything is done about them.
//!
//! An entry per pod, in a store of its own: checksummed, and many promises share one sync. What cannot be read
//! is never a reason not to start: it is put aside and told, and the promises are made anew from what the
//! runtime says is in force.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plumb_resize::pod::PodResources;
use plumb_resize::status::Allocation;
use plumb_store::{Event, Key, KeyError, OpenError, Options, Prefix, Store, Ticket, Write, WriteError};
use serde::{Deserialize, Serialize};

use crate::book::Guest;
use crate::cpus::Given;

/// What is kept of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// What it is promised, and what was answered to what it wants beyond that.
    pub allocation: Allocation,
    /// Since when the resize that is pending has been: milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Containers that were stopped for a resize and are to be started again, whatever their exit says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarting: Vec<String>,
    /// The cpus that its containers have for themselves, by name.
    #[serde(default, skip_serializing_if = "Given::is_empty")]
    pub cpus: Given,
}

impl Entry {
    /// What is kept of a pod that is promised this.
    pub fn new(guest: &Guest, promised: PodResources) -> Self {
        Self {
            namespace: guest.namespace.clone(),
            name: guest.name.clone(),
            allocation: Allocation::new(promised, guest.generation),
            since: None,
            restarting: Vec::new(),
            cpus: Given::new(),
        }
    }
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store could not be opened, and not for what is in it.
    #[error("open the journal of promises")]
    Open(#[source] OpenError),
    /// What is damaged could not be put aside.
    #[error("put the damaged journal aside as {}", .to.display())]
    PutAside {
        /// Where it was to go.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The node's or the pod's name makes no key.
    #[error("name an entry of the journal")]
    Name(#[from] KeyError),
    /// The entry was not written.
    #[error("write to the journal of promises")]
    Write(#[from] WriteError),
}

/// The journal of one node. Several nodes of one process may share a store.
#[derive(Clone)]
pub struct Journal {
    store: Store,
    node: String,
}

/// What a journal held when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The entries, by the pods' uids.
    pub entries: BTreeMap<String, Entry>,
    /// What could not be read, one line each; empty when all is well.
    pub damage: Vec<String>,
}

/// A store for journals in a directory, and what was wrong with the one that was there, if anything was.
///
/// A store that is damaged, or that this program cannot read, is moved aside and an empty one takes its place.
pub fn open_store(directory: &Path) -> Result<(Store, Option<String>), JournalError> {
    // Nobody watches a journal, so no history is kept for it.
    let options = || Options { history: 64 << 10, checkpoint: 4 << 20, ..Options::default() };
    match Store::open(directory, options()) {
        Ok(store) => Ok((store, None)),
        Err(error @ (OpenError::Damaged(_) | OpenError::Format { .. } | OpenError::NotAStore { .. })) => {
            put_aside(directory)?;
            let store = Store::open(directory, options()).map_err(JournalError::Open)?;
            Ok((store, Some(error.to_string())))
        }
        Err(error) => Err(JournalError::Open(error)),
    }
}

/// Renames a directory to the first free `<name>.damaged-<n>` beside it.
fn put_aside(directory: &Path) -> Result<(), JournalError> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = |n: u32| directory.with_file_name(format!("{name}.damaged-{n}"));
    let to = (1..u32::MAX).map(aside).find(|path| !path.exists()).unwrap_or_else(|| aside(0));
    fs::rename(directory, &to).map_err(|source| JournalError::PutAside { to, source })
}

impl Journal {
    /// The journal of a node in a store.
    pub fn new(store: Store, node: impl Into<String>) -> Self {
        Self { store, node: node.into() }
    }

    /// All that it holds. An entry that cannot be read is left out and told.
    pub fn read(&self) -> Result<Found, JournalError> {
        let prefix = Prefix::new(self.node.clone())?;
        let mut found = Found::default();
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

    /// Writes an entry. It counts once the ticket says so.
    pub fn record(&self, uid: &str, entry: &Entry) -> Result<Ticket<Arc<Event>>, JournalError> {
        // Plain data of our own types, with string keys only, always has a JSON form.
        let bytes = serde_json::to_vec(entry).unwrap_or_default();
        Ok(self.store.write(Write::put(self.key(uid)?, bytes)))
    }

    /// Forgets a pod. One that is not there is forgotten already.
    pub async fn forget(&self, uid: &str) -> Result<(), JournalError> {
        match self.store.write(Write::delete(self.key(uid)?)).await {
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn key(&self, uid: &str) -> Result<Key, JournalError> {
        Ok(Key::new(format!("{}/{uid}", self.node))?)
    }
}
