//! The volumes of pods.
//!
//! ```text
//!   <root>/<uid>/volumes/kubernetes.io~configmap/<name>/…   files from the API, updated atomically
//!               /volumes/kubernetes.io~empty-dir/<name>/…   files of containers
//!               /volumes/kubernetes.io~nfs/<volume>/        the mount of an NFS server
//!               /volume-subpaths/<volume>/<container>/<n>   bind mounts of subPaths
//!               /containers/<name>/<attempt>                the termination message of a container
//! ```
//!
//! Persistent volumes are elsewhere: where their `hostPath` or `local` path says, those of the class `local-path` in a
//! directory of their own ([`LocalVolumes`]), and those of CSI drivers in the directories that drivers mount (`csi`).
//!
//! A restarted agent finds all of them again: preparing a volume is idempotent, and cleanup needs the directories alone.
//! Files from the API are updated with their objects until the pod is removed.

mod csi;
mod empty_dir;
mod error;
mod files;
mod following;
mod host_path;
mod local;
mod mounted;
mod nested;
mod nfs;
mod owner;
mod persistent;
mod prepared;
mod projection;
mod sub_path;
mod token;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, Volume};
use kube::Client;
use parking_lot::Mutex;
use plumb_supervise::Supervisor;
use tokio::sync::watch;

use crate::cri_config::{ConfigError, identity};
use crate::downward::Amounts;
use crate::objects::Objects;
use csi::Csi;
use following::Following;
use owner::{ChangePolicy, Owner};
use prepared::Ready;
use projection::Projection;

pub use local::{LocalVolumeError, LocalVolumes};
pub use prepared::Prepared;

/// The configuration of volumes.
#[derive(Clone, Debug)]
pub struct VolumesConfig {
    /// The name of the node.
    pub node: String,
    /// The directory of the volumes of all pods.
    pub root: PathBuf,
    /// The directory of the volumes of the class `local-path`.
    pub local: PathBuf,
    /// The directory that CSI drivers know as that of the kubelet.
    pub kubelet: PathBuf,
    /// The `ConfigMap`s and Secrets of volumes.
    pub objects: Objects,
    /// The node's allocatable resources.
    pub allocatable: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
}

/// The volumes of all pods of a node.
#[derive(Clone)]
pub struct Volumes {
    shared: Arc<Shared>,
}

struct Shared {
    node: String,
    root: PathBuf,
    local: LocalVolumes,
    csi: Csi,
    objects: Objects,
    client: Client,
    allocatable: Amounts,
    pods: Mutex<HashMap<String, Arc<PreparedPod>>>,
}

/// A pod whose volumes are prepared.
struct PreparedPod {
    ready: BTreeMap<String, Ready>,
    following: Option<Following>,
}

impl fmt::Debug for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volumes").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

impl Volumes {
    /// The volumes under a directory. Tokens are requested with this client.
    pub fn new(config: VolumesConfig, client: Client) -> Self {
        let VolumesConfig { node, root, local, kubelet, objects, allocatable } = config;
        let (local, pods) = (LocalVolumes::new(local), Mutex::default());
        let csi = Csi::new(node.clone(), kubelet, client.clone());
        Self { shared: Arc::new(Shared { node, root, local, csi, objects, client, allocatable, pods }) }
    }

    /// Registers CSI drivers, and follows their volumes, until the future is dropped. The Node must exist.
    pub fn run(&self, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let (csi, supervisor) = (self.shared.csi.clone(), supervisor.clone());
        Box::pin(async move { csi.run(&supervisor).await })
    }

    /// The names of attached volumes that pods of this node have, or may still have: `volumesInUse` of the node.
    pub fn volumes_in_use(&self) -> watch::Receiver<Vec<String>> {
        self.shared.csi.volumes_in_use()
    }

    /// Prepares the volumes of a pod; its spec has its allocated resources. Volumes that are prepared already are reused:
    /// their files are up to date anyway.
    pub async fn prepare(&self, pod: &Pod) -> Result<Prepared, ConfigError> {
        let uid = identity(pod).2;
        let folder = self.folder(uid).map_err(|error| failed("", error))?;
        let known = self.shared.pods.lock().get(uid).cloned();
        let kept = if let Some(kept) = known {
            kept
        } else {
            // Boxed: the worker of every pod would be as large.
            let kept = Arc::new(Box::pin(self.make(pod, &folder)).await?);
            self.shared.pods.lock().insert(uid.to_owned(), kept.clone());
            kept
        };
        Ok(Prepared::new(folder, kept))
    }

    /// Updates a pod, or an allocation, that has changed, for volumes that show something of it.
    pub fn refresh(&self, pod: &Pod) {
        let kept = self.shared.pods.lock().get(identity(pod).2).cloned();
        if let Some(following) = kept.as_ref().and_then(|kept| kept.following.as_ref()) {
            following.refresh(pod);
        }
    }

    /// Removes everything of a pod. Idempotent.
    pub async fn clear(&self, uid: &str) -> io::Result<()> {
        let folder = self.folder(uid)?;
        let kept = self.shared.pods.lock().remove(uid);
        let gate = kept.as_ref().and_then(|kept| kept.following.as_ref()).map(Following::end);
        drop(kept);
        Box::pin(self.shared.csi.unmount(uid)).await?;
        blocking(move || {
            // So that no file is written any more while everything is removed.
            if let Some(gate) = gate {
                *gate.lock() = true;
            }
            clear(&folder)
        })
        .await
    }

