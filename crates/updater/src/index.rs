//! The pods of VPAs, fed by watches. Synchronous; it answers which objects are to be reconciled because of a change, and what
//! there is to decide about a VPA.
//!
//! ```text
//!   pod ──owner──▶ ReplicaSet ──topmost──▶ Deployment ◀──targetRef── VPA
//!        (event)              (read, cached)              (event)
//! ```

mod nodes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LimitRange, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::pods::{is_active, node_of};
use plumb_resize::list::{amount_of, declared};
use plumb_resize::resource::{Declared, PerResource, Resource};
use plumb_vpa::node_groups::NodeLabels;
use plumb_vpa::recommendation::{LimitRanges, PodRecommendation};
use plumb_vpa::target::ControllerRef;
use plumb_vpa::vpas::VpaIndex;
use plumb_vpa_api::{Resources, VerticalPodAutoscaler};
use tokio::time::Instant;

pub use self::nodes::MayLower;
use self::nodes::{Counted, deferral};
use crate::attempt::Record;
use crate::decide::Subject;
use crate::in_place::Backoff;
use crate::shrink_first::NodeDecision;
use crate::state::{ContainerRecommendation, PodState, Recommendation};

/// The key of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The topmost controller of a controller of pods is to be found.
    Owner(ControllerRef),
    /// The pods of a VPA are to be updated.
    Vpa(ObjectRef),
}

/// VPAs, pods, and what decides about them.
#[derive(Debug, Default)]
pub struct Index {
    vpas: VpaIndex,
    /// All VPAs.
    names: BTreeSet<ObjectRef>,
    selectors: HashMap<ObjectRef, Option<Arc<Selector>>>,
    pods: HashMap<ObjectRef, Tracked>,
    owners: HashMap<ControllerRef, Owned>,
    by_topmost: HashMap<ControllerRef, BTreeSet<ControllerRef>>,
    on_node: HashMap<String, BTreeSet<ObjectRef>>,
    /// The pods of nodes whose resizes are deferred.
    deferred_on: HashMap<String, BTreeSet<ObjectRef>>,
    nodes: HashMap<String, NodeState>,
    /// The merged limit ranges of namespaces, and how often they have changed.
    ranges: HashMap<String, (LimitRanges, u64)>,
    /// The place of the newest pod in the order in which pods were first observed.
    arrivals: u64,
}

/// The state of a node.
#[derive(Debug, Default, PartialEq)]
struct NodeState {
    allocatable: Declared,
    /// Empty unless VPAs may select nodes.
    labels: NodeLabels,
}

#[derive(Debug, Default)]
struct Owned {
    pods: BTreeSet<ObjectRef>,
    topmost: Topmost,
}

/// The topmost controller of a controller of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Topmost {
    /// It was not read yet.
    #[default]
    Unknown,
    /// There is none that is well-known or scalable.
    None,
    /// This one.
    Known(ControllerRef),
}

impl Topmost {
    fn known(&self) -> Option<&ControllerRef> {
        match self {
            Self::Known(topmost) => Some(topmost),
            Self::Unknown | Self::None => None,
        }
    }
}

#[derive(Debug)]
struct Tracked {
    pod: Arc<Pod>,
    /// Parsed at the first use.
    state: Option<Parsed>,
    /// Likewise.
    counted: Option<Result<Counted, ()>>,
    /// The recommendation for its containers.
    recommended: Option<Recommended>,
    /// When its generation was first observed.
    observed: (i64, Timestamp),
    /// Its place in the order in which pods were first observed.
    arrival: u64,
    memory: Memory,
}

/// The recommendation for containers by a version of a VPA and of the limit ranges.
#[derive(Debug)]
struct Recommended {
    vpa: Option<String>,
    version: Option<String>,
    ranges: u64,
    recommendation: Arc<Recommendation>,
}

/// A parsed pod; none if it cannot be parsed.
type Parsed = Result<Arc<PodState>, ()>;

/// The state of a pod beyond its object.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The record, until the object has it.
    pub record: Option<Record>,
    /// When it may be attempted again.
    pub backoff: Option<Backoff>,
    /// How many attempts failed in a row.
    pub failures: u32,
    /// The last event.
    pub last_event: Option<String>,
    /// The generation that was sent, and when.
    pub sent: Option<(i64, Instant)>,
}

