//! The persistent volume binder: performs the decisions about [claims](super::claim) and [volumes](super::volume).
//!
//! It has one worker, as upstream: two decisions at a time could give one volume to two claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_controller_runtime::{
    Backoff, Clock, Index, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write as OwnWrite,
};
use plumb_placement::volumes::{class_of_claim, class_of_volume, default_class, has_class, used_claims};

use super::{About, Step, Write, claim, volume};
use crate::Clients;
use crate::workload::{Note, pods, recorder::Recorder};

/// The name of the controller's user.
pub const NAME: &str = "persistent-volume-binder";
/// The component that its events name as their source.
const EVENT_SOURCE: &str = "persistentvolume-controller";
/// The most writes of one reconcile: a binding has four.
const MAX_STEPS: usize = 8;

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim.
    Claim(ObjectRef),
    /// A volume.
    Volume(String),
}

/// Binds claims and volumes until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let claims = informers.informer::<PersistentVolumeClaim>().store().clone();
    let volumes = informers.informer::<PersistentVolume>().store().clone();
    let classes = informers.informer::<StorageClass>().store().clone();
    let pods = informers.informer_with::<Pod>(pods::essence).store().clone();
    let recorder =
        Recorder::start(clients.write.clone(), EVENT_SOURCE, &clients.supervisor, &clients.metrics);
    let events = recorder.0.clone();
    let binder = Binder {
        by_reference: volumes.add_index(|volume: &PersistentVolume| Some(index_key(volume))),
        pending_by_class: claims.add_index(pending_class),
        pods_by_claim: pods.add_index(claims_of_waiting),
        watcher: clients.watch.clone(),
        client: clients.write.clone(),
        claims: claims.clone(),
        volumes: volumes.clone(),
        classes: classes.clone(),
        recorder,
        clock: clock.clone(),
        last_events: Mutex::default(),
    };
    let (by_reference, pending) = (binder.by_reference.clone(), binder.pending_by_class.clone());
    let pending_of_class = pending.clone();
    let enqueue_pending = move |class: &str, enqueue: &dyn Fn(Key)| {
        for claim in pending_of_class.get(class) {
            enqueue(Key::Claim(ObjectRef::of(&*claim)));
        }
    };
    clients
        .controller(NAME, binder)
        .with_panic_events(move || events.clone())
        .with_clock(clock)
        .watches(&claims, move |change, queue| {
            let Some(claim) = change.latest() else { return };
            queue.add(Key::Claim(ObjectRef::of(&**claim)));
            for volume in by_reference.get(&reference_key(&claim.metadata)) {
                queue.add(Key::Volume(ObjectRef::of(&*volume).name));
            }
        })
        .watches(&volumes, move |change, queue| {
            let Some(volume) = change.latest() else { return };
            queue.add(Key::Volume(ObjectRef::of(&**volume).name));
            for volume in [change.before, change.after].into_iter().flatten() {
                if let Some(claim) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
                    let text = |field: &Option<String>| field.clone().unwrap_or_default();
                    queue.add(Key::Claim(ObjectRef::namespaced(text(&claim.namespace), text(&claim.name))));
                }
            }
            if change.after.is_some_and(|volume| is_available(volume)) {
                for claim in pending.get(class_of_volume(volume)) {
                    queue.add(Key::Claim(ObjectRef::of(&*claim)));
                }
                // Those that name it.
                for claim in pending.get(&named_key(&ObjectRef::of(&**volume).name)) {
                    queue.add(Key::Claim(ObjectRef::of(&*claim)));
                }
            }
        })
        .watches(&classes, move |change, queue| {
            let Some(class) = change.after else { return };
            let enqueue = |key| queue.add(key);
            enqueue_pending(&ObjectRef::of(&**class).name, &enqueue);
            // It may be the default now.
            enqueue_pending("", &enqueue);
        })
        .awaits(pods)
        .run()
}

fn is_available(volume: &PersistentVolume) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    super::volume_phase(volume) == "Available" || reference.is_none()
}

/// Volumes by the claim that they refer to, else by their class.
fn index_key(volume: &PersistentVolume) -> String {
    match volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
        Some(claim) => {
            let part = |field: &Option<String>| field.clone().unwrap_or_default();
            format!("claim/{}/{}", part(&claim.namespace), part(&claim.name))
        }
        None => class_key(class_of_volume(volume)),
    }
}

