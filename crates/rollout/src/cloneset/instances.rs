//! New pods and their claims. A pod and its claims share an instance id, which is the end of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodReadinessGate, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_controller_runtime::{controller_reference, pods};

use super::in_place::has_gate;
use super::lifecycle::{State, seconds};
use super::{keys, revisions};
use crate::api::cloneset::{CloneSet, Lifecycle};

/// The alphabet of instance ids: no vowels, so that they are no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How long an instance id is.
const ID_LENGTH: usize = 5;
/// How long the name of an object may be.
const NAME_LENGTH: usize = 253;

/// The instance id of a pod or claim.
pub fn id(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(keys::INSTANCE_ID).map(String::as_str)
}

/// Instance ids of new pods: those of claims that no pod uses, if they are reused, then random ones that are free.
pub struct Ids {
    used: BTreeSet<String>,
    free: BTreeSet<String>,
    random: u64,
}

impl Ids {
    /// The ids that pods and claims of a set leave free.
    pub fn new(all_pods: &[Arc<Pod>], claims: &[Arc<PersistentVolumeClaim>], reuse: bool, seed: u64) -> Self {
        let of_pods: BTreeSet<String> =
            all_pods.iter().filter_map(|pod| id(&pod.metadata)).map(str::to_owned).collect();
        let live = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let of_claims = live.filter_map(|claim| id(&claim.metadata)).map(str::to_owned);
        let free: BTreeSet<String> = of_claims.filter(|id| reuse && !of_pods.contains(id)).collect();
        let of_claims = claims.iter().filter_map(|claim| id(&claim.metadata)).map(str::to_owned);
        let used = of_pods.into_iter().chain(of_claims).collect();
        Self { used, free, random: seed }
    }

    /// The next id.
    pub fn take(&mut self) -> String {
        if let Some(id) = self.free.pop_first() {
            return id;
        }
        loop {
            let id = self.random_id();
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }

    fn random_id(&mut self) -> String {
        // SplitMix64: every state of the counter gives another number.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let mut id = String::with_capacity(ID_LENGTH);
        for _ in 0..ID_LENGTH {
            let letters = LETTERS.len() as u64;
            // Less than the number of letters.
            let letter = usize::try_from(mixed % letters).unwrap_or_default();
            id.push(char::from(LETTERS[letter]));
            mixed /= letters;
        }
        id
    }
}

/// A new pod and its claims.
pub fn instance(
    set: &CloneSet,
    template: &PodTemplateSpec,
    claim_templates: &[PersistentVolumeClaim],
    revision: &str,
    id: &str,
    now: Timestamp,
) -> (Pod, Vec<PersistentVolumeClaim>) {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let owner = controller_reference(set);
    let mut pod = pods::from_template(template, &namespace, "", owner.clone());
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name(&[set_name(set), id]));
    let labels = pod.metadata.labels.get_or_insert_default();
    let added = [
        (keys::REVISION, revision),
        (keys::TEMPLATE_HASH, revisions::hash(revision)),
        (keys::INSTANCE_ID, id),
        (keys::STATE, State::PreparingNormal.name()),
    ];
    labels.extend(added.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::STATE_TIMESTAMP.to_owned(), seconds(now));
    let claims: Vec<PersistentVolumeClaim> =
        claim_templates.iter().map(|template| claim(set, template, id)).collect();
    add_gate(&mut pod, keys::UPDATE_READY);
    let lifecycle = set.spec.lifecycle.clone().unwrap_or_default();
    if marks_unready(&lifecycle) {
        add_gate(&mut pod, keys::POD_READY);
    }
    let spec = pod.spec.get_or_insert_default();
    let volumes = claim_templates.iter().zip(&claims).map(|(template, claim)| Volume {
        name: template.metadata.name.clone().unwrap_or_default(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.metadata.name.clone().unwrap_or_default(),
            read_only: None,
        }),
        ..Volume::default()
    });
    let volumes: Vec<Volume> = volumes.collect();
    if !volumes.is_empty() {
        let others = spec.volumes.take().unwrap_or_default().into_iter();
        let others = others.filter(|other| volumes.iter().all(|volume| volume.name != other.name));
        let others: Vec<Volume> = others.collect();
        spec.volumes = Some(volumes.into_iter().chain(others).collect());
    }
    (pod, claims)
}

fn set_name(set: &CloneSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// A name of parts, of which the last is never cut.
fn name(parts: &[&str]) -> String {
    let Some((last, first)) = parts.split_last() else { return String::new() };
    let mut name = first.join("-");
    name.truncate(NAME_LENGTH - last.len() - 1);
    format!("{name}-{last}")
}

fn claim(set: &CloneSet, template: &PersistentVolumeClaim, id: &str) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    let template_name = template.metadata.name.as_deref().unwrap_or_default();
    claim.metadata = ObjectMeta {
        name: Some(name(&[template_name, set_name(set), id])),
        namespace: set.metadata.namespace.clone(),
        labels: template.metadata.labels.clone(),
        annotations: template.metadata.annotations.clone(),
        owner_references: Some(vec![controller_reference(set)]),
        ..ObjectMeta::default()
    };
    let labels: &mut BTreeMap<String, String> = claim.metadata.labels.get_or_insert_default();
    labels.extend(set.match_labels());
    labels.insert(keys::INSTANCE_ID.to_owned(), id.to_owned());
    claim.status = None;
    claim
}

fn add_gate(pod: &mut Pod, gate: &str) {
    if !has_gate(pod, gate) {
        let gates = pod.spec.get_or_insert_default().readiness_gates.get_or_insert_default();
        gates.push(PodReadinessGate { condition_type: gate.to_owned() });
    }
}

