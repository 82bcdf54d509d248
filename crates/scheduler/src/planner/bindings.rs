//! Pods that are assumed on a node while their volumes are being bound: the planner decides about the pod's own binding
//! when it observes that the binder has bound all of its claims.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_placement::volumes::{SELECTED_NODE, annotation, is_fully_bound};
use tokio::time::Instant;

use super::{Decision, Planner, PodRef, unschedulable};
use crate::cache::Uid;
use crate::volumes::VolumeBinding;

/// How long the volumes of a pod may take: upstream's `bindTimeoutSeconds`.
const BIND_TIMEOUT: Duration = Duration::from_mins(10);

/// The pods whose volumes are being bound.
#[derive(Debug, Default)]
pub(super) struct PendingBindings {
    pods: HashMap<Uid, Pending>,
}

#[derive(Debug)]
struct Pending {
    pod: PodRef,
    node: String,
    /// The number of attempts, and when the pod was added to the queue.
    attempts: (u32, Instant),
    deadline: Instant,
    claims: Vec<ObjectRef>,
}

impl PendingBindings {
    /// The earliest timeout of these bindings.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pods.values().map(|pending| pending.deadline).min()
    }
}

impl Planner {
    /// Assumes the bindings of a pod.
    pub(super) fn bind_volumes(
        &mut self,
        pod: PodRef,
        node: String,
        bindings: Vec<VolumeBinding>,
        attempts: (u32, Instant),
        now: Instant,
    ) -> Decision {
        self.cache.volumes.assume(&pod.uid, &node, &bindings);
        let claims = bindings.iter().map(|binding| match binding {
            VolumeBinding::Static { claim, .. } | VolumeBinding::Provision { claim } => {
                ObjectRef::of(&**claim)
            }
        });
        let pending = Pending {
            claims: claims.collect(),
            pod: pod.clone(),
            node: node.clone(),
            attempts,
            deadline: now + BIND_TIMEOUT,
        };
        self.pending_bindings.pods.insert(pod.uid.clone(), pending);
        Decision::BindVolumes { pod, node, bindings }
    }

    /// Forgets what was assumed for a pod: it is bound, deleted, or tried again.
    pub(super) fn forget_bindings(&mut self, uid: &str) {
        if self.pending_bindings.pods.remove(uid).is_some() {
            self.cache.volumes.forget(uid);
            self.cache.changes.volumes = true;
        }
    }

    /// Cancels the bindings that have timed out.
    pub(super) fn expire_bindings(&mut self, now: Instant) {
        if self.pending_bindings.due().is_none_or(|due| now < due) {
            return;
        }
        let pods = self.pending_bindings.pods.iter();
        let expired = pods.filter(|(_, pending)| pending.deadline <= now).map(|(uid, _)| uid.clone());
        for uid in expired.collect::<Vec<Uid>>() {
            self.fail_bindings(&uid, "context deadline exceeded", now);
        }
    }

