//! The whole of what a scheduler knows and decides, without a clock, a client or a task.
//!
//! It is told what happens ([`Planner::nodes`], [`Planner::pods`], …) and asked what to do next ([`Planner::next`]).
//! A pod that is to be bound counts on its node from then on; whoever binds it says how that went.

mod wake;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use plumb_controller::{ObjectRef, Store, WatchEvent};
use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use tokio::time::Instant;

use crate::choose::{Choice, Chooser};
use crate::cluster::{Cluster, Guest, NodeInfo, Uid};
use crate::facts::{Facts, Pending, read};
use crate::features::RESIZE_PREEMPTION;
use crate::preempt::{Budget, NoVictims, Preemptor, Victims, make_room, preempt};
use crate::queue::{Depths, Put, Queue, Waiting};
use crate::shape::Shapes;

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name that pods call it by in `spec.schedulerName`.
    pub name: String,
    /// Which rules of a resize bind.
    pub rules: Rules,
    /// Pods of lower priority are evicted for a resize that finds no room on its node
    /// (gate `InPlacePodVerticalScalingSchedulerPreemption`).
    pub preempt_for_resizes: bool,
}

impl Settings {
    /// The scheduler of all pods that name no other.
    pub fn new(rules: Rules) -> Self {
        Self { name: "default-scheduler".to_owned(), rules, preempt_for_resizes: false }
    }

    /// The same with what the [feature gates](crate::features) of the scheduler switch.
    #[must_use]
    pub fn with_features(self, gates: &FeatureGates) -> Self {
        Self { preempt_for_resizes: gates.enabled(&RESIZE_PREEMPTION), ..self }
    }
}

/// A pod, for whoever has to name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Arc<str>,
    /// The version of it that was decided about, if that is known.
    pub resource_version: Option<String>,
}

impl PodRef {
    fn waiting(pod: &Pending) -> Self {
        let Pending { namespace, name, uid, resource_version, .. } = pod;
        let resource_version = resource_version.clone();
        Self { namespace: namespace.clone(), name: name.clone(), uid: uid.clone(), resource_version }
    }

    fn placed(pod: &Guest) -> Self {
        let Guest { namespace, name, uid, .. } = pod;
        Self { namespace: namespace.clone(), name: name.clone(), uid: uid.clone(), resource_version: None }
    }
}

/// Pods that are to leave a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The node.
    pub node: String,
    /// Those who are to leave and are not leaving yet.
    pub victims: Vec<PodRef>,
    /// For whom.
    pub preemptor: PodRef,
    /// It is on the node already and wants to grow.
    pub for_resize: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A pod is to run on a node.
    Bind {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: String,
        /// How many times it was tried, this one included.
        attempts: u32,
        /// Since when it could be tried.
        since: Instant,
    },
    /// No node will do for a pod now.
    Refuse {
        /// The pod.
        pod: PodRef,
        /// The generation of the pod that this is about.
        generation: Option<i64>,
        /// Why.
        message: String,
        /// Whether its status says something else.
        is_new: bool,
        /// Whether its status says nothing yet of having no node.
        is_first: bool,
        /// The node that others are to leave for it; an empty name if one was promised and no longer is.
        nominated: Option<String>,
        /// Those others.
        evict: Option<Eviction>,
    },
    /// A pod no longer gets the node that was promised to it.
    Withdraw(PodRef),
    /// Pods are to leave for one that wants to grow.
    MakeRoom(Eviction),
}

/// What a scheduler knows.
#[derive(Debug)]
pub struct Planner {
    settings: Settings,
    cluster: Cluster,
    queue: Queue,
    shapes: Shapes,
    chooser: Chooser,
    budgets: Store<PodDisruptionBudget>,
    read_budgets: Option<Vec<Budget>>,
    /// Pods that are being bound.
    binding: HashMap<Uid, Waiting>,
    uids: HashMap<ObjectRef, Uid>,
    /// The nodes that others leave for pods that wait.
    nominations: HashMap<Uid, String>,
    /// Pods whose resize may need others to leave.
    deferred: BTreeSet<Uid>,
    ready: VecDeque<Decision>,
}

