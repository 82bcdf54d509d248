//! Which pods of a node shrink so that deferred resizes of others fit.
//!
//! A pod within its recommended bounds is left as it is, even if it holds more than its target. While the resize of another pod
//! of its node is deferred, that capacity is missing: then such pods shrink to their targets, as few as suffice.
//!
//! ```text
//!   free, and what resizes in progress and terminating pods free
//!   + all that could shrink ──▶ deferred resizes in the order of the node's retries: one that does not fit is left out
//!                           ──▶ the fewest pods whose shrinks make the others fit
//! ```
//!
//! A shrink of this kind never evicts and never restarts a container, and is within the bounds of the pod's VPA: the pod gets
//! the lower ones of its recommended requests, and no higher ones.

use std::collections::BTreeSet;

use plumb_controller_runtime::ObjectRef;
use plumb_resize::fewest::{Candidate, fewest};
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::{Amounts, Declared, PerResource, Resource};

use crate::state::{ContainerRecommendation, ContainerState, PodState, Recommendation};

/// A node with deferred resizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its allocatable resources.
    pub allocatable: Amounts,
    /// What its pods hold: the larger of allocated and actual.
    pub held: Amounts,
    /// What its pods free in any case: those that terminate, and those whose shrinks are in progress.
    pub freeing: Amounts,
    /// The deferred resizes.
    pub deferred: Vec<Growth>,
    /// The pods that could shrink.
    pub shrinkable: Vec<Shrinkable>,
}

/// A deferred resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// When the node retries it.
    pub turn: DeferredResize,
    /// By how much the pod is to grow.
    pub amount: Amounts,
}

/// A pod that holds more than is recommended for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrinkable {
    /// The pod.
    pub pod: ObjectRef,
    /// What it frees.
    pub frees: Amounts,
}

/// The plan of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// The pods that shrink.
    pub shrinks: BTreeSet<ObjectRef>,
    /// The UIDs of the pods whose deferred resizes do not fit, whichever pods shrink.
    pub unhelped: BTreeSet<String>,
}

/// What the plan of its node says about a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeDecision {
    /// Nothing.
    #[default]
    None,
    /// It shrinks, so that the deferred resize of another pod fits.
    ShrinkFirst,
    /// Its own resize is deferred, and does not fit though all others shrink to what is recommended for them.
    NoShrinkHelps,
}

/// Decides which pods of a node shrink.
pub fn decide(node: &NodeState) -> NodePlan {
    let mut deferred: Vec<&Growth> = node.deferred.iter().collect();
    deferred.sort_by_key(|growth| &growth.turn);
    // Wider than an amount: what is free may be less than nothing.
    let free = |r| i128::from(node.allocatable[r]) + i128::from(node.freeing[r]) - i128::from(node.held[r]);
    let free = PerResource::of(free);
    let could_free = |r| node.shrinkable.iter().map(|one| i128::from(one.frees[r])).sum::<i128>();
    let mut left = PerResource::of(|r| free[r] + could_free(r));
    let mut fitting: PerResource<i128> = PerResource::default();
    let mut plan = NodePlan::default();
    for growth in deferred {
        // Only resources that increase have to fit.
        if growth.amount.any(|r, amount| *amount > 0 && i128::from(*amount) > left[r]) {
            plan.unhelped.insert(growth.turn.pod.clone());
            continue;
        }
        left = PerResource::of(|r| left[r] - i128::from(growth.amount[r]));
        fitting = PerResource::of(|r| fitting[r] + i128::from(growth.amount[r]));
    }
    let missing = Amounts::of(|r| match fitting[r] {
        0 => 0,
        amount => i64::try_from((amount - free[r]).max(0)).unwrap_or(i64::MAX),
    });
    let candidates: Vec<Candidate> =
        node.shrinkable.iter().map(|one| Candidate { frees: one.frees, cost: vec![1] }).collect();
    let selected = fewest(missing, &candidates).unwrap_or_default();
    plan.shrinks = selected.into_iter().map(|index| node.shrinkable[index].pod.clone()).collect();
    plan
}

/// The part of a recommendation that lowers the requests of a pod without a restart, of those resources that may be lowered. It
/// does not lower the memory of a container that was OOM-killed.
pub fn lowering(
    pod: &PodState,
    recommendation: &Recommendation,
    may_lower: PerResource<bool>,
) -> Recommendation {
    let lower = |wanted: &ContainerRecommendation| {
        let container = pod.containers.iter().find(|container| container.name == wanted.name)?;
        let is_kept = PerResource::of(|r| may_lower[r] && is_lower(container, wanted, r));
        let only = |list: Declared| Declared::of(|r| list[r].filter(|_| is_kept[r]));
        Some(ContainerRecommendation {
            target: only(wanted.target),
            limits: only(wanted.limits),
            ..wanted.clone()
        })
    };
    Recommendation { containers: recommendation.containers.iter().filter_map(lower).collect() }
}

fn is_lower(container: &ContainerState, wanted: &ContainerRecommendation, resource: Resource) -> bool {
    let (request, limit) = container.desired.of(resource);
    let lowers = request.zip(wanted.target[resource]).is_some_and(|(request, target)| target < request);
    let raises = limit.zip(wanted.limits[resource]).is_some_and(|(limit, wanted)| wanted > limit);
    let is_killed = resource == Resource::Memory && container.oom_kill.is_some();
    lowers && !raises && !is_killed && !container.restarts[resource]
}
