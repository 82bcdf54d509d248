//! The scheduler cache: nodes and the pods that are assigned to them or assumed to be.
//!
//! The cache updates sums and indexes with every change, so that no decision iterates over pods. Nodes have slots, which
//! the indexes use instead of names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use plumb_placement::volumes::local_volumes_capacity;
use plumb_placement::{HostPort, Labels, Toleration};
use plumb_resize::Quantity;
use plumb_resize::list::{BadQuantity, ResourceList};
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::Amounts;

use crate::existing_terms::ExistingTerms;
use crate::free_index::{Free, FreeIndex, NOT_SCHEDULABLE};
use crate::requirements::EquivalenceClass;
use crate::resources::{PODS, Resources};
use crate::topology_counts::{CountQuery, TopologyCounts};
use crate::volumes::VolumeCache;

/// A pod by its uid.
pub(crate) type Uid = Arc<str>;

/// A pod that is assigned to a node, or assumed to be.
#[derive(Clone, Debug)]
pub(crate) struct PodInfo {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) class: Arc<EquivalenceClass>,
    /// What it is accounted for: during a resize the larger of desired, allocated and actual, as the dialect says.
    pub(crate) requests: Resources,
    /// `requests` for scoring: containers without requests count with defaults, as in upstream's `NonZeroRequest`.
    pub(crate) non_zero_requests: Resources,
    pub(crate) started: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub(crate) terminating: bool,
    /// A scheduler preempted it.
    pub(crate) preempted: bool,
    /// The object stands for a static pod of the node, which its deletion does not end.
    pub(crate) mirror: bool,
    /// Its deferred resize.
    pub(crate) deferred: Option<Deferred>,
}

/// A resize that the node has deferred.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    /// What is allocated and actual.
    pub(crate) held: Amounts,
    /// When the node retries it.
    pub(crate) turn: DeferredResize,
}

/// The parts of a Node object that filters and scores read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeProperties {
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) max_pods: i64,
    pub(crate) declared_features: Vec<String>,
    /// The size of the disk of its local volumes, if it is known.
    pub(crate) local_volumes: Option<Quantity>,
}

impl NodeProperties {
    /// Reads a node.
    pub(crate) fn read(node: &Node) -> Result<Self, BadQuantity> {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let allocatable = ResourceList::read(allocatable)?;
        Ok(Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            max_pods: allocatable.get(PODS).map_or(0, Quantity::saturating_units),
            allocatable: Resources::read(&allocatable),
            declared_features: status.and_then(|one| one.declared_features.clone()).unwrap_or_default(),
            local_volumes: local_volumes_capacity(node),
        })
    }

    /// The first taint with effect `NoSchedule` or `NoExecute` that is not tolerated.
    pub(crate) fn untolerated_taint(&self, tolerations: &[Toleration]) -> Option<&Taint> {
        let repelling =
            self.taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        repelling.into_iter().find(|taint| !tolerations.iter().any(|one| one.tolerates(taint)))
    }
}

/// A node with its pods. A node that only pods name has no properties.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) properties: Option<NodeProperties>,
    pub(crate) pods: BTreeMap<Uid, Arc<PodInfo>>,
    pub(crate) requested: Resources,
    pub(crate) non_zero_requests: Resources,
    pub(crate) ports: Vec<HostPort>,
    /// The pods that are nominated to this node.
    pub(crate) nominated: BTreeMap<Uid, Arc<EquivalenceClass>>,
}

impl NodeInfo {
    fn free(&self) -> Free {
        let Some(properties) = &self.properties else { return NOT_SCHEDULABLE };
        let pods = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        [
            properties.allocatable.cpu.saturating_sub(self.requested.cpu),
            properties.allocatable.memory.saturating_sub(self.requested.memory),
            properties.allocatable.ephemeral.saturating_sub(self.requested.ephemeral),
            properties.max_pods.saturating_sub(pods),
        ]
    }
}

/// What changed since pending pods were last requeued.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Nodes that have more free than before, or other labels or taints.
    pub(crate) nodes: BTreeSet<usize>,
    /// Pods or topology domains changed, which affinity and spread constraints depend on.
    pub(crate) pods: bool,
    /// Claims, volumes or classes changed.
    pub(crate) volumes: bool,
}

/// The scheduler cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    node_infos: Vec<NodeInfo>,
    /// The slots of removed nodes.
    free_slots: Vec<usize>,
    slots_by_node: HashMap<String, usize>,
    slots_by_pod: HashMap<Uid, usize>,
    node_count: usize,
    free_index: FreeIndex,
    topology_counts: TopologyCounts,
    pub(crate) existing_terms: ExistingTerms,
    pub(crate) namespaces: HashMap<String, Labels>,
    pub(crate) volumes: VolumeCache,
    pub(crate) changes: Changes,
}