/// The inputs of a decision about a VPA.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The VPA.
    pub vpa: Arc<VerticalPodAutoscaler>,
    /// Its pods.
    pub subjects: Vec<Subject>,
    /// The objects of the pods, in the same order.
    pub pods: Vec<Arc<Pod>>,
    /// The pods of the same workload that other VPAs control, by their nodes: they count in its budget.
    pub siblings: Vec<Arc<PodState>>,
    /// The [`arrival`](Subject::arrival) of the newest pod, of whichever VPA.
    pub arrivals: u64,
    /// The VPA that controls all pods of the workload instead of this one.
    pub stronger: Option<Arc<VerticalPodAutoscaler>>,
}

impl Index {
    /// An empty index. With `startup_boost`, the gate `CPUStartupBoost`, a VPA of mode `Off` controls pods if it has a boost.
    /// With `node_selectors`, VPAs may select nodes.
    pub fn new(startup_boost: bool, node_selectors: bool) -> Self {
        let vpas = VpaIndex::new(startup_boost).with_node_selectors(node_selectors);
        Self { vpas, ..Self::default() }
    }

    /// A VPA was created, changed or deleted.
    pub fn apply_vpa(&mut self, key: &ObjectRef, vpa: Option<Arc<VerticalPodAutoscaler>>) -> Vec<Key> {
        let known = self.vpas.get(&key.namespace, &key.name).cloned();
        let mut keys = self.targeting_same(known.as_deref());
        if let Some(vpa) = vpa {
            let is_first = !self.has_vpas(&key.namespace);
            self.names.insert(key.clone());
            if known.is_some_and(|known| known.spec.target_ref != vpa.spec.target_ref) {
                self.selectors.remove(key);
            }
            self.vpas.apply(vpa.clone());
            keys.extend(self.targeting_same(Some(&vpa)));
            if is_first {
                let unresolved = self.owners.iter().filter(|(owner, owned)| {
                    owner.namespace == key.namespace && owned.topmost == Topmost::Unknown
                });
                keys.extend(unresolved.map(|(owner, _)| Key::Owner(owner.clone())));
            }
        } else {
            self.vpas.delete(&key.namespace, &key.name);
            self.selectors.remove(key);
            self.names.remove(key);
        }
        keys.push(Key::Vpa(key.clone()));
        keys.sort();
        keys.dedup();
        keys
    }

    fn targeting_same(&self, vpa: Option<&VerticalPodAutoscaler>) -> Vec<Key> {
        let Some(vpa) = vpa else { return Vec::new() };
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        self.targeting(&ControllerRef::of_target(namespace, &vpa.spec.target_ref))
    }

    /// Sets which pods the target of a VPA selects.
    pub fn set_selector(&mut self, key: &ObjectRef, selector: Option<Arc<Selector>>) {
        self.selectors.insert(key.clone(), selector);
    }

    /// The labels of a pod of a VPA's target that the target does not select, as far as its selector is known.
    pub fn unselected(&self, key: &ObjectRef) -> Option<BTreeMap<String, String>> {
        let target = ControllerRef::of_target(&key.namespace, &self.vpa(key)?.spec.target_ref);
        let selector = self.selectors.get(key)?.as_ref()?;
        let owners = self.by_topmost.get(&target)?.iter().filter_map(|owner| self.owners.get(owner));
        let mut pods = owners.flat_map(|owned| &owned.pods).filter_map(|pod| self.pods.get(pod));
        let unselected =
            pods.find(|tracked| is_active(&tracked.pod) && !selector.matches(tracked.pod.labels()));
        unselected.map(|tracked| tracked.pod.labels().clone())
    }

    /// A pod was created, changed or deleted.
    pub fn apply_pod(&mut self, key: &ObjectRef, pod: Option<Arc<Pod>>, now: Timestamp) -> Vec<Key> {
        let before = self.pods.remove(key);
        let was_deferred = before.as_ref().and_then(|before| deferral(&before.pod));
        let is_deferred = pod.as_deref().and_then(deferral);
        let owner_before =
            before.as_ref().and_then(|before| ControllerRef::controller_of(&before.pod.metadata));
        if let Some(before) = &before {
            self.unlink(key, &before.pod, owner_before.as_ref());
        }
        let mut keys = owner_before.as_ref().map(|owner| self.because_of(owner)).unwrap_or_default();
        keys.extend(self.set_deferral(key, was_deferred, is_deferred));
        let Some(pod) = pod else { return keys };
        if let Some(node) = node_of(&pod) {
            self.on_node.entry(node.to_owned()).or_default().insert(key.clone());
        }
        // A pod without a controller is of no VPA, but counts on its node.
        let owner = ControllerRef::controller_of(&pod.metadata);
        self.arrivals += 1;
        self.pods.insert(key.clone(), tracked(pod, before, now, self.arrivals));
        let Some(owner) = owner else { return keys };
        self.owners.entry(owner.clone()).or_default().pods.insert(key.clone());
        if owner_before.as_ref() != Some(&owner) {
            keys.extend(self.because_of(&owner));
        }
        keys
    }

