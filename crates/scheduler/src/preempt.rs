//! Preemption: which pods of lower priority are deleted so that a pod fits a node.
//!
//! On each node that preemption may make feasible, all pods of lower priority are removed from the cache. If the pod then fits,
//! as many of them as possible are reprieved (added again): first those that a disruption budget protects, and among those
//! the most important first. The others are the victims. Of the candidate nodes the one with the smallest cost is selected.
//! The cache is unchanged afterwards.

mod for_resize;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plumb_placement::Selector;

use crate::algorithm::Diagnosis;
use crate::cache::{Cache, NodeInfo, PodInfo};
use crate::filter::{CycleState, FilterFailure, Queries};
use crate::requirements::Requirements;

pub(crate) use for_resize::preempt_for_resize;

/// The search ends with a tenth of the nodes as candidates, but at least with this number: the defaults of upstream's
/// `minCandidateNodesPercentage` and `minCandidateNodesAbsolute`.
const MIN_CANDIDATE_NODES: usize = 100;

/// A disruption budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    namespace: String,
    selector: Selector,
    allowed: i64,
    /// Pods whose eviction the budget counts already (`disruptedPods`).
    disrupted: BTreeSet<String>,
}

impl Budget {
    pub(crate) fn read(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Selector::read(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
            allowed: status.and_then(|status| status.disruptions_allowed).map_or(0, i64::from),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        }
    }

    fn protects(&self, pod: &PodInfo) -> bool {
        self.namespace == pod.namespace
            && !pod.class.labels.is_empty()
            && !self.selector.is_empty()
            && self.selector.matches(&pod.class.labels)
            && !self.disrupted.contains(&pod.name)
    }
}

/// A node, and the victims on it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) slot: usize,
    /// The victims, the most important first.
    pub(crate) victims: Vec<Arc<PodInfo>>,
    /// The number of victims that a budget protects.
    violations: usize,
}

impl Candidate {
    /// What decides among candidates, in the order of upstream; the smallest is selected.
    fn cost(&self) -> impl Ord + use<> {
        let priorities = || self.victims.iter().map(|pod| i64::from(pod.class.priority));
        let highest = priorities().max().unwrap_or(i64::MIN);
        // As in upstream's `pickOneNodeForPreemption`: without an offset, many pods with negative priorities would cost less than few.
        let sum: i64 = priorities().map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let of_highest = self.victims.iter().filter(|pod| i64::from(pod.class.priority) == highest);
        let started = of_highest.map(|pod| start_time(pod)).min();
        (self.violations, highest, sum, self.victims.len(), Reverse(started))
    }
}

/// A pod that has not started sorts last.
fn start_time(pod: &PodInfo) -> Timestamp {
    pod.started.unwrap_or(Timestamp::MAX)
}

/// The order of pods by importance: priority, then start time.
fn importance(pod: &PodInfo) -> impl Ord + use<> {
    (Reverse(pod.class.priority), start_time(pod), pod.uid.clone())
}

/// The pod that preempts others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preemptor<'a> {
    pub(crate) requirements: &'a Requirements,
    pub(crate) uid: &'a str,
    /// Its nominated node.
    pub(crate) nominated: Option<&'a str>,
}

/// Why a pod preempts no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreemptionFailure {
    /// Pods that were preempted on its nominated node are still terminating.
    VictimsTerminating,
    /// It must not preempt, or preemption does not help; in upstream's words.
    NotHelpful(String),
}

impl PreemptionFailure {
    /// The message, as the condition of the pod has it.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::VictimsTerminating => "not eligible due to a terminating pod on the nominated node.",
            Self::NotHelpful(message) => message,
        }
    }
}