/// Whether a hook makes the pods that it holds unready.
pub fn marks_unready(lifecycle: &Lifecycle) -> bool {
    let hooks = [&lifecycle.pre_delete, &lifecycle.in_place_update];
    hooks.into_iter().flatten().any(|hook| hook.mark_pod_not_ready)
}

/// The claims of pods that are not terminating, by instance id.
pub fn claims_by_id(
    claims: &[Arc<PersistentVolumeClaim>],
) -> BTreeMap<&str, Vec<Arc<PersistentVolumeClaim>>> {
    let mut by_id: BTreeMap<&str, Vec<Arc<PersistentVolumeClaim>>> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        if let Some(id) = id(&claim.metadata) {
            by_id.entry(id).or_default().push(claim.clone());
        }
    }
    by_id
}

/// The claims that no pod uses any more, if they are not reused.
pub fn unused_claims(
    all_pods: &[Arc<Pod>],
    claims: &[Arc<PersistentVolumeClaim>],
    reuse: bool,
) -> Vec<Arc<PersistentVolumeClaim>> {
    if reuse {
        return Vec::new();
    }
    let used: BTreeSet<&str> = all_pods.iter().filter_map(|pod| id(&pod.metadata)).collect();
    let live = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    live.filter(|claim| id(&claim.metadata).is_some_and(|id| !used.contains(id))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn set(spec: Value) -> CloneSet {
        let mut whole = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": {} });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        from_value(json!({ "metadata": { "name": "web", "namespace": "team", "uid": "u" }, "spec": whole }))
            .unwrap()
    }

    fn with_id<K: serde::de::DeserializeOwned>(id: &str) -> Arc<K> {
        let labels = json!({ keys::INSTANCE_ID: id });
        Arc::new(from_value(json!({ "metadata": { "name": id, "labels": labels } })).unwrap())
    }

    #[test]
    fn a_new_pod_has_the_labels_gates_and_volumes_of_openkruise() {
        let template: PodTemplateSpec = from_value(json!({
            "metadata": { "labels": { "app": "web" }, "annotations": { "a": "1" }, "finalizers": ["example.com/f"] },
            "spec": { "containers": [{ "name": "c" }], "volumes": [
                { "name": "data", "emptyDir": {} }, { "name": "tmp", "emptyDir": {} },
            ] },
        }))
        .unwrap();
        let claims: Vec<PersistentVolumeClaim> =
            from_value(json!([{ "metadata": { "name": "data", "labels": { "disk": "fast" } }, "spec": {} }]))
                .unwrap();
        let set = set(json!({ "lifecycle": { "preDelete": { "markPodNotReady": true } } }));
        let now = Timestamp::UNIX_EPOCH;
        let (pod, claims) = instance(&set, &template, &claims, "web-hash", "abcde", now);
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(
            pod["metadata"],
            json!({
                "name": "web-abcde", "namespace": "team",
                "labels": {
                    "app": "web", keys::REVISION: "web-hash", keys::TEMPLATE_HASH: "hash", keys::INSTANCE_ID: "abcde",
                    keys::STATE: "PreparingNormal",
                },
                "annotations": { "a": "1", keys::STATE_TIMESTAMP: "1970-01-01T00:00:00Z" },
                "finalizers": ["example.com/f"],
                "ownerReferences": [{
                    "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            })
        );
        let gates = json!([{ "conditionType": "InPlaceUpdateReady" }, { "conditionType": "KruisePodReady" }]);
        assert_eq!(pod["spec"]["readinessGates"], gates);
        assert_eq!(
            pod["spec"]["volumes"],
            json!([
                { "name": "data", "persistentVolumeClaim": { "claimName": "data-web-abcde" } },
                { "name": "tmp", "emptyDir": {} },
            ])
        );
        let claim = serde_json::to_value(&claims[0]).unwrap();
        assert_eq!(claim["metadata"]["name"], "data-web-abcde");
        let labels = json!({ "app": "web", "disk": "fast", keys::INSTANCE_ID: "abcde" });
        assert_eq!(claim["metadata"]["labels"], labels);
    }

    #[test]
    fn ids_are_free_and_those_of_unused_claims_come_first() {
        let pods = [with_id::<Pod>("one")];
        let claims = [with_id::<PersistentVolumeClaim>("one"), with_id("two")];
        let mut reusing = Ids::new(&pods, &claims, true, 7);
        assert_eq!(reusing.take(), "two");
        let mut ids: BTreeSet<String> = (0..1000).map(|_| reusing.take()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == ID_LENGTH && id.bytes().all(|byte| LETTERS.contains(&byte))));
        // The same seed does not give an id that is used.
        let first = ids.pop_first().unwrap();
        let pods = [with_id::<Pod>(&first)];
        let mut others = Ids::new(&pods, &[], false, 7);
        assert!((0..1000).all(|_| others.take() != first));
        assert_ne!(Ids::new(&[], &claims, false, 7).take(), "one");
    }

    #[test]
    fn claims_go_with_their_pods_unless_they_are_reused() {
        let pods = [with_id::<Pod>("one")];
        let claims = [with_id::<PersistentVolumeClaim>("one"), with_id("two")];
        let names = |claims: Vec<Arc<PersistentVolumeClaim>>| -> Vec<String> {
            claims.iter().map(|claim| claim.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(claims_by_id(&claims)["one"].clone()), ["one"]);
        assert_eq!(names(unused_claims(&pods, &claims, false)), ["two"]);
        assert_eq!(names(unused_claims(&pods, &claims, true)), [""; 0]);
    }

    #[test]
    fn names_are_not_too_long() {
        let long = "a".repeat(300);
        let name = name(&[&long, "abcde"]);
        assert_eq!(name.len(), NAME_LENGTH);
        assert!(name.ends_with("-abcde"));
    }
}
