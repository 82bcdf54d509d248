//! The scores of feasible nodes, with upstream's plugins and weights.

use crate::cache::{Cache, NodeInfo, NodeProperties};
use crate::filter::{Queries, preferred_skews};
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::volumes::PodVolumes;

/// The highest score of a plugin.
const MAX_NODE_SCORE: i64 = 100;
/// The denominator of fractions.
const WHOLE: i64 = 1_000_000;

/// The weights of plugins in upstream's default profile; `NodeResourcesFit` and `NodeResourcesBalancedAllocation` have 1.
const VOLUME_BINDING_WEIGHT: i64 = 1;
const TAINT_TOLERATION_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const TOPOLOGY_SPREAD_WEIGHT: i64 = 2;
const INTER_POD_AFFINITY_WEIGHT: i64 = 2;

/// The node with the highest score; of equal ones the first. With `volumes`, storage counts.
pub(crate) fn select_node(
    requirements: &Requirements,
    queries: &Queries,
    cache: &Cache,
    volumes: Option<&PodVolumes<'_>>,
    nodes: &[usize],
) -> Option<usize> {
    if nodes.len() < 2 {
        return nodes.first().copied();
    }
    let node_infos: Vec<(&NodeInfo, &NodeProperties)> = nodes
        .iter()
        .filter_map(|slot| {
            let node_info = cache.node_info(*slot);
            Some((node_info, node_info.properties.as_ref()?))
        })
        .collect();
    let mut totals: Vec<i64> = node_infos
        .iter()
        .map(|(node_info, properties)| resources_score(requirements, node_info, properties))
        .collect();
    let mut add = |weight: i64, scores: Vec<i64>| {
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
    };
    if node_infos.iter().any(|(_, properties)| !properties.taints.is_empty()) {
        let untolerated =
            node_infos.iter().map(|(_, properties)| untolerated_taints(requirements, properties)).collect();
        add(TAINT_TOLERATION_WEIGHT, normalize_reversed(untolerated));
    }
    if !requirements.node_affinity.preferred.is_empty() {
        let scores = node_infos
            .iter()
            .map(|(node_info, properties)| node_affinity_score(requirements, &node_info.name, properties))
            .collect();
        add(NODE_AFFINITY_WEIGHT, normalize(scores));
    }
    if let Some(scores) = spread_score(requirements, queries, cache, &node_infos) {
        add(TOPOLOGY_SPREAD_WEIGHT, scores);
    }
    if let Some(scores) = pod_affinity_score(requirements, queries, cache, &node_infos) {
        add(INTER_POD_AFFINITY_WEIGHT, scores);
    }
    if let Some(volumes) = volumes.filter(|volumes| volumes.has_scores()) {
        let score = |(node_info, properties): &(&NodeInfo, &NodeProperties)| {
            volumes.score(&node_info.name, properties)
        };
        add(VOLUME_BINDING_WEIGHT, node_infos.iter().map(score).collect());
    }
    let highest = totals.iter().enumerate().rev().max_by_key(|(_, total)| **total);
    highest.map(|(at, _)| nodes[at])
}

/// `NodeResourcesFit` (least allocated) and `NodeResourcesBalancedAllocation`: what a node has free with the pod, and how much
/// more evenly its resources are used.
fn resources_score(requirements: &Requirements, node_info: &NodeInfo, properties: &NodeProperties) -> i64 {
    let allocatable = &properties.allocatable;
    let free = |requested: i64, allocatable: i64| {
        (allocatable > 0).then(|| ((allocatable - requested).max(0)) * MAX_NODE_SCORE / allocatable)
    };
    let free = [
        free(
            node_info.non_zero_requests.cpu.saturating_add(requirements.non_zero_requests.cpu),
            allocatable.cpu,
        ),
        free(
            node_info.non_zero_requests.memory.saturating_add(requirements.non_zero_requests.memory),
            allocatable.memory,
        ),
    ];
    let count = i64::try_from(free.iter().flatten().count()).unwrap_or(1).max(1);
    let least_allocated: i64 = free.iter().flatten().sum::<i64>() / count;
    if requirements.requests.cpu == 0 && requirements.requests.memory == 0 {
        return least_allocated;
    }
    let mut with = Resources::new(node_info.requested.cpu, node_info.requested.memory);
    with.add(&Resources::new(requirements.requests.cpu, requirements.requests.memory));
    let change =
        balanced_allocation(&with, allocatable) - balanced_allocation(&node_info.requested, allocatable);
    least_allocated + MAX_NODE_SCORE / 2 + i64::midpoint(MAX_NODE_SCORE / 2, change)
}

/// How evenly cpu and memory are requested.
fn balanced_allocation(requested: &Resources, allocatable: &Resources) -> i64 {
    let fraction = |requested: i64, allocatable: i64| {
        let parts = i128::from(requested.max(0)) * i128::from(WHOLE) / i128::from(allocatable.max(1));
        i64::try_from(parts).unwrap_or(WHOLE).min(WHOLE)
    };
    if allocatable.cpu == 0 || allocatable.memory == 0 {
        return MAX_NODE_SCORE;
    }
    let difference =
        (fraction(requested.cpu, allocatable.cpu) - fraction(requested.memory, allocatable.memory)).abs();
    (WHOLE - difference / 2) * MAX_NODE_SCORE / WHOLE
}

