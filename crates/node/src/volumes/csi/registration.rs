//! Registration: follows the directory of registration sockets, and has each driver in the `CSINode` of this node.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plumb_controller_runtime::Backoff;
use plumb_csi::{Driver, RegistrationError, get_info, notify};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::drivers::Registered;
use super::{State, node_object};
use crate::file_changes::Changes;

/// How often the directory is read although no change was noticed.
const CHECK: Duration = Duration::from_secs(20);
/// The most sockets that are registered: the others wait until one is removed.
const MOST: usize = 64;

/// Which file a socket is: one that was made anew is of a driver that was restarted.
type Identity = (u64, i64, i64);

/// A socket that is followed by a task of its own: a registrar that does not answer delays no other.
struct Followed {
    identity: Identity,
    /// Tells the task that the socket was removed.
    removed: oneshot::Sender<Removed>,
    task: JoinHandle<()>,
}

/// What became of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    /// There is another one in its place: the driver was restarted.
    Replaced,
    Gone,
}

pub(super) async fn run(state: &Arc<State>) {
    let registry = state.layout.registry();
    let mut followed: HashMap<PathBuf, Followed> = HashMap::new();
    // The tasks of removed sockets, which may have their drivers yet to remove.
    let mut ending: HashMap<PathBuf, JoinHandle<()>> = HashMap::new();
    loop {
        if let Err(error) = state.layout.make() {
            tracing::warn!(%error, path = %registry.display(), "cannot make the directories of CSI drivers");
        }
        // Before the directory is read, so that no change is missed.
        let changes = Changes::of(&registry);
        let found = sockets(&registry);
        let changed = followed.extract_if(|path, socket| found.get(path) != Some(&socket.identity));
        for (path, Followed { removed, task, .. }) in changed {
            // It fails only if the task has panicked, which was logged.
            let _ = removed.send(if found.contains_key(&path) { Removed::Replaced } else { Removed::Gone });
            ending.insert(path, task);
        }
        ending.retain(|_, task| !task.is_finished());
        for (path, identity) in found {
            if followed.len() < MOST && !followed.contains_key(&path) {
                let (removed, receiver) = oneshot::channel();
                let (state, socket, before) = (state.clone(), path.clone(), ending.remove(&path));
                let task = tokio::spawn(async move {
                    if let Some(before) = before {
                        // It removes the driver of the earlier socket by the same path. Its panic was logged.
                        let _ = before.await;
                    }
                    follow(&state, &socket, receiver).await;
                });
                followed.insert(path, Followed { identity, removed, task });
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

/// Registers the driver of a socket, and removes it once the socket is removed.
async fn follow(state: &Arc<State>, socket: &Path, mut removed: oneshot::Receiver<Removed>) {
    let mut backoff = Backoff::default();
    // The name that this node's objects may have: also of a driver whose registration failed or was not completed.
    let mut written = None;
    let removed = loop {
        let identified = tokio::select! {
            biased;
            removed = &mut removed => break removed,
            identified = identify(socket) => identified,
        };
        let failed = match identified {
            Ok((name, driver)) => {
                // Not abandoned when the socket is removed: the API server would perform an abandoned write after that of
                // the removal.
                let result = register(state, &name, driver).await;
                written = Some(name);
                match result {
                    Ok(()) => break removed.await,
                    Err(why) => why,
                }
            }
            Err(Failure::Final(error)) => {
                tracing::warn!(%error, socket = %socket.display(), "a plugin is not registered");
                // It may be waiting for the answer.
                let _ = notify(socket, Err(error.to_string())).await;
                break removed.await;
            }
            Err(Failure::Retry(why)) => why,
        };
        tracing::debug!(error = failed, socket = %socket.display(), "a CSI driver is not registered yet, will retry");
        tokio::select! {
            biased;
            removed = &mut removed => break removed,
            () = backoff.wait() => {}
        }
    };
    // The sender is dropped when this node's agent stops: its drivers stay.
    let Ok(removed) = removed else { return };
    if let Some(name) = state.drivers.remove(socket) {
        tracing::info!(driver = name, "a CSI driver is no longer registered");
    }
    if let Some(name) = written.filter(|_| removed == Removed::Gone) {
        deregister(state, &name).await;
    }
}

enum Failure {
    /// The plugin itself is not one for this node.
    Final(RegistrationError),
    Retry(String),
}

/// Asks a plugin for its name, and its driver for what it can do.
async fn identify(socket: &Path) -> Result<(String, Registered), Failure> {
    let retry = |error: &dyn std::fmt::Display| Failure::Retry(error.to_string());
    let plugin = get_info(socket).await.map_err(|error| match error {
        RegistrationError::Call(_) => retry(&error),
        error => Failure::Final(error),
    })?;
    let driver = Driver::new(plugin.endpoint);
    let info = driver.node_info().await.map_err(|error| retry(&error))?;
    let capabilities = driver.capabilities().await.map_err(|error| retry(&error))?;
    Ok((plugin.name, Registered { driver, capabilities, info, socket: socket.to_owned() }))
}

/// Writes a driver into the objects of this node, and lets volumes use it.
async fn register(state: &State, name: &str, driver: Registered) -> Result<(), String> {
    let socket = driver.socket.clone();
    if let Err(error) = node_object::add(state, name, &driver.info).await {
        // The registrar of upstream exits then, and is restarted.
        let _ = notify(&socket, Err(error.to_string())).await;
        return Err(error.to_string());
    }
    state.drivers.insert(name, driver);
    state.released.notify_one();
    tracing::info!(driver = name, "a CSI driver is registered");
    notify(&socket, Ok(())).await.map_err(|error| error.to_string())
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