    fn unlink(&mut self, key: &ObjectRef, pod: &Pod, owner: Option<&ControllerRef>) {
        if let Some(node) = node_of(pod)
            && let Some(pods) = self.on_node.get_mut(node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.on_node.remove(node);
            }
        }
        let Some(owner) = owner else { return };
        let Some(owned) = self.owners.get_mut(owner) else { return };
        owned.pods.remove(key);
    }

    /// Forgets controllers without pods. They are kept while the last pod is replaced.
    pub fn collect_garbage(&mut self) {
        let by_topmost = &mut self.by_topmost;
        self.owners.retain(|owner, owned| {
            let keep = !owned.pods.is_empty();
            if !keep && let Some(owners) = owned.topmost.known().and_then(|known| by_topmost.get_mut(known)) {
                owners.remove(owner);
            }
            keep
        });
        by_topmost.retain(|_, owners| !owners.is_empty());
    }

    /// The keys to reconcile because a pod of a controller has changed.
    fn because_of(&self, owner: &ControllerRef) -> Vec<Key> {
        match self.owners.get(owner).map(|owned| &owned.topmost) {
            Some(Topmost::Known(topmost)) => self.targeting(topmost),
            Some(Topmost::Unknown) if self.has_vpas(&owner.namespace) => vec![Key::Owner(owner.clone())],
            Some(Topmost::Unknown | Topmost::None) | None => Vec::new(),
        }
    }

    fn has_vpas(&self, namespace: &str) -> bool {
        self.vpas.has_any_in(namespace)
    }

    fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectRef> {
        let first = ObjectRef::namespaced(namespace, "");
        self.names.range(first..).take_while(move |vpa| vpa.namespace == namespace)
    }

    fn targeting(&self, topmost: &ControllerRef) -> Vec<Key> {
        self.vpas.targeting(topmost).map(|vpa| Key::Vpa(ObjectRef::of(&**vpa))).collect()
    }

    /// Sets the topmost controller of a controller of pods.
    pub fn set_topmost(&mut self, owner: &ControllerRef, topmost: Option<ControllerRef>) -> Vec<Key> {
        let topmost = topmost.map_or(Topmost::None, Topmost::Known);
        let Some(owned) = self.owners.get_mut(owner) else { return Vec::new() };
        if owned.topmost == topmost {
            return Vec::new();
        }
        let mut keys = Vec::new();
        let before = std::mem::replace(&mut owned.topmost, topmost.clone());
        if let Some(before) = before.known() {
            if let Some(owners) = self.by_topmost.get_mut(before) {
                owners.remove(owner);
            }
            keys = self.targeting(before);
        }
        if let Topmost::Known(topmost) = topmost {
            keys.extend(self.targeting(&topmost));
            self.by_topmost.entry(topmost).or_default().insert(owner.clone());
        }
        keys
    }

    /// The controllers of pods in namespaces with VPAs, to be resolved again.
    pub fn owners(&self) -> Vec<Key> {
        let owners = self.owners.keys().filter(|owner| self.has_vpas(&owner.namespace));
        owners.map(|owner| Key::Owner(owner.clone())).collect()
    }

    /// A node was created, changed or deleted.
    pub fn apply_node(&mut self, name: &str, node: Option<&Node>) -> Vec<Key> {
        let status = node.and_then(|node| node.status.as_ref());
        let allocatable = status.and_then(|status| declared(status.allocatable.as_ref()).ok());
        let after = node.map(|node| NodeState {
            allocatable: allocatable.unwrap_or_default(),
            labels: node.labels().clone(),
        });
        if self.nodes.get(name) == after.as_ref() {
            return Vec::new();
        }
        match after {
            Some(after) => self.nodes.insert(name.to_owned(), after),
            None => self.nodes.remove(name),
        };
        self.because_of_node(name)
    }

    /// The limit ranges of a namespace have changed.
    pub fn set_limit_ranges<'a>(
        &mut self,
        namespace: &str,
        ranges: impl IntoIterator<Item = &'a LimitRange>,
    ) -> Vec<Key> {
        let merged = LimitRanges::merge(ranges);
        let entry = self.ranges.entry(namespace.to_owned()).or_default();
        if entry.0 == merged {
            return Vec::new();
        }
        *entry = (merged, entry.1 + 1);
        self.end_backoffs(namespace, &["LimitRange", "Forbidden"])
    }

    /// A quota of a namespace has changed.
    pub fn quota_changed(&mut self, namespace: &str) -> Vec<Key> {
        self.end_backoffs(namespace, &["QuotaExceeded"])
    }

    /// Ends the backoffs of pods in a namespace that are for one of these reasons.
    fn end_backoffs(&mut self, namespace: &str, reasons: &[&str]) -> Vec<Key> {
        for (key, tracked) in self.pods.iter_mut().filter(|(key, _)| key.namespace == namespace) {
            let memory = &mut tracked.memory;
            if memory.backoff.as_ref().is_some_and(|backoff| reasons.contains(&backoff.reason)) {
                tracing::debug!(pod = %key, "what a backoff waits for has changed");
                memory.backoff = None;
            }
        }
        self.in_namespace(namespace).map(|vpa| Key::Vpa(vpa.clone())).collect()
    }

    /// A VPA.
    pub fn vpa(&self, key: &ObjectRef) -> Option<&Arc<VerticalPodAutoscaler>> {
        self.vpas.get(&key.namespace, &key.name)
    }

    /// The allocatable resources of a node, if they are known.
    pub fn allocatable(&self, node: Option<&str>) -> Declared {
        node.and_then(|node| self.nodes.get(node)).map(|node| node.allocatable).unwrap_or_default()
    }

    /// The workload of a VPA, if several VPAs may share it, each with the pods on some nodes.
    pub fn shared_target(&self, vpa: &VerticalPodAutoscaler) -> Option<ControllerRef> {
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        let target = ControllerRef::of_target(namespace, &vpa.spec.target_ref);
        self.vpas.selects_nodes(&target).then_some(target)
    }

    /// The VPA that controls all pods of a workload that another VPA would control without it.
    fn stronger(
        &self,
        target: &ControllerRef,
        vpa: &VerticalPodAutoscaler,
    ) -> Option<Arc<VerticalPodAutoscaler>> {
        if self.vpas.selects_nodes(target) {
            return None;
        }
        let controlling = self.vpas.controlling(target, None)?;
        let is_other = controlling.others.iter().any(|other| other.metadata.name == vpa.metadata.name);
        is_other.then_some(controlling.vpa)
    }

    /// The inputs of a decision about a VPA; none if it does not exist.
    pub fn gather(&mut self, key: &ObjectRef) -> Option<Gathered> {
        let vpa = self.vpa(key)?.clone();
        let target = ControllerRef::of_target(&key.namespace, &vpa.spec.target_ref);
        let (subjects, pods, siblings) = Default::default();
        let stronger = self.stronger(&target, &vpa);
        let arrivals = self.arrivals;
        let mut gathered = Gathered { vpa: vpa.clone(), subjects, pods, siblings, arrivals, stronger };
        // A stronger VPA may control the pods, and the target may be one that selects none.
        let selects_nodes = self.vpas.selects_nodes(&target);
        let controls = |node: Option<&NodeLabels>| {
            let controlling = self.vpas.controlling(&target, node);
            controlling.is_some_and(|controlling| controlling.vpa.metadata.name == vpa.metadata.name)
        };
        let may_control = selects_nodes || controls(None);
        let selector = self.selectors.get(key).and_then(Clone::clone).filter(|_| may_control);
        let Some(selector) = selector else { return Some(gathered) };
        let (ranges, epoch) = self.ranges.get(&key.namespace).copied().unwrap_or_default();
        let owners = self.by_topmost.get(&target).into_iter().flatten();
        let owned = owners.filter_map(|owner| self.owners.get(owner));
        let no_labels = BTreeMap::new();
        for pod in owned.flat_map(|owned| &owned.pods) {
            let Some(tracked) = self.pods.get_mut(pod) else { continue };
            if !selector.matches(tracked.pod.metadata.labels.as_ref().unwrap_or(&no_labels)) {
                continue;
            }
            let Some(state) = tracked.state() else { continue };
            let node = state.node.as_ref().and_then(|node| self.nodes.get(node));
            // A node whose labels are not known yet may be of any VPA.
            if selects_nodes && !node.is_some_and(|node| controls(Some(&node.labels))) {
                gathered.siblings.push(state);
                continue;
            }
            gathered.subjects.push(Subject {
                allocatable: node.map(|node| node.allocatable).unwrap_or_default(),
                pod: state,
                recommendation: tracked.recommendation(&vpa, &ranges, epoch),
                observed: tracked.observed.1,
                backoff: tracked.memory.backoff.clone(),
                arrival: tracked.arrival,
                oom_hold: None,
                node_decision: NodeDecision::None,
            });
            gathered.pods.push(tracked.pod.clone());
        }
        Some(gathered)
    }

    /// The state of a pod, to be changed. None if it is gone, or another one has its name.
    pub fn memory(&mut self, key: &ObjectRef, uid: &str) -> Option<&mut Memory> {
        let tracked = self.pods.get_mut(key)?;
        (tracked.pod.metadata.uid.as_deref() == Some(uid)).then_some(&mut tracked.memory)
    }

    /// Records something about a pod. It counts from now on, though the object does not have it yet.
    pub fn record(&mut self, key: &ObjectRef, uid: &str, record: Record) {
        if let Some(memory) = self.memory(key, uid) {
            memory.record = Some(record);
        }
        if let Some(tracked) = self.pods.get_mut(key) {
            tracked.state = None;
        }
    }

    /// How many VPAs and pods there are.
    pub fn size(&self) -> (usize, usize) {
        (self.vpas.len(), self.pods.len())
    }

    /// All VPAs.
    pub fn vpas(&self) -> Vec<Key> {
        self.names.iter().map(|vpa| Key::Vpa(vpa.clone())).collect()
    }
}

