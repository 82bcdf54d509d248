//! Node lifecycle and taint eviction: nodes without heartbeats, and the pods on them.
//!
//! ```text
//!   lease renewed, status written ──▶ heartbeat
//!   no heartbeat for the grace period ──▶ conditions Unknown, pods not ready
//!   not ready ──▶ taint NoExecute, one node after the other ──▶ pods are evicted when they no longer tolerate it
//!   ready again ──▶ the taint is removed
//! ```
//!
//! A heartbeat counts from when this controller *observed* it, not by the clock of the node, so no node is overdue when the
//! controller starts. Time in which the controller could observe nothing does not count either: neither that for which the
//! machine was suspended, nor a pause of the process, after which the grace period of every node begins again.

pub mod eviction;
pub mod health;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Clock, Informer, ObjectRef, Reconciler, Requeue, WorkQueue};
use serde_json::{Value, json};

use crate::Clients;
use crate::workload::recorder::Recorder;
use crate::workload::{Informers, Note, Ref, pods};
use eviction::{Evicted, FirstObserved, evicted, no_execute};
use health::{MONITOR_GRACE_PERIOD, eviction_interval, grace_period, readiness, taints, unknown_conditions};

/// The name of this controller's user.
pub const NAME: &str = "node-controller";
/// The source of the events of evictions: upstream has a controller of its own for them.
const TAINT_EVICTION: &str = "taint-eviction-controller";
/// How often the controller checks whether the process was paused.
const AWAKE: Duration = Duration::from_secs(5);
/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";

/// Reconciles nodes until the future is dropped.
pub fn run(informers: &Arc<Informers>, clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let heartbeats: Heartbeats = Arc::default();
    let [recorder, eviction_recorder] = [NAME, TAINT_EVICTION].map(|controller| {
        Recorder::start(clients.write.clone(), controller, &clients.supervisor, &clients.metrics)
    });
    let leases: Informer<Lease> = Informer::default();
    let noted = heartbeats.clone();
    let time = clock.clone();
    leases.add_handler(move |change| {
        if let Some(name) = change.after.and_then(|lease| lease.metadata.name.as_deref()) {
            note_heartbeat(&noted, name, time.monotonic());
        }
    });
    let reconciler = NodeController {
        client: clients.write.clone(),
        informers: informers.clone(),
        heartbeats: heartbeats.clone(),
        clock: clock.clone(),
        recorder,
        eviction_recorder,
        memory: tokio::sync::Mutex::default(),
    };
    let noted = heartbeats.clone();
    let time = clock.clone();
    let nodes = informers.nodes.store().clone();
    let controller = clients
        .controller(NAME, reconciler)
        .with_clock(clock.clone())
        .awaits(informers.clone())
        .awaits(leases.store().clone())
        .watches(&informers.nodes, move |change, queue| {
            let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else { return };
            let heartbeat = |node: Option<&Arc<Node>>| {
                node.and_then(|node| health::condition(node, "Ready")?.last_heartbeat_time.clone())
            };
            match change.after {
                None => forget(&noted, &name),
                Some(_) if heartbeat(change.before) != heartbeat(change.after) => {
                    note_heartbeat(&noted, &name, time.monotonic());
                }
                Some(_) => {}
            }
            queue.add(ObjectRef::cluster(name));
        })
        // A pod that is bound to a node with NoExecute taints may have to be evicted, too.
        .watches(&informers.pods, move |change, queue| {
            let Some(name) = change.latest().and_then(|pod| pods::node_of(pod)) else { return };
            let node = nodes.get(&ObjectRef::cluster(name));
            if node.is_some_and(|node| no_execute(tainted(&node)).next().is_some()) {
                queue.add(ObjectRef::cluster(name));
            }
        });
    let informing = leases.supervised(Api::namespaced(clients.watch.clone(), LEASES), &clients.supervisor);
    let queue = controller.queue().clone();
    let pauses = clients.supervisor.keep("node-controller/pauses", move || {
        notice_pauses(heartbeats.clone(), clock.clone(), queue.clone())
    });
    Box::pin(async move { _ = tokio::join!(informing, controller.run(), pauses) })
}

/// After a pause of the process the grace period of every node begins again, and every node is reconciled.
async fn notice_pauses(heartbeats: Heartbeats, clock: Clock, queue: Arc<WorkQueue>) {
    let mut tick = tokio::time::interval(AWAKE);
    let mut awake = Instant::now();
    loop {
        tick.tick().await;
        if awake.elapsed() > AWAKE * 3 {
            tracing::warn!(for_ = ?awake.elapsed(), "the process was paused, resetting node heartbeat deadlines");
            let now = clock.monotonic();
            let mut heartbeats = heartbeats.lock();
            for (name, when) in heartbeats.iter_mut() {
                *when = now;
                queue.add(ObjectRef::cluster(&**name));
            }
        }
        awake = Instant::now();
    }
}

