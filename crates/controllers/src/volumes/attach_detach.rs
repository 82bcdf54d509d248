//! The attach/detach controller: asks the attachers of CSI drivers for what pods need, by `VolumeAttachment`s.
//!
//! ```text
//!   pod on a node ▸ claim ▸ volume of a driver that attaches ──▶ VolumeAttachment ──▶ external-attacher: status.attached
//!                                                                      │ volumesAttached of the node
//!   no pod left ──▶ the node has unmounted it (volumesInUse) ──▶ VolumeAttachment deleted
//! ```
//!
//! It decides node by node ([`decide`]) from what is stored, so that a restart forgets no more than how long a node that is
//! not ready has had to unmount a volume. The finalizers of attachments are those of external-attacher.

pub mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::{settled, settled_or_conflict};
use plumb_controller_runtime::{
    Clock, Index, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write as OwnWrite,
};
use plumb_placement::volumes::{is_bound_to, used_claims};
use serde_json::json;

use crate::Clients;
use crate::workload::{Note, pods, recorder::Recorder};
use decide::{Action, Elsewhere, State, Wanted, is_terminated, volume_of};

/// The name of the controller's user.
pub const NAME: &str = "attachdetach-controller";

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The volumes of a node.
    Node(String),
    /// What an attacher says about an attachment: its pods get an event.
    Outcome(String),
}

/// Attaches and detaches until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let pods = informers.informer_with::<Pod>(pods::essence).store().clone();
    let nodes = informers.informer::<Node>().store().clone();
    let claims = informers.informer::<PersistentVolumeClaim>().store().clone();
    let volumes = informers.informer::<PersistentVolume>().store().clone();
    let drivers = informers.informer::<CSIDriver>().store().clone();
    let attachments = informers.informer::<VolumeAttachment>().store().clone();
    let recorder = Recorder::start(clients.write.clone(), NAME, &clients.supervisor, &clients.metrics);
    let events = recorder.0.clone();
    let by_claim = pods.add_index(claims_of_bound);
    let controller = AttachDetach {
        client: clients.write.clone(),
        by_node: pods.add_index(node_with_claims),
        by_claim: by_claim.clone(),
        attachments_by_node: attachments.add_index(|one: &VolumeAttachment| Some(one.spec.node_name.clone())),
        attachments_by_volume: attachments
            .add_index(|one: &VolumeAttachment| volume_of(one).map(str::to_owned)),
        nodes: nodes.clone(),
        claims: claims.clone(),
        volumes: volumes.clone(),
        drivers: drivers.clone(),
        attachments: attachments.clone(),
        unused_since: Mutex::default(),
        refused: Mutex::default(),
        recorder,
        clock: clock.clone(),
    };
    let nodes_of_claim = move |claim: &str, enqueue: &dyn Fn(Key)| {
        for pod in by_claim.get(claim) {
            if let Some(node) = pods::node_of(&pod) {
                enqueue(Key::Node(node.to_owned()));
            }
        }
    };
    let nodes_of_volume = {
        let nodes_of_claim = nodes_of_claim.clone();
        move |volume: &PersistentVolume, enqueue: &dyn Fn(Key)| {
            if let Some(claim) = claim_of(volume) {
                nodes_of_claim(&claim.to_string(), enqueue);
            }
        }
    };
    let (of_volume, all_volumes) = (nodes_of_volume.clone(), volumes.clone());
    let all_nodes = nodes.clone();
    clients
        .controller(NAME, controller)
        .with_panic_events(move || events.clone())
        .with_clock(clock)
        .watches(&pods, |change, queue| {
            let both = [change.before, change.after].into_iter().flatten();
            for node in both.filter_map(|pod| node_with_claims(pod)) {
                queue.add(Key::Node(node));
            }
        })
        .watches(&claims, move |change, queue| {
            if let Some(claim) = change.latest() {
                nodes_of_claim(&ObjectRef::of(&**claim).to_string(), &|key| queue.add(key));
            }
        })
        .watches(&volumes, move |change, queue| {
            if let Some(volume) = change.latest().filter(|volume| is_of_driver(volume)) {
                nodes_of_volume(volume, &|key| queue.add(key));
            }
        })
        .watches(&attachments, move |change, queue| {
            let Some(attachment) = change.latest() else { return };
            queue.add(Key::Node(attachment.spec.node_name.clone()));
            if outcome(change.before) != outcome(change.after) && change.after.is_some() {
                queue.add(Key::Outcome(ObjectRef::of(&**attachment).name));
            }
            // Another node may wait for the volume.
            let volume = volume_of(attachment).and_then(|name| all_volumes.get(&ObjectRef::cluster(name)));
            if let Some(volume) = volume.filter(|_| change.after.is_none()) {
                of_volume(&volume, &|key| queue.add(key));
            }
        })
        .watches(&nodes, |change, queue| {
            if let Some(node) = change.latest() {
                queue.add(Key::Node(ObjectRef::of(&**node).name));
            }
        })
        .watches(&drivers, move |_, queue| {
            // Whether a driver attaches volumes changes rarely.
            for node in all_nodes.all() {
                queue.add(Key::Node(ObjectRef::of(&*node).name));
            }
        })
        .run()
}

