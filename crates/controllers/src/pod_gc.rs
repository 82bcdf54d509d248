//! Deletes pods that nobody else will: those of nodes that are gone, those that are to go and never had a node, those on
//! nodes that are declared lost, and those that have ended, if there are too many.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use plumb_follow::{Place, is_settled, place};
use serde_json::json;

use crate::Clients;
use crate::nodes::health::readiness;
use crate::panics::Guard;
use crate::workload::placed::{Placed, node_of};
use crate::workload::recorder::Subject;
use crate::workload::{Clock, Queue, Shelves, Went, pods};

/// The name of this controller's user.
pub const NAME: &str = "pod-garbage-collector";
/// How long a node may be unknown until its pods are taken for lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(40);
/// How many pods that have ended are kept.
const KEPT: usize = 12_500;
/// The taint by which somebody says that a node will not come back.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its node is gone.
    NodeIsGone,
    /// It is to go, and no node will say that it has.
    NobodyEndsIt,
}

/// Whether a pod is to be deleted, whose node is as it is: unknown, or there.
pub fn decide(pod: &Pod, node: Option<&Node>) -> Option<Why> {
    let Some(_) = node_of(pod) else {
        return pods::is_going(pod).then_some(Why::NobodyEndsIt);
    };
    let Some(node) = node else { return Some(Why::NodeIsGone) };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_lost = readiness(node) != "True" && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
    (pods::is_going(pod) && is_lost).then_some(Why::NobodyEndsIt)
}

/// Pods that have ended, in the order in which they are given up.
type Ended = Arc<Mutex<BTreeSet<(bool, Option<Timestamp>, Place)>>>;

fn rank(pod: &Pod) -> Option<(bool, Option<Timestamp>, Place)> {
    let status = pod.status.as_ref();
    // What was evicted goes before the rest.
    let stays = status.and_then(|status| status.reason.as_deref()) != Some("Evicted");
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pods::has_ended(pod).then(|| (stays, created, place(pod)))
}

/// Deletes pods. What listens is arranged at once; the rest happens in what is answered.
pub fn collect(shelves: &Arc<Shelves>, clients: Clients, clock: Clock) -> impl Future<Output = ()> + use<> {
    // Nodes have no namespace, and pods have one.
    let queue = Arc::new(Queue::default());
    let ended: Ended = Arc::default();
    let (touched, known, counted, time) = (queue.clone(), shelves.clone(), ended.clone(), clock.clone());
    shelves.pods.listen(move |change| {
        let before = change.before.and_then(|pod| rank(pod));
        let now = change.now.and_then(|pod| rank(pod));
        if before != now {
            let mut ended = counted.lock().unwrap_or_else(PoisonError::into_inner);
            before.map(|before| ended.remove(&before));
            now.map(|now| ended.insert(now));
            if ended.len() > KEPT
                && let Some((_, _, first)) = ended.first()
            {
                touched.touch(first.clone());
            }
        }
        let Some(pod) = change.now else { return };
        match node_of(pod) {
            None if pods::is_going(pod) => touched.touch(place(&**pod)),
            None => {}
            Some(node) => {
                let node = (String::new(), node.to_owned());
                if known.nodes.get(&node).is_none() {
                    touched.touch_at(node, later(time()));
                } else if pods::is_going(pod) {
                    touched.touch(place(&**pod));
                }
            }
        }
    });
    let (touched, time) = (queue.clone(), clock.clone());
    shelves.nodes.listen(move |change| {
        let Some(name) = change.last().and_then(|node| node.metadata.name.clone()) else { return };
        match change.now {
            None => touched.touch_at((String::new(), name), later(time())),
            Some(node) if readiness(node) != "True" => touched.touch((String::new(), name)),
            Some(_) => {}
        }
    });
    let placed = Placed::of(shelves);
    let guard = Guard::new(NAME, &clients);
    let shelves = shelves.clone();
    let collector =
        Arc::new(Collector { client: clients.write, shelves, placed, ended, queue, clock, guard });
    // What listens and what it has queued outlive a restart.
    clients.supervisor.keep(NAME, move || {
        let collector = collector.clone();
        async move { collector.work().await }
    })
}

fn later(now: Timestamp) -> Timestamp {
    now.checked_add(LOST_AFTER).unwrap_or(Timestamp::MAX)
}