fn reference_key(claim: &ObjectMeta) -> String {
    let part = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("claim/{}/{}", part(&claim.namespace), part(&claim.name))
}

fn class_key(class: &str) -> String {
    format!("class/{class}")
}

/// The key of the claims that name a volume. No class has such a name.
fn named_key(volume: &str) -> String {
    format!("volume/{volume}")
}

/// Claims that are not bound, by their class or the volume that they name.
fn pending_class(claim: &PersistentVolumeClaim) -> Option<String> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    match (phase, named) {
        ("Pending", "") => Some(class_of_claim(claim).to_owned()),
        ("Pending" | "Lost", named) => Some(named_key(named)),
        _ => None,
    }
}

/// The claims of a pod that has no node yet.
fn claims_of_waiting(pod: &Pod) -> Vec<String> {
    if pods::node_of(pod).is_some() || pods::has_ended(pod) {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    used_claims(pod).map(|claim| format!("{namespace}/{}", claim.name)).collect()
}

/// Why a claim or a volume could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The claim of a volume exists, and its informer has not observed it.
    #[error("the claim of the volume is not observed yet")]
    NotObserved,
}

struct Binder {
    client: Client,
    watcher: Client,
    claims: Arc<Store<PersistentVolumeClaim>>,
    volumes: Arc<Store<PersistentVolume>>,
    classes: Arc<Store<StorageClass>>,
    by_reference: Index<PersistentVolume>,
    pending_by_class: Index<PersistentVolumeClaim>,
    pods_by_claim: Index<Pod>,
    recorder: Recorder,
    clock: Clock,
    /// The last events about each pending claim, so that an unrelated change repeats none. Those of a claim end with it.
    last_events: Mutex<BTreeMap<String, Vec<(About, Note)>>>,
}

impl Reconciler for Binder {
    type Key = Key;
    type Error = BindError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, BindError> {
        for _ in 0..MAX_STEPS {
            let Some((claim, volume, step)) = self.decide(key) else { return Ok(Requeue::AwaitChange) };
            if let Some(Write::VolumeStatus(released)) = &step.write
                && super::volume_phase(released) == "Released"
            {
                self.check_released(released).await?;
            }
            self.emit(claim.as_deref(), volume.as_deref(), &step.events);
            let Some(write) = step.write else { return Ok(Requeue::AwaitChange) };
            match self.perform(write).await {
                Ok(true) => {}
                Ok(false) => return Ok(Requeue::AwaitChange),
                // The watch delivers the newer object, or the deletion.
                Err(error) if is_conflict(&error) || is_settled(&error) => return Ok(Requeue::AwaitChange),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Requeue::Now)
    }

    fn regarding(&self, key: &Key) -> Option<ObjectReference> {
        match key {
            Key::Claim(claim) => self.claims.get(claim).map(|claim| claim.object_ref(&())),
            Key::Volume(volume) => {
                self.volumes.get(&ObjectRef::cluster(volume)).map(|volume| volume.object_ref(&()))
            }
        }
    }

    async fn recover(&self) {
        let mut backoff = Backoff::default();
        loop {
            let claims = self.claims.catch_up(Api::all(self.watcher.clone())).await;
            let caught_up = match claims {
                Ok(()) => self.volumes.catch_up(Api::all(self.watcher.clone())).await,
                Err(error) => Err(error),
            };
            let Err(error) = caught_up else { return };
            tracing::debug!(%error, controller = NAME, "cannot list what was written, will retry");
            backoff.wait().await;
        }
    }
}

type Found<K> = Option<Arc<K>>;

impl Binder {
    /// The claim and the volume that a key is about, with the next step; `None` if the object does not exist.
    fn decide(&self, key: &Key) -> Option<(Found<PersistentVolumeClaim>, Found<PersistentVolume>, Step)> {
        match key {
            Key::Claim(key) => {
                let Some(claim) = self.claims.get(key) else {
                    self.last_events.lock().remove(&key.to_string());
                    return None;
                };
                let state = self.claim_state(&claim);
                let step = claim::decide(&state);
                Some((Some(claim), state.volume, step))
            }
            Key::Volume(name) => {
                let volume = self.volumes.get(&ObjectRef::cluster(name))?;
                let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                let claim = reference.and_then(|reference| {
                    let text = |field: &Option<String>| field.clone().unwrap_or_default();
                    self.claims.get(&ObjectRef::namespaced(text(&reference.namespace), text(&reference.name)))
                });
                let step = volume::decide(&volume::State { volume: volume.clone(), claim: claim.clone() });
                Some((claim, Some(volume), step))
            }
        }
    }