    /// Removes the directory of a volume of the class `local-path`. Idempotent. Fails while a pod has the volume.
    pub async fn remove_local(&self, volume: &str) -> Result<(), LocalVolumeError> {
        let path = self.shared.local.path(volume)?;
        let is_used = |pod: &Arc<PreparedPod>| pod.ready.values().any(|ready| ready.path == path);
        if self.shared.pods.lock().values().any(is_used) {
            return Err(LocalVolumeError::InUse(volume.to_owned()));
        }
        let (local, name) = (self.shared.local.clone(), volume.to_owned());
        blocking(move || local.remove(&name).map_err(io::Error::other)).await.map_err(LocalVolumeError::Io)
    }

    /// The uids of all pods that have volumes on disk.
    pub fn known(&self) -> io::Result<Vec<String>> {
        let mut uids: BTreeSet<String> = self.shared.csi.known()?.into_iter().collect();
        match std::fs::read_dir(&self.shared.root) {
            Ok(entries) => {
                for entry in entries {
                    uids.insert(entry?.file_name().to_string_lossy().into_owned());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(uids.into_iter().collect())
    }

    /// The directory of an `emptyDir` of a pod.
    pub(crate) fn empty_dir(&self, uid: &str, volume: &str) -> io::Result<PathBuf> {
        Ok(empty_dir_path(&self.folder(uid)?, volume))
    }

    /// The directory of a pod. Its uid comes from the API, so it is validated before it becomes a path.
    fn folder(&self, uid: &str) -> io::Result<PathBuf> {
        let plain = !uid.is_empty() && !uid.starts_with('.') && !uid.contains(['/', '\0']);
        if plain { Ok(self.shared.root.join(uid)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    async fn make(&self, pod: &Pod, folder: &Path) -> Result<PreparedPod, ConfigError> {
        let (namespace, ..) = identity(pod);
        let owner = Owner::new(projection::group(pod));
        let change = ChangePolicy::for_pod(pod);
        let volumes = folder.join("volumes");
        let mut ready = BTreeMap::new();
        let mut projections = Vec::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let name = volume.name.as_str();
            if let Some(projection) = Projection::of(volume, namespace) {
                let path = volumes.join(projection.plugin).join(name);
                ready.insert(name.to_owned(), Ready::at(path.clone(), true));
                projections.push((name.to_owned(), path, projection));
            } else if let Some(source) = &volume.host_path {
                let source = source.clone();
                let made = blocking(move || host_path::ready(&source).map_err(io::Error::other)).await;
                let path = made.map_err(|error| failed(name, error))?;
                ready.insert(name.to_owned(), Ready::at(path, false));
            } else if let Some(source) = &volume.image {
                let reference = source.reference.clone().unwrap_or_default();
                ready.insert(name.to_owned(), Ready::of_image(reference));
            } else if let Some(claim) = persistent::used_claim(pod, volume) {
                let made = persistent::prepare(&self.shared, pod, &claim, &volumes, (owner, change)).await?;
                ready.insert(name.to_owned(), made);
            } else if let Some(source) = &volume.csi {
                let source = csi::Source::inline(source, name, (namespace, identity(pod).2));
                let made = self.shared.csi.mount(pod, source, (owner, change)).await;
                let path = made.map_err(|error| failed(name, error))?;
                let read_only = volume.csi.as_ref().and_then(|source| source.read_only).unwrap_or(false);
                ready.insert(name.to_owned(), Ready::at(path, read_only));
            } else if has_no_source(volume) {
                let path = empty_dir_path(folder, name);
                let plan = empty_dir::Plan::of(volume, pod, &self.shared.allocatable);
                let plan = plan.map_err(|error| failed(name, error))?;
                let made = path.clone();
                let made = blocking(move || plan.make(&made, owner)).await;
                made.map_err(|error| failed(name, error))?;
                ready.insert(name.to_owned(), Ready::at(path, false));
            } else {
                return Err(failed(name, "no volume plugin matched"));
            }
        }
        let following = if projections.is_empty() {
            None
        } else {
            Some(Following::begin(self.shared.clone(), pod, owner, projections).await?)
        };
        Ok(PreparedPod { ready, following })
    }
}

/// The directory of an `emptyDir`, given that of its pod.
fn empty_dir_path(folder: &Path, volume: &str) -> PathBuf {
    folder.join("volumes/kubernetes.io~empty-dir").join(volume)
}

/// Whether a volume is an `emptyDir`, which is also the default.
fn has_no_source(volume: &Volume) -> bool {
    let named = Volume { name: volume.name.clone(), ..Volume::default() };
    volume.empty_dir.is_some() || *volume == named
}

fn failed(volume: &str, error: impl fmt::Display) -> ConfigError {
    ConfigError::Volume { volume: volume.to_owned(), message: error.to_string() }
}

/// Runs file operations on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Removes everything of a pod: mounts first, then files.
fn clear(folder: &Path) -> io::Result<()> {
    let entries = |folder: &Path| -> io::Result<Vec<PathBuf>> {
        match std::fs::read_dir(folder) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    };
    for volume in entries(&folder.join("volume-subpaths"))? {
        for container in entries(&volume)? {
            for part in entries(&container)? {
                mounted::release(&part)?;
            }
        }
    }
    for plugin in entries(&folder.join("volumes"))? {
        for volume in entries(&plugin)? {
            mounted::release(&volume)?;
        }
    }
    mounted::remove(folder)
}