impl Planner {
    /// One that knows of nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            cluster: Cluster::default(),
            queue: Queue::default(),
            shapes: Shapes::default(),
            chooser: Chooser::default(),
            budgets: Store::default(),
            read_budgets: None,
            binding: HashMap::new(),
            uids: HashMap::new(),
            nominations: HashMap::new(),
            deferred: BTreeSet::new(),
            ready: VecDeque::new(),
        }
    }

    /// Takes in what happened to nodes.
    pub fn nodes(&mut self, event: WatchEvent<Node>) {
        match event {
            WatchEvent::Restarted(nodes) => {
                let names: HashSet<String> =
                    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
                let gone = self.cluster.node_names().filter(|name| !names.contains(*name));
                let gone: Vec<String> = gone.map(str::to_owned).collect();
                for name in gone {
                    self.cluster.drop_node(&name);
                }
                for node in &nodes {
                    self.node(node);
                }
            }
            WatchEvent::Applied(node) => self.node(&node),
            WatchEvent::Deleted(node) => self.cluster.drop_node(&node.name),
        }
    }

    fn node(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        match NodeInfo::read(node) {
            Ok(info) => self.cluster.put_node(&name, info),
            // Nothing is put where nobody knows how much fits.
            Err(error) => {
                tracing::warn!(%error, node = name, "a node says what cannot be read, and gets no pods");
                self.cluster.drop_node(&name);
            }
        }
    }

    /// Takes in what happened to pods.
    pub fn pods(&mut self, event: WatchEvent<Pod>, now: Instant) {
        match event {
            WatchEvent::Restarted(pods) => {
                let listed: HashSet<ObjectRef> = pods.iter().map(ObjectRef::of).collect();
                let gone = self.uids.keys().filter(|pod| !listed.contains(*pod));
                let gone: Vec<ObjectRef> = gone.cloned().collect();
                for at in &gone {
                    self.gone(at);
                }
                for pod in &pods {
                    self.pod(pod, now);
                }
            }
            WatchEvent::Applied(pod) => self.pod(&pod, now),
            WatchEvent::Deleted(pod) => self.gone(&pod),
        }
    }

    fn pod(&mut self, pod: &Pod, now: Instant) {
        let at = ObjectRef::of(pod);
        let Settings { name, rules, .. } = &self.settings;
        let facts = read(pod, name, rules, &mut self.shapes).unwrap_or_else(|error| {
            tracing::warn!(%error, namespace = at.namespace, pod = at.name, "a pod asks for what cannot be read");
            Facts::Neither
        });
        let uid: Uid = pod.metadata.uid.clone().unwrap_or_default().into();
        if self.uids.get(&at).is_some_and(|known| *known != uid) {
            // Another one of the same name: the end of the first was not seen.
            self.gone(&at);
        }
        match facts {
            Facts::Neither => return self.gone(&at),
            Facts::Placed(node, guest) => {
                self.forget(&uid, &guest.class);
                self.binding.remove(&uid);
                if self.settings.preempt_for_resizes && guest.deferred {
                    self.deferred.insert(uid.clone());
                }
                self.cluster.place(&node, *guest);
            }
            Facts::Waiting(pending) => {
                if let Some(binding) = self.binding.get_mut(&uid) {
                    binding.pod = Arc::from(pending);
                } else {
                    self.waits(*pending, now);
                }
            }
        }
        self.uids.insert(at, uid);
    }

    /// A pod waits for a node.
    fn waits(&mut self, pending: Pending, now: Instant) {
        let nominated = pending.nominated.clone().or_else(|| self.nominations.get(&pending.uid).cloned());
        self.nominate(&pending, nominated);
        self.wake(now);
        let pod = Arc::new(pending.clone());
        if let Put::Parked(why) = self.queue.put(pending, now) {
            let refusal = refusal(&pod, &why, None, None);
            self.ready.push_back(refusal);
        }
    }

    fn gone(&mut self, at: &ObjectRef) {
        let Some(uid) = self.uids.remove(at) else { return };
        let waiting = self.queue.remove(&uid).or_else(|| self.binding.remove(&uid));
        if let Some(waiting) = waiting {
            self.nominate(&waiting.pod, None);
        }
        self.cluster.remove(&uid);
        self.deferred.remove(&uid);
    }

    /// A pod no longer waits.
    fn forget(&mut self, uid: &Uid, class: &Arc<crate::shape::Class>) {
        self.queue.remove(uid);
        if let Some(before) = self.nominations.remove(uid) {
            self.cluster.nominate(uid, class, None, Some(&before));
        }
    }

    /// Notes which node others leave for a pod.
    fn nominate(&mut self, pod: &Pending, node: Option<String>) {
        let before = match &node {
            Some(node) => self.nominations.insert(pod.uid.clone(), node.clone()),
            None => self.nominations.remove(&pod.uid),
        };
        if before != node {
            self.cluster.nominate(&pod.uid, &pod.class, node.as_deref(), before.as_deref());
        }
    }

    /// Takes in what happened to disruption budgets.
    pub fn budgets(&mut self, event: WatchEvent<PodDisruptionBudget>) {
        self.budgets.apply(event);
        self.read_budgets = None;
    }

    /// Takes in what happened to namespaces.
    pub fn namespaces(&mut self, event: WatchEvent<Namespace>) {
        let labels = |namespace: &Namespace| namespace.metadata.labels.clone().unwrap_or_default();
        let known = &mut self.cluster.namespaces;
        match event {
            WatchEvent::Restarted(all) => {
                *known = all.iter().map(|namespace| (namespace.name_any(), labels(namespace))).collect();
            }
            WatchEvent::Applied(namespace) => {
                known.insert(namespace.name_any(), labels(&namespace));
            }
            WatchEvent::Deleted(namespace) => {
                known.remove(&namespace.name);
            }
        }
        self.cluster.news.neighbours = true;
    }

    /// What to do next, if there is anything to do now.
    pub fn next(&mut self, now: Instant) -> Option<Decision> {
        self.wake(now);
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        while let Some(uid) = self.deferred.pop_first() {
            if let Some(eviction) = self.for_resize(&uid) {
                return Some(Decision::MakeRoom(eviction));
            }
        }
        let waiting = self.queue.pop(now)?;
        // What is known of a class does not hold for a pod with a nomination: for others its node does not count as free.
        let is_nominated = self.nominations.contains_key(&waiting.pod.uid);
        let verdict = self.queue.verdict(waiting.pod.class.id).filter(|_| !is_nominated);
        if let Some((why, minds_others)) = verdict {
            let refusal = refusal(&waiting.pod.clone(), &why, None, None);
            self.queue.park(waiting, &why, minds_others, false, now);
            return Some(refusal);
        }
        Some(self.place_pod(waiting, now))
    }

    /// Finds a node for a pod.
    fn place_pod(&mut self, waiting: Waiting, now: Instant) -> Decision {
        let pod = waiting.pod.clone();
        let nominated = self.nominations.get(&pod.uid).cloned();
        let choice = self.chooser.choose(&pod.class, &pod.uid, nominated.as_deref(), &mut self.cluster);
        let diagnosis = match choice {
            Choice::Node(slot) => {
                let node = self.cluster.host(slot).name.clone();
                self.nominate(&pod, None);
                self.cluster.place(&node, pod.placed());
                self.queue.placed(&waiting, now);
                let (attempts, since) = (waiting.attempts + 1, waiting.since);
                self.binding.insert(pod.uid.clone(), waiting);
                return Decision::Bind { pod: PodRef::waiting(&pod), node, attempts, since };
            }
            Choice::None(diagnosis) => diagnosis,
        };
        let mut message = diagnosis.message();
        let asks = Preemptor { shape: &pod.class, uid: &pod.uid, nominated: nominated.as_deref() };
        let budgets = self
            .read_budgets
            .get_or_insert_with(|| self.budgets.all().iter().map(|budget| Budget::read(budget)).collect());
        let budgets: Vec<&Budget> = budgets.iter().collect();
        let victims = preempt(&mut self.cluster, asks, &diagnosis, &budgets, self.chooser.next);
        if let Err(why) = &victims
            && self.cluster.len() > 0
        {
            message = format!("{message} preemption: {}", why.words());
        }
        let others_leave = victims.is_ok();
        let (promised, evict) = match victims {
            Ok(victims) => {
                let node = self.cluster.host(victims.slot).name.clone();
                self.withdraw_lower(&victims, pod.class.priority);
                self.nominate(&pod, Some(node.clone()));
                let eviction = eviction(&victims, node.clone(), PodRef::waiting(&pod), false);
                (Some(node), Some(eviction))
            }
            // Who waits for others to leave keeps the promise; who gains nothing by it does not.
            Err(NoVictims::Leaving) => (None, None),
            Err(NoVictims::Useless(_)) => {
                let promised = nominated.map(|_| String::new());
                self.nominate(&pod, None);
                (promised, None)
            }
        };
        let refusal = refusal(&pod, &message, promised, evict);
        self.queue.park(waiting, &message.into(), diagnosis.minds_others, others_leave, now);
        refusal
    }

    /// Pods of lower priority to which the node was promised have to look elsewhere.
    fn withdraw_lower(&mut self, victims: &Victims, priority: i32) {
        let host = self.cluster.host(victims.slot);
        let lower = host.nominated.iter().filter(|(_, class)| class.priority < priority);
        let lower: Vec<Uid> = lower.map(|(uid, _)| uid.clone()).collect();
        for uid in lower {
            if let Some(pod) = self.queue.get(&uid).map(|waiting| waiting.pod.clone()) {
                self.nominate(&pod, None);
                self.ready.push_back(Decision::Withdraw(PodRef::waiting(&pod)));
            }
        }
    }

    /// Who has to leave for a pod that wants to grow.
    fn for_resize(&mut self, uid: &Uid) -> Option<Eviction> {
        let (slot, guest) = self.cluster.find(uid)?;
        let guest = guest.clone();
        if !guest.deferred || !guest.class.preempts {
            return None;
        }
        let budgets: Vec<Budget> = self.budgets.all().iter().map(|budget| Budget::read(budget)).collect();
        let budgets: Vec<&Budget> = budgets.iter().collect();
        let victims = make_room(&mut self.cluster, slot, guest.class.priority, &budgets)?;
        let node = self.cluster.host(slot).name.clone();
        Some(eviction(&victims, node, PodRef::placed(&guest), true))
    }

    /// A pod could not be bound: it no longer counts on its node, and is tried again.
    pub fn not_bound(&mut self, uid: &str, now: Instant) {
        // If it is not there any more, it was seen on a node, or gone.
        if let Some(waiting) = self.binding.remove(uid) {
            self.cluster.remove(uid);
            self.queue.retry(waiting, now);
        }
    }

    /// Pods could not be evicted: the pod for whom they should is tried again.
    pub fn not_evicted(&mut self, preemptor: &str, now: Instant) {
        if let Some(class) = self.queue.get(preemptor).map(|waiting| waiting.pod.class.id) {
            self.queue.rouse(class, Some(preemptor), now);
        }
    }

    /// When there may be something to do although nothing happens.
    pub fn due(&self) -> Option<Instant> {
        self.queue.due()
    }

    /// How many pods wait, and where.
    pub fn depths(&self) -> Depths {
        self.queue.depths()
    }

    /// How many nodes and pods on nodes are known, and how many of the pods are being bound.
    pub fn size(&self) -> (usize, usize, usize) {
        (self.cluster.len(), self.cluster.pods(), self.binding.len())
    }
}

fn refusal(pod: &Pending, message: &str, nominated: Option<String>, evict: Option<Eviction>) -> Decision {
    Decision::Refuse {
        pod: PodRef::waiting(pod),
        generation: pod.generation,
        is_new: pod.said.as_deref() != Some(message),
        is_first: pod.is_first,
        message: message.to_owned(),
        nominated,
        evict,
    }
}

fn eviction(victims: &Victims, node: String, preemptor: PodRef, for_resize: bool) -> Eviction {
    let leaving = victims.pods.iter().filter(|pod| !pod.terminating);
    Eviction { node, victims: leaving.map(|pod| PodRef::placed(pod)).collect(), preemptor, for_resize }
}