/// What an attacher has said: whether the volume is attached, and why not.
fn outcome(attachment: Option<&Arc<VolumeAttachment>>) -> (bool, Option<String>) {
    let status = attachment.and_then(|attachment| attachment.status.as_ref());
    let error = status.and_then(|status| status.attach_error.as_ref()?.message.clone());
    (status.is_some_and(|status| status.attached), error)
}

fn is_of_driver(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some())
}

/// The node of a pod that has claims.
fn node_with_claims(pod: &Pod) -> Option<String> {
    used_claims(pod).next()?;
    pods::node_of(pod).map(str::to_owned)
}

/// The claims of a pod that is on a node, by namespace and name.
fn claims_of_bound(pod: &Pod) -> Vec<String> {
    if pods::node_of(pod).is_none() {
        return Vec::new();
    }
    let namespace = ObjectRef::of(pod).namespace;
    used_claims(pod).map(|claim| ObjectRef::namespaced(&*namespace, claim.name).to_string()).collect()
}

/// The claim that a volume refers to.
fn claim_of(volume: &PersistentVolume) -> Option<ObjectRef> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectRef::namespaced(claim.namespace.clone()?, claim.name.clone()?))
}

struct AttachDetach {
    client: Client,
    nodes: Arc<Store<Node>>,
    claims: Arc<Store<PersistentVolumeClaim>>,
    volumes: Arc<Store<PersistentVolume>>,
    drivers: Arc<Store<CSIDriver>>,
    attachments: Arc<Store<VolumeAttachment>>,
    by_node: Index<Pod>,
    by_claim: Index<Pod>,
    attachments_by_node: Index<VolumeAttachment>,
    attachments_by_volume: Index<VolumeAttachment>,
    /// Since when no pod uses the volumes of attachments, by node and name. Those that are used or deleted are not in it.
    unused_since: Mutex<BTreeMap<String, BTreeMap<String, Timestamp>>>,
    /// The events of the last decision about a node, so that an unrelated change repeats none.
    refused: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for AttachDetach {
    type Key = Key;
    type Error = kube::Error;

    async fn reconcile(&self, key: &Key) -> kube::Result<Requeue> {
        match key {
            Key::Node(name) => self.reconcile_node(name).await,
            Key::Outcome(name) => {
                self.report(name);
                Ok(Requeue::AwaitChange)
            }
        }
    }

    fn regarding(&self, key: &Key) -> Option<ObjectReference> {
        let Key::Node(name) = key else { return None };
        self.nodes.get(&ObjectRef::cluster(name)).map(|node| node.object_ref(&()))
    }
}

impl AttachDetach {
    async fn reconcile_node(&self, name: &str) -> kube::Result<Requeue> {
        let now = self.clock.now();
        let state = self.state(name);
        let decision = decide::decide(&state, now);
        {
            let mut all = self.unused_since.lock();
            let since = all.entry(name.to_owned()).or_default();
            since.retain(|attachment, _| decision.unused.contains(attachment));
            for attachment in &decision.unused {
                since.entry(attachment.clone()).or_insert(now);
            }
            if since.is_empty() {
                all.remove(name);
            }
        }
        let mut refused = BTreeSet::new();
        for action in decision.actions {
            match action {
                Action::Attach(attachment) => self.attach(&attachment).await?,
                Action::Status(volumes) => {
                    let patch = Patch::Merge(json!({ "status": { "volumesAttached": volumes } }));
                    let nodes = Api::<Node>::all(self.client.clone());
                    settled(nodes.patch_status(name, &PatchParams::default(), &patch).await)?;
                }
                Action::Detach(attachment, uid) => self.detach(&attachment, uid).await?,
                Action::Event(pod, note) => {
                    let about = (pod.metadata.uid.clone().unwrap_or_default(), note.message.clone());
                    let is_known =
                        self.refused.lock().get(name).is_some_and(|refused| refused.contains(&about));
                    if !is_known {
                        self.recorder.record(pod.object_ref(&()), note, now);
                    }
                    refused.insert(about);
                }
            }
        }
        let mut all = self.refused.lock();
        if refused.is_empty() {
            all.remove(name);
        } else {
            all.insert(name.to_owned(), refused);
        }
        drop(all);
        Ok(decision.recheck.map_or(Requeue::AwaitChange, Requeue::After))
    }

