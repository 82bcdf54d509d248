//! The claims of generic ephemeral volumes: each is created for its pod, which owns it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_controller_runtime::{ObjectRef, controller_reference};
use plumb_placement::volumes::{is_owned_by, used_claims};

use crate::workload::{Action, Context, Informers, Kind, Note, Verb, Watches, Workload, WriteOutcome, pods};

/// Creates the claims of ephemeral volumes.
pub struct EphemeralVolumes;

/// A pod, and the claims that have the names of its ephemeral volumes' claims.
pub type State = (Arc<Pod>, BTreeMap<String, Arc<PersistentVolumeClaim>>);

impl Workload for EphemeralVolumes {
    const NAME: &'static str = "ephemeral-volume-controller";
    const EVENT_SOURCE: &'static str = "ephemeral_volume";
    type Kind = Pod;
    type State = State;

    fn filter(pod: &Pod) -> bool {
        !pods::is_terminating(pod) && used_claims(pod).any(|claim| claim.is_ephemeral)
    }

    fn watch(&self, watches: &Watches<Pod>) {
        let queue = watches.queue.clone();
        let by_claim = watches.informers.pods.add_index(|pod: &Pod| -> Vec<String> {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let claims = used_claims(pod).filter(|claim| claim.is_ephemeral);
            claims.map(|claim| format!("{namespace}/{}", claim.name)).collect()
        });
        watches.informers.claims.add_handler(move |change| {
            // A deleted claim is created again, and no longer in the way of a pod that does not own it.
            if let (Some(claim), None) = (change.before, change.after) {
                for pod in by_claim.get(&ObjectRef::of(&**claim).to_string()) {
                    queue.add(ObjectRef::of(&*pod));
                }
            }
        });
    }

    fn claims(&self, _: &Pod, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, pod: &Arc<Pod>, informers: &Informers) -> State {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let claims = used_claims(pod).filter(|claim| claim.is_ephemeral).filter_map(|claim| {
            let found = informers.claims.get(&ObjectRef::namespaced(&*namespace, &*claim.name))?;
            Some((claim.name, found))
        });
        (pod.clone(), claims.collect())
    }

    fn decide(&self, (pod, claims): &State, _: &Context) -> Vec<Action> {
        if !Self::filter(pod) {
            return Vec::new();
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let decide = |volume: &k8s_openapi::api::core::v1::Volume| {
            let source = volume.ephemeral.as_ref()?;
            let used = used_claims(pod).find(|claim| claim.volume == volume.name)?;
            match claims.get(&used.name) {
                Some(found) if is_owned_by(found, uid) => None,
                Some(_) => {
                    let pod = ObjectRef::of(&**pod);
                    let message = format!(
                        "ephemeral volume {}: PVC {}/{} was not created for pod {pod} (pod is not owner)",
                        volume.name, pod.namespace, used.name
                    );
                    Some(Action::Event(Note::warning("FailedBinding", message)))
                }
                None => {
                    let template = source.volume_claim_template.as_ref()?;
                    let given = template.metadata.clone().unwrap_or_default();
                    let claim = PersistentVolumeClaim {
                        metadata: ObjectMeta {
                            name: Some(used.name),
                            namespace: pod.metadata.namespace.clone(),
                            labels: given.labels,
                            annotations: given.annotations,
                            owner_references: Some(vec![controller_reference(&**pod)]),
                            ..ObjectMeta::default()
                        },
                        spec: Some(template.spec.clone()),
                        status: None,
                    };
                    Some(Action::Create(claim.into()))
                }
            }
        };
        volumes.filter_map(decide).collect()
    }

    fn event_for(&self, pod: &Pod, outcome: &WriteOutcome<'_>) -> Option<Note> {
        let error = outcome.error?;
        if outcome.verb != Verb::Create || outcome.object.kind != Kind::PersistentVolumeClaim {
            return None;
        }
        let claim = &outcome.object.name;
        let volume = used_claims(pod).find(|used| used.name == *claim)?.volume;
        Some(Note::warning(
            "FailedBinding",
            format!("ephemeral volume {volume}: create PVC {claim}: {error}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::workload::Object;

    fn pod() -> Arc<Pod> {
        let template = json!({
            "metadata": { "labels": { "app": "scratch" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        let volumes = json!([{ "name": "tmp", "ephemeral": { "volumeClaimTemplate": template } }]);
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": { "containers": [], "volumes": volumes },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn decide(claims: &[(&str, &str)]) -> Vec<Action> {
        let claim = |owner: &str| -> Arc<PersistentVolumeClaim> {
            let owner =
                json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true });
            Arc::new(serde_json::from_value(json!({ "metadata": { "ownerReferences": [owner] } })).unwrap())
        };
        let claims = claims.iter().map(|(name, owner)| ((*name).to_owned(), claim(owner))).collect();
        let context = Context { now: Timestamp::UNIX_EPOCH, failure: None };
        EphemeralVolumes.decide(&(pod(), claims), &context)
    }

    #[test]
    fn a_missing_claim_is_created_and_owned_by_the_pod() {
        let actions = decide(&[]);
        let [Action::Create(Object::PersistentVolumeClaim(claim))] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(claim.metadata.name.as_deref(), Some("p-tmp"));
        assert_eq!(claim.metadata.labels.as_ref().unwrap()["app"], "scratch");
        assert!(is_owned_by(claim, "u"));
        assert!(decide(&[("p-tmp", "u")]).is_empty());
    }

    #[test]
    fn a_claim_of_another_owner_is_left_alone() {
        let actions = decide(&[("p-tmp", "former")]);
        let message = "ephemeral volume tmp: PVC n/p-tmp was not created for pod n/p (pod is not owner)";
        assert_eq!(actions, [Action::Event(Note::warning("FailedBinding", message))]);
    }
}
