//! The scheduler without a clock, a client or a task: cache, queue and decisions.
//!
//! The loop feeds it watch events ([`Planner::handle_nodes`], [`Planner::handle_pods`], …) and performs its decisions
//! ([`Planner::next`]). A pod that is to be bound is assumed: the cache counts it on its node from the decision on, and the
//! loop reports a binding that failed ([`Planner::binding_failed`]).

mod bindings;
mod requeue;
mod resizes;
mod set_aside;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use plumb_controller_runtime::{ObjectRef, Store, WatchEvent};
use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use tokio::time::Instant;

use crate::algorithm::{Algorithm, ScheduleResult};
use crate::cache::{Cache, NodeProperties, PodInfo, Uid};
use crate::features::{NODE_DECLARED_FEATURES, RESIZE_PREEMPTION, STORAGE_CAPACITY_SCORING};
use crate::pod_state::{PendingPod, PodState, read};
use crate::preempt::{Budget, Candidate, PreemptionFailure, Preemptor, preempt};
use crate::queue::{Added, Depths, Queue, QueuedPodInfo};
use crate::requirements::EquivalenceClasses;
use crate::volumes::VolumeBinding;
use bindings::PendingBindings;
use resizes::DeferredResizes;
pub use set_aside::CurrentPod;
use set_aside::SetAsidePods;

/// The configuration of a scheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in `spec.schedulerName`.
    pub name: String,
    /// The rules of resizes.
    pub rules: Rules,
    /// Whether pods of lower priority are preempted for a deferred resize
    /// (gate `InPlacePodVerticalScalingSchedulerPreemption`).
    pub preempt_for_resizes: bool,
    /// Whether nodes with more storage for the claims of a pod have a higher score (gate `StorageCapacityScoring`).
    pub score_storage_capacity: bool,
    /// Whether a node must declare the features that a pod needs (gate `NodeDeclaredFeatures`).
    pub filter_by_features: bool,
    /// Called with the name of each pod before the planner reads it or decides about it. Tests inject panics with it.
    pub fault: Option<fn(&str)>,
}

impl Settings {
    /// The default scheduler.
    pub fn new(rules: Rules) -> Self {
        Self {
            name: "default-scheduler".to_owned(),
            rules,
            preempt_for_resizes: RESIZE_PREEMPTION.default,
            score_storage_capacity: STORAGE_CAPACITY_SCORING.default,
            filter_by_features: NODE_DECLARED_FEATURES.default,
            fault: None,
        }
    }

    /// Sets what the [feature gates](crate::features) of the scheduler decide.
    #[must_use]
    pub fn with_features(self, gates: &FeatureGates) -> Self {
        Self {
            preempt_for_resizes: gates.enabled(&RESIZE_PREEMPTION),
            score_storage_capacity: gates.enabled(&STORAGE_CAPACITY_SCORING),
            filter_by_features: gates.enabled(&NODE_DECLARED_FEATURES),
            ..self
        }
    }
}

/// A reference to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Arc<str>,
    /// The version of a pending pod that the decision is about.
    pub resource_version: Option<String>,
}

impl PodRef {
    fn pending(pod: &PendingPod) -> Self {
        let PendingPod { namespace, name, uid, resource_version, .. } = pod;
        let resource_version = resource_version.clone();
        Self { namespace: namespace.clone(), name: name.clone(), uid: uid.clone(), resource_version }
    }

    fn assigned(pod: &PodInfo) -> Self {
        let PodInfo { namespace, name, uid, .. } = pod;
        Self { namespace: namespace.clone(), name: name.clone(), uid: uid.clone(), resource_version: None }
    }
}

/// Pods that are deleted for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The node.
    pub node: String,
    /// The pods to delete; those that terminate already are left out.
    pub victims: Vec<PodRef>,
    /// The pod that they are deleted for.
    pub preemptor: PodRef,
    /// Whether the preemptor is on the node already and its resize is deferred.
    pub for_resize: bool,
}

