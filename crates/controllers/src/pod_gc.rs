//! The pod garbage collector: deletes pods of nodes that are gone, terminating pods that were never bound, terminating pods on
//! nodes that are out of service, and pods that have ended, if there are too many.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Change, Clock, ObjectRef, Reconciler, Requeue, Store, WorkQueue};
use serde_json::json;

use crate::Clients;
use crate::nodes::health::readiness;
use crate::workload::Informers;
use crate::workload::pods::{self, node_of};

/// The name of this controller's user.
pub const NAME: &str = "pod-garbage-collector";
/// How long a node may be missing until its pods are deleted.
const LOST_AFTER: Duration = Duration::from_secs(40);
/// How many terminated pods are kept.
const MAX_TERMINATED: usize = 12_500;
/// The taint of a node that is out of service for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReason {
    /// Its node is gone.
    NodeIsGone,
    /// It is terminating, and no node agent will delete it.
    NotTerminated,
}

/// Whether a pod should be deleted, given its node if that exists.
pub fn decide(pod: &Pod, node: Option<&Node>) -> Option<DeletionReason> {
    let Some(_) = node_of(pod) else {
        return pods::is_terminating(pod).then_some(DeletionReason::NotTerminated);
    };
    let Some(node) = node else { return Some(DeletionReason::NodeIsGone) };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_lost = readiness(node) != "True" && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
    (pods::is_terminating(pod) && is_lost).then_some(DeletionReason::NotTerminated)
}

/// The order in which terminated pods are deleted.
type Ended = Arc<Mutex<BTreeSet<(bool, Option<Timestamp>, ObjectRef)>>>;

fn rank(pod: &Pod) -> Option<(bool, Option<Timestamp>, ObjectRef)> {
    let status = pod.status.as_ref();
    // Evicted pods are deleted before the rest.
    let stays = status.and_then(|status| status.reason.as_deref()) != Some("Evicted");
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pods::has_ended(pod).then(|| (stays, created, ObjectRef::of(pod)))
}

/// The key of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    /// A node, which may be gone, and all pods that are bound to it.
    Node(String),
    /// A pod.
    Pod(ObjectRef),
}

/// Deletes pods until the future is dropped.
pub fn run(informers: &Arc<Informers>, clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let ended: Ended = Arc::default();
    let reconciler = Collector {
        client: clients.write.clone(),
        informers: informers.clone(),
        ended: ended.clone(),
        clock: clock.clone(),
    };
    let nodes = informers.nodes.store().clone();
    clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .awaits(informers.clone())
        .watches(&informers.pods, move |change, queue| enqueue_pod(change, queue, &nodes, &ended))
        .watches(&informers.nodes, |change, queue| {
            let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else { return };
            match change.after {
                None => queue.add_after(Key::Node(name), LOST_AFTER),
                Some(node) if readiness(node) != "True" => queue.add(Key::Node(name)),
                Some(_) => {}
            }
        })
        .run()
}

fn enqueue_pod(change: &Change<'_, Pod>, queue: &WorkQueue<Key>, nodes: &Store<Node>, ended: &Ended) {
    let before = change.before.and_then(|pod| rank(pod));
    let after = change.after.and_then(|pod| rank(pod));
    if before != after {
        let mut ended = ended.lock();
        before.map(|before| ended.remove(&before));
        after.map(|after| ended.insert(after));
        if ended.len() > MAX_TERMINATED
            && let Some((_, _, first)) = ended.first()
        {
            queue.add(Key::Pod(first.clone()));
        }
    }
    let Some(pod) = change.after else { return };
    match node_of(pod) {
        Some(node) if nodes.get(&ObjectRef::cluster(node)).is_none() => {
            queue.add_after(Key::Node(node.to_owned()), LOST_AFTER);
        }
        _ if pods::is_terminating(pod) => queue.add(Key::Pod(ObjectRef::of(&**pod))),
        _ => {}
    }
}

/// Reconciles pods and nodes.
struct Collector {
    client: Client,
    informers: Arc<Informers>,
    ended: Ended,
    clock: Clock,
}

impl Reconciler for Collector {
    type Key = Key;
    type Error = kube::Error;

