//! Protection of claims and volumes that are in use: their finalizer is removed when they are deleted and no longer used.
//!
//! A claim is in use while a pod that is bound to a node names it ([`Claims`]), a volume while it is bound
//! ([`protect_volumes`]).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{InformerFactory, ObjectRef, Reconciler, Requeue, Store, finalizer};

use crate::Clients;
use crate::workload::{Action, Context, Informers, Watches, Workload, pods};

/// The name of the user that removes the finalizer of volumes.
pub const VOLUMES_NAME: &str = "pv-protection-controller";

const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// Removes the finalizer of claims that are deleted and not in use.
pub struct Claims;

impl Workload for Claims {
    const NAME: &'static str = "pvc-protection-controller";
    type Kind = PersistentVolumeClaim;
    type State = (Arc<PersistentVolumeClaim>, Vec<Arc<Pod>>);

    fn filter(claim: &PersistentVolumeClaim) -> bool {
        finalizer::is_awaited(&claim.metadata, CLAIM_IN_USE)
    }

    fn watch(&self, watches: &Watches<PersistentVolumeClaim>) {
        let queue = watches.queue.clone();
        let claims = watches.informers.claims.clone();
        watches.informers.pods.add_handler(move |change| {
            let lets_go = |pod: &Pod| change.after.is_none_or(|now| !same(now, pod) || is_shut_down(now));
            let Some(pod) = change.before.filter(|pod| lets_go(pod)) else { return };
            let namespace = ObjectRef::of(&**pod).namespace;
            for (claim, _) in named(pod) {
                let at = ObjectRef::namespaced(&*namespace, claim);
                if claims.get(&at).is_some_and(|claim| Self::filter(&claim)) {
                    queue.add(at);
                }
            }
        });
    }

    fn claims(&self, _: &PersistentVolumeClaim, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, claim: &Arc<PersistentVolumeClaim>, informers: &Informers) -> Self::State {
        // Only terminating claims are reconciled, and there are few of them.
        (claim.clone(), informers.pods.in_namespace(&ObjectRef::of(&**claim).namespace))
    }

    fn decide(&self, (claim, pods): &Self::State, _: &Context) -> Vec<Action> {
        if !Self::filter(claim) || pods.iter().any(|pod| uses(pod, claim)) {
            return Vec::new();
        }
        let mut free = PersistentVolumeClaim::clone(claim);
        finalizer::remove(&mut free.metadata, CLAIM_IN_USE);
        vec![Action::Replace(free.into())]
    }
}

fn same(one: &Pod, other: &Pod) -> bool {
    one.metadata.uid == other.metadata.uid
}

/// The claims that a pod names, and whether they are ephemeral volumes of the pod.
fn named(pod: &Pod) -> impl Iterator<Item = (String, bool)> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some((claim.claim_name.clone(), false)),
        (None, Some(_)) => Some((format!("{}-{}", ObjectRef::of(pod).name, volume.name), true)),
        (None, None) => None,
    })
}

/// Whether a pod may have mounted a claim.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let is_on_a_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let name = ObjectRef::of(claim).name;
    is_on_a_node
        && named(pod).any(|(named, is_its_own)| {
            named == name && (!is_its_own || (!is_shut_down(pod) && controls(pod, claim)))
        })
}

fn controls(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Whether the node has shut a terminating pod down, so that only finalizers are left.
fn is_shut_down(pod: &Pod) -> bool {
    pods::is_terminating(pod) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Removes the finalizer of volumes that are deleted and not bound, until the future is dropped.
pub fn protect_volumes(clients: Clients, informers: &InformerFactory) -> BoxFuture<'static, ()> {
    let volumes = informers.informer::<PersistentVolume>();
    let reconciler =
        VolumeProtection { api: Api::all(clients.write.clone()), volumes: volumes.store().clone() };
    let controller = clients.controller(VOLUMES_NAME, reconciler);
    controller.reconciles_if(&volumes, |volume| freed(volume).is_some()).run()
}

/// Reconciles volumes.
struct VolumeProtection {
    api: Api<PersistentVolume>,
    volumes: Arc<Store<PersistentVolume>>,
}

impl Reconciler for VolumeProtection {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, volume: &ObjectRef) -> kube::Result<Requeue> {
        if let Some(free) = self.volumes.get(volume).and_then(|volume| freed(&volume)) {
            settled_or_conflict(self.api.replace(&volume.name, &PostParams::default(), &free).await)?;
        }
        Ok(Requeue::AwaitChange)
    }
}