/// A decision, which the loop performs.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Bind a pod to a node.
    Bind {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: String,
        /// The number of attempts, this one included.
        attempts: u32,
        /// When the pod was added to the queue.
        since: Instant,
    },
    /// Bind the volumes of a pod that is assumed on a node. The pod is bound once the binder has bound its claims.
    BindVolumes {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: String,
        /// What is to be written.
        bindings: Vec<VolumeBinding>,
    },
    /// Report that a pod is unschedulable.
    Unschedulable {
        /// The pod.
        pod: PodRef,
        /// The generation of the pod.
        generation: Option<i64>,
        /// Why no node is feasible.
        message: String,
        /// Whether its condition has another message.
        message_changed: bool,
        /// Whether it has no `PodScheduled` condition yet.
        is_first_failure: bool,
        /// Its new nominated node; an empty name clears the nomination.
        nominated: Option<String>,
        /// The pods that it preempts.
        preemption: Option<Preemption>,
    },
    /// Clear the nominated node of a pod.
    ClearNomination(PodRef),
    /// Preempt pods for a deferred resize.
    PreemptForResize(Preemption),
}

/// The state of a scheduler.
#[derive(Debug)]
pub struct Planner {
    settings: Settings,
    cache: Cache,
    queue: Queue,
    classes: EquivalenceClasses,
    algorithm: Algorithm,
    budgets: Store<PodDisruptionBudget>,
    parsed_budgets: Option<Vec<Budget>>,
    /// Pods that are being bound (upstream: assumed pods).
    assumed: HashMap<Uid, QueuedPodInfo>,
    /// Assumed pods whose volumes are being bound.
    pending_bindings: PendingBindings,
    uids: HashMap<ObjectRef, Uid>,
    /// The nominated nodes of pending pods.
    nominations: HashMap<Uid, String>,
    deferred_resizes: DeferredResizes,
    decisions: VecDeque<Decision>,
    /// The pod that the planner reads or decides about.
    current: Option<CurrentPod>,
    set_aside: SetAsidePods,
}

impl Planner {
    /// A scheduler without nodes and pods.
    pub fn new(settings: Settings) -> Self {
        let algorithm = Algorithm::new(settings.score_storage_capacity);
        Self {
            settings,
            cache: Cache::default(),
            queue: Queue::default(),
            classes: EquivalenceClasses::default(),
            algorithm,
            budgets: Store::default(),
            parsed_budgets: None,
            assumed: HashMap::new(),
            pending_bindings: PendingBindings::default(),
            uids: HashMap::new(),
            nominations: HashMap::new(),
            deferred_resizes: DeferredResizes::default(),
            decisions: VecDeque::new(),
            current: None,
            set_aside: SetAsidePods::default(),
        }
    }

    /// Handles a watch event of nodes.
    pub fn handle_nodes(&mut self, event: WatchEvent<Node>) {
        match event {
            WatchEvent::Restarted(nodes) => {
                let names: HashSet<String> =
                    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
                let deleted = self.cache.node_names().filter(|name| !names.contains(*name));
                let deleted: Vec<String> = deleted.map(str::to_owned).collect();
                for name in deleted {
                    self.cache.remove_node(&name);
                }
                for node in &nodes {
                    self.update_node(node);
                }
            }
            WatchEvent::Applied(node) => self.update_node(&node),
            WatchEvent::Deleted(node) => self.cache.remove_node(&node.name),
        }
    }

    fn update_node(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        match NodeProperties::read(node) {
            Ok(properties) => self.cache.update_node(&name, properties),
            // Without its allocatable resources, no pod is known to fit.
            Err(error) => {
                tracing::warn!(%error, node = name, "invalid allocatable resources of a node, which gets no pods");
                self.cache.remove_node(&name);
            }
        }
    }

    /// Handles a watch event of pods.
    pub fn handle_pods(&mut self, event: WatchEvent<Pod>, now: Instant) {
        match event {
            WatchEvent::Restarted(pods) => {
                let listed: HashSet<ObjectRef> = pods.iter().map(ObjectRef::of).collect();
                let deleted = self.uids.keys().filter(|pod| !listed.contains(*pod));
                let deleted: Vec<ObjectRef> = deleted.cloned().collect();
                for pod in &deleted {
                    self.remove_pod(pod);
                }
                for pod in &pods {
                    self.update_pod(pod, now);
                }
            }
            WatchEvent::Applied(pod) => self.update_pod(&pod, now),
            WatchEvent::Deleted(pod) => self.remove_pod(&pod),
        }
    }