fn tracked(pod: Arc<Pod>, before: Option<Tracked>, now: Timestamp, arrivals: u64) -> Tracked {
    let generation = pod.metadata.generation.unwrap_or_default();
    let before = before.filter(|before| before.pod.metadata.uid == pod.metadata.uid);
    let arrival = before.as_ref().map_or(arrivals, |before| before.arrival);
    let record = Record::of(&pod.metadata);
    // The unbooster writes records, too.
    let is_rewritten = before.as_ref().is_some_and(|before| Record::of(&before.pod.metadata) != record);
    let (observed, mut memory) = match before {
        Some(before) if before.observed.0 == generation => (before.observed, before.memory),
        Some(before) => ((generation, now), before.memory),
        None => ((generation, now), Memory::default()),
    };
    // The record in the object counts, once it is there.
    if is_rewritten || memory.record.as_ref().is_some_and(|known| *known == record) {
        memory.record = None;
    }
    Tracked { pod, state: None, counted: None, recommended: None, observed, arrival, memory }
}

impl Tracked {
    fn state(&mut self) -> Option<Arc<PodState>> {
        let (pod, memory) = (&self.pod, &self.memory);
        let parsed = self.state.get_or_insert_with(|| match PodState::of(pod) {
            Ok(mut state) => {
                if let Some(record) = &memory.record {
                    state.record = record.clone();
                }
                Ok(Arc::new(state))
            }
            Err(error) => {
                tracing::warn!(pod = %ObjectRef::of(&**pod), %error, "a pod cannot be read");
                Err(())
            }
        });
        parsed.clone().ok()
    }