    fn fail_bindings(&mut self, uid: &Uid, why: &str, now: Instant) {
        if let Some(queued) = self.assumed.get(uid) {
            let message = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}");
            let decision = unschedulable(&queued.pod.clone(), &message, None, None);
            self.decisions.push_back(decision);
        }
        self.binding_failed(uid, now);
    }

    /// Binds the pods of a claim whose claims are all bound by now, and cancels the bindings of pods whose claim cannot be bound.
    fn check_bindings(&mut self, claim: &ObjectRef, failure: Option<&str>, now: Instant) {
        let pods = self.pending_bindings.pods.iter();
        let of_claim = pods.filter(|(_, pending)| pending.claims.contains(claim));
        for uid in of_claim.map(|(uid, _)| uid.clone()).collect::<Vec<Uid>>() {
            if let Some(failure) = failure {
                self.fail_bindings(&uid, failure, now);
                continue;
            }
            let Some(pending) = self.pending_bindings.pods.get(&uid) else { continue };
            let volumes = &self.cache.volumes;
            let is_bound =
                |claim: &ObjectRef| volumes.claim(claim).is_some_and(|claim| is_fully_bound(claim));
            if !pending.claims.iter().all(is_bound) {
                continue;
            }
            if let Some(Pending { pod, node, attempts: (attempts, since), .. }) =
                self.pending_bindings.pods.remove(&uid)
            {
                self.cache.volumes.forget(&uid);
                self.decisions.push_back(Decision::Bind { pod, node, attempts, since });
            }
        }
    }

    /// Handles a watch event of claims.
    pub fn handle_claims(&mut self, event: WatchEvent<PersistentVolumeClaim>, now: Instant) {
        match event {
            WatchEvent::Restarted(claims) => {
                let mut gone: Vec<ObjectRef> = self.cache.volumes.claims().cloned().collect();
                let listed: std::collections::HashSet<ObjectRef> = claims.iter().map(ObjectRef::of).collect();
                gone.retain(|claim| !listed.contains(claim));
                for claim in gone {
                    self.remove_claim(&claim, now);
                }
                for claim in claims {
                    self.update_claim(claim, now);
                }
            }
            WatchEvent::Applied(claim) => self.update_claim(*claim, now),
            WatchEvent::Deleted(claim) => self.remove_claim(&claim, now),
        }
        self.cache.changes.volumes = true;
    }

    fn update_claim(&mut self, claim: PersistentVolumeClaim, now: Instant) {
        let key = ObjectRef::of(&claim);
        let selected =
            |claim: &PersistentVolumeClaim| annotation(&claim.metadata, SELECTED_NODE).map(str::to_owned);
        let after = selected(&claim);
        let before = self.cache.volumes.update_claim(claim);
        // A provisioner that cannot create the volume takes the node back, so that the scheduler selects another.
        let is_reset = before.is_some_and(|before| selected(&before).is_some()) && after.is_none();
        let failure = is_reset.then(|| format!("provisioning failed for PVC {:?}", key.name));
        self.check_bindings(&key, failure.as_deref(), now);
    }

    fn remove_claim(&mut self, claim: &ObjectRef, now: Instant) {
        if self.cache.volumes.remove_claim(claim) {
            let failure = format!("persistentvolumeclaim {:?} not found", claim.name);
            self.check_bindings(claim, Some(&failure), now);
        }
    }

    /// Handles a watch event of volumes.
    pub fn handle_volumes(&mut self, event: WatchEvent<PersistentVolume>) {
        match event {
            WatchEvent::Restarted(volumes) => {
                let listed: std::collections::HashSet<String> =
                    volumes.iter().map(|volume| ObjectRef::of(volume).name).collect();
                let mut gone: Vec<String> = self.cache.volumes.volumes().cloned().collect();
                gone.retain(|name| !listed.contains(name));
                for name in gone {
                    self.cache.volumes.remove_volume(&name);
                }
                for volume in volumes {
                    self.cache.volumes.update_volume(volume);
                }
            }
            WatchEvent::Applied(volume) => self.cache.volumes.update_volume(*volume),
            WatchEvent::Deleted(volume) => self.cache.volumes.remove_volume(&volume.name),
        }
        self.cache.changes.volumes = true;
    }

    /// Handles a watch event of what the CSI drivers of nodes can have.
    pub fn handle_csi_nodes(&mut self, event: WatchEvent<CSINode>) {
        let volumes = &mut self.cache.volumes;
        self.cache.changes.volumes |= match event {
            WatchEvent::Restarted(nodes) => {
                let listed: std::collections::HashSet<String> =
                    nodes.iter().map(|node| ObjectRef::of(node).name).collect();
                let gone = volumes.limited_nodes().filter(|name| !listed.contains(*name));
                let gone: Vec<String> = gone.cloned().collect();
                let was_limited = gone.iter().fold(false, |any, name| volumes.remove_limits(name) | any);
                nodes.iter().fold(was_limited, |any, node| volumes.update_limits(node) | any)
            }
            WatchEvent::Applied(node) => volumes.update_limits(&node),
            WatchEvent::Deleted(node) => volumes.remove_limits(&node.name),
        };
    }

    /// Handles a watch event of CSI drivers, some of which publish their capacity.
    pub fn handle_csi_drivers(&mut self, event: WatchEvent<CSIDriver>) {
        let capacities = &mut self.cache.volumes.capacities;
        self.cache.changes.volumes |= match event {
            WatchEvent::Restarted(drivers) => {
                let listed: std::collections::HashSet<String> =
                    drivers.iter().map(|driver| ObjectRef::of(driver).name).collect();
                let gone: Vec<String> =
                    capacities.drivers().filter(|name| !listed.contains(*name)).cloned().collect();
                let any = gone.iter().fold(false, |any, name| capacities.remove_driver(name) | any);
                drivers.iter().fold(any, |any, driver| capacities.update_driver(driver) | any)
            }
            WatchEvent::Applied(driver) => capacities.update_driver(&driver),
            WatchEvent::Deleted(driver) => capacities.remove_driver(&driver.name),
        };
    }

    /// Handles a watch event of the capacities that CSI drivers publish.
    pub fn handle_storage_capacities(&mut self, event: WatchEvent<CSIStorageCapacity>) {
        let capacities = &mut self.cache.volumes.capacities;
        self.cache.changes.volumes |= match event {
            WatchEvent::Restarted(objects) => {
                let listed: std::collections::HashSet<ObjectRef> =
                    objects.iter().map(ObjectRef::of).collect();
                let gone: Vec<ObjectRef> =
                    capacities.objects().filter(|key| !listed.contains(*key)).cloned().collect();
                let any = gone.iter().fold(false, |any, key| capacities.remove(key) | any);
                objects.iter().fold(any, |any, object| capacities.update(object) | any)
            }
            WatchEvent::Applied(object) => capacities.update(&object),
            WatchEvent::Deleted(key) => capacities.remove(&key),
        };
    }

    /// Handles a watch event of storage classes.
    pub fn handle_classes(&mut self, event: WatchEvent<StorageClass>) {
        match event {
            WatchEvent::Restarted(classes) => {
                let listed: std::collections::HashSet<String> =
                    classes.iter().map(|class| ObjectRef::of(class).name).collect();
                let mut gone: Vec<String> = self.cache.volumes.classes().cloned().collect();
                gone.retain(|name| !listed.contains(name));
                for name in gone {
                    self.cache.volumes.remove_class(&name);
                }
                for class in classes {
                    self.cache.volumes.update_class(class);
                }
            }
            WatchEvent::Applied(class) => self.cache.volumes.update_class(*class),
            WatchEvent::Deleted(class) => self.cache.volumes.remove_class(&class.name),
        }
        self.cache.changes.volumes = true;
    }
}
