//! The scheduling algorithm: finds feasible nodes and selects the one with the highest score.

use std::collections::BTreeMap;

use crate::cache::Cache;
use crate::filter::{CycleState, FilterFailure, Queries, min_free};
use crate::requirements::Requirements;
use crate::score;
use crate::volumes::VolumeBinding;

/// The number of feasible nodes at which the search ends. The next search begins after the last node, so that each node is
/// considered, and the cost of a search does not grow with the cluster. Upstream's `minFeasibleNodesToFind`.
const MAX_FEASIBLE_NODES: usize = 100;

/// The result of one scheduling attempt.
#[derive(Debug)]
pub(crate) enum ScheduleResult {
    /// The slot of the selected node, and the volumes to bind there.
    Node(usize, Vec<VolumeBinding>),
    /// No node is feasible.
    Unschedulable(Diagnosis),
}

/// Why no node is feasible.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    nodes: usize,
    /// The number of nodes by reason.
    reasons: BTreeMap<String, usize>,
    /// The reason if the pod fits no node whatever its state.
    pod_reason: Option<String>,
    /// The nodes that preemption may make feasible.
    pub(crate) resolvable: Vec<usize>,
    /// Whether a change of other pods may make a node feasible.
    pub(crate) depends_on_pods: bool,
}

impl Diagnosis {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Counts an infeasible node.
    pub(crate) fn add(&mut self, failure: &FilterFailure) {
        for reason in failure.reasons() {
            self.count(reason, 1);
        }
    }

    /// Counts nodes for a reason.
    pub(crate) fn count(&mut self, reason: &str, nodes: usize) {
        if nodes > 0 {
            *self.reasons.entry(reason.to_owned()).or_default() += nodes;
        }
    }

    /// The message of the `PodScheduled` condition.
    pub(crate) fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let head = format!("0/{} nodes are available:", self.nodes);
        if let Some(pod_reason) = &self.pod_reason {
            return format!("{head} {pod_reason}.");
        }
        let mut reasons: Vec<String> =
            self.reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
        // By their text, as upstream sorts them: 10 comes before 2.
        reasons.sort_unstable();
        if reasons.is_empty() { head } else { format!("{head} {}.", reasons.join(", ")) }
    }
}

/// The scheduling algorithm with its state between attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Algorithm {
    /// Nodes have a score by the storage that a pod would use there.
    score_storage_capacity: bool,
    /// The slot at which the next search begins.
    pub(crate) next_start_index: usize,
}

impl Algorithm {
    pub(crate) fn new(score_storage_capacity: bool) -> Self {
        Self { score_storage_capacity, next_start_index: 0 }
    }

    /// Selects a node for a pod. Its nominated node is selected if it is feasible.
    pub(crate) fn schedule(
        &mut self,
        requirements: &Requirements,
        uid: &str,
        nominated: Option<&str>,
        cache: &mut Cache,
    ) -> ScheduleResult {
        let queries = Queries::prepare(requirements, cache);
        let cache = &*cache;
        let state = CycleState::new(requirements, &queries, cache);
        if state.volumes.is_err() {
            return ScheduleResult::Unschedulable(diagnose(&state, uid, cache));
        }
        let is_feasible = |slot: &usize| state.filter(*slot, uid).is_none();
        if let Some(slot) = nominated.and_then(|name| cache.slot_of(name)).filter(is_feasible) {
            return ScheduleResult::Node(slot, state.bindings(slot));
        }
        let names = requirements.node_affinity.names();
        let feasible = match &names {
            Some(names) => names.iter().filter_map(|name| cache.slot_of(name)).filter(is_feasible).collect(),
            None => self.find_feasible_nodes(cache, &min_free(requirements), is_feasible),
        };
        let volumes = state.volumes.as_ref().ok().filter(|_| self.score_storage_capacity);
        match score::select_node(requirements, &queries, cache, volumes, &feasible) {
            Some(slot) => ScheduleResult::Node(slot, state.bindings(slot)),
            None => ScheduleResult::Unschedulable(diagnose(&state, uid, cache)),
        }
    }

    /// Finds the first feasible nodes.
    fn find_feasible_nodes(
        &mut self,
        cache: &Cache,
        min_free: &crate::free_index::Free,
        is_feasible: impl Fn(&usize) -> bool,
    ) -> Vec<usize> {
        let start = if self.next_start_index < cache.slots() { self.next_start_index } else { 0 };
        let mut feasible = Vec::new();
        // From the start to the end, and then from the beginning to the start.
        for (mut from, end) in [(start, usize::MAX), (0, start)] {
            while let Some(slot) = cache.next_with_free(from, min_free).filter(|slot| *slot < end) {
                from = slot + 1;
                if is_feasible(&slot) {
                    feasible.push(slot);
                    if feasible.len() == MAX_FEASIBLE_NODES {
                        self.next_start_index = from;
                        return feasible;
                    }
                }
            }
        }
        // All nodes were visited. The next search begins at another one, so that nodes with equal scores take turns.
        self.next_start_index = start + 1;
        feasible
    }
}

/// Why each node is infeasible.
fn diagnose(state: &CycleState<'_>, uid: &str, cache: &Cache) -> Diagnosis {
    let mut diagnosis = Diagnosis::new(cache.len());
    diagnosis.depends_on_pods = state.depends_on_pods();
    let names = state.requirements.node_affinity.names();
    if names.as_ref().is_some_and(std::collections::BTreeSet::is_empty) {
        diagnosis.pod_reason = Some("pod affinity terms conflict".to_owned());
        return diagnosis;
    }
    if let Err(reason) = &state.volumes {
        diagnosis.pod_reason = Some(reason.clone());
        return diagnosis;
    }
    let slots: Vec<usize> = match &names {
        Some(names) => names.iter().filter_map(|name| cache.slot_of(name)).collect(),
        None => cache.node_infos().map(|(slot, ..)| slot).collect(),
    };
    for slot in &slots {
        if let Some(failure) = state.filter(*slot, uid) {
            diagnosis.add(&failure);
            if failure.is_resolvable() {
                diagnosis.resolvable.push(*slot);
            }
        }
    }
    diagnosis.count("node(s) didn't satisfy plugin(s) [NodeAffinity]", cache.len() - slots.len());
    diagnosis
}
