//! Volumes of CSI drivers.
//!
//! ```text
//!   <root>/plugins_registry/*.sock                                    drivers that register
//!         /plugins/kubernetes.io/csi/<driver>/<hash>/vol_data.json    what is staged
//!                                                   /globalmount      … and where
//!         /pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json   what is published to a pod
//!                                                       /mount           … and where; a block device is at `device`
//! ```
//!
//! The paths, and the records in them, are the kubelet's: drivers run in pods that mount these directories of the host.
//!
//! A record is written before the driver is called and removed after the driver has undone it, so that an agent that is
//! killed in between finds in the records what is left to do:
//!
//! ```text
//!   record of staging ▸ NodeStage ▸ record of the pod ▸ NodePublish      … pod runs …
//!   NodeUnpublish ▸ pod's record removed ▸ no pod has the volume: NodeUnstage ▸ record of staging removed
//! ```
//!
//! One call at a time is made about a volume; a driver that hangs delays the pods that have its volumes, and no others.

mod attachment;
mod drivers;
mod expand;
mod in_use;
mod mount;
mod node_object;
mod records;
mod registration;
mod release;
mod source;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use plumb_supervise::Supervisor;
use tokio::sync::{Notify, watch};

use drivers::Drivers;
use in_use::InUse;
use mount::Mounted;
use records::Layout;

pub(super) use source::{Claimed, Source};

/// A volume, whatever it is called in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct VolumeId {
    driver: String,
    handle: String,
}

/// The volumes of CSI drivers on a node. Clones share it.
#[derive(Clone)]
pub(super) struct Csi(Arc<State>);

struct State {
    node: String,
    layout: Layout,
    client: Client,
    drivers: Drivers,
    /// Held while a driver is called about a volume.
    locks: Mutex<HashMap<VolumeId, Arc<tokio::sync::Mutex<()>>>>,
    /// What this agent has staged: a volume is staged once for all pods that have it.
    staged: Mutex<BTreeSet<VolumeId>>,
    /// What this agent has published, by the uid of the pod and the name of the volume.
    mounted: Mutex<BTreeMap<(String, String), Arc<Mounted>>>,
    in_use: InUse,
    /// Notified when a pod no longer has a volume.
    released: Notify,
}

impl Csi {
    pub(super) fn new(node: String, root: PathBuf, client: Client) -> Self {
        let in_use = InUse::new(client.clone(), node.clone());
        Self(Arc::new(State {
            node,
            layout: Layout::new(root),
            client,
            drivers: Drivers::default(),
            locks: Mutex::default(),
            staged: Mutex::default(),
            mounted: Mutex::default(),
            in_use,
            released: Notify::new(),
        }))
    }

    /// Registers drivers, unstages volumes that no pod has, and follows those that are mounted, until the future is dropped.
    pub(super) async fn run(&self, supervisor: &Supervisor) {
        let (registering, releasing, following) = (self.clone(), self.clone(), self.clone());
        tokio::join!(
            supervisor.keep("csi-registration", move || {
                let csi = registering.clone();
                async move { registration::run(&csi.0).await }
            }),
            supervisor.keep("csi-unstage", move || {
                let csi = releasing.clone();
                async move { release::run(&csi.0).await }
            }),
            supervisor.keep("csi-expansion", move || {
                let csi = following.clone();
                async move { expand::run(&csi.0).await }
            }),
        );
    }

    /// The names of attached volumes that pods of this node have, or may still have.
    pub(super) fn volumes_in_use(&self) -> watch::Receiver<Vec<String>> {
        self.0.in_use.subscribe()
    }

    /// The uids of all pods with volumes on disk.
    pub(super) fn known(&self) -> std::io::Result<Vec<String>> {
        self.0.layout.pods()
    }
}

impl State {
    /// The lock of a volume.
    fn lock(&self, id: &VolumeId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        // Those that are neither held nor waited for.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(id.clone()).or_default().clone()
    }
}
