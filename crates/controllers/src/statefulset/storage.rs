//! The claims of a `StatefulSet`'s pods, and their owner references by the retention policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use super::identity::{name, range};
use super::spec;
use plumb_controller_runtime::controller_reference;

/// The existing claims by name.
pub type Claims = BTreeMap<String, Arc<PersistentVolumeClaim>>;

/// The name of a pod's claim.
pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", name(template), name(set))
}

/// The claims that a pod needs.
pub(super) fn wanted(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let templates = spec(set).volume_claim_templates.iter().flatten();
    let of_set = spec(set).selector.match_labels.clone().unwrap_or_default();
    let claim = |template: &PersistentVolumeClaim| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(of_set.clone());
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(claim_name(set, template, ordinal)),
                namespace: set.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    };
    templates.map(claim).collect()
}

/// Why a pod cannot be created yet.
pub(super) enum Obstacle {
    /// These claims must be created first.
    Missing(Vec<PersistentVolumeClaim>),
    /// A claim of this name is terminating and must be deleted first.
    Going(String),
}

/// Why the pod of an ordinal cannot be created yet, if it cannot.
pub(super) fn obstacle(set: &StatefulSet, ordinal: i32, claims: &Claims) -> Option<Obstacle> {
    let mut missing = Vec::new();
    for wanted in wanted(set, ordinal) {
        match claims.get(name(&wanted)) {
            None => missing.push(wanted),
            Some(there) if there.metadata.deletion_timestamp.is_some() => {
                return Some(Obstacle::Going(name(&**there).to_owned()));
            }
            // The claim is owned by a former pod of this ordinal, so the garbage collector will delete it.
            Some(there) if deletes_when_scaled(set) && goes_with_another_pod(there, set, ordinal) => {
                return Some(Obstacle::Going(name(&**there).to_owned()));
            }
            Some(_) => {}
        }
    }
    (!missing.is_empty()).then_some(Obstacle::Missing(missing))
}

fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = spec(set).persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let scaled = policy.and_then(|policy| policy.when_scaled.as_ref());
    let deleted = policy.and_then(|policy| policy.when_deleted.as_ref());
    (deletes(scaled), deletes(deleted))
}

fn deletes_when_scaled(set: &StatefulSet) -> bool {
    policy(set).0
}

fn owners(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or_default()
}

/// Whether a claim is owned by a former pod of the ordinal, which has no pod now.
fn goes_with_another_pod(claim: &PersistentVolumeClaim, set: &StatefulSet, ordinal: i32) -> bool {
    let pod = format!("{}-{ordinal}", name(set));
    owners(claim).iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
}

/// The claims of a pod whose owner references must change, with the new ones.
pub(super) fn to_hand_over(
    set: &StatefulSet,
    pod: &Pod,
    ordinal: i32,
    claims: &Claims,
) -> Vec<PersistentVolumeClaim> {
    let templates = spec(set).volume_claim_templates.iter().flatten();
    let there = templates.filter_map(|template| claims.get(&claim_name(set, template, ordinal)));
    let handed = |claim: &Arc<PersistentVolumeClaim>| {
        let owners = owners_wanted(claim, set, pod, ordinal)?;
        let mut claim = PersistentVolumeClaim::clone(claim);
        claim.metadata.owner_references = Some(owners);
        Some(claim)
    };
    there.filter_map(handed).collect()
}

/// The owner references that a claim should have, if they differ.
fn owners_wanted(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
    ordinal: i32,
) -> Option<Vec<OwnerReference>> {
    let had = owners(claim);
    let set_owner = controller_reference(set);
    let pod_owner = controller_reference(pod);
    let is = |owner: &OwnerReference, wanted: &OwnerReference| {
        (&owner.api_version, &owner.kind, &owner.name) == (&wanted.api_version, &wanted.kind, &wanted.name)
    };
    // The owner of the same name was deleted, and the garbage collector has not deleted the claim yet.
    let is_stale =
        |wanted: &OwnerReference| had.iter().any(|owner| is(owner, wanted) && owner.uid != wanted.uid);
    if is_stale(&set_owner) || is_stale(&pod_owner) {
        return None;
    }
    let is_ours = |owner: &OwnerReference| is(owner, &set_owner) || is(owner, &pod_owner);
    let mut wanted: Vec<OwnerReference> = had.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    let (when_scaled, when_deleted) = policy(set);
    let is_others = wanted.iter().any(|owner| owner.controller == Some(true));
    // Another controller of the claim decides about it.
    if !is_others {
        let is_scaled_down = !range(set).contains(&ordinal);
        if is_scaled_down && when_scaled {
            wanted.push(pod_owner.clone());
        } else if when_deleted {
            wanted.push(set_owner.clone());
        }
    } else if !when_scaled && !when_deleted && !had.iter().any(is_ours) {
        return None;
    }
    let uids = |owners: &[OwnerReference]| -> Vec<(String, Option<bool>)> {
        let mut uids: Vec<_> = owners.iter().map(|owner| (owner.uid.clone(), owner.controller)).collect();
        uids.sort();
        uids
    };
    (uids(&wanted) != uids(had)).then_some(wanted)
}

/// Whether a claim has the name of a claim of the set.
pub(super) fn belongs_to(claim: &PersistentVolumeClaim, set: &StatefulSet) -> bool {
    let Some((prefix, _)) = super::identity::parts(claim.meta().name.as_deref().unwrap_or_default()) else {
        return false;
    };
    let templates = spec(set).volume_claim_templates.iter().flatten();
    templates.into_iter().any(|template| {
        prefix.strip_prefix(name(template)).and_then(|rest| rest.strip_prefix('-')) == Some(name(set))
    })
}