    /// A node with the volumes that its pods use.
    fn state(&self, name: &str) -> State {
        let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
        for pod in self.by_node.get(name).into_iter().filter(|pod| !is_terminated(pod)) {
            for volume in self.attachable(&pod) {
                let key = ObjectRef::of(&*volume).name;
                let entry = wanted.entry(key).or_insert_with(|| Wanted { volume, pods: Vec::new() });
                entry.pods.push(pod.clone());
            }
        }
        let of_attachment = |attachment: Arc<VolumeAttachment>| {
            let volume = volume_of(&attachment).and_then(|name| self.volumes.get(&ObjectRef::cluster(name)));
            (attachment, volume)
        };
        let elsewhere = wanted.iter().filter_map(|(volume, wanted)| {
            let others = self.attachments_by_volume.get(volume);
            others.iter().any(|other| other.spec.node_name != name).then(|| {
                let claim = claim_of(&wanted.volume).map(|claim| claim.to_string()).unwrap_or_default();
                let on_others = |pod: &Arc<Pod>| pods::node_of(pod) != Some(name) && !is_terminated(pod);
                let pods = self.by_claim.get(&claim).into_iter().filter(on_others).collect();
                (volume.clone(), Elsewhere { pods })
            })
        });
        State {
            name: name.to_owned(),
            node: self.nodes.get(&ObjectRef::cluster(name)),
            elsewhere: elsewhere.collect(),
            wanted,
            attachments: self.attachments_by_node.get(name).into_iter().map(of_attachment).collect(),
            unused_since: self.unused_since.lock().get(name).cloned().unwrap_or_default(),
        }
    }

    /// The volumes of a pod whose drivers attach volumes.
    fn attachable(&self, pod: &Pod) -> Vec<Arc<PersistentVolume>> {
        let namespace = ObjectRef::of(pod).namespace;
        let volume = |name: String| {
            let claim = self.claims.get(&ObjectRef::namespaced(&*namespace, name))?;
            let named = claim.spec.as_ref()?.volume_name.as_deref()?;
            let volume = self.volumes.get(&ObjectRef::cluster(named))?;
            let driver = &volume.spec.as_ref()?.csi.as_ref()?.driver;
            let object = self.drivers.get(&ObjectRef::cluster(driver));
            // Upstream's default of a driver without an object, too.
            let attaches = object.is_none_or(|object| object.spec.attach_required != Some(false));
            (attaches && is_bound_to(&volume, &claim)).then_some(volume)
        };
        used_claims(pod).filter_map(|claim| volume(claim.name)).collect()
    }

    async fn attach(&self, attachment: &VolumeAttachment) -> kube::Result<()> {
        let api = Api::<VolumeAttachment>::all(self.client.clone());
        let created = api.create(&PostParams::default(), attachment).await;
        if let Ok(created) = &created {
            self.attachments.wait_for_write(&OwnWrite::created(&created.metadata)).await;
        }
        settled_or_conflict(created)?;
        Ok(())
    }

    async fn detach(&self, name: &str, uid: Option<String>) -> kube::Result<()> {
        let api = Api::<VolumeAttachment>::all(self.client.clone());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        settled_or_conflict(api.delete(name, &params).await)?;
        Ok(())
    }

    /// Emits what an attacher says about an attachment, about the pods that need it.
    fn report(&self, name: &str) {
        let Some(attachment) = self.attachments.get(&ObjectRef::cluster(name)) else { return };
        let Some(volume) = volume_of(&attachment) else { return };
        let (is_attached, error) = outcome(Some(&attachment));
        let note = match error {
            Some(why) => {
                let message = format!("AttachVolume.Attach failed for volume {volume:?} : {why}");
                Note::warning("FailedAttachVolume", message)
            }
            // The space is upstream's.
            None if is_attached => {
                let message = format!("AttachVolume.Attach succeeded for volume {volume:?} ");
                Note::normal("SuccessfulAttachVolume", message)
            }
            None => return,
        };
        let state = self.state(&attachment.spec.node_name);
        for pod in state.wanted.get(volume).iter().flat_map(|wanted| &wanted.pods) {
            self.recorder.record(pod.object_ref(&()), note.clone(), self.clock.now());
        }
    }
}