    async fn reconcile(&self, key: &Key) -> kube::Result<Requeue> {
        match key {
            Key::Node(name) => self.reconcile_node(name).await?,
            Key::Pod(pod) => self.reconcile_pod(pod).await?,
        }
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, key: &Key) -> Option<ObjectReference> {
        let Informers { nodes, pods, .. } = &*self.informers;
        match key {
            Key::Node(name) => nodes.get(&ObjectRef::cluster(&**name)).map(|node| node.object_ref(&())),
            Key::Pod(pod) => pods.get(pod).map(|pod| pod.object_ref(&())),
        }
    }
}

impl Collector {
    async fn reconcile_node(&self, name: &str) -> kube::Result<()> {
        let node = self.informers.nodes.get(&ObjectRef::cluster(name));
        let pods = self.informers.pods_by_node.get(name);
        if node.is_none() && !pods.is_empty() {
            // No pod is deleted only because the informer lacks its node.
            let nodes: Api<Node> = Api::all(self.client.clone());
            if nodes.get_opt(name).await?.is_some() {
                return Ok(());
            }
        }
        for pod in pods {
            if let Some(reason) = decide(&pod, node.as_deref()) {
                self.delete(&pod, reason).await?;
            }
        }
        Ok(())
    }

    async fn reconcile_pod(&self, reference: &ObjectRef) -> kube::Result<()> {
        let Some(pod) = self.informers.pods.get(reference) else { return Ok(()) };
        if self.is_one_too_many(&pod) {
            return self.delete(&pod, DeletionReason::NotTerminated).await;
        }
        let node = node_of(&pod).map(|node| self.informers.nodes.get(&ObjectRef::cluster(node)));
        match node {
            // The pods of a missing node are reconciled with the node, after a while.
            Some(None) => Ok(()),
            node => match decide(&pod, node.flatten().as_deref()) {
                Some(reason) => self.delete(&pod, reason).await,
                None => Ok(()),
            },
        }
    }

    fn is_one_too_many(&self, pod: &Pod) -> bool {
        let ended = self.ended.lock();
        let surplus = ended.len().saturating_sub(MAX_TERMINATED);
        ended.iter().take(surplus).any(|(_, _, at)| *at == ObjectRef::of(pod))
    }

    /// Deletes a pod at once. A pod that has not terminated is marked as failed first.
    async fn delete(&self, pod: &Pod, reason: DeletionReason) -> kube::Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        if !pods::has_ended(pod) {
            let mut status = json!({ "phase": "Failed" });
            if reason == DeletionReason::NodeIsGone {
                let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                status["conditions"] = json!([{
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists", "lastTransitionTime": now,
                }]);
            }
            let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
            let patched = pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
            settled_or_conflict(patched.map(drop))?;
        }
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(this_one),
            ..DeleteParams::default()
        };
        settled_or_conflict(pods.delete(name, &params).await.map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_no_node_agent_would_delete_is_deleted() {
        let pod = |node: &str, terminating: bool| -> Pod {
            let mut pod =
                json!({ "metadata": { "name": "p" }, "spec": { "nodeName": node, "containers": [] } });
            if terminating {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value(pod).unwrap()
        };
        let node = |ready: &str, taint: &str| -> Node {
            let taints = json!([{ "key": taint, "effect": "NoExecute" }]);
            let conditions = json!([{ "type": "Ready", "status": ready }]);
            let node = json!({ "spec": { "taints": taints }, "status": { "conditions": conditions } });
            serde_json::from_value(node).unwrap()
        };
        let table = vec![
            (pod("", false), None, None),
            (pod("", true), None, Some(DeletionReason::NotTerminated)),
            (pod("n", false), None, Some(DeletionReason::NodeIsGone)),
            (pod("n", true), Some(node("False", "x")), None),
            (pod("n", true), Some(node("False", OUT_OF_SERVICE)), Some(DeletionReason::NotTerminated)),
            (pod("n", false), Some(node("False", OUT_OF_SERVICE)), None),
            (pod("n", true), Some(node("True", OUT_OF_SERVICE)), None),
        ];
        for (pod, node, wanted) in table {
            assert_eq!(decide(&pod, node.as_ref()), wanted, "{pod:?} on {node:?}");
        }
    }
}
