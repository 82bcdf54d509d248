//! What becomes of nodes that are not heard of, and of the pods that are on them.
//!
//! ```text
//!   lease renewed, status written ──▶ heard
//!   not heard for too long ──▶ what it says of itself is Unknown, its pods are not ready
//!   not ready ──▶ taint NoExecute, one node after the other ──▶ its pods leave when they no longer tolerate it
//!   ready again ──▶ the taint goes
//! ```
//!
//! It counts when something was *heard*, not what the clock of a node said; so nobody is silent when this starts. Nor is
//! anybody who could not be heard because this did not run: time for which the machine slept does not count, and after
//! a pause of the process everybody has to be silent anew.

pub mod health;
pub mod leave;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller::api_error::settled_or_conflict;
use plumb_controller::{Clock, Informer, ObjectRef, Reconciler, Requeue, WorkQueue};
use serde_json::{Value, json};

use crate::Clients;
use crate::workload::recorder::Recorder;
use crate::workload::{Informers, Note, Ref, pods};
use health::{SILENT_FOR, pace, patience, readiness, silence, taints};
use leave::{FirstSeen, Leaves, expelling, leaves};

/// The name of this controller's user.
pub const NAME: &str = "node-controller";
/// The source of the events of evictions: upstream has a controller of its own for them.
const TAINT_EVICTION: &str = "taint-eviction-controller";
/// How often it is checked whether the process was paused.
const AWAKE: Duration = Duration::from_secs(5);
/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";

/// Watches over nodes until the future is dropped.
pub fn run(informers: &Arc<Informers>, clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let heard: Heard = Arc::default();
    let [recorder, eviction_recorder] = [NAME, TAINT_EVICTION].map(|controller| {
        Recorder::start(clients.write.clone(), controller, &clients.supervisor, &clients.metrics)
    });
    let leases: Informer<Lease> = Informer::default();
    let (hearing, time) = (heard.clone(), clock.clone());
    leases.add_handler(move |change| {
        if let Some(name) = change.after.and_then(|lease| lease.metadata.name.as_deref()) {
            hear(&hearing, name, time.monotonic());
        }
    });
    let reconciler = NodeController {
        client: clients.write.clone(),
        informers: informers.clone(),
        heard: heard.clone(),
        clock: clock.clone(),
        recorder,
        eviction_recorder,
        memory: tokio::sync::Mutex::default(),
    };
    let (hearing, time, nodes) = (heard.clone(), clock.clone(), informers.nodes.store().clone());
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
                None => forget(&hearing, &name),
                Some(_) if heartbeat(change.before) != heartbeat(change.after) => {
                    hear(&hearing, &name, time.monotonic());
                }
                Some(_) => {}
            }
            queue.add(ObjectRef::cluster(name));
        })
        // A pod that comes to a node with NoExecute taints may have to be evicted, too.
        .watches(&informers.pods, move |change, queue| {
            let Some(name) = change.latest().and_then(|pod| pods::node_of(pod)) else { return };
            let node = nodes.get(&ObjectRef::cluster(name));
            if node.is_some_and(|node| expelling(tainted(&node)).next().is_some()) {
                queue.add(ObjectRef::cluster(name));
            }
        });
    let informing = leases.supervised(Api::namespaced(clients.watch.clone(), LEASES), &clients.supervisor);
    let queue = controller.queue().clone();
    let pauses = clients
        .supervisor
        .keep("node-controller/pauses", move || notice_pauses(heard.clone(), clock.clone(), queue.clone()));
    Box::pin(async move { _ = tokio::join!(informing, controller.run(), pauses) })
}

/// After a pause of the process every node has to be silent anew, and is reconciled.
async fn notice_pauses(heard: Heard, clock: Clock, queue: Arc<WorkQueue>) {
    let mut tick = tokio::time::interval(AWAKE);
    let mut awake = Instant::now();
    loop {
        tick.tick().await;
        if awake.elapsed() > AWAKE * 3 {
            tracing::warn!(for_ = ?awake.elapsed(), "nothing could be heard of any node for a while");
            let now = clock.monotonic();
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, when) in heard.iter_mut() {
                *when = now;
                queue.add(ObjectRef::cluster(&**name));
            }
        }
        awake = Instant::now();
    }
}

/// When each node was last heard of, by the monotonic clock.
type Heard = Arc<Mutex<HashMap<String, tokio::time::Instant>>>;

fn hear(heard: &Heard, name: &str, now: tokio::time::Instant) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), now);
}

fn forget(heard: &Heard, name: &str) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
}

fn tainted(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Reconciles nodes, one at a time: how many are not ready decides about each.
struct NodeController {
    client: Client,
    informers: Arc<Informers>,
    heard: Heard,
    clock: Clock,
    recorder: Recorder,
    eviction_recorder: Recorder,
    memory: tokio::sync::Mutex<Memory>,
}

/// What is remembered from one reconcile to the next.
struct Memory {
    /// When the next node may get a `NoExecute` taint.
    next_leave: Timestamp,
    /// The nodes whose pods were set to not ready. It is done once: the node itself may know better.
    not_ready: HashSet<String>,
    /// The pods of each node that are to be evicted at some time, by uid.
    leaving: HashMap<String, HashMap<String, Ref>>,
    /// Since when each node has the taints that do not say so.
    first_seen: HashMap<String, FirstSeen>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            next_leave: Timestamp::MIN,
            not_ready: HashSet::new(),
            leaving: HashMap::new(),
            first_seen: HashMap::new(),
        }
    }
}