/// When the last heartbeat of each node was observed, by the monotonic clock.
type Heartbeats = Arc<Mutex<HashMap<String, tokio::time::Instant>>>;

fn note_heartbeat(heartbeats: &Heartbeats, name: &str, now: tokio::time::Instant) {
    heartbeats.lock().insert(name.to_owned(), now);
}

fn forget(heartbeats: &Heartbeats, name: &str) {
    heartbeats.lock().remove(name);
}

fn tainted(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Reconciles nodes, one at a time: each decision depends on how many nodes are not ready.
struct NodeController {
    client: Client,
    informers: Arc<Informers>,
    heartbeats: Heartbeats,
    clock: Clock,
    recorder: Recorder,
    eviction_recorder: Recorder,
    memory: tokio::sync::Mutex<Memory>,
}

/// The state between two reconciles.
struct Memory {
    /// When the next node may get a `NoExecute` taint.
    next_taint: Timestamp,
    /// The nodes whose pods were set to not ready. This is done once, since the node may report them as ready again.
    not_ready: HashSet<String>,
    /// The pods of each node that will be evicted, with the time, by uid.
    evicting: HashMap<String, HashMap<String, Ref>>,
    /// Since when each node has taints without `timeAdded`.
    first_observed: HashMap<String, FirstObserved>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            next_taint: Timestamp::MIN,
            not_ready: HashSet::new(),
            evicting: HashMap::new(),
            first_observed: HashMap::new(),
        }
    }
}

impl Reconciler for NodeController {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, node: &ObjectRef) -> kube::Result<Requeue> {
        let now = self.clock.now();
        let mut memory = self.memory.lock().await;
        let again_at = self.reconcile_node(&node.name, now, &mut memory).await?;
        let wait = again_at.map(|when| when.duration_since(now).try_into().unwrap_or_default());
        Ok(wait.map_or(Requeue::AwaitChange, Requeue::After))
    }

    fn regarding(&self, node: &ObjectRef) -> Option<ObjectReference> {
        self.informers.nodes.get(node).map(|found| found.object_ref(&()))
    }
}

impl NodeController {
    /// Reconciles one node, and returns when to do so again.
    async fn reconcile_node(
        &self,
        name: &str,
        now: Timestamp,
        memory: &mut Memory,
    ) -> kube::Result<Option<Timestamp>> {
        let Some(node) = self.informers.nodes.get(&ObjectRef::cluster(name)) else {
            memory.not_ready.remove(name);
            memory.evicting.remove(name);
            memory.first_observed.remove(name);
            return Ok(None);
        };
        let without_heartbeat = {
            let now = self.clock.monotonic();
            let mut heartbeats = self.heartbeats.lock();
            now.saturating_duration_since(*heartbeats.entry(name.to_owned()).or_insert(now))
        };
        let unknown = unknown_conditions(&node, without_heartbeat, now);
        if !unknown.is_empty() {
            tracing::info!(node = name, "a node stopped sending heartbeats");
            self.patch_conditions(&node, &unknown).await?;
            return Ok(None);
        }
        // A node that reports that it is not ready reports its pods as not ready, too.
        let is_unreachable = health::condition(&node, "Ready").is_some_and(|ready| ready.status == "Unknown");
        if !is_unreachable {
            memory.not_ready.remove(name);
        } else if !memory.not_ready.contains(name) {
            self.set_pods_not_ready(name, now).await?;
            memory.not_ready.insert(name.to_owned());
        }
        // When the grace period is over, if there is no heartbeat before.
        let left =
            grace_period(&node).checked_sub(without_heartbeat).and_then(|left| now.checked_add(left).ok());
        let mut again_at = left.filter(|when| *when > now);
        if let Some(wanted) = taints(&node, now) {
            match self.may_taint(wanted.len() > tainted(&node).len(), now, &mut memory.next_taint) {
                Ok(()) => {
                    self.taint(&node, wanted).await?;
                    return Ok(again_at);
                }
                Err(Some(when)) => again_at = Some(again_at.map_or(when, |first| first.min(when))),
                Err(None) => {}
            }
        }
        let eviction = self.evict_pods(name, &node, now, memory).await?;
        Ok([again_at, eviction].into_iter().flatten().min())
    }

