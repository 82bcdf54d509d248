//! Persistent volumes: which of them a claim may be bound to, and which nodes can reach them.
//!
//! The persistent volume binder calls these functions without a node and the scheduler with one, so that both agree about what
//! matches. The rules are those of `k8s.io/component-helpers/storage/volume`.

use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_resize::Quantity;

use crate::labels::{Labels, Selector};
use crate::node_affinity::NodeAffinity;

/// The annotation of a claim whose binding was once completed.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a claim or volume whose reference to the other was written by a controller and not by a user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a volume with the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The annotation of a claim with the node that the scheduler has selected for it.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotation of a claim with the provisioner that must create its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The beta name of [`STORAGE_PROVISIONER`], which provisioners still read.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The annotation that takes precedence over `storageClassName`.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotation of the default storage class.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The provisioner of storage classes whose volumes an administrator creates.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The provisioner of the storage class `local-path`, whose volumes are directories of nodes.
pub const LOCAL_PATH_PROVISIONER: &str = "plumb.dev/local-path";
/// The annotation of a node with the directory that has its volumes of [`LOCAL_PATH_PROVISIONER`]. Virtual nodes have none.
pub const LOCAL_VOLUMES: &str = "plumb.dev/local-volumes";
/// The annotation of a node with the size of the disk that [`LOCAL_VOLUMES`] is on.
pub const LOCAL_VOLUMES_CAPACITY: &str = "plumb.dev/local-volumes-capacity";

/// The value of an annotation.
pub fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The storage class that a claim requests; empty if it requests a volume without a class.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, BETA_STORAGE_CLASS).or_else(field).unwrap_or_default()
}

/// Whether a claim specifies a class, which may be the empty name. If it does not, it gets the default class.
pub fn has_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BETA_STORAGE_CLASS).is_some()
        || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

/// The storage class of a volume; empty if it has none.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, BETA_STORAGE_CLASS).or_else(field).unwrap_or_default()
}

/// Whether claims of a class are bound only when a pod that uses them is scheduled (`WaitForFirstConsumer`).
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The default storage class. Like upstream, the newest of several, and the first by name of those with the same age.
pub fn default_class<'a>(classes: impl IntoIterator<Item = &'a StorageClass>) -> Option<&'a StorageClass> {
    let is_default = |class: &&StorageClass| annotation(&class.metadata, IS_DEFAULT_CLASS) == Some("true");
    let created = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    classes
        .into_iter()
        .filter(is_default)
        .min_by(|a, b| created(b).cmp(&created(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name)))
}

/// Whether a volume refers to a claim. A reference without a uid was written by a user who reserves the volume.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.as_deref().unwrap_or_default().is_empty()
                || reference.uid == claim.metadata.uid)
    })
}

/// Returns a volume with a reference to a claim; `None` if the volume already has it.
pub fn refer_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let was_reserved = is_bound_to(volume, claim);
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if was_reserved && reference.is_some_and(|reference| reference.uid == claim.metadata.uid) {
        return None;
    }
    let mut volume = volume.clone();
    volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    });
    if !was_reserved {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(volume)
}

/// Whether the binding of a claim is complete: it names a volume and has [`BIND_COMPLETED`].
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.as_deref().is_some_and(|name| !name.is_empty()))
        && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// Why a volume cannot be bound to the claim that names it, with upstream's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The volume is smaller than requested.
    TooSmall,
    /// The volume has another class.
    Class,
    /// The volume modes differ: one is a file system and the other a block device.
    VolumeMode,
    /// The volume lacks a requested access mode.
    AccessMode,
}

impl Mismatch {
    /// The message of the event.
    pub fn message(self) -> &'static str {
        match self {
            Self::TooSmall => "requested PV is too small",
            Self::Class => "storageClassName does not match",
            Self::VolumeMode => "incompatible volumeMode",
            Self::AccessMode => "incompatible accessMode",
        }
    }
}

/// Why a volume cannot be bound to the claim that names it; `None` if it can.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Mismatch> {
    if capacity(volume) < requested(claim) {
        Some(Mismatch::TooSmall)
    } else if class_of_volume(volume) != class_of_claim(claim) {
        Some(Mismatch::Class)
    } else if !has_same_mode(volume, claim) {
        Some(Mismatch::VolumeMode)
    } else if !has_access_modes(volume, claim) {
        Some(Mismatch::AccessMode)
    } else {
        None
    }
}

/// The capacity of a volume in bytes.
pub fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = || volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?.0.parse().ok();
    capacity().unwrap_or(Quantity::ZERO)
}

