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

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use plumb_follow::is_settled;
use serde_json::{Value, json};

use crate::Clients;
use crate::panics::Guard;
use crate::workload::placed::{Placed, node_of};
use crate::workload::recorder::{Recorder, Subject};
use crate::workload::{Clock, Note, Queue, Ref, Shelf, Shelves, Went, pods};
use health::{SILENT_FOR, pace, patience, readiness, silence, taints};
use leave::{FirstSeen, Leaves, expelling, leaves};

/// The name of this controller's user.
pub const NAME: &str = "node-controller";
/// Who says that pods leave: upstream has a controller of its own for that.
const EXPELLER: &str = "taint-eviction-controller";
/// How often this looks whether it is awake.
const AWAKE: Duration = Duration::from_secs(5);
/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";

/// Watches over nodes. What listens is arranged at once; the rest happens in what is answered.
pub fn watch_over(
    shelves: &Arc<Shelves>,
    clients: Clients,
    clocks: Clocks,
) -> impl Future<Output = ()> + use<> {
    let queue = Arc::new(Queue::default());
    let heard: Heard = Arc::default();
    let (touched, hearing, time) = (queue.clone(), heard.clone(), clocks.steady.clone());
    shelves.nodes.listen(move |change| {
        let Some(name) = change.last().and_then(|node| node.metadata.name.clone()) else { return };
        let heartbeat = |node: Option<&Arc<Node>>| {
            node.and_then(|node| health::condition(node, "Ready")?.last_heartbeat_time.clone())
        };
        match change.now {
            None => forget(&hearing, &name),
            Some(_) if heartbeat(change.before) != heartbeat(change.now) => hear(&hearing, &name, time()),
            Some(_) => {}
        }
        touched.touch((String::new(), name));
    });
    // Who comes to a node that others leave may have to leave too.
    let (touched, known) = (queue.clone(), shelves.clone());
    shelves.pods.listen(move |change| {
        let Some(name) = change.last().and_then(|pod| node_of(pod)) else { return };
        let node = known.nodes.get(&(String::new(), name.to_owned()));
        if node.is_some_and(|node| expelling(tainted(&node)).next().is_some()) {
            touched.touch((String::new(), name.to_owned()));
        }
    });
    let leases: Arc<Shelf<Lease>> = Arc::default();
    let (hearing, time) = (heard.clone(), clocks.steady.clone());
    leases.listen(move |change| {
        if let Some(name) = change.now.and_then(|lease| lease.metadata.name.as_deref()) {
            hear(&hearing, name, time());
        }
    });
    let placed = Placed::of(shelves);
    let shelves = shelves.clone();
    let supervisor = clients.supervisor.clone();
    let guard = Guard::new(NAME, &clients);
    async move {
        let api: Api<Lease> = Api::namespaced(clients.watch.clone(), LEASES);
        let [teller, expeller] = [NAME, EXPELLER]
            .map(|controller| Recorder::start(clients.write.clone(), controller, &clients.supervisor));
        let client = clients.write;
        let warden =
            Arc::new(Warden { client, shelves, placed, heard, queue, clocks, teller, expeller, guard });
        let informed = leases.clone();
        let following = supervisor.keep("informer/leases", move || {
            let (leases, api) = (leases.clone(), api.clone());
            async move { leases.follow(api, std::convert::identity).await }
        });
        // What listens and what was heard outlive a restart.
        let working = supervisor.keep(NAME, move || {
            let (warden, leases) = (warden.clone(), informed.clone());
            async move {
                leases.ready().await;
                warden.work().await;
            }
        });
        tokio::join!(following, working);
    }
}

/// What time it is.
#[derive(Clone)]
pub struct Clocks {
    /// For everybody.
    pub wall: Clock,
    /// For how long this has been running, without the time for which the machine slept.
    pub steady: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clocks {
    /// The clocks of this machine.
    pub fn of_this_machine() -> Self {
        let start = Instant::now();
        Self { wall: Arc::new(Timestamp::now), steady: Arc::new(move || start.elapsed()) }
    }
}

/// When each node was last heard of.
type Heard = Arc<Mutex<HashMap<String, Duration>>>;

fn hear(heard: &Heard, name: &str, now: Duration) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), now);
}

fn forget(heard: &Heard, name: &str) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
}