    fn claim_state(&self, claim: &Arc<PersistentVolumeClaim>) -> claim::State {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let class = class_of_claim(claim);
        let mut candidates = self.by_reference.get(&reference_key(&claim.metadata));
        let mut waiting_pods = Vec::new();
        let mut default = None;
        if named.is_empty() {
            candidates.extend(self.by_reference.get(&class_key(class)));
            let key = ObjectRef::of(&**claim).to_string();
            waiting_pods =
                self.pods_by_claim.get(&key).iter().map(|pod| ObjectRef::of(&**pod).name).collect();
            if !has_class(claim) {
                let classes = self.classes.all();
                let found = default_class(classes.iter().map(|class| &**class));
                default = found.and_then(|class| class.metadata.name.clone());
            }
        }
        claim::State {
            volume: self.volumes.get(&ObjectRef::cluster(named)),
            class: self.classes.get(&ObjectRef::cluster(class)),
            claim: claim.clone(),
            candidates,
            default_class: default,
            waiting_pods,
        }
    }

    /// Checks with the API server that the claim of a volume that is to be released does not exist: its data may be
    /// removed then, and the watch of claims may be behind that of volumes.
    async fn check_released(&self, volume: &PersistentVolume) -> Result<(), BindError> {
        let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
            return Ok(());
        };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
        let found = claims.get_opt(reference.name.as_deref().unwrap_or_default()).await?;
        let Some(found) = found.filter(|claim| claim.metadata.uid == reference.uid) else { return Ok(()) };
        // It is bound to another volume, which the watch has to show before this one is released.
        let named = found.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        let is_elsewhere =
            named.is_some_and(|named| !named.is_empty()) && named != volume.metadata.name.as_ref();
        if is_elsewhere { Ok(()) } else { Err(BindError::NotObserved) }
    }

    fn emit(
        &self,
        claim: Option<&PersistentVolumeClaim>,
        volume: Option<&PersistentVolume>,
        events: &[(About, Note)],
    ) {
        if events.is_empty() {
            return;
        }
        if let Some(claim) = claim {
            let mut last = self.last_events.lock();
            let key = ObjectRef::of(claim).to_string();
            if last.get(&key).is_some_and(|last| last == events) {
                return;
            }
            last.insert(key, events.to_vec());
        }
        let now = self.clock.now();
        for (about, note) in events {
            let about = match about {
                About::Claim => claim.map(|claim| claim.object_ref(&())),
                About::Volume => volume.map(|volume| volume.object_ref(&())),
            };
            if let Some(about) = about {
                self.recorder.record(about, note.clone(), now);
            }
        }
    }

    /// Performs a write, and waits until the informer has observed it. Whether it has changed the object: what the API
    /// server stores otherwise than it was written must not be written again and again.
    async fn perform(&self, write: Write) -> kube::Result<bool> {
        let params = PostParams::default();
        let (before, after, is_volume) = match write {
            Write::Volume(volume) => {
                let written = self.volumes_api().replace(name(&volume.metadata), &params, &volume).await?;
                (volume.metadata, written.metadata, true)
            }
            Write::VolumeStatus(volume) => {
                let api = self.volumes_api();
                let written = api.replace_status(name(&volume.metadata), &params, &volume).await?;
                (volume.metadata, written.metadata, true)
            }
            Write::Claim(claim) => {
                let written = self.claims_of(&claim).replace(name(&claim.metadata), &params, &claim).await?;
                (claim.metadata, written.metadata, false)
            }
            Write::ClaimStatus(claim) => {
                let api = self.claims_of(&claim);
                let written = api.replace_status(name(&claim.metadata), &params, &claim).await?;
                (claim.metadata, written.metadata, false)
            }
        };
        let observed = OwnWrite::updated(&after);
        if is_volume {
            self.volumes.wait_for_write(&observed).await;
        } else {
            self.claims.wait_for_write(&observed).await;
        }
        Ok(before.resource_version != after.resource_version)
    }

    fn volumes_api(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    fn claims_of(&self, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), claim.metadata.namespace.as_deref().unwrap_or_default())
    }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
