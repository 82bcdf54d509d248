//! Rolling updates of `DaemonSets`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::predicates::ShouldRun;
use super::{Daemons, Plan};
use crate::workload::pods;

/// The pods of a node: one of the update revision, one of an older revision.
struct OnNode<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// The next pods to replace.
pub(super) fn replace<'a>(daemons: &Daemons<'a>) -> Plan<'a> {
    let surge = daemons.surge;
    let mut unavailable = daemons.unavailable();
    if surge > 0 {
        return with_one_more(daemons, surge);
    }
    if unavailable == 0 && daemons.wanted > 0 {
        // With both 0 a rolling update would not progress.
        unavailable = 1;
    }
    one_for_one(daemons, unavailable)
}

/// The pods of each node that has or should have one; `None` where a revision has more than one pod.
fn per_node<'a>(daemons: &Daemons<'a>) -> Vec<(&'a str, Option<OnNode<'a>>)> {
    let wanted =
        daemons.nodes.iter().filter(|(_, should_run)| **should_run == ShouldRun::Yes).map(|(node, _)| *node);
    let nodes: BTreeSet<&str> = wanted.chain(daemons.pods.keys().copied()).collect();
    let one = |node: &'a str| {
        let staying = daemons.pods.get(node).into_iter().flatten().filter(|pod| !pods::is_terminating(pod));
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = staying.partition(|pod| daemons.is_updated(pod));
        let is_clear = new.len() <= 1 && old.len() <= 1;
        (node, is_clear.then(|| OnNode { new: new.first().copied(), old: old.first().copied() }))
    };
    nodes.into_iter().map(one).collect()
}

/// Without surge: the old pod is deleted before the new one is created.
fn one_for_one<'a>(daemons: &Daemons<'a>, allowed: usize) -> Plan<'a> {
    let mut unavailable = 0;
    let mut broken = Vec::new();
    let mut serving = Vec::new();
    for (_, on_node) in per_node(daemons) {
        match on_node {
            Some(OnNode { new: Some(new), old: None }) => {
                unavailable += usize::from(!daemons.is_available(new));
            }
            Some(OnNode { new: None, old: Some(old) }) if !daemons.is_available(old) => {
                // The pod is not available, so its deletion does not count.
                broken.push(old);
                unavailable += 1;
            }
            Some(OnNode { new: None, old: Some(old) }) => serving.push(old),
            _ => unavailable += 1,
        }
    }
    let more = allowed.saturating_sub(unavailable);
    Plan { delete: broken.into_iter().chain(serving.into_iter().take(more)).collect(), ..Plan::default() }
}

/// With surge: the old pod is deleted once the new one is available.
fn with_one_more<'a>(daemons: &Daemons<'a>, allowed: usize) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut surge = 0;
    let mut available = 0;
    let mut candidates = Vec::new();
    let mut unwanted = Vec::new();
    for (node, on_node) in per_node(daemons) {
        let Some(OnNode { new, old }) = on_node else {
            surge += 1;
            continue;
        };
        let serves = |pod: &Arc<Pod>| daemons.is_available(pod);
        available += usize::from(old.or(new).is_some_and(serves));
        let is_wanted = daemons.nodes.get(node) == Some(&ShouldRun::Yes);
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) if !is_wanted && !serves(old) => plan.delete.push(old),
            (None, Some(old)) if !is_wanted => unwanted.push(old),
            // The old pod is not available, so it can be replaced at once.
            (None, Some(old)) if !serves(old) => plan.create.push(node),
            (None, Some(_)) => candidates.push(node),
            (Some(new), Some(old)) if serves(new) => plan.delete.push(old),
            (Some(_), Some(_)) => surge += 1,
        }
    }
    plan.create.extend(candidates.into_iter().take(allowed.saturating_sub(surge)));
    plan.delete.extend(unwanted.into_iter().take(available.saturating_sub(daemons.wanted)));
    plan
}
