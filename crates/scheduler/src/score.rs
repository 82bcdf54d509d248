//! Which of the nodes that will do is best, as upstream weighs it.

use crate::cluster::{Cluster, Host, NodeInfo};
use crate::filter::{Questions, soft_skews};
use crate::load::Load;
use crate::shape::Shape;

/// The best that a node can be in one respect.
const BEST: i64 = 100;
/// Parts of a whole, for fractions.
const WHOLE: i64 = 1_000_000;

/// What each respect is worth.
const TAINTS: i64 = 3;
const LIKED_NODES: i64 = 2;
const SPREAD: i64 = 2;
const LIKED_PODS: i64 = 2;

/// The best of some nodes; of equals the first.
pub(crate) fn best(
    shape: &Shape,
    questions: &Questions,
    cluster: &Cluster,
    nodes: &[usize],
) -> Option<usize> {
    if nodes.len() < 2 {
        return nodes.first().copied();
    }
    let hosts: Vec<(&Host, &NodeInfo)> = nodes
        .iter()
        .filter_map(|slot| {
            let host = cluster.host(*slot);
            Some((host, host.info.as_ref()?))
        })
        .collect();
    let mut totals: Vec<i64> = hosts.iter().map(|(host, info)| room(shape, host, info)).collect();
    let mut add = |weight: i64, scores: Vec<i64>| {
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
    };
    if hosts.iter().any(|(_, info)| !info.taints.is_empty()) {
        let disliked = hosts.iter().map(|(_, info)| disliked_taints(shape, info)).collect();
        add(TAINTS, fewest_best(disliked));
    }
    if !shape.nodes.preferred.is_empty() {
        let liked = hosts.iter().map(|(host, info)| liked_node(shape, &host.name, info)).collect();
        add(LIKED_NODES, most_best(liked));
    }
    if let Some(scores) = spread(shape, questions, cluster, &hosts) {
        add(SPREAD, scores);
    }
    if let Some(scores) = company(shape, questions, cluster, &hosts) {
        add(LIKED_PODS, scores);
    }
    let best = totals.iter().enumerate().rev().max_by_key(|(_, total)| **total);
    best.map(|(at, _)| nodes[at])
}

/// How empty a node would be left, and how much more evenly used.
fn room(shape: &Shape, host: &Host, info: &NodeInfo) -> i64 {
    let there = &info.allocatable;
    let free = |held: i64, there: i64| (there > 0).then(|| ((there - held).max(0)) * BEST / there);
    let free = [
        free(host.scored.cpu.saturating_add(shape.scored.cpu), there.cpu),
        free(host.scored.memory.saturating_add(shape.scored.memory), there.memory),
    ];
    let count = i64::try_from(free.iter().flatten().count()).unwrap_or(1).max(1);
    let least: i64 = free.iter().flatten().sum::<i64>() / count;
    if shape.requests.cpu == 0 && shape.requests.memory == 0 {
        return least;
    }
    let mut with = Load::of(host.requested.cpu, host.requested.memory);
    with.add(&Load::of(shape.requests.cpu, shape.requests.memory));
    let change = balance(&with, there) - balance(&host.requested, there);
    least + BEST / 2 + i64::midpoint(BEST / 2, change)
}

/// How evenly cpu and memory are used.
fn balance(held: &Load, there: &Load) -> i64 {
    let fraction = |held: i64, there: i64| {
        let parts = i128::from(held.max(0)) * i128::from(WHOLE) / i128::from(there.max(1));
        i64::try_from(parts).unwrap_or(WHOLE).min(WHOLE)
    };
    if there.cpu == 0 || there.memory == 0 {
        return BEST;
    }
    let apart = (fraction(held.cpu, there.cpu) - fraction(held.memory, there.memory)).abs();
    (WHOLE - apart / 2) * BEST / WHOLE
}