    fn counted(&mut self) -> Option<Counted> {
        let pod = &self.pod;
        self.counted.get_or_insert_with(|| Counted::of(pod).map_err(drop)).ok()
    }

    fn recommendation(
        &mut self,
        vpa: &VerticalPodAutoscaler,
        ranges: &LimitRanges,
        epoch: u64,
    ) -> Option<Arc<Recommendation>> {
        let (name, version) = (&vpa.metadata.name, &vpa.metadata.resource_version);
        if let Some(known) = &self.recommended
            && (&known.vpa, &known.version, known.ranges) == (name, version, epoch)
        {
            return Some(known.recommendation.clone());
        }
        let recommended = PodRecommendation::new(vpa, self.pod.spec.as_ref()?, ranges);
        let recommendation = Arc::new(Recommendation::from(&recommended));
        self.recommended = Some(Recommended {
            vpa: name.clone(),
            version: version.clone(),
            ranges: epoch,
            recommendation: recommendation.clone(),
        });
        Some(recommendation)
    }
}

impl From<&PodRecommendation> for Recommendation {
    fn from(recommended: &PodRecommendation) -> Self {
        let amounts = |resources: &Resources| {
            PerResource::of(|r: Resource| resources[r].and_then(|quantity| amount_of(r, quantity).ok()))
        };
        let containers = recommended.containers.iter().map(|one| ContainerRecommendation {
            name: one.name.clone(),
            target: amounts(&one.target),
            limits: amounts(&one.limits),
            lower: amounts(&one.lower_bound),
            upper: amounts(&one.upper_bound),
        });
        Self { containers: containers.collect() }
    }
}