/// The size of the disk of a node's local volumes; `None` if it is unknown or the node is virtual.
pub fn local_volumes_capacity(node: &Node) -> Option<Quantity> {
    annotation(&node.metadata, LOCAL_VOLUMES_CAPACITY)?.parse().ok()
}

/// The capacity that a claim requests.
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requested = || {
        let resources = claim.spec.as_ref()?.resources.as_ref()?;
        resources.requests.as_ref()?.get("storage")?.0.parse().ok()
    };
    requested().unwrap_or(Quantity::ZERO)
}

/// Whether a volume and a claim have the same volume mode.
pub fn has_same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |mode: Option<&String>| mode.map_or("Filesystem", String::as_str).to_owned();
    mode(volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_ref()))
        == mode(claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_ref()))
}

/// Whether a volume has all access modes that a claim requests.
pub fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| has.contains(mode))
}

/// The nodes from which a volume can be reached.
pub fn node_affinity(volume: &PersistentVolume) -> NodeAffinity {
    NodeAffinity::for_volume(volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()))
}

/// The component that searches for a volume.
#[derive(Clone, Copy, Debug)]
pub enum Finder<'a> {
    /// The persistent volume binder, which leaves claims that wait for their first consumer to the scheduler.
    Binder {
        /// Whether the claim waits.
        waits_for_consumer: bool,
    },
    /// The scheduler, for a node with this name and these labels.
    Scheduler {
        /// The name of the node.
        node: &'a str,
        /// The labels of the node.
        labels: &'a Labels,
    },
}

/// Finds the volume for a claim (`FindMatchingVolume`): one that already refers to the claim, else the smallest that is large
/// enough. `excluded` are the volumes for other claims of the same pod.
pub fn find_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a PersistentVolume>,
    finder: Finder<'_>,
    excluded: &dyn Fn(&PersistentVolume) -> bool,
) -> Option<&'a PersistentVolume> {
    let wanted = requested(claim);
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.map(|selector| Selector::read(Some(selector)));
    let none = Labels::new();
    let mut best: Option<(Quantity, &PersistentVolume)> = None;
    for volume in volumes {
        let refers = is_bound_to(volume, claim);
        let is_claimed = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
        let size = capacity(volume);
        if excluded(volume)
            || is_claimed && !refers
            || size < wanted
            || !has_same_mode(volume, claim)
            || volume.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let is_reached = match finder {
            Finder::Binder { .. } => true,
            Finder::Scheduler { node, labels } => node_affinity(volume).matches(node, labels),
        };
        if refers {
            return is_reached.then_some(volume);
        }
        if matches!(finder, Finder::Binder { waits_for_consumer: true }) {
            continue;
        }
        let is_available =
            volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
        let labels = volume.metadata.labels.as_ref().unwrap_or(&none);
        if is_available
            && is_reached
            && selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && class_of_volume(volume) == class_of_claim(claim)
            && has_access_modes(volume, claim)
            && best.is_none_or(|(smallest, _)| size < smallest)
        {
            best = Some((size, volume));
        }
    }
    best.map(|(_, volume)| volume)
}

/// A claim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsedClaim {
    /// The name of the volume in the pod.
    pub volume: String,
    /// The name of the claim.
    pub name: String,
    /// Whether it is a generic ephemeral volume, whose claim the pod must own.
    pub is_ephemeral: bool,
}

/// The claims that a pod uses.
pub fn used_claims(pod: &Pod) -> impl Iterator<Item = UsedClaim> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    volumes.filter_map(move |volume| {
        let (claim, is_ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => (claim.claim_name.clone(), false),
            (None, Some(_)) => (format!("{name}-{}", volume.name), true),
            (None, None) => return None,
        };
        Some(UsedClaim { volume: volume.name.clone(), name: claim, is_ephemeral })
    })
}