/// `TaintToleration`: the number of taints that prefer other nodes.
fn untolerated_taints(requirements: &Requirements, properties: &NodeProperties) -> i64 {
    let untolerated = properties.taints.iter().filter(|taint| {
        taint.effect == "PreferNoSchedule" && !requirements.tolerations.iter().any(|one| one.tolerates(taint))
    });
    i64::try_from(untolerated.count()).unwrap_or(i64::MAX)
}

/// `NodeAffinity`: the weights of the preferred terms that match.
fn node_affinity_score(requirements: &Requirements, name: &str, properties: &NodeProperties) -> i64 {
    let preferred = requirements
        .node_affinity
        .preferred
        .iter()
        .filter(|(_, term)| term.matches(name, &properties.labels));
    preferred.map(|(weight, _)| weight).sum()
}

/// Scales scores so that the largest becomes the highest score of a plugin.
fn normalize(mut scores: Vec<i64>) -> Vec<i64> {
    let max = scores.iter().copied().max().unwrap_or(0);
    if max > 0 {
        for score in &mut scores {
            *score = *score * MAX_NODE_SCORE / max;
        }
    }
    scores
}

/// Normalizes scores of which less is better: zero becomes the highest score.
fn normalize_reversed(scores: Vec<i64>) -> Vec<i64> {
    normalize(scores).into_iter().map(|score| MAX_NODE_SCORE - score).collect()
}

/// `PodTopologySpread`: the fewer matching pods a domain has, the higher the score.
fn spread_score(
    requirements: &Requirements,
    queries: &Queries,
    cache: &Cache,
    node_infos: &[(&NodeInfo, &NodeProperties)],
) -> Option<Vec<i64>> {
    if queries.preferred_spread.is_empty() {
        return None;
    }
    let mut sums = vec![0.0_f64; node_infos.len()];
    let mut ignored = vec![false; node_infos.len()];
    let is_default = requirements.preferred_spread.is_empty();
    for (query, skew) in queries.preferred_spread.iter().zip(preferred_skews(requirements)) {
        let Some(counts) = cache.topology_counts().get(query) else { continue };
        // Normalizes for the number of domains: a topology of many small ones has fewer pods in each.
        let weight = f64::from(u32::try_from(counts.len() + 2).unwrap_or(u32::MAX)).ln();
        for (at, (_, properties)) in node_infos.iter().enumerate() {
            match properties.labels.get(&query.topology_key) {
                Some(value) => {
                    let pods = f64::from(i32::try_from(counts.in_domain(value)).unwrap_or(i32::MAX));
                    let skew = f64::from(i32::try_from(skew).unwrap_or(i32::MAX));
                    sums[at] += pods * weight + skew - 1.0;
                }
                None => ignored[at] = !is_default,
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "as many pods as fit an i32, times a logarithm")]
    let sums: Vec<i64> = sums.into_iter().map(|sum| sum.round() as i64).collect();
    let counted = || sums.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(sum, _)| *sum);
    let min = counted().min().unwrap_or(0);
    let max = counted().max().unwrap_or(0);
    let score = |(sum, ignored): (&i64, &bool)| match (ignored, max) {
        (true, _) => 0,
        (false, 0) => MAX_NODE_SCORE,
        (false, max) => MAX_NODE_SCORE * (max + min - sum) / max,
    };
    Some(sums.iter().zip(&ignored).map(score).collect())
}

/// `InterPodAffinity`: the preferred terms of the pod, and those of existing pods that match it.
fn pod_affinity_score(
    requirements: &Requirements,
    queries: &Queries,
    cache: &Cache,
    node_infos: &[(&NodeInfo, &NodeProperties)],
) -> Option<Vec<i64>> {
    let namespace_labels = cache.namespace_labels(&requirements.namespace);
    let existing = cache.existing_terms.preferences(requirements, namespace_labels);
    if existing.is_empty() && requirements.preferred_affinity.is_empty() {
        return None;
    }
    let mut sums = vec![0_i64; node_infos.len()];
    for (at, (_, properties)) in node_infos.iter().enumerate() {
        for ((weight, term), query) in requirements.preferred_affinity.iter().zip(&queries.preferred_affinity)
        {
            let counts = cache.topology_counts().get(query);
            let value = properties.labels.get(&term.topology_key);
            let pods = counts.zip(value).map_or(0, |(counts, value)| counts.in_domain(value));
            sums[at] = sums[at].saturating_add(weight.saturating_mul(pods));
        }
        for (key, values, weight) in &existing {
            let pods = properties.labels.get(*key).and_then(|value| values.get(value)).copied().unwrap_or(0);
            sums[at] = sums[at].saturating_add(weight.saturating_mul(pods));
        }
    }
    let min = sums.iter().min().copied()?;
    let max = sums.iter().max().copied()?;
    let range = max.saturating_sub(min);
    Some(sums.iter().map(|sum| if range > 0 { (sum - min) * MAX_NODE_SCORE / range } else { 0 }).collect())
}