impl Cache {
    /// Adds a node, or updates it.
    pub(crate) fn update_node(&mut self, name: &str, properties: NodeProperties) {
        let slot = self.slot_or_new(name);
        if self.node_infos[slot].properties.as_ref() == Some(&properties) {
            return;
        }
        self.set_properties(slot, Some(properties));
        self.changes.nodes.insert(slot);
        self.changes.pods = true;
    }

    /// Removes a node. Its pods stay until they are removed too.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.slots_by_node.get(name).copied() else { return };
        self.set_properties(slot, None);
        self.changes.pods = true;
        self.release_slot(slot);
    }

    /// The names of all nodes.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.node_infos().map(|(_, node_info, _)| node_info.name.as_str())
    }

    fn set_properties(&mut self, slot: usize, properties: Option<NodeProperties>) {
        let NodeInfo { name, properties: current, pods, .. } = &mut self.node_infos[slot];
        if let Some(old) = current.take() {
            for pod in pods.values() {
                self.topology_counts.update_pod(name, &old, pod, -1);
                self.existing_terms.update_pod(&old, pod, -1);
            }
            self.topology_counts.update_node(name, &old, -1);
            self.node_count -= 1;
        }
        if let Some(new) = properties {
            self.topology_counts.update_node(name, &new, 1);
            for pod in pods.values() {
                self.topology_counts.update_pod(name, &new, pod, 1);
                self.existing_terms.update_pod(&new, pod, 1);
            }
            *current = Some(new);
            self.node_count += 1;
        }
        self.free_index.set(slot, self.node_infos[slot].free());
    }

    /// The slot of a node; a new one if the node has none.
    fn slot_or_new(&mut self, name: &str) -> usize {
        if let Some(slot) = self.slots_by_node.get(name) {
            return *slot;
        }
        let node_info = NodeInfo { name: name.to_owned(), ..NodeInfo::default() };
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.node_infos.push(NodeInfo::default());
            self.node_infos.len() - 1
        });
        self.node_infos[slot] = node_info;
        self.slots_by_node.insert(name.to_owned(), slot);
        self.free_index.set(slot, NOT_SCHEDULABLE);
        slot
    }

    /// Releases the slot of a node that is removed and that no pod names.
    fn release_slot(&mut self, slot: usize) {
        let node_info = &self.node_infos[slot];
        if node_info.properties.is_none() && node_info.pods.is_empty() && node_info.nominated.is_empty() {
            self.slots_by_node.remove(&node_info.name);
            self.node_infos[slot] = NodeInfo::default();
            self.free_slots.push(slot);
        }
    }

    /// Adds a pod to a node, or updates it there.
    pub(crate) fn update_pod(&mut self, node: &str, pod: PodInfo) {
        let slot = self.slot_or_new(node);
        let uid = pod.uid.clone();
        let before = self.slots_by_pod.get(&uid).copied();
        if before == Some(slot)
            && let Some(old) = self.node_infos[slot].pods.get(&uid).cloned()
        {
            let counts_same = Arc::ptr_eq(&old.class, &pod.class) && old.terminating == pod.terminating;
            if counts_same && old.requests == pod.requests && old.non_zero_requests == pod.non_zero_requests {
                // No sum and no index changes.
                self.node_infos[slot].pods.insert(uid, Arc::new(pod));
                return;
            }
            let changes = std::mem::take(&mut self.changes);
            self.remove_pod_at(slot, &uid);
            self.changes = changes;
            if pod.requests.is_any_smaller(&old.requests) {
                self.changes.nodes.insert(slot);
            }
            self.changes.pods |= !counts_same;
            self.add_pod_at(slot, Arc::new(pod));
            return;
        }
        if let Some(before) = before {
            self.remove_pod_at(before, &uid);
        }
        self.add_pod_at(slot, Arc::new(pod));
        self.changes.pods = true;
    }

    /// Removes a pod.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let slot = *self.slots_by_pod.get(uid)?;
        let pod = self.remove_pod_at(slot, uid);
        self.release_slot(slot);
        pod
    }

    /// Adds a pod to the node in a slot.
    pub(crate) fn add_pod_at(&mut self, slot: usize, pod: Arc<PodInfo>) {
        let node_info = &mut self.node_infos[slot];
        node_info.requested.add(&pod.requests);
        node_info.non_zero_requests.add(&pod.non_zero_requests);
        node_info.ports.extend(pod.class.ports.iter().cloned());
        if let Some(properties) = &node_info.properties {
            self.topology_counts.update_pod(&node_info.name, properties, &pod, 1);
            self.existing_terms.update_pod(properties, &pod, 1);
        }
        self.volumes.count_users(&pod.namespace, &pod.class.claims, true);
        self.slots_by_pod.insert(pod.uid.clone(), slot);
        node_info.pods.insert(pod.uid.clone(), pod);
        self.free_index.set(slot, node_info.free());
    }

    /// Removes a pod from the node in a slot.
    pub(crate) fn remove_pod_at(&mut self, slot: usize, uid: &str) -> Option<Arc<PodInfo>> {
        let node_info = &mut self.node_infos[slot];
        let pod = node_info.pods.remove(uid)?;
        node_info.requested.subtract(&pod.requests);
        node_info.non_zero_requests.subtract(&pod.non_zero_requests);
        for port in &pod.class.ports {
            if let Some(at) = node_info.ports.iter().position(|used| used == port) {
                node_info.ports.swap_remove(at);
            }
        }
        if let Some(properties) = &node_info.properties {
            self.topology_counts.update_pod(&node_info.name, properties, &pod, -1);
            self.existing_terms.update_pod(properties, &pod, -1);
        }
        self.volumes.count_users(&pod.namespace, &pod.class.claims, false);
        self.slots_by_pod.remove(uid);
        self.free_index.set(slot, node_info.free());
        self.changes.nodes.insert(slot);
        self.changes.pods = true;
        Some(pod)
    }

    /// Nominates a pod to a node instead of the one before.
    pub(crate) fn nominate(
        &mut self,
        uid: &Uid,
        class: &Arc<EquivalenceClass>,
        node: Option<&str>,
        before: Option<&str>,
    ) {
        if let Some(slot) = before.and_then(|before| self.slots_by_node.get(before)).copied()
            && self.node_infos[slot].nominated.remove(uid).is_some()
        {
            self.changes.nodes.insert(slot);
            self.release_slot(slot);
        }
        if let Some(slot) = node.and_then(|node| self.slots_by_node.get(node)).copied() {
            self.node_infos[slot].nominated.insert(uid.clone(), class.clone());
        }
    }

    /// A pod, and the slot of its node.
    pub(crate) fn find_pod(&self, uid: &str) -> Option<(usize, &Arc<PodInfo>)> {
        let slot = *self.slots_by_pod.get(uid)?;
        Some((slot, self.node_infos[slot].pods.get(uid)?))
    }

    /// The node in a slot.
    pub(crate) fn node_info(&self, slot: usize) -> &NodeInfo {
        &self.node_infos[slot]
    }

    /// The slot of a node that exists.
    pub(crate) fn slot_of(&self, name: &str) -> Option<usize> {
        self.slots_by_node.get(name).copied().filter(|slot| self.node_infos[*slot].properties.is_some())
    }

    /// All nodes.
    pub(crate) fn node_infos(&self) -> impl Iterator<Item = (usize, &NodeInfo, &NodeProperties)> {
        let all = self.node_infos.iter().enumerate();
        all.filter_map(|(slot, node_info)| Some((slot, node_info, node_info.properties.as_ref()?)))
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.node_count
    }

    /// The number of pods that are assigned or assumed.
    pub(crate) fn pods(&self) -> usize {
        self.slots_by_pod.len()
    }

    /// The number of slots, used or not.
    pub(crate) fn slots(&self) -> usize {
        self.node_infos.len()
    }

    /// The first node from a slot on that has at least this much free.
    pub(crate) fn next_with_free(&self, from: usize, min_free: &Free) -> Option<usize> {
        self.free_index.next(from, min_free)
    }

    /// Whether a node has at least this much free.
    pub(crate) fn has_free(&self, slot: usize, min_free: &Free) -> bool {
        self.free_index.next(slot, min_free) == Some(slot)
    }

    /// The labels of a namespace.
    pub(crate) fn namespace_labels(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// Starts counting for a query, unless it is counted already.
    pub(crate) fn count(&mut self, query: &CountQuery) {
        let nodes = self.node_infos.iter().filter_map(|node_info| {
            Some((
                node_info.name.as_str(),
                node_info.properties.as_ref()?,
                node_info.pods.values().map(AsRef::as_ref),
            ))
        });
        self.topology_counts.count(query, nodes);
    }

    /// The counts of all queries.
    pub(crate) fn topology_counts(&self) -> &TopologyCounts {
        &self.topology_counts
    }
}