fn disliked_taints(shape: &Shape, info: &NodeInfo) -> i64 {
    let disliked = info.taints.iter().filter(|taint| {
        taint.effect == "PreferNoSchedule" && !shape.tolerations.iter().any(|one| one.tolerates(taint))
    });
    i64::try_from(disliked.count()).unwrap_or(i64::MAX)
}

fn liked_node(shape: &Shape, name: &str, info: &NodeInfo) -> i64 {
    let likes = shape.nodes.preferred.iter().filter(|(_, term)| term.matches(name, &info.labels));
    likes.map(|(weight, _)| weight).sum()
}

/// The most is the best, nothing the worst.
fn most_best(mut scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    if most > 0 {
        for score in &mut scores {
            *score = *score * BEST / most;
        }
    }
    scores
}

/// Nothing is the best, the most the worst.
fn fewest_best(scores: Vec<i64>) -> Vec<i64> {
    most_best(scores).into_iter().map(|score| BEST - score).collect()
}

/// The fewer pods of the same kind are near, the better.
fn spread(
    shape: &Shape,
    questions: &Questions,
    cluster: &Cluster,
    hosts: &[(&Host, &NodeInfo)],
) -> Option<Vec<i64>> {
    if questions.soft.is_empty() {
        return None;
    }
    let mut sums = vec![0.0_f64; hosts.len()];
    let mut ignored = vec![false; hosts.len()];
    let usual = shape.soft_spread.is_empty();
    for (question, skew) in questions.soft.iter().zip(soft_skews(shape)) {
        let Some(tally) = cluster.tallies().answer(question) else { continue };
        // So that many small parts of a cluster weigh as much as a few large ones.
        let weight = f64::from(u32::try_from(tally.len() + 2).unwrap_or(u32::MAX)).ln();
        for (at, (_, info)) in hosts.iter().enumerate() {
            match info.labels.get(&question.topology_key) {
                Some(value) => {
                    let pods = f64::from(i32::try_from(tally.at(value)).unwrap_or(i32::MAX));
                    let skew = f64::from(i32::try_from(skew).unwrap_or(i32::MAX));
                    sums[at] += pods * weight + skew - 1.0;
                }
                None => ignored[at] = !usual,
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "as many pods as fit an i32, times a logarithm")]
    let sums: Vec<i64> = sums.into_iter().map(|sum| sum.round() as i64).collect();
    let counted = || sums.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(sum, _)| *sum);
    let (least, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
    let score = |(sum, ignored): (&i64, &bool)| match (ignored, most) {
        (true, _) => 0,
        (false, 0) => BEST,
        (false, most) => BEST * (most + least - sum) / most,
    };
    Some(sums.iter().zip(&ignored).map(score).collect())
}

/// What the company of those that are near is worth, to the pod and to them.
fn company(
    shape: &Shape,
    questions: &Questions,
    cluster: &Cluster,
    hosts: &[(&Host, &NodeInfo)],
) -> Option<Vec<i64>> {
    let of_namespace = cluster.labels_of(&shape.namespace);
    let theirs = cluster.claims.worth(shape, of_namespace);
    if theirs.is_empty() && shape.likes.is_empty() {
        return None;
    }
    let mut sums = vec![0_i64; hosts.len()];
    for (at, (_, info)) in hosts.iter().enumerate() {
        for ((weight, term), question) in shape.likes.iter().zip(&questions.likes) {
            let tally = cluster.tallies().answer(question);
            let value = info.labels.get(&term.topology_key);
            let pods = tally.zip(value).map_or(0, |(tally, value)| tally.at(value));
            sums[at] = sums[at].saturating_add(weight.saturating_mul(pods));
        }
        for (key, values, weight) in &theirs {
            let pods = info.labels.get(*key).and_then(|value| values.get(value)).copied().unwrap_or(0);
            sums[at] = sums[at].saturating_add(weight.saturating_mul(pods));
        }
    }
    let (least, most) = (sums.iter().min().copied()?, sums.iter().max().copied()?);
    let range = most.saturating_sub(least);
    Some(sums.iter().map(|sum| if range > 0 { (sum - least) * BEST / range } else { 0 }).collect())
}
