//! The provisioner of the storage class `local-path`: a volume is a directory of the node that the scheduler has selected.
//!
//! ```text
//!   claim with a selected node ──▶ volume `pvc-UID` (type local, affinity to the node) ──▶ binder
//!                                      │ the agent of the node makes the directory when a pod mounts it
//!   claim deleted ──▶ Released ──▶ DELETE /localVolumes/pvc-UID of the node ──▶ finalizer and volume are removed
//! ```
//!
//! Each step may be interrupted and repeated: a volume without a directory is a volume that no pod has mounted, and a
//! directory outlives its volume at no time, since the finalizer of the volume is removed after the directory. While the
//! node does not answer the volume stays Released, and the removal is retried with backoff, and when the node is ready again.
//!
//! The requested size is written down, and not enforced: a directory has none. Only a request that is larger than the whole
//! disk is refused.

pub mod class;
pub mod provision;
pub mod reclaim;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::{settled, settled_or_conflict};
use plumb_controller_runtime::{
    Clock, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write as OwnWrite, finalizer,
};
use plumb_placement::volumes::{LOCAL_PATH_PROVISIONER, SELECTED_NODE, annotation, class_of_claim};

use crate::Clients;
use crate::nodes::health::is_ready;
use crate::workload::{Note, recorder::Recorder};
use provision::{Expansion, Provision, expand, is_awaited, provision};
use reclaim::{Reclaim, node_of};

/// The name of the controller's user.
pub const NAME: &str = "local-path-provisioner";
/// The annotation of a volume with the name of its node.
const NODE: &str = "plumb.dev/selected-node";
/// The finalizer of volumes that have a directory, as external provisioners have it.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Where the path of a volume seems to be on a virtual node.
const NO_DIRECTORY: &str = "/var/lib/plumb/volumes-local";
/// How many claims and volumes are reconciled at a time: a node that does not answer delays no others.
const WORKERS: usize = 8;
/// How long a node has to remove a directory.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim.
    Claim(ObjectRef),
    /// A volume.
    Volume(String),
}

/// Why a claim or a volume could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The node did not remove the directory.
    #[error("node {node:?} cannot remove the directory: {why}")]
    Removal {
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
}

/// Provisions until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let claims = informers.informer::<PersistentVolumeClaim>().store().clone();
    let volumes = informers.informer::<PersistentVolume>().store().clone();
    let classes = informers.informer::<StorageClass>().store().clone();
    let nodes = informers.informer::<Node>().store().clone();
    let recorder =
        Recorder::start(clients.write.clone(), LOCAL_PATH_PROVISIONER, &clients.supervisor, &clients.metrics);
    let events = recorder.0.clone();
    let by_node = volumes.add_index(|volume: &PersistentVolume| node_of(volume).map(str::to_owned));
    let awaited_by_class = claims.add_index(|claim: &PersistentVolumeClaim| {
        is_awaited(claim).then(|| class_of_claim(claim).to_owned())
    });
    let provisioner = Provisioner {
        client: clients.write.clone(),
        claims: claims.clone(),
        volumes: volumes.clone(),
        classes: classes.clone(),
        nodes: nodes.clone(),
        recorder,
        clock: clock.clone(),
    };
    clients
        .controller(NAME, provisioner)
        .with_panic_events(move || events.clone())
        .with_clock(clock)
        .with_workers(WORKERS)
        .watches(&claims, |change, queue| {
            if let Some(claim) = change.after {
                queue.add(Key::Claim(ObjectRef::of(&**claim)));
            }
        })
        .watches(&volumes, |change, queue| {
            if let Some(volume) = change.after.filter(|volume| node_of(volume).is_some()) {
                queue.add(Key::Volume(ObjectRef::of(&**volume).name));
            }
        })
        .watches(&classes, move |change, queue| {
            let Some(class) = change.after else { return };
            for claim in awaited_by_class.get(&ObjectRef::of(&**class).name) {
                queue.add(Key::Claim(ObjectRef::of(&*claim)));
            }
        })
        .watches(&nodes, move |change, queue| {
            // A node that is ready again may remove what is released, and one that is deleted need not.
            let ready = |node: Option<&Arc<Node>>| node.map(|node| is_ready(node));
            if ready(change.before) == ready(change.after) {
                return;
            }
            let Some(node) = change.latest() else { return };
            for volume in by_node.get(&ObjectRef::of(&**node).name) {
                queue.add(Key::Volume(ObjectRef::of(&*volume).name));
            }
        })
        .run()
}

