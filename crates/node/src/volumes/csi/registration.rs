//! Registration: follows the directory of registration sockets, and has each driver in the `CSINode` of this node.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plumb_controller_runtime::Backoff;
use plumb_csi::{Driver, RegistrationError, get_info, notify};
use tokio::task::JoinSet;

use super::drivers::Registered;
use super::{State, node_object};
use crate::file_changes::Changes;

/// How often the directory is read although no change was noticed.
const CHECK: Duration = Duration::from_secs(20);
/// The most sockets that are registered: the others wait until one is removed.
const MOST: usize = 64;

/// Which file a socket is: one that was made anew is of a driver that was restarted.
type Identity = (u64, i64, i64);

pub(super) async fn run(state: &Arc<State>) {
    let registry = state.layout.registry();
    let mut known: HashMap<PathBuf, (Identity, tokio::task::AbortHandle)> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        if let Err(error) = state.layout.make() {
            tracing::warn!(%error, path = %registry.display(), "cannot make the directories of CSI drivers");
        }
        // Before the directory is read, so that no change is missed.
        let changes = Changes::of(&registry);
        let found = sockets(&registry);
        let gone = |path: &PathBuf, identity: &Identity| found.get(path) != Some(identity);
        let removed: Vec<PathBuf> = known
            .iter()
            .filter(|(path, (identity, _))| gone(path, identity))
            .map(|(path, _)| path.clone())
            .collect();
        for path in removed {
            if let Some((_, task)) = known.remove(&path) {
                task.abort();
            }
            if let Some(name) = state.drivers.remove(&path) {
                tracing::info!(driver = name, "a CSI driver is no longer registered");
                if !found.contains_key(&path) {
                    let state = state.clone();
                    tasks.spawn(async move { deregister(&state, &name).await });
                }
            }
        }
        for (path, identity) in found {
            if known.len() < MOST && !known.contains_key(&path) {
                let (state, socket) = (state.clone(), path.clone());
                // Each by itself: a registrar that does not answer delays no other.
                let task = tasks.spawn(async move { register(&state, &socket).await });
                known.insert(path, (identity, task));
            }
        }
        let changed = async {
            match &changes {
                Ok(changes) => changes.changed().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(CHECK) => {}
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The sockets in a directory.
fn sockets(registry: &Path) -> HashMap<PathBuf, Identity> {
    let Ok(entries) = fs::read_dir(registry) else { return HashMap::new() };
    let entries = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let found = fs::symlink_metadata(&path).ok()?;
        let identity = (found.ino(), found.ctime(), found.ctime_nsec());
        (found.file_type().is_socket() && !is_hidden).then_some((path, identity))
    });
    entries.collect()
}

/// Registers the driver of a socket; retries until it succeeds, or the socket is removed.
async fn register(state: &Arc<State>, socket: &Path) {
    let mut backoff = Backoff::default();
    loop {
        let failed = match try_register(state, socket).await {
            Ok(()) => return,
            Err(Failure::Final(error)) => {
                tracing::warn!(%error, socket = %socket.display(), "a plugin is not registered");
                // It may be waiting for the answer.
                let _ = notify(socket, Err(error.to_string())).await;
                return;
            }
            Err(Failure::Retry(why)) => why,
        };
        tracing::debug!(error = failed, socket = %socket.display(), "a CSI driver is not registered yet, will retry");
        backoff.wait().await;
    }
}

enum Failure {
    /// The plugin itself is not one for this node.
    Final(RegistrationError),
    Retry(String),
}

async fn try_register(state: &Arc<State>, socket: &Path) -> Result<(), Failure> {
    let retry = |error: &dyn std::fmt::Display| Failure::Retry(error.to_string());
    let plugin = get_info(socket).await.map_err(|error| match error {
        RegistrationError::Call(_) => retry(&error),
        error => Failure::Final(error),
    })?;
    let driver = Driver::new(plugin.endpoint);
    let info = driver.node_info().await.map_err(|error| retry(&error))?;
    let capabilities = driver.capabilities().await.map_err(|error| retry(&error))?;
    let registered = Registered { driver, capabilities, info, socket: socket.to_owned() };
    let written = node_object::add(state, &plugin.name, &registered.info).await;
    if let Err(error) = &written {
        // The registrar of upstream exits then, and is restarted.
        let _ = notify(socket, Err(error.to_string())).await;
    }
    written.map_err(|error| retry(&error))?;
    state.drivers.insert(&plugin.name, registered);
    state.released.notify_one();
    tracing::info!(driver = plugin.name, "a CSI driver is registered");
    notify(socket, Ok(())).await.map_err(|error| retry(&error))
}

/// Removes a driver from the objects of this node.
async fn deregister(state: &State, name: &str) {
    let mut backoff = Backoff::default();
    while state.drivers.get(name).is_err() {
        match node_object::remove(state, name).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, driver = name, "cannot remove a CSI driver from its node, will retry");
            }
        }
        backoff.wait().await;
    }
}