struct Collector {
    client: Client,
    shelves: Arc<Shelves>,
    placed: Arc<Placed>,
    ended: Ended,
    queue: Arc<Queue>,
    clock: Clock,
    guard: Guard,
}

impl Collector {
    async fn work(&self) {
        self.queue.requeue_busy();
        self.shelves.ready().await;
        loop {
            let now = (self.clock)();
            while let Some(at) = self.queue.take(now) {
                let looked = async {
                    if at.0.is_empty() { self.look_at_node(&at.1).await } else { self.look_at_pod(&at).await }
                };
                let went = match self.guard.reconcile(|| self.subject(&at), looked).await {
                    None => Went::Badly,
                    Some(Ok(())) => Went::Well,
                    Some(Err(error)) => {
                        tracing::debug!(%error, ?at, "a pod could not be deleted, will try again");
                        Went::Badly
                    }
                };
                self.queue.done(at, went, (self.clock)());
            }
            self.queue.due(now).await;
        }
    }

    fn subject(&self, at: &Place) -> Option<Subject> {
        if at.0.is_empty() {
            return self.shelves.nodes.get(at).map(|node| Subject::of(&*node));
        }
        self.shelves.pods.get(at).map(|pod| Subject::of(&*pod))
    }

    async fn look_at_node(&self, name: &str) -> kube::Result<()> {
        let node = self.shelves.nodes.get(&(String::new(), name.to_owned()));
        let pods = self.placed.on(name, &self.shelves);
        if node.is_none() && !pods.is_empty() {
            // Nothing is deleted because a node was not seen.
            let nodes: Api<Node> = Api::all(self.client.clone());
            if nodes.get_opt(name).await?.is_some() {
                return Ok(());
            }
        }
        for pod in pods {
            if let Some(why) = decide(&pod, node.as_deref()) {
                self.delete(&pod, why).await?;
            }
        }
        Ok(())
    }

    async fn look_at_pod(&self, at: &Place) -> kube::Result<()> {
        let Some(pod) = self.shelves.pods.get(at) else { return Ok(()) };
        if self.is_one_too_many(&pod) {
            return self.delete(&pod, Why::NobodyEndsIt).await;
        }
        let node = node_of(&pod).map(|node| self.shelves.nodes.get(&(String::new(), node.to_owned())));
        match node {
            // Of pods whose node is gone the node hears, after a while.
            Some(None) => Ok(()),
            node => match decide(&pod, node.flatten().as_deref()) {
                Some(why) => self.delete(&pod, why).await,
                None => Ok(()),
            },
        }
    }

    fn is_one_too_many(&self, pod: &Pod) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = ended.len().saturating_sub(KEPT);
        ended.iter().take(surplus).any(|(_, _, at)| *at == place(pod))
    }

    /// Deletes a pod at once. One that has not ended has failed.
    async fn delete(&self, pod: &Pod, why: Why) -> kube::Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        if !pods::has_ended(pod) {
            let mut status = json!({ "phase": "Failed" });
            if why == Why::NodeIsGone {
                let now = (self.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                status["conditions"] = json!([{
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists", "lastTransitionTime": now,
                }]);
            }
            let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
            let patched = pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
            settled(patched.map(drop))?;
        }
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(this_one),
            ..DeleteParams::default()
        };
        settled(pods.delete(name, &params).await.map(drop))
    }
}

/// Who is gone need not be deleted.
fn settled(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) if is_settled(&error) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_deleted_that_nobody_else_would() {
        let pod = |node: &str, going: bool| -> Pod {
            let mut pod =
                json!({ "metadata": { "name": "p" }, "spec": { "nodeName": node, "containers": [] } });
            if going {
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
            (pod("", true), None, Some(Why::NobodyEndsIt)),
            (pod("n", false), None, Some(Why::NodeIsGone)),
            (pod("n", true), Some(node("False", "x")), None),
            (pod("n", true), Some(node("False", OUT_OF_SERVICE)), Some(Why::NobodyEndsIt)),
            (pod("n", false), Some(node("False", OUT_OF_SERVICE)), None),
            (pod("n", true), Some(node("True", OUT_OF_SERVICE)), None),
        ];
        for (pod, node, wanted) in table {
            assert_eq!(decide(&pod, node.as_ref()), wanted, "{pod:?} on {node:?}");
        }
    }
}