/// The volume without its finalizer, if it should be removed.
fn freed(volume: &PersistentVolume) -> Option<PersistentVolume> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if !finalizer::is_awaited(&volume.metadata, VOLUME_IN_USE) || phase == Some("Bound") {
        return None;
    }
    let mut free = volume.clone();
    finalizer::remove(&mut free.metadata, VOLUME_IN_USE);
    Some(free)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn claim(terminating: bool) -> Arc<PersistentVolumeClaim> {
        let deleted = terminating.then_some("2026-01-01T00:00:00Z");
        let owners =
            json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "own", "controller": true }]);
        let metadata = json!({
            "name": "p-data", "namespace": "n", "uid": "c", "deletionTimestamp": deleted,
            "finalizers": ["else/where", CLAIM_IN_USE], "ownerReferences": owners,
        });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn a_deleted_claim_loses_its_finalizer_when_no_bound_pod_uses_it() {
        let context = Context { now: Timestamp::UNIX_EPOCH, failure: None };
        let by_name = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "p-data" } }]);
        let own = json!([{ "name": "data", "ephemeral": {} }]);
        let other = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "other" } }]);
        let ended = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0 });
        for (terminating, uid, volumes, node, metadata, goes) in [
            (false, "own", &other, None, json!({}), false),
            (true, "own", &other, Some("a"), json!({}), true),
            (true, "own", &by_name, Some("a"), json!({}), false),
            (true, "own", &by_name, None, json!({}), true),
            (true, "own", &by_name, Some("a"), ended.clone(), false),
            (true, "own", &own, Some("a"), json!({}), false),
            (true, "own", &own, Some("a"), ended, true),
            // The claim is that of an earlier pod of the same name.
            (true, "former", &own, Some("a"), json!({}), true),
        ] {
            let mut pod = json!({
                "metadata": metadata, "spec": { "containers": [], "nodeName": node, "volumes": volumes },
            });
            pod["metadata"]["name"] = json!("p");
            pod["metadata"]["namespace"] = json!("n");
            pod["metadata"]["uid"] = json!(uid);
            let pod = pods::essence(serde_json::from_value(pod).unwrap());
            let actions = Claims.decide(&(claim(terminating), vec![Arc::new(pod.clone())]), &context);
            let left = actions.iter().map(|action| match action {
                Action::Replace(crate::workload::Object::PersistentVolumeClaim(claim)) => {
                    claim.metadata.finalizers.clone().unwrap()
                }
                other => panic!("{other:?}"),
            });
            let wanted: Vec<Vec<String>> = goes.then(|| vec!["else/where".to_owned()]).into_iter().collect();
            assert_eq!(left.collect::<Vec<_>>(), wanted, "{terminating} {pod:?}");
        }
    }

    #[test]
    fn a_deleted_volume_loses_its_finalizer_unless_it_is_bound() {
        for (terminating, phase, goes) in [
            (false, "Available", false),
            (true, "Available", true),
            (true, "Released", true),
            (true, "Bound", false),
        ] {
            let metadata = json!({
                "name": "v", "finalizers": [VOLUME_IN_USE],
                "deletionTimestamp": terminating.then_some("2026-01-01T00:00:00Z"),
            });
            let volume = json!({ "metadata": metadata, "status": { "phase": phase } });
            let left = freed(&serde_json::from_value(volume).unwrap()).map(|free| free.metadata.finalizers);
            assert_eq!(left, goes.then(|| Some(Vec::new())), "{terminating} {phase}");
        }
    }
}