/// Whether a pod is the controller of a claim, which is required for claims of generic ephemeral volumes.
pub fn is_owned_by(claim: &PersistentVolumeClaim, pod_uid: &str) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == pod_uid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, more: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": { "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast" },
            "status": { "phase": "Available" },
        });
        merge(&mut volume, &more);
        serde_json::from_value(volume).unwrap()
    }

    fn claim(more: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": { "name": "data", "namespace": "team", "uid": "u1" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": { "requests": { "storage": "5Gi" } },
            },
        });
        merge(&mut claim, &more);
        serde_json::from_value(claim).unwrap()
    }

    fn merge(into: &mut Value, more: &Value) {
        for (key, value) in more.as_object().unwrap() {
            if value.is_object() && into[key].is_object() {
                merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }

    fn found(
        claim: &PersistentVolumeClaim,
        volumes: &[PersistentVolume],
        finder: Finder<'_>,
    ) -> Option<String> {
        find_match(claim, volumes, finder, &|_| false).and_then(|volume| volume.metadata.name.clone())
    }

    const BINDER: Finder<'_> = Finder::Binder { waits_for_consumer: false };

    #[test]
    fn the_smallest_volume_that_suffices_is_found() {
        let volumes = [
            volume("large", "50Gi", json!({})),
            volume("small", "1Gi", json!({})),
            volume("fits", "5Gi", json!({})),
            volume("fits-too", "5Gi", json!({})),
        ];
        assert_eq!(found(&claim(json!({})), &volumes, BINDER).as_deref(), Some("fits"));
    }

    #[test]
    fn a_volume_must_match_in_all_respects() {
        for (more, does) in [
            (json!({}), true),
            (json!({ "spec": { "storageClassName": "slow" } }), false),
            (json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }), false),
            (json!({ "spec": { "volumeMode": "Block" } }), false),
            (json!({ "status": { "phase": "Released" } }), false),
            (json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), false),
            (json!({ "spec": { "claimRef": { "namespace": "team", "name": "other" } } }), false),
            (json!({ "spec": { "claimRef": { "namespace": "team", "name": "data", "uid": "u0" } } }), false),
            // What is reserved for the claim is found whatever its class and phase.
            (
                json!({
                    "spec": { "storageClassName": "slow", "claimRef": { "namespace": "team", "name": "data" } },
                    "status": { "phase": "Bound" },
                }),
                true,
            ),
        ] {
            let volumes = [volume("v", "5Gi", more.clone())];
            assert_eq!(found(&claim(json!({})), &volumes, BINDER).is_some(), does, "{more}");
        }
        let selects = claim(json!({ "spec": { "selector": { "matchLabels": { "disk": "ssd" } } } }));
        let volumes = [
            volume("hdd", "5Gi", json!({ "metadata": { "labels": { "disk": "hdd" } } })),
            volume("ssd", "9Gi", json!({ "metadata": { "labels": { "disk": "ssd" } } })),
        ];
        assert_eq!(found(&selects, &volumes, BINDER).as_deref(), Some("ssd"));
    }

    #[test]
    fn the_scheduler_finds_what_its_node_reaches_and_the_binder_leaves_it_to_it() {
        let on = |node: &str| {
            let terms = json!([{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
            ] }]);
            json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } })
        };
        let volumes = [volume("on-a", "5Gi", on("a")), volume("on-b", "5Gi", on("b"))];
        let labels = Labels::from([("kubernetes.io/hostname".to_owned(), "b".to_owned())]);
        let scheduler = Finder::Scheduler { node: "b", labels: &labels };
        assert_eq!(found(&claim(json!({})), &volumes, scheduler).as_deref(), Some("on-b"));
        let waits = Finder::Binder { waits_for_consumer: true };
        assert_eq!(found(&claim(json!({})), &volumes, waits), None);
    }

    #[test]
    fn a_volume_that_a_claim_names_has_to_satisfy_it() {
        for (more, why) in [
            (json!({}), None),
            (json!({ "spec": { "capacity": { "storage": "1Gi" } } }), Some("requested PV is too small")),
            (json!({ "spec": { "storageClassName": "slow" } }), Some("storageClassName does not match")),
            (json!({ "spec": { "volumeMode": "Block" } }), Some("incompatible volumeMode")),
            (json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }), Some("incompatible accessMode")),
        ] {
            let found = mismatch(&volume("v", "5Gi", more), &claim(json!({})));
            assert_eq!(found.map(Mismatch::message), why);
        }
    }

    #[test]
    fn the_newest_default_class_is_the_default() {
        let class = |name: &str, created: &str, default: &str| -> StorageClass {
            serde_json::from_value(json!({
                "metadata": { "name": name, "creationTimestamp": created, "annotations": { IS_DEFAULT_CLASS: default } },
                "provisioner": "p",
            }))
            .unwrap()
        };
        let classes = [
            class("old", "2026-01-01T00:00:00Z", "true"),
            class("b", "2026-01-02T00:00:00Z", "true"),
            class("a", "2026-01-02T00:00:00Z", "true"),
            class("not", "2026-01-03T00:00:00Z", "false"),
        ];
        let found = default_class(&classes).and_then(|class| class.metadata.name.as_deref());
        assert_eq!(found, Some("a"));
    }
}