/// Selects the node and the victims for a pod.
pub(crate) fn preempt(
    cache: &mut Cache,
    preemptor: Preemptor<'_>,
    diagnosis: &Diagnosis,
    budgets: &[&Budget],
    offset: usize,
) -> Result<Candidate, PreemptionFailure> {
    if !preemptor.requirements.preempts {
        return Err(PreemptionFailure::NotHelpful("not eligible due to preemptionPolicy=Never.".to_owned()));
    }
    let nominated = preemptor.nominated.and_then(|name| cache.slot_of(name));
    let still_resolvable = nominated.filter(|slot| diagnosis.resolvable.contains(slot));
    if still_resolvable
        .is_some_and(|slot| has_terminating_victims(cache.node_info(slot), preemptor.requirements.priority))
    {
        return Err(PreemptionFailure::VictimsTerminating);
    }
    let resolvable = &diagnosis.resolvable;
    let enough = (cache.len() / 10).max(MIN_CANDIDATE_NODES);
    let mut candidates = Vec::<Candidate>::new();
    let mut failures = Diagnosis::new(cache.len());
    let mut explained = 0;
    let start = offset % resolvable.len().max(1);
    for slot in resolvable[start..].iter().chain(&resolvable[..start]) {
        match select_victims(cache, preemptor, *slot, budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(NoCandidate::NoVictims) => {
                failures.count("No preemption victims found for incoming pod", 1);
                explained += 1;
            }
            Err(NoCandidate::StillUnfit(failure)) => {
                failures.add(&failure);
                explained += 1;
            }
        }
        if candidates.len() >= enough && candidates.iter().any(|one| one.violations == 0) {
            break;
        }
    }
    if let Some(best) = candidates.into_iter().min_by_key(Candidate::cost) {
        return Ok(best);
    }
    failures.count("Preemption is not helpful for scheduling", cache.len() - explained);
    Err(PreemptionFailure::NotHelpful(failures.message()))
}

/// Whether pods of lower priority that were preempted are still terminating.
fn has_terminating_victims(node_info: &NodeInfo, priority: i32) -> bool {
    node_info.pods.values().any(|pod| pod.class.priority < priority && pod.terminating && pod.preempted)
}

/// Why a node is no candidate.
enum NoCandidate {
    /// It has no pod of lower priority, or none has to be deleted.
    NoVictims,
    /// It is infeasible even without the pods of lower priority.
    StillUnfit(FilterFailure),
}

fn filter(cache: &mut Cache, preemptor: Preemptor<'_>, slot: usize) -> Option<FilterFailure> {
    let queries = Queries::prepare_filters(preemptor.requirements, cache);
    CycleState::new(preemptor.requirements, &queries, cache).filter(slot, preemptor.uid)
}

/// Selects as few victims on a node as possible. The cache is unchanged afterwards.
fn select_victims(
    cache: &mut Cache,
    preemptor: Preemptor<'_>,
    slot: usize,
    budgets: &[&Budget],
) -> Result<Candidate, NoCandidate> {
    let changes = cache.changes.clone();
    let priority = preemptor.requirements.priority;
    let pods = cache.node_info(slot).pods.values();
    let mut lower: Vec<Arc<PodInfo>> = pods.filter(|pod| pod.class.priority < priority).cloned().collect();
    if lower.is_empty() {
        return Err(NoCandidate::NoVictims);
    }
    lower.sort_by_cached_key(|pod| importance(pod));
    for pod in &lower {
        cache.remove_pod_at(slot, &pod.uid);
    }
    let outcome = match filter(cache, preemptor, slot) {
        Some(failure) => Err((lower, NoCandidate::StillUnfit(failure))),
        None => Ok(reprieve(cache, preemptor, slot, &lower, budgets)),
    };
    let (removed, outcome) = match outcome {
        Ok(candidate) if candidate.victims.is_empty() => (Vec::new(), Err(NoCandidate::NoVictims)),
        Ok(candidate) => (candidate.victims.clone(), Ok(candidate)),
        Err((lower, no_candidate)) => (lower, Err(no_candidate)),
    };
    for pod in removed {
        cache.add_pod_at(slot, pod);
    }
    cache.changes = changes;
    outcome
}

/// Adds as many of the removed pods again as possible; the victims stay removed.
fn reprieve(
    cache: &mut Cache,
    preemptor: Preemptor<'_>,
    slot: usize,
    removed: &[Arc<PodInfo>],
    budgets: &[&Budget],
) -> Candidate {
    let (protected, others) = split_by_violation(removed, budgets);
    let mut candidate = Candidate { slot, victims: Vec::new(), violations: 0 };
    let protected = protected.into_iter().map(|pod| (pod, 1));
    for (pod, violations) in protected.chain(others.into_iter().map(|pod| (pod, 0))) {
        cache.add_pod_at(slot, pod.clone());
        if filter(cache, preemptor, slot).is_some() {
            cache.remove_pod_at(slot, &pod.uid);
            candidate.victims.push(pod);
            candidate.violations += violations;
        }
    }
    candidate.victims.sort_by_cached_key(|pod| importance(pod));
    candidate
}

/// Splits pods into those whose deletion violates a budget and the others, in their order.
fn split_by_violation(pods: &[Arc<PodInfo>], budgets: &[&Budget]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().cloned().partition(|pod| {
        let mut forbidden = false;
        for (_, left) in budgets.iter().zip(&mut left).filter(|(budget, _)| budget.protects(pod)) {
            *left -= 1;
            forbidden |= *left < 0;
        }
        forbidden
    })
}
