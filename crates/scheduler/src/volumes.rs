//! The volumes of pods: whether the claims of a pod let it run on a node, and what is bound once a node is selected
//! (upstream: the plugins `VolumeBinding`, `VolumeRestrictions` and `NodeVolumeLimits`).
//!
//! ```text
//!   claims ──▶ bound: the node must match the affinity of the volume
//!          ├─▶ class with WaitForFirstConsumer: a volume that matches, or a provisioner that may create one and has the space
//!          └─▶ else: the pod waits for the binder
//! ```
//!
//! The volumes and claims of a pod that is assumed on a node are assumed with it, so that no other pod gets them.

mod capacities;
mod score;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use plumb_controller_runtime::ObjectRef;
use plumb_placement::NodeAffinity;
use plumb_placement::volumes::{
    Finder, LOCAL_PATH_PROVISIONER, NO_PROVISIONER, SELECTED_NODE, annotation, class_of_claim,
    class_of_volume, find_match, is_bound_to, is_fully_bound, is_owned_by, node_affinity, requested,
    waits_for_consumer,
};

use crate::cache::{NodeProperties, Uid};
use crate::filter::FilterFailure;
use capacities::StorageCapacities;

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodClaim {
    /// Its name; its namespace is that of the pod.
    pub(crate) name: String,
    /// The uid of the pod that has to own it, if it is that of an ephemeral volume.
    pub(crate) owner: Option<String>,
}

/// What binds a claim of a pod to the node that is selected for the pod.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeBinding {
    /// A volume that exists is reserved for a claim.
    Static {
        /// The volume, which refers to the claim.
        volume: Arc<PersistentVolume>,
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
    },
    /// The provisioner of the class is to create a volume for the claim.
    Provision {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
    },
}

impl VolumeBinding {
    fn claim(&self) -> &PersistentVolumeClaim {
        match self {
            Self::Static { claim, .. } | Self::Provision { claim } => claim,
        }
    }
}

/// Claims, volumes and classes, as far as they are observed, and what is assumed.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeCache {
    claims: HashMap<ObjectRef, Arc<PersistentVolumeClaim>>,
    volumes: HashMap<String, Arc<PersistentVolume>>,
    /// The volumes without a claim by their class.
    unclaimed: HashMap<String, BTreeSet<String>>,
    /// The volumes that refer to a claim.
    referring: HashMap<ObjectRef, BTreeSet<String>>,
    classes: HashMap<String, Arc<StorageClass>>,
    /// The claims that assumed pods are to have: the node that is selected, and the volume that is reserved.
    assumed: HashMap<ObjectRef, Assumed>,
    /// How many assigned or assumed pods use a claim.
    users: HashMap<ObjectRef, usize>,
    /// How many volumes of each driver a node can have, by the name of the node.
    limits: HashMap<String, BTreeMap<String, usize>>,
    /// The space that CSI drivers have for new volumes.
    pub(crate) capacities: StorageCapacities,
}

#[derive(Clone, Debug)]
struct Assumed {
    pod: Uid,
    node: String,
    volume: Option<String>,
}

fn reference(volume: &PersistentVolume) -> Option<ObjectRef> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Some(ObjectRef::namespaced(text(&claim.namespace), text(&claim.name)))
}

impl VolumeCache {
    /// Adds a claim, or updates it. Returns the one before.
    pub(crate) fn update_claim(
        &mut self,
        claim: PersistentVolumeClaim,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.insert(ObjectRef::of(&claim), Arc::new(claim))
    }

    pub(crate) fn remove_claim(&mut self, claim: &ObjectRef) -> bool {
        self.claims.remove(claim).is_some()
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &ObjectRef> {
        self.claims.keys()
    }

    pub(crate) fn claim(&self, claim: &ObjectRef) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(claim)
    }

    pub(crate) fn update_volume(&mut self, volume: PersistentVolume) {
        let name = ObjectRef::of(&volume).name;
        self.remove_volume(&name);
        match reference(&volume) {
            Some(claim) => self.referring.entry(claim).or_default().insert(name.clone()),
            None => {
                self.unclaimed.entry(class_of_volume(&volume).to_owned()).or_default().insert(name.clone())
            }
        };
        self.volumes.insert(name, Arc::new(volume));
    }