    fn update_pod(&mut self, pod: &Pod, now: Instant) {
        self.begin(CurrentPod::new(pod));
        if self.set_aside.applies(pod, now) {
            let object = ObjectRef::of(pod);
            self.remove_pod(&object);
            self.uids.insert(object, pod.metadata.uid.clone().unwrap_or_default().into());
            self.set_aside.store(pod);
        } else {
            self.read_pod(pod, now);
        }
        self.current = None;
    }

    fn read_pod(&mut self, pod: &Pod, now: Instant) {
        self.inject_fault();
        let object = ObjectRef::of(pod);
        let state = read(pod, &self.settings, &mut self.classes).unwrap_or_else(|error| {
            tracing::warn!(%error, namespace = object.namespace, pod = object.name, "invalid requests of a pod, which is not scheduled");
            PodState::Ignored
        });
        let uid: Uid = pod.metadata.uid.clone().unwrap_or_default().into();
        if self.uids.get(&object).is_some_and(|known| *known != uid) {
            // Another pod has its name: the deletion was not observed.
            self.remove_pod(&object);
        }
        match state {
            PodState::Ignored => return self.remove_pod(&object),
            PodState::Assigned(node, pod) => {
                self.dequeue(&uid, &pod.class);
                self.assumed.remove(&uid);
                self.forget_bindings(&uid);
                if self.settings.preempt_for_resizes && pod.deferred.is_some() {
                    self.deferred_resizes.extend([uid.clone()]);
                }
                self.cache.update_pod(&node, *pod);
            }
            PodState::Pending(pending) => {
                if let Some(assumed) = self.assumed.get_mut(&uid) {
                    assumed.pod = Arc::from(pending);
                } else {
                    self.add_pending(*pending, now);
                }
            }
        }
        self.uids.insert(object, uid);
    }

    /// Adds a pending pod to the queue, or updates it there.
    fn add_pending(&mut self, pending: PendingPod, now: Instant) {
        let nominated = pending.nominated.clone().or_else(|| self.nominations.get(&pending.uid).cloned());
        self.nominate(&pending, nominated);
        self.requeue_schedulable(now);
        let pod = Arc::new(pending.clone());
        if let Added::Unschedulable(why) = self.queue.add(pending, now) {
            let decision = unschedulable(&pod, &why, None, None);
            self.decisions.push_back(decision);
        }
    }

    fn remove_pod(&mut self, object: &ObjectRef) {
        let Some(uid) = self.uids.remove(object) else { return };
        let queued = self.queue.remove(&uid).or_else(|| self.assumed.remove(&uid));
        if let Some(queued) = queued {
            self.nominate(&queued.pod, None);
        }
        self.forget_bindings(&uid);
        self.cache.remove_pod(&uid);
        self.deferred_resizes.remove(&uid);
        self.set_aside.forget(&uid);
    }

    /// Removes a pod that has a node from the queue.
    fn dequeue(&mut self, uid: &Uid, class: &Arc<crate::requirements::EquivalenceClass>) {
        self.queue.remove(uid);
        if let Some(before) = self.nominations.remove(uid) {
            self.cache.nominate(uid, class, None, Some(&before));
        }
    }

    /// Nominates a pod to a node, or clears its nomination.
    fn nominate(&mut self, pod: &PendingPod, node: Option<String>) {
        let before = match &node {
            Some(node) => self.nominations.insert(pod.uid.clone(), node.clone()),
            None => self.nominations.remove(&pod.uid),
        };
        if before != node {
            self.cache.nominate(&pod.uid, &pod.class, node.as_deref(), before.as_deref());
        }
    }

    /// Handles a watch event of disruption budgets.
    pub fn handle_budgets(&mut self, event: WatchEvent<PodDisruptionBudget>) {
        self.budgets.apply(event);
        self.parsed_budgets = None;
    }