struct Provisioner {
    client: Client,
    claims: Arc<Store<PersistentVolumeClaim>>,
    volumes: Arc<Store<PersistentVolume>>,
    classes: Arc<Store<StorageClass>>,
    nodes: Arc<Store<Node>>,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for Provisioner {
    type Key = Key;
    type Error = ProvisionError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, ProvisionError> {
        match key {
            Key::Claim(key) => {
                if let Some(claim) = self.claims.get(key) {
                    self.provision(&claim).await?;
                    self.expand(&claim).await?;
                }
            }
            Key::Volume(name) => {
                if let Some(volume) = self.volumes.get(&ObjectRef::cluster(name)) {
                    self.reclaim(&volume).await?;
                }
            }
        }
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, key: &Key) -> Option<ObjectReference> {
        match key {
            Key::Claim(claim) => self.claims.get(claim).map(|claim| claim.object_ref(&())),
            Key::Volume(volume) => {
                self.volumes.get(&ObjectRef::cluster(volume)).map(|volume| volume.object_ref(&()))
            }
        }
    }
}

impl Provisioner {
    async fn provision(&self, claim: &PersistentVolumeClaim) -> Result<(), ProvisionError> {
        let class = self.classes.get(&ObjectRef::cluster(class_of_claim(claim)));
        let selected = annotation(&claim.metadata, SELECTED_NODE).unwrap_or_default();
        let node = self.nodes.get(&ObjectRef::cluster(selected));
        match provision(claim, class.as_deref(), node.as_deref()) {
            Provision::Nothing => {}
            Provision::Create(volume) => {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                if self.volumes.get(&ObjectRef::cluster(name)).is_some() {
                    return Ok(());
                }
                let reference = ObjectRef::of(claim);
                let message =
                    format!("External provisioner is provisioning volume for claim \"{reference}\"");
                self.emit(claim, Note::normal("Provisioning", message));
                let created = Api::all(self.client.clone()).create(&PostParams::default(), &*volume).await;
                if let Ok(created) = &created {
                    self.volumes.wait_for_write(&OwnWrite::created(&created.metadata)).await;
                }
                settled(created)?;
                let message = format!("Successfully provisioned volume {name}");
                self.emit(claim, Note::normal("ProvisioningSucceeded", message));
            }
            Provision::Reschedule(rescheduled, why) => {
                self.emit(claim, Note::warning("ProvisioningFailed", why));
                let name = rescheduled.metadata.name.as_deref().unwrap_or_default();
                let claims = self.claims_of(claim);
                settled_or_conflict(claims.replace(name, &PostParams::default(), &rescheduled).await)?;
            }
            Provision::Fail(why) => self.emit(claim, Note::warning("ProvisioningFailed", why)),
        }
        Ok(())
    }

    async fn expand(&self, claim: &PersistentVolumeClaim) -> Result<(), ProvisionError> {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let Some(volume) = self.volumes.get(&ObjectRef::cluster(named)) else { return Ok(()) };
        let params = PostParams::default();
        let node = self.nodes.get(&ObjectRef::cluster(node_of(&volume).unwrap_or_default()));
        let mut decision = expand(claim, &volume, node.as_deref());
        if let Expansion::Volume(volume) = decision {
            let volumes = Api::<PersistentVolume>::all(self.client.clone());
            // Another version of it brings another decision.
            let Ok(written) = volumes.replace(named, &params, &volume).await else { return Ok(()) };
            self.volumes.wait_for_write(&OwnWrite::updated(&written.metadata)).await;
            decision = expand(claim, &written, node.as_deref());
        }
        match decision {
            Expansion::Claim(expanded) => {
                let name = expanded.metadata.name.as_deref().unwrap_or_default();
                settled_or_conflict(self.claims_of(claim).replace_status(name, &params, &expanded).await)?;
                self.emit(claim, Note::normal("VolumeResizeSuccessful", "Resize volume succeeded"));
            }
            Expansion::Fail(why) => self.emit(claim, Note::warning("VolumeResizeFailed", why)),
            Expansion::Nothing | Expansion::Volume(_) => {}
        }
        Ok(())
    }

    async fn reclaim(&self, volume: &PersistentVolume) -> Result<(), ProvisionError> {
        let node = self.nodes.get(&ObjectRef::cluster(node_of(volume).unwrap_or_default()));
        match reclaim::decide(volume, node.as_deref()) {
            Reclaim::Nothing => Ok(()),
            Reclaim::RemoveFinalizer => self.remove_finalizer(volume).await,
            Reclaim::Finish => self.finish(volume).await,
            Reclaim::RemoveFrom(node) => {
                if let Err(error) = self.remove_from(&node, volume).await {
                    let about = volume.object_ref(&());
                    let note = Note::warning("VolumeFailedDelete", error.to_string());
                    self.recorder.record(about, note, self.clock.now());
                    return Err(error);
                }
                self.finish(volume).await
            }
        }
    }

    /// Has a node remove the directory of a volume, by its agent's server.
    async fn remove_from(&self, node: &str, volume: &PersistentVolume) -> Result<(), ProvisionError> {
        let failed = |why: String| ProvisionError::Removal { node: node.to_owned(), why };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let path = format!("/api/v1/nodes/{node}/proxy/localVolumes/{name}");
        let request =
            http::Request::delete(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
        match tokio::time::timeout(REMOVAL_TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(_)) => Ok(()),
            // Of an answer that is no Status the client makes one, whose message is that of the agent.
            Ok(Err(kube::Error::Api(status))) => Err(failed(status.message)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("timeout".to_owned())),
        }
    }

    async fn finish(&self, volume: &PersistentVolume) -> Result<(), ProvisionError> {
        self.remove_finalizer(volume).await?;
        if volume.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Some(Preconditions { uid: volume.metadata.uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        settled_or_conflict(volumes.delete(name, &params).await)?;
        Ok(())
    }

    async fn remove_finalizer(&self, volume: &PersistentVolume) -> Result<(), ProvisionError> {
        if !finalizer::has(&volume.metadata, FINALIZER) {
            return Ok(());
        }
        let mut free = volume.clone();
        finalizer::remove(&mut free.metadata, FINALIZER);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        // A conflict is retried: the volume may have the finalizer in its newer version.
        settled(volumes.replace(name, &PostParams::default(), &free).await)?;
        Ok(())
    }

    fn emit(&self, claim: &PersistentVolumeClaim, note: Note) {
        self.recorder.record(claim.object_ref(&()), note, self.clock.now());
    }

    fn claims_of(&self, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), claim.metadata.namespace.as_deref().unwrap_or_default())
    }
}