    pub(crate) fn remove_volume(&mut self, name: &str) {
        fn drop_from<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<String>>, key: K, name: &str) {
            if let std::collections::hash_map::Entry::Occupied(mut entry) = index.entry(key) {
                entry.get_mut().remove(name);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
        let Some(volume) = self.volumes.remove(name) else { return };
        match reference(&volume) {
            Some(claim) => drop_from(&mut self.referring, claim, name),
            None => drop_from(&mut self.unclaimed, class_of_volume(&volume).to_owned(), name),
        }
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &String> {
        self.volumes.keys()
    }

    pub(crate) fn update_class(&mut self, class: StorageClass) {
        self.classes.insert(ObjectRef::of(&class).name, Arc::new(class));
    }

    pub(crate) fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = &String> {
        self.classes.keys()
    }

    /// Updates what the drivers of a node can have; returns whether that differs.
    pub(crate) fn update_limits(&mut self, node: &CSINode) -> bool {
        let limits = node.spec.drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.clone(), usize::try_from(count).unwrap_or_default()))
        });
        let limits: BTreeMap<String, usize> = limits.collect();
        let name = ObjectRef::of(node).name;
        if limits.is_empty() {
            return self.remove_limits(&name);
        }
        self.limits.insert(name, limits.clone()) != Some(limits)
    }

    pub(crate) fn remove_limits(&mut self, node: &str) -> bool {
        self.limits.remove(node).is_some()
    }

    pub(crate) fn limited_nodes(&self) -> impl Iterator<Item = &String> {
        self.limits.keys()
    }

    /// Whether a node would have more volumes of a driver than it can, with a pod of these claims beside those that it has
    /// (upstream: the plugin `NodeVolumeLimits`). Volumes that are written in pods do not count, as upstream.
    pub(crate) fn exceeds_limit<'a>(
        &self,
        node: &str,
        (namespace, claims): (&str, &[PodClaim]),
        others: impl Iterator<Item = (&'a str, &'a [PodClaim])>,
    ) -> bool {
        let Some(limits) = self.limits.get(node).filter(|_| !claims.is_empty()) else { return false };
        let volumes = |namespace: &str, claims: &[PodClaim]| -> Vec<(String, String)> {
            let all = claims.iter().filter_map(|claim| self.driver_volume(namespace, &claim.name));
            all.filter(|(driver, _)| limits.contains_key(driver)).collect()
        };
        let mut added: BTreeSet<(String, String)> = volumes(namespace, claims).into_iter().collect();
        if added.is_empty() {
            return false;
        }
        let used: BTreeSet<(String, String)> =
            others.flat_map(|(namespace, claims)| volumes(namespace, claims)).collect();
        added.retain(|volume| !used.contains(volume));
        let count = |all: &BTreeSet<(String, String)>, driver: &str| {
            all.iter().filter(|(of, _)| of == driver).count()
        };
        limits.iter().any(|(driver, limit)| {
            let new = count(&added, driver);
            new > 0 && count(&used, driver) + new > *limit
        })
    }

    /// The driver of a claim's volume, and the volume; of a claim that is not bound the driver that is to provision it.
    fn driver_volume(&self, namespace: &str, name: &str) -> Option<(String, String)> {
        let claim = self.claims.get(&ObjectRef::namespaced(namespace, name))?;
        let named = claim.spec.as_ref()?.volume_name.as_deref().unwrap_or_default();
        if let Some(volume) = self.volumes.get(named) {
            let source = volume.spec.as_ref()?.csi.as_ref()?;
            return Some((source.driver.clone(), source.volume_handle.clone()));
        }
        let class = self.classes.get(class_of_claim(claim))?;
        Some((class.provisioner.clone(), format!("{namespace}/{name}")))
    }

    /// Counts a pod that uses these claims, or no longer does.
    pub(crate) fn count_users(&mut self, namespace: &str, claims: &[PodClaim], is_added: bool) {
        for claim in claims {
            let key = ObjectRef::namespaced(namespace, &*claim.name);
            if is_added {
                *self.users.entry(key).or_default() += 1;
            } else if let Some(count) = self.users.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.users.remove(&key);
                }
            }
        }
    }

    /// The state of the claims of a pod, or why it fits no node whatever its state, in upstream's words.
    pub(crate) fn pod_volumes(&self, namespace: &str, claims: &[PodClaim]) -> Result<PodVolumes<'_>, String> {
        let mut found = PodVolumes::default();
        for PodClaim { name, owner } in claims {
            let key = ObjectRef::namespaced(namespace, &**name);
            let Some(claim) = self.claims.get(&key) else {
                return Err(if owner.is_some() {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
            };
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
            if phase == Some("Lost") {
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if owner.as_ref().is_some_and(|owner| !is_owned_by(claim, owner)) {
                return Err(format!("PVC {namespace}/{name} was not created for pod (pod is not owner)"));
            }
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
            if modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                found.is_exclusive = true;
                found.is_in_use |= self.users.contains_key(&key);
            }
            if is_fully_bound(claim) {
                let volume = self.volumes.get(volume);
                found.bound.push(volume.map(|volume| node_affinity(volume)));
                continue;
            }
            let class = self.classes.get(class_of_claim(claim));
            match class.filter(|class| waits_for_consumer(class) && volume.is_empty()) {
                Some(class) => {
                    found.unbound.push(Unbound {
                        key: key.clone(),
                        claim,
                        class,
                        node: self.selected_node(&key, claim),
                    });
                }
                None => found.is_waiting = true,
            }
        }
        if found.is_waiting {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        found.cache = Some(self);
        Ok(found)
    }

    /// The node that is selected for a claim already, possibly only assumed.
    fn selected_node(&self, key: &ObjectRef, claim: &PersistentVolumeClaim) -> Option<String> {
        let stored = annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty());
        stored.map(str::to_owned).or_else(|| Some(self.assumed.get(key)?.node.clone()))
    }

    /// Assumes that a pod gets these bindings on a node.
    pub(crate) fn assume(&mut self, pod: &Uid, node: &str, bindings: &[VolumeBinding]) {
        for binding in bindings {
            let volume = match binding {
                VolumeBinding::Static { volume, .. } => volume.metadata.name.clone(),
                VolumeBinding::Provision { .. } => None,
            };
            let assumed = Assumed { pod: pod.clone(), node: node.to_owned(), volume };
            self.assumed.insert(ObjectRef::of(binding.claim()), assumed);
        }
    }

    /// Forgets what was assumed for a pod.
    pub(crate) fn forget(&mut self, pod: &str) {
        self.assumed.retain(|_, assumed| &*assumed.pod != pod);
    }

    fn is_assumed(&self, volume: &PersistentVolume, claim: &ObjectRef) -> bool {
        let name = volume.metadata.name.as_ref();
        self.assumed.iter().any(|(other, assumed)| other != claim && assumed.volume.as_ref() == name)
    }

    fn candidates(&self, claim: &ObjectRef, class: &str) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let names = self.referring.get(claim).into_iter().chain(self.unclaimed.get(class)).flatten();
        names.filter_map(|name| self.volumes.get(name))
    }
}

