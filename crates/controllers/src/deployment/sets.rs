//! The replica sets of a deployment: the new and the old ones, their annotations and names.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::revision::spelled;

/// The label with the hash of the pod template.
pub const HASH: &str = "pod-template-hash";
/// The annotation with the revision of a set.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation with the previous revisions of a set.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The desired replicas of the deployment at its last write to a set.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation with the maximum number of pods, including the surge.
const MOST: &str = "deployment.kubernetes.io/max-replicas";
/// The maximum length of the revision history.
const LONGEST_HISTORY: usize = 2000;
/// The annotations that are not copied from a deployment to its sets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];
/// The maximum length of a name.
const LONGEST_NAME: usize = 253;

/// The name of a set.
pub fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// `spec.replicas` of a set.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The available pods of a set, without those that are being scaled down.
pub fn available(set: &ReplicaSet) -> i32 {
    let available = set.status.as_ref().and_then(|status| status.available_replicas);
    available.unwrap_or(0).min(replicas(set))
}

/// How many pods a set has or will have; none if its controller has not observed its generation, since it may still
/// create pods of an earlier one.
pub fn held(set: &ReplicaSet) -> Option<i32> {
    let status = set.status.as_ref();
    let is_observed = status.and_then(|status| status.observed_generation) >= set.metadata.generation;
    is_observed.then(|| status.map_or(0, |status| status.replicas).max(replicas(set)))
}

/// An annotation of a set.
pub fn annotation<'a>(set: &'a ReplicaSet, key: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The desired replicas of the deployment at its last write to a set.
pub fn desired(set: &ReplicaSet) -> Option<i32> {
    annotation(set, DESIRED)?.parse().ok().filter(|count| *count >= 0)
}

/// The maximum number of pods, including the surge, at that time.
pub fn most(set: &ReplicaSet) -> Option<i32> {
    annotation(set, MOST)?.parse().ok().filter(|count| *count >= 0)
}

/// The revision of a set, or 0.
pub fn revision(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The revision of a set that comes after these.
pub fn next_revision(old: &[Arc<ReplicaSet>]) -> i64 {
    old.iter().map(|set| revision(set)).max().unwrap_or(0).max(0).saturating_add(1)
}

/// The order of sets by creation timestamp, then by name.
pub(super) fn age(set: &ReplicaSet) -> impl Ord + use<> {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, name(set).to_owned())
}

/// The set with the template of the deployment (the oldest, if there are several), and the others by age.
pub fn new_and_old(
    spec: &DeploymentSpec,
    sets: &[Arc<ReplicaSet>],
) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    let mut old = sets.to_vec();
    old.sort_by_key(|set| age(set));
    let wanted = plain(&spec.template);
    let is_new = |set: &Arc<ReplicaSet>| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.is_some_and(|template| plain(template) == wanted)
    };
    let new = old.iter().position(is_new).map(|at| old.remove(at));
    (new, old)
}

/// A template without the label that a deployment adds, and without lists that are empty.
fn plain(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut plain = template.clone();
    if let Some(said) = &mut plain.metadata {
        if let Some(labels) = &mut said.labels {
            labels.remove(HASH);
        }
        said.labels = said.labels.take().filter(|labels| !labels.is_empty());
        said.annotations = said.annotations.take().filter(|all| !all.is_empty());
        // A template cannot set this field.
        said.creation_timestamp = None;
    }
    plain.metadata = plain.metadata.filter(|said| *said != ObjectMeta::default());
    plain
}

/// The hash of a deployment's template. Sets are compared by their templates, so a version with another hash function
/// does not cause a rollout.
pub fn hash(deployment: &Deployment) -> String {
    let spec = deployment.spec.as_ref();
    // The serialization of a template does not fail.
    let text = spec.and_then(|spec| serde_json::to_vec(&spec.template).ok()).unwrap_or_default();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let collisions = collisions.map(i32::to_le_bytes);
    // FNV-1a: the hash has to be stable across versions and machines, which the hasher of std is not.
    let mut hash: u32 = 0x811c_9dc5;
    for byte in text.iter().chain(collisions.iter().flatten()) {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    spelled(hash)
}

/// The name of the next set of a deployment.
pub fn new_name(deployment: &Deployment) -> String {
    let hash = hash(deployment);
    let mut name = deployment.metadata.name.clone().unwrap_or_default();
    name.truncate(name.floor_char_boundary(LONGEST_NAME - hash.len() - 1));
    format!("{name}-{hash}")
}

/// Sets the annotations with the desired and the maximum number of pods.
pub fn with_desired(mut set: ReplicaSet, desired: i32, most: i32) -> ReplicaSet {
    let notes = set.metadata.annotations.get_or_insert_default();
    notes.insert(DESIRED.to_owned(), desired.to_string());
    notes.insert(MOST.to_owned(), most.to_string());
    set
}

/// The new set with the annotations, revision and `minReadySeconds` of its deployment. None if it is up to date.
pub fn up_to_date(set: &ReplicaSet, deployment: &Deployment, next: i64) -> Option<ReplicaSet> {
    let mut after = set.clone();
    let notes = after.metadata.annotations.get_or_insert_default();
    let copied = deployment.metadata.annotations.iter().flatten();
    for (key, value) in copied.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str())) {
        notes.insert(key.clone(), value.clone());
    }
    let before = notes.get(REVISION).cloned();
    let number = before.as_deref().map_or(Ok(0), str::parse::<i64>);
    // A revision that does not parse is not overwritten.
    if number.is_ok_and(|number| number < next) {
        notes.insert(REVISION.to_owned(), next.to_string());
        if let Some(before) = before {
            let history = notes.entry(HISTORY.to_owned()).or_default();
            remember(history, &before);
        }
    }
    if let (Some(spec), Some(wanted)) = (&mut after.spec, &deployment.spec) {
        let seconds = |seconds: Option<i32>| seconds.unwrap_or(0);
        if seconds(spec.min_ready_seconds) != seconds(wanted.min_ready_seconds) {
            spec.min_ready_seconds = wanted.min_ready_seconds;
        }
    }
    let notes = |set: &ReplicaSet| set.metadata.annotations.clone().unwrap_or_default();
    let same = notes(&after) == notes(set) && after.spec == set.spec;
    (!same).then_some(after)
}

/// Adds a revision to the revision history of a set, and drops the first ones if it becomes too long.
fn remember(history: &mut String, revision: &str) {
    if !history.is_empty() {
        history.push(',');
    }
    history.push_str(revision);
    while history.len() > LONGEST_HISTORY
        && let Some(first) = history.find(',')
    {
        history.drain(..=first);
    }
}