    /// Handles a watch event of namespaces.
    pub fn handle_namespaces(&mut self, event: WatchEvent<Namespace>) {
        let labels = |namespace: &Namespace| namespace.metadata.labels.clone().unwrap_or_default();
        let namespaces = &mut self.cache.namespaces;
        match event {
            WatchEvent::Restarted(all) => {
                *namespaces = all.iter().map(|namespace| (namespace.name_any(), labels(namespace))).collect();
            }
            WatchEvent::Applied(namespace) => {
                namespaces.insert(namespace.name_any(), labels(&namespace));
            }
            WatchEvent::Deleted(namespace) => {
                namespaces.remove(&namespace.name);
            }
        }
        self.cache.changes.pods = true;
    }

    /// The next decision, if there is one now.
    pub fn next(&mut self, now: Instant) -> Option<Decision> {
        self.current = None;
        for pod in self.set_aside.take_due(now) {
            self.update_pod(&pod, now);
        }
        self.expire_bindings(now);
        self.requeue_schedulable(now);
        if let Some(decision) = self.decisions.pop_front() {
            return Some(decision);
        }
        if let Some(preemption) = self.next_preemption_for_resize(now) {
            return Some(Decision::PreemptForResize(preemption));
        }
        let queued = self.queue.pop(now)?;
        // The failure of a class does not hold for its nominated pods: to others the nominated node is not free.
        let is_nominated = self.nominations.contains_key(&queued.pod.uid);
        let known_failure = self.queue.known_failure(queued.pod.class.id).filter(|_| !is_nominated);
        if let Some((why, depends_on_pods)) = known_failure {
            let decision = unschedulable(&queued.pod.clone(), &why, None, None);
            self.queue.add_unschedulable(queued, &why, depends_on_pods, false, now);
            return Some(decision);
        }
        Some(self.schedule_pod(queued, now))
    }

    /// Selects a node for a pod, or preempts others for it.
    fn schedule_pod(&mut self, queued: QueuedPodInfo, now: Instant) -> Decision {
        let pod = queued.pod.clone();
        self.begin(CurrentPod { pod: PodRef::pending(&pod), is_assigned: false });
        self.inject_fault();
        let nominated = self.nominations.get(&pod.uid).cloned();
        let result = self.algorithm.schedule(&pod.class, &pod.uid, nominated.as_deref(), &mut self.cache);
        let diagnosis = match result {
            ScheduleResult::Node(slot, bindings) => {
                let node = self.cache.node_info(slot).name.clone();
                self.nominate(&pod, None);
                self.cache.update_pod(&node, pod.assumed());
                self.queue.assumed(&queued, now);
                let attempts = queued.attempts + 1;
                let since = queued.since;
                self.assumed.insert(pod.uid.clone(), queued);
                let reference = PodRef::pending(&pod);
                if bindings.is_empty() {
                    return Decision::Bind { pod: reference, node, attempts, since };
                }
                return self.bind_volumes(reference, node, bindings, (attempts, since), now);
            }
            ScheduleResult::Unschedulable(diagnosis) => diagnosis,
        };
        let mut message = diagnosis.message();
        let preemptor =
            Preemptor { requirements: &pod.class, uid: &pod.uid, nominated: nominated.as_deref() };
        let budgets = parsed(&mut self.parsed_budgets, &self.budgets);
        let candidate =
            preempt(&mut self.cache, preemptor, &diagnosis, &budgets, self.algorithm.next_start_index);
        if let Err(why) = &candidate
            && self.cache.len() > 0
        {
            message = format!("{message} preemption: {}", why.message());
        }
        let has_victims = candidate.is_ok();
        let (nomination, preemption) = match candidate {
            Ok(candidate) => {
                let node = self.cache.node_info(candidate.slot).name.clone();
                self.clear_lower_nominations(&candidate, pod.class.priority);
                self.nominate(&pod, Some(node.clone()));
                let preemption = preemption(&candidate, node.clone(), PodRef::pending(&pod), false);
                (Some(node), Some(preemption))
            }
            // A pod keeps its nomination while its victims terminate, and loses it when preemption does not help.
            Err(PreemptionFailure::VictimsTerminating) => (None, None),
            Err(PreemptionFailure::NotHelpful(_)) => {
                let cleared = nominated.map(|_| String::new());
                self.nominate(&pod, None);
                (cleared, None)
            }
        };
        let decision = unschedulable(&pod, &message, nomination, preemption);
        self.queue.add_unschedulable(queued, &message.into(), diagnosis.depends_on_pods, has_victims, now);
        decision
    }