fn tainted(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

struct Warden {
    client: Client,
    shelves: Arc<Shelves>,
    placed: Arc<Placed>,
    heard: Heard,
    queue: Arc<Queue>,
    clocks: Clocks,
    /// Who says what becomes of nodes, and who says which pods leave.
    teller: Recorder,
    expeller: Recorder,
    guard: Guard,
}

/// What is remembered from one look to the next.
struct Memory {
    /// When the next node may be left.
    next_leave: Timestamp,
    /// Whose pods were said not to be ready. It is said once: the node itself may know better.
    not_ready: HashSet<String>,
    /// The pods of each node that are to leave it at some time, by uid.
    leaving: HashMap<String, HashMap<String, Ref>>,
    /// Since when each node has the taints that do not say so.
    first_seen: HashMap<String, FirstSeen>,
}

impl Warden {
    async fn work(&self) {
        self.queue.requeue_busy();
        self.shelves.ready().await;
        let mut memory = Memory {
            next_leave: Timestamp::MIN,
            not_ready: HashSet::new(),
            leaving: HashMap::new(),
            first_seen: HashMap::new(),
        };
        let mut tick = tokio::time::interval(AWAKE);
        let mut awake = Instant::now();
        loop {
            if awake.elapsed() > AWAKE * 3 {
                tracing::warn!(for_ = ?awake.elapsed(), "nobody could be heard for a while");
                let now = (self.clocks.steady)();
                let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
                for when in heard.values_mut() {
                    *when = now;
                }
            }
            awake = Instant::now();
            let now = (self.clocks.wall)();
            while let Some(at) = self.queue.take(now) {
                let about = || self.shelves.nodes.get(&at).map(|node| Subject::of(&*node));
                let looked = self.guard.reconcile(about, self.look(&at.1, now, &mut memory)).await;
                let went = match looked {
                    None => Went::Badly,
                    Some(Ok(again_at)) => {
                        if let Some(when) = again_at {
                            self.queue.touch_at(at.clone(), when);
                        }
                        Went::Well
                    }
                    Some(Err(error)) => {
                        tracing::debug!(%error, node = at.1, "a node could not be looked after, will try again");
                        Went::Badly
                    }
                };
                self.queue.done(at, went, (self.clocks.wall)());
            }
            tokio::select! {
                () = self.queue.due(now) => {}
                _ = tick.tick() => {}
            }
        }
    }

    /// Looks after one node, and says when to do so again.
    async fn look(&self, name: &str, now: Timestamp, memory: &mut Memory) -> kube::Result<Option<Timestamp>> {
        let Some(node) = self.shelves.nodes.get(&(String::new(), name.to_owned())) else {
            memory.not_ready.remove(name);
            memory.leaving.remove(name);
            memory.first_seen.remove(name);
            return Ok(None);
        };
        let silent = {
            let steady = (self.clocks.steady)();
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            steady.saturating_sub(*heard.entry(name.to_owned()).or_insert(steady))
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
        let nodes = self.shelves.nodes.all();
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
        settled(nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop))
    }

    /// Says of the pods of a node that they are not ready: nobody can tell.
    async fn not_ready(&self, name: &str, at: Timestamp) -> kube::Result<()> {
        for pod in self.placed.on(name, &self.shelves) {
            if pods::is_ready(&pod) && !pods::is_going(&pod) {
                let now = (self.clocks.wall)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": now });
                self.patch_pod(&pod, json!({ "conditions": [condition] })).await?;
                let note = Note::warning("NodeNotReady", "Node is not ready");
                self.teller.record(Ref::to(&*pod), note, at);
            }
        }
        Ok(())
    }

    async fn taint(&self, node: &Node, taints: Vec<Taint>) -> kube::Result<()> {
        let metadata = json!({ "resourceVersion": node.metadata.resource_version });
        let patch = json!({ "metadata": metadata, "spec": { "taints": taints } });
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        settled(nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
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
            for pod in self.placed.on(name, &self.shelves).into_iter().filter(|pod| pods::is_active(pod)) {
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
        self.expeller.record(pod, Note::normal("TaintManagerEviction", message), now);
    }

    async fn evict(&self, pod: &Pod) -> kube::Result<()> {
        let now = (self.clocks.wall)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": now,
            "observedGeneration": pod.metadata.generation,
        });
        self.patch_pod(pod, json!({ "conditions": [condition] })).await?;
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        settled(self.pods(pod).delete(name, &params).await.map(drop))
    }

    async fn patch_pod(&self, pod: &Pod, status: Value) -> kube::Result<()> {
        let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams::default();
        settled(self.pods(pod).patch_status(name, &params, &Patch::Strategic(patch)).await.map(drop))
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }
}

/// What is gone, or was changed by somebody, is heard of.
fn settled(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) if is_settled(&error) => Ok(()),
        other => other,
    }
}