impl Reconciler for NodeController {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, node: &ObjectRef) -> kube::Result<Requeue> {
        let now = self.clock.now();
        let mut memory = self.memory.lock().await;
        let again_at = self.look(&node.name, now, &mut memory).await?;
        let wait = again_at.map(|when| when.duration_since(now).try_into().unwrap_or_default());
        Ok(wait.map_or(Requeue::AwaitChange, Requeue::After))
    }

    fn regarding(&self, node: &ObjectRef) -> Option<ObjectReference> {
        self.informers.nodes.get(node).map(|found| found.object_ref(&()))
    }
}

impl NodeController {
    /// Looks after one node, and says when to do so again.
    async fn look(&self, name: &str, now: Timestamp, memory: &mut Memory) -> kube::Result<Option<Timestamp>> {
        let Some(node) = self.informers.nodes.get(&ObjectRef::cluster(name)) else {
            memory.not_ready.remove(name);
            memory.leaving.remove(name);
            memory.first_seen.remove(name);
            return Ok(None);
        };
        let silent = {
            let now = self.clock.monotonic();
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            now.saturating_duration_since(*heard.entry(name.to_owned()).or_insert(now))
        };
        let unknown = silence(&node, silent, now);
        if !unknown.is_empty() {
            tracing::info!(node = name, "a node is not heard of any more");
            self.say(&node, &unknown).await?;
            return Ok(None);
        }
        // A node that says itself that it is not ready says so of its pods too.
        let is_unheard = health::condition(&node, "Ready").is_some_and(|ready| ready.status == "Unknown");
        if !is_unheard {
            memory.not_ready.remove(name);
        } else if !memory.not_ready.contains(name) {
            self.not_ready(name, now).await?;
            memory.not_ready.insert(name.to_owned());
        }
        // When it will have been silent for too long, if it is not heard of before.
        let left = patience(&node).checked_sub(silent).and_then(|left| now.checked_add(left).ok());
        let mut again_at = left.filter(|when| *when > now);
        if let Some(wanted) = taints(&node, now) {
            match self.may_leave(wanted.len() > tainted(&node).len(), now, &mut memory.next_leave) {
                Ok(()) => {
                    self.taint(&node, wanted).await?;
                    return Ok(again_at);
                }
                Err(Some(when)) => again_at = Some(again_at.map_or(when, |first| first.min(when))),
                Err(None) => {}
            }
        }
        let leave = self.expel(name, &node, now, memory).await?;
        Ok([again_at, leave].into_iter().flatten().min())
    }

    /// Whether the pods of one more node may leave now, or when. A node that they come back to need not wait.
    fn may_leave(
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
        let pause = pace(not_ready, nodes.len()).ok_or_else(|| now.checked_add(SILENT_FOR).ok())?;
        if now < *next {
            return Err(Some(*next));
        }
        *next = now.checked_add(pause).unwrap_or(Timestamp::MAX);
        Ok(())
    }

    /// Says of a node that nothing is known of it.
    async fn say(&self, node: &Node, conditions: &[NodeCondition]) -> kube::Result<()> {
        let patch =
            json!({ "metadata": { "uid": node.metadata.uid }, "status": { "conditions": conditions } });
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        settled_or_conflict(
            nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop),
        )
    }

    /// Says of the pods of a node that they are not ready: nobody can tell.
    async fn not_ready(&self, name: &str, at: Timestamp) -> kube::Result<()> {
        for pod in self.informers.pods_by_node.get(name) {
            if pods::is_ready(&pod) && !pods::is_going(&pod) {
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

    /// Has those pods leave that no longer tolerate the taints of their node, and says when the next ones do.
    async fn expel(
        &self,
        name: &str,
        node: &Node,
        now: Timestamp,
        memory: &mut Memory,
    ) -> kube::Result<Option<Timestamp>> {
        let taints = tainted(node);
        let mut before = memory.leaving.remove(name).unwrap_or_default();
        let mut leaving = HashMap::new();
        let mut next: Option<Timestamp> = None;
        let first_seen = if expelling(taints).next().is_some() {
            let first_seen = memory.first_seen.entry(name.to_owned()).or_default();
            first_seen.note(taints, now);
            Some(&*first_seen)
        } else {
            memory.first_seen.remove(name);
            None
        };
        if let Some(first_seen) = first_seen {
            for pod in self.informers.pods_by_node.get(name).into_iter().filter(|pod| pods::is_active(pod)) {
                let of = Ref::to(&*pod);
                match leaves(&pod, taints, first_seen, now) {
                    Leaves::Never => {}
                    Leaves::At(when) if when <= now => {
                        before.remove(&of.uid);
                        self.tell_of("Marking for deletion Pod", of, now);
                        self.evict(&pod).await?;
                    }
                    Leaves::At(when) => {
                        next = Some(next.map_or(when, |first| first.min(when)));
                        leaving.insert(of.uid.clone(), of);
                    }
                }
            }
        }
        before.retain(|uid, _| !leaving.contains_key(uid));
        for stays in before.into_values() {
            self.tell_of("Cancelling deletion of Pod", stays, now);
        }
        if !leaving.is_empty() {
            memory.leaving.insert(name.to_owned(), leaving);
        }
        Ok(next)
    }

    /// Says that a pod leaves, or does not.
    fn tell_of(&self, what: &str, pod: Ref, now: Timestamp) {
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