    /// Clears the nominations of pods of lower priority to a node.
    fn clear_lower_nominations(&mut self, candidate: &Candidate, priority: i32) {
        let node_info = self.cache.node_info(candidate.slot);
        let lower = node_info.nominated.iter().filter(|(_, class)| class.priority < priority);
        let lower: Vec<Uid> = lower.map(|(uid, _)| uid.clone()).collect();
        for uid in lower {
            if let Some(pod) = self.queue.get(&uid).map(|queued| queued.pod.clone()) {
                self.nominate(&pod, None);
                self.decisions.push_back(Decision::ClearNomination(PodRef::pending(&pod)));
            }
        }
    }

    /// Handles a binding that failed: the pod is no longer assumed, and is retried after a backoff.
    pub fn binding_failed(&mut self, uid: &str, now: Instant) {
        // If the pod is not assumed any more, its assignment or deletion was observed meanwhile.
        if let Some(queued) = self.assumed.remove(uid) {
            self.forget_bindings(uid);
            self.cache.remove_pod(uid);
            self.queue.add_failed(queued, now);
        }
    }

    /// Handles a preemption that failed: the preemptor is retried.
    pub fn preemption_failed(&mut self, preemptor: &str, now: Instant) {
        self.deferred_resizes.failed(preemptor, now);
        if let Some(class) = self.queue.get(preemptor).map(|queued| queued.pod.class.id) {
            self.queue.activate_class(class, Some(preemptor), now);
        }
    }

    /// The pod that the planner reads or decides about, or has decided about last. After a panic it is the cause.
    pub fn current(&self) -> Option<&CurrentPod> {
        self.current.as_ref()
    }

    /// Sets a pod aside until a time: it is neither read nor scheduled, and then retried.
    pub fn set_aside(&mut self, pod: &CurrentPod, until: Instant) {
        self.set_aside.add(pod, until);
    }

    fn begin(&mut self, pod: CurrentPod) {
        self.current = Some(pod);
    }

    fn inject_fault(&self) {
        if let (Some(fault), Some(current)) = (self.settings.fault, &self.current) {
            fault(&current.pod.name);
        }
    }

    /// When the next backoff ends, the time of volumes that are being bound, or a preemption is retried.
    pub fn due(&self) -> Option<Instant> {
        let due = [self.queue.due(), self.pending_bindings.due(), self.deferred_resizes.due()];
        due.into_iter().flatten().min()
    }

    /// The number of pending pods by queue.
    pub fn depths(&self) -> Depths {
        self.queue.depths()
    }

    /// The number of nodes, of assigned and assumed pods, and of assumed pods.
    pub fn size(&self) -> (usize, usize, usize) {
        (self.cache.len(), self.cache.pods(), self.assumed.len())
    }
}

/// The disruption budgets, parsed once until one of them changes.
fn parsed<'a>(parsed: &'a mut Option<Vec<Budget>>, store: &Store<PodDisruptionBudget>) -> Vec<&'a Budget> {
    let read = || store.all().iter().map(|budget| Budget::read(budget)).collect();
    parsed.get_or_insert_with(read).iter().collect()
}

fn unschedulable(
    pod: &PendingPod,
    message: &str,
    nominated: Option<String>,
    preemption: Option<Preemption>,
) -> Decision {
    Decision::Unschedulable {
        pod: PodRef::pending(pod),
        generation: pod.generation,
        message_changed: pod.message.as_deref() != Some(message),
        is_first_failure: pod.is_first_failure,
        message: message.to_owned(),
        nominated,
        preemption,
    }
}

fn preemption(candidate: &Candidate, node: String, preemptor: PodRef, for_resize: bool) -> Preemption {
    let victims = candidate.victims.iter().filter(|pod| !pod.terminating);
    Preemption { node, victims: victims.map(|pod| PodRef::assigned(pod)).collect(), preemptor, for_resize }
}