    /// Whether one more node may get a `NoExecute` taint now, or when. The removal of a taint need not wait.
    fn may_taint(
        &self,
        one_more: bool,
        now: Timestamp,
        next: &mut Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        if !one_more {
            return Ok(());
        }
        let nodes = self.informers.nodes.all();
        let not_ready = nodes.iter().filter(|node| readiness(node) != "True").count();
        let pause = eviction_interval(not_ready, nodes.len())
            .ok_or_else(|| now.checked_add(MONITOR_GRACE_PERIOD).ok())?;
        if now < *next {
            return Err(Some(*next));
        }
        *next = now.checked_add(pause).unwrap_or(Timestamp::MAX);
        Ok(())
    }

    /// Writes conditions of a node.
    async fn patch_conditions(&self, node: &Node, conditions: &[NodeCondition]) -> kube::Result<()> {
        let patch =
            json!({ "metadata": { "uid": node.metadata.uid }, "status": { "conditions": conditions } });
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        settled_or_conflict(
            nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop),
        )
    }

    /// Sets the pods of an unreachable node to not ready.
    async fn set_pods_not_ready(&self, name: &str, at: Timestamp) -> kube::Result<()> {
        for pod in self.informers.pods_by_node.get(name) {
            if pods::is_ready(&pod) && !pods::is_terminating(&pod) {
                let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": now });
                self.patch_pod(&pod, json!({ "conditions": [condition] })).await?;
                let note = Note::warning("NodeNotReady", "Node is not ready");
                self.recorder.record(Ref::to(&*pod), note, at);
            }
        }
        Ok(())
    }

    async fn taint(&self, node: &Node, taints: Vec<Taint>) -> kube::Result<()> {
        let metadata = json!({ "resourceVersion": node.metadata.resource_version });
        let patch = json!({ "metadata": metadata, "spec": { "taints": taints } });
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        settled_or_conflict(nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
    }

    /// Evicts the pods that no longer tolerate the taints of their node, and returns when the next ones no longer do.
    async fn evict_pods(
        &self,
        name: &str,
        node: &Node,
        now: Timestamp,
        memory: &mut Memory,
    ) -> kube::Result<Option<Timestamp>> {
        let taints = tainted(node);
        let mut before = memory.evicting.remove(name).unwrap_or_default();
        let mut evicting = HashMap::new();
        let mut next: Option<Timestamp> = None;
        let first_observed = if no_execute(taints).next().is_some() {
            let first_observed = memory.first_observed.entry(name.to_owned()).or_default();
            first_observed.note(taints, now);
            Some(&*first_observed)
        } else {
            memory.first_observed.remove(name);
            None
        };
        if let Some(first_observed) = first_observed {
            for pod in self.informers.pods_by_node.get(name).into_iter().filter(|pod| pods::is_active(pod)) {
                let of = Ref::to(&*pod);
                match evicted(&pod, taints, first_observed, now) {
                    Evicted::Never => {}
                    Evicted::At(when) if when <= now => {
                        before.remove(&of.uid);
                        self.record_eviction("Marking for deletion Pod", of, now);
                        self.evict(&pod).await?;
                    }
                    Evicted::At(when) => {
                        next = Some(next.map_or(when, |first| first.min(when)));
                        evicting.insert(of.uid.clone(), of);
                    }
                }
            }
        }
        before.retain(|uid, _| !evicting.contains_key(uid));
        for stays in before.into_values() {
            self.record_eviction("Cancelling deletion of Pod", stays, now);
        }
        if !evicting.is_empty() {
            memory.evicting.insert(name.to_owned(), evicting);
        }
        Ok(next)
    }

    /// Emits an event about a pod that is evicted, or is not any more.
    fn record_eviction(&self, what: &str, pod: Ref, now: Timestamp) {
        let message = format!("{what} {}/{}", pod.namespace, pod.name);
        self.eviction_recorder.record(pod, Note::normal("TaintManagerEviction", message), now);
    }

    async fn evict(&self, pod: &Pod) -> kube::Result<()> {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": now,
            "observedGeneration": pod.metadata.generation,
        });
        self.patch_pod(pod, json!({ "conditions": [condition] })).await?;
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        settled_or_conflict(self.pods(pod).delete(name, &params).await.map(drop))
    }

    async fn patch_pod(&self, pod: &Pod, status: Value) -> kube::Result<()> {
        let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams::default();
        settled_or_conflict(
            self.pods(pod).patch_status(name, &params, &Patch::Strategic(patch)).await.map(drop),
        )
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }
}