/// A claim that is bound once a node is selected.
#[derive(Debug)]
struct Unbound<'a> {
    key: ObjectRef,
    claim: &'a Arc<PersistentVolumeClaim>,
    class: &'a StorageClass,
    /// The node that is selected already.
    node: Option<String>,
}

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct PodVolumes<'a> {
    cache: Option<&'a VolumeCache>,
    /// The affinities of the volumes of bound claims; `None` of one that does not exist.
    bound: Vec<Option<NodeAffinity>>,
    unbound: Vec<Unbound<'a>>,
    /// A claim waits for the binder.
    is_waiting: bool,
    /// A claim may be used by one pod at a time.
    pub(crate) is_exclusive: bool,
    /// Such a claim is used by another pod.
    is_in_use: bool,
}

impl PodVolumes<'_> {
    /// Why a node is infeasible; `None` if it is feasible.
    pub(crate) fn filter(&self, node: &str, properties: &NodeProperties) -> Option<FilterFailure> {
        if self.is_in_use {
            return Some(FilterFailure::ClaimInUse);
        }
        let mut reasons = Vec::new();
        let existing = || self.bound.iter().flatten();
        if existing().any(|affinity| !affinity.matches(node, &properties.labels)) {
            reasons.push("node(s) didn't match PersistentVolume's node affinity");
        }
        reasons.extend(self.bind(node, properties).err());
        if self.bound.iter().any(Option::is_none) {
            reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
        (!reasons.is_empty()).then_some(FilterFailure::Volumes(reasons))
    }

    /// The bindings of the claims that are not bound, if the pod runs on this node, or why it cannot.
    pub(crate) fn bind(
        &self,
        node: &str,
        properties: &NodeProperties,
    ) -> Result<Vec<VolumeBinding>, &'static str> {
        let Some(cache) = self.cache else { return Ok(Vec::new()) };
        let labels = &properties.labels;
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut bindings = Vec::new();
        for Unbound { key, claim, class, node: selected } in &self.unbound {
            if selected.as_ref().is_some_and(|selected| selected != node) {
                return Err(NO_VOLUME);
            }
            // A claim with the annotation of a selected node is provisioned; for another one a volume may exist.
            let is_provisioning = annotation(&claim.metadata, SELECTED_NODE).is_some();
            let name = |volume: &PersistentVolume| volume.metadata.name.clone().unwrap_or_default();
            let is_taken =
                |volume: &PersistentVolume| taken.contains(&name(volume)) || cache.is_assumed(volume, key);
            let found = (!is_provisioning)
                .then(|| {
                    let volumes = cache.candidates(key, class_of_claim(claim)).map(|volume| &**volume);
                    find_match(claim, volumes, Finder::Scheduler { node, labels }, &is_taken)
                })
                .flatten();
            if let Some(volume) = found {
                let name = name(volume);
                let volume = cache.volumes.get(&name).ok_or(NO_VOLUME)?.clone();
                taken.insert(name);
                bindings.push(VolumeBinding::Static { volume, claim: Arc::clone(claim) });
                continue;
            }
            // A volume is reserved for the claim but does not match this node: no other volume may be used.
            let is_reserved = cache.referring.get(key).into_iter().flatten();
            let mut is_reserved = is_reserved.filter_map(|name| cache.volumes.get(name));
            if is_reserved.any(|volume| is_bound_to(volume, claim)) && !is_provisioning {
                return Err(NO_VOLUME);
            }
            let may_provision = !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER;
            if !may_provision || !allows(class.allowed_topologies.as_deref(), labels) {
                return Err(NO_VOLUME);
            }
            if !has_disk(class, claim, properties) || !cache.capacities.has_enough(class, claim, labels) {
                return Err(NO_SPACE);
            }
            bindings.push(VolumeBinding::Provision { claim: Arc::clone(claim) });
        }
        Ok(bindings)
    }
}

/// Upstream's reasons of nodes on which a claim cannot be bound.
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";

/// Whether the disk of a node is as large as a claim of a class of local volumes requests. What is used of the disk does not
/// count: nothing enforces the sizes of these volumes.
fn has_disk(class: &StorageClass, claim: &PersistentVolumeClaim, properties: &NodeProperties) -> bool {
    class.provisioner != LOCAL_PATH_PROVISIONER
        || properties.local_volumes.is_none_or(|disk| requested(claim) <= disk)
}

/// Whether a node is in the topologies that a class allows.
fn allows(topologies: Option<&[TopologySelectorTerm]>, labels: &BTreeMap<String, String>) -> bool {
    let matches = |term: &TopologySelectorTerm| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions.all(|one| labels.get(&one.key).is_some_and(|value| one.values.contains(value)))
    };
    topologies.is_none_or(|terms| terms.is_empty() || terms.iter().any(matches))
}
