//! Decisions of the local-path provisioner about claims: a volume for one, and more capacity for one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_placement::volumes::{
    BETA_STORAGE_PROVISIONER, LOCAL_PATH_PROVISIONER, LOCAL_VOLUMES, PROVISIONED_BY, SELECTED_NODE,
    STORAGE_PROVISIONER, annotation, capacity, is_bound_to, local_volumes_capacity, refer_to_claim,
    requested,
};

use super::{FINALIZER, NO_DIRECTORY, NODE};

/// The access modes of a directory that one node has.
const ACCESS_MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];
/// The label that volumes select their node by.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Provision {
    /// Nothing: it is not this provisioner's, or it has a volume.
    Nothing,
    /// Create this volume.
    Create(Box<PersistentVolume>),
    /// Have the scheduler select another node: this one does not exist, or its disk is too small.
    Reschedule(Box<PersistentVolumeClaim>, String),
    /// It cannot have a volume, because of this.
    Fail(String),
}

/// Whether a claim waits for this provisioner.
pub fn is_awaited(claim: &PersistentVolumeClaim) -> bool {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let is_ours = |key| annotation(&claim.metadata, key) == Some(LOCAL_PATH_PROVISIONER);
    named.is_empty()
        && claim.metadata.deletion_timestamp.is_none()
        && (is_ours(STORAGE_PROVISIONER) || is_ours(BETA_STORAGE_PROVISIONER))
}

/// Decides about a claim. `node` is the selected node, if it exists.
pub fn provision(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    node: Option<&Node>,
) -> Provision {
    let Some(class) = class.filter(|class| is_awaited(claim) && class.provisioner == LOCAL_PATH_PROVISIONER)
    else {
        return Provision::Nothing;
    };
    let spec = claim.spec.clone().unwrap_or_default();
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let fail = |why: String| {
        Provision::Fail(format!("failed to provision volume with StorageClass {class_name:?}: {why}"))
    };
    let Some(selected) = annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty()) else {
        return fail(
            "no node was selected: the class needs volumeBindingMode: WaitForFirstConsumer".to_owned(),
        );
    };
    let reschedule = |why: String| {
        let mut claim = claim.clone();
        claim.metadata.annotations.iter_mut().for_each(|all| {
            all.remove(SELECTED_NODE);
        });
        Provision::Reschedule(Box::new(claim), why)
    };
    let Some(node) = node else {
        return reschedule(format!("failed to get target node: node {selected:?} not found"));
    };
    if spec.selector.is_some() {
        return fail("claim.Spec.Selector is not supported".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return fail("a data source is not supported".to_owned());
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return fail("volumeMode Block is not supported".to_owned());
    }
    let modes = spec.access_modes.clone().unwrap_or_default();
    if let Some(mode) = modes.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
        return fail(format!("access mode {mode} is not supported: the directory is on one node"));
    }
    if let Some(why) = exceeds_disk(claim, node) {
        // The scheduler excludes this node then, unless it has not observed its disk yet.
        return reschedule(format!("failed to provision volume with StorageClass {class_name:?}: {why}"));
    }
    Provision::Create(Box::new(volume(claim, class, node, modes)))
}

/// Why a claim can never have what it requests on a node: the whole disk is smaller.
fn exceeds_disk(claim: &PersistentVolumeClaim, node: &Node) -> Option<String> {
    let (wanted, disk) = (requested(claim), local_volumes_capacity(node)?);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    (wanted > disk).then(|| format!("{wanted} is requested, and the disk of node {name:?} has {disk}"))
}

fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
    access_modes: Vec<String>,
) -> PersistentVolume {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let name = format!("pvc-{uid}");
    let node_name = node.metadata.name.clone().unwrap_or_default();
    let hostname = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME)).cloned();
    let term = match hostname {
        Some(hostname) => {
            NodeSelectorTerm { match_expressions: Some(vec![is_in(HOSTNAME, hostname)]), match_fields: None }
        }
        None => NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![is_in("metadata.name", node_name.clone())]),
        },
    };
    let directory = annotation(&node.metadata, LOCAL_VOLUMES).unwrap_or(NO_DIRECTORY);
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let annotations = [(PROVISIONED_BY, LOCAL_PATH_PROVISIONER.to_owned()), (NODE, node_name)]
        .map(|(key, value)| (key.to_owned(), value));
    let unclaimed = PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(annotations.into()),
            // Until the node has removed the directory. What is retained is its administrator's.
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(access_modes),
            capacity: Some(storage(requested(claim))),
            local: Some(LocalVolumeSource { path: format!("{directory}/{name}"), fs_type: None }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    };
    let mut volume = refer_to_claim(&unclaimed, claim).unwrap_or(unclaimed);
    // The reference of a provisioned volume is the provisioner's, and is not taken back.
    volume.metadata.annotations.iter_mut().for_each(|all| {
        all.remove(plumb_placement::volumes::BOUND_BY_CONTROLLER);
    });
    volume
}

fn is_in(key: &str, value: String) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values: Some(vec![value]) }
}

fn storage(amount: plumb_resize::Quantity) -> BTreeMap<String, Quantity> {
    BTreeMap::from([("storage".to_owned(), Quantity(amount.to_string()))])
}

/// What to do about a claim that requests more than it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Expansion {
    /// Nothing.
    Nothing,
    /// Give the volume the requested capacity.
    Volume(Box<PersistentVolume>),
    /// Show the capacity of the volume in the status of the claim.
    Claim(Box<PersistentVolumeClaim>),
    /// The volume cannot grow, because of this. A user may request less again, but more than the capacity in the status.
    Fail(String),
}

/// Decides about the expansion of a claim: a directory has no size, so that it grows at once, up to the size of the disk.
/// `node` is the node of the volume, if it exists.
pub fn expand(claim: &PersistentVolumeClaim, volume: &PersistentVolume, node: Option<&Node>) -> Expansion {
    let status = claim.status.clone().unwrap_or_default();
    let is_ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(LOCAL_PATH_PROVISIONER);
    if !is_ours || !is_bound_to(volume, claim) || status.phase.as_deref() != Some("Bound") {
        return Expansion::Nothing;
    }
    let has = || status.capacity.as_ref()?.get("storage")?.0.parse::<plumb_resize::Quantity>().ok();
    let wanted = requested(claim);
    if has().is_none_or(|has| has >= wanted) {
        return Expansion::Nothing;
    }
    if let Some(why) = node.and_then(|node| exceeds_disk(claim, node)) {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Expansion::Fail(format!("resize volume {name:?} failed: {why}"));
    }
    if capacity(volume) < wanted {
        let mut volume = volume.clone();
        volume.spec.get_or_insert_default().capacity = Some(storage(wanted));
        return Expansion::Volume(Box::new(volume));
    }
    let mut claim = claim.clone();
    let status = claim.status.get_or_insert_default();
    status.capacity = Some(storage(wanted));
    let is_of_resize = |type_: &str| matches!(type_, "Resizing" | "FileSystemResizePending");
    status.conditions.iter_mut().for_each(|all| all.retain(|condition| !is_of_resize(&condition.type_)));
    Expansion::Claim(Box::new(claim))
}
