//! Preemption for a deferred resize (KEP-5836): the fewest pods of lower priority that make it fit its node.
//!
//! The node retries deferred resizes in the order of [`plumb_resize::queue`], and one that does not fit does not block the next
//! one. So they are decided in that order: one that fits, once the pods that terminate have ended, needs no victims and counts
//! with what it desires; one for which no pods of lower priority free enough counts with what it has; and the first of the
//! others preempts.

use std::cmp::Reverse;
use std::sync::Arc;

use plumb_resize::fewest::{self, fewest};
use plumb_resize::resource::Amounts;

use super::{Budget, Candidate, importance, split_by_violation};
use crate::cache::{NodeInfo, PodInfo};
use crate::resources::Resources;

/// The pod of a node whose deferred resize preempts others, and its victims. `is_victim` is whether a pod is being preempted
/// already, which its object need not have yet.
pub(crate) fn preempt_for_resize(
    slot: usize,
    node_info: &NodeInfo,
    budgets: &[&Budget],
    is_victim: impl Fn(&PodInfo) -> bool,
) -> Option<(Arc<PodInfo>, Candidate)> {
    let allocatable = amounts(&node_info.properties.as_ref()?.allocatable);
    let pods = || node_info.pods.values().filter(|pod| !pod.terminating && !is_victim(pod));
    let mut counted = pods().map(|pod| held(pod)).fold(Amounts::ZERO, Amounts::plus);
    let mut deferred: Vec<_> = pods().filter_map(|pod| Some((&pod.deferred.as_ref()?.turn, pod))).collect();
    deferred.sort_by_key(|(turn, _)| *turn);
    for (_, pod) in deferred {
        let growth = amounts(&pod.requests).less(held(pod));
        let missing = Amounts::of(|r| match growth[r] {
            // Only resources that increase have to fit.
            0 => 0,
            growth => counted[r].saturating_add(growth).saturating_sub(allocatable[r]).max(0),
        });
        if missing == Amounts::ZERO {
            counted = counted.plus(growth);
            continue;
        }
        let is_candidate = |other: &&Arc<PodInfo>| other.class.priority < pod.class.priority && !other.mirror;
        let lower = pods().filter(is_candidate).cloned().collect();
        if pod.class.preempts
            && let Some(candidate) = select_fewest(slot, missing, lower, budgets)
        {
            return Some((pod.clone(), candidate));
        }
    }
    None
}

/// The victims that cost the least: the fewest that a disruption budget protects, then the fewest, then the least important.
fn select_fewest(
    slot: usize,
    missing: Amounts,
    mut lower: Vec<Arc<PodInfo>>,
    budgets: &[&Budget],
) -> Option<Candidate> {
    // The least important first: they spend what the budgets allow, since they are selected first.
    lower.sort_by_cached_key(|pod| Reverse(importance(pod)));
    let mut priorities: Vec<i32> = lower.iter().map(|pod| pod.class.priority).collect();
    priorities.dedup();
    priorities.reverse();
    let (protected, _) = split_by_violation(&lower, budgets);
    let is_protected = |pod: &PodInfo| protected.iter().any(|one| one.uid == pod.uid);
    let candidates: Vec<fewest::Candidate> = lower
        .iter()
        .map(|pod| {
            let mut cost = vec![0; priorities.len() + 2];
            // A scheduler that ended before it had deleted all of its victims has begun with this one: it is deleted in any case.
            if !pod.preempted {
                cost[0] = u32::from(is_protected(pod));
                cost[1] = 1;
                // As few as possible of the highest priority, then of the next one.
                let level = priorities.iter().position(|priority| *priority == pod.class.priority);
                if let Some(level) = level {
                    cost[level + 2] = 1;
                }
            }
            fewest::Candidate { frees: held(pod), cost }
        })
        .collect();
    let selected = fewest(missing, &candidates)?;
    let mut victims: Vec<Arc<PodInfo>> = selected.into_iter().map(|index| lower[index].clone()).collect();
    let violations = victims.iter().filter(|pod| is_protected(pod)).count();
    victims.sort_by_cached_key(|pod| importance(pod));
    Some(Candidate { slot, victims, violations })
}

/// What the node counts for a pod: of a deferred resize what is allocated and actual.
fn held(pod: &PodInfo) -> Amounts {
    pod.deferred.as_ref().map_or_else(|| amounts(&pod.requests), |deferred| deferred.held)
}

fn amounts(resources: &Resources) -> Amounts {
    Amounts::new(resources.cpu, resources.memory)
}
