//! The fewest pods that free enough of a node: those that shrink, or are preempted, so that a deferred resize fits.
//!
//! The search is exact unless a node has very many different sizes of pods: it retains, of all selections of the candidates so
//! far, those that no other one beats in cost and in both resources. Their number has a limit; beyond it the result
//! still frees enough, and no pod of it can be spared, but another selection may be cheaper.

use std::cmp::Reverse;

use crate::resource::{Amounts, PerResource};

/// How many partial selections are retained at most. Pods of a node have few sizes, so that real nodes stay far below it.
const LIMIT: usize = 512;

/// A pod that could free some of its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it frees.
    pub frees: Amounts,
    /// What that costs. Costs are added position by position, and the first position in which two sums differ decides. So
    /// `[1]` for each candidate selects the fewest, and `[1, 0]` and `[0, 1]` avoid the former as far as possible.
    pub cost: Vec<u32>,
}

/// The positions of the cheapest candidates that free what is missing, in their order; none if all of them do not.
///
/// ```
/// use plumb_resize::fewest::{Candidate, fewest};
/// use plumb_resize::resource::Amounts;
///
/// let pod = |cpu| Candidate { frees: Amounts::new(cpu, 0), cost: vec![1] };
/// let pods = [pod(100), pod(200), pod(500)];
/// assert_eq!(fewest(Amounts::new(400, 0), &pods), Some(vec![2]));
/// assert_eq!(fewest(Amounts::new(600, 0), &pods), Some(vec![0, 2]));
/// assert_eq!(fewest(Amounts::new(900, 0), &pods), None);
/// ```
pub fn fewest(missing: Amounts, candidates: &[Candidate]) -> Option<Vec<usize>> {
    let missing = missing.larger(Amounts::ZERO);
    let positions = candidates.iter().map(|candidate| candidate.cost.len()).max().unwrap_or(0);
    let nothing = Selection { freed: Amounts::ZERO, cost: vec![0; positions], picked: Vec::new() };
    let mut best = without_the_dearest(missing, candidates, &nothing)?;
    let left = sums_from(candidates);
    let mut partial = vec![nothing];
    for (index, candidate) in candidates.iter().enumerate() {
        let mut more = Vec::new();
        for selection in &partial {
            let with = selection.with(index, candidate, missing);
            if with.cost >= best.cost {
                continue;
            }
            if with.freed == missing {
                best = with;
            } else {
                more.push(with);
            }
        }
        partial.extend(more);
        partial.retain(|selection| {
            let reaches = missing
                .all(|r, amount| i128::from(selection.freed[r]) + left[index + 1][r] >= i128::from(*amount));
            reaches && selection.cost < best.cost
        });
        partial = undominated(partial);
        if partial.len() > LIMIT {
            break;
        }
    }
    Some(best.picked)
}

/// Some of the candidates.
#[derive(Clone, Debug)]
struct Selection {
    /// What they free, up to what is missing.
    freed: Amounts,
    cost: Vec<u32>,
    picked: Vec<usize>,
}

impl Selection {
    fn with(&self, index: usize, candidate: &Candidate, missing: Amounts) -> Self {
        let freed = self.freed.plus(candidate.frees);
        let mut with = Self { freed: Amounts::of(|r| freed[r].min(missing[r])), ..self.clone() };
        for (sum, cost) in with.cost.iter_mut().zip(&candidate.cost) {
            *sum = sum.saturating_add(*cost);
        }
        with.picked.push(index);
        with
    }
}

/// All candidates but those that can be spared, the dearest first. `None` if all of them do not free enough.
fn without_the_dearest(missing: Amounts, candidates: &[Candidate], nothing: &Selection) -> Option<Selection> {
    let missing = PerResource::of(|r| i128::from(missing[r]));
    let mut freed = sums_from(candidates).first().copied().unwrap_or_default();
    if !missing.all(|r, amount| *amount <= freed[r]) {
        return None;
    }
    let mut dearest: Vec<usize> = (0..candidates.len()).collect();
    dearest.sort_by_key(|index| Reverse((&candidates[*index].cost, *index)));
    let mut spared = vec![false; candidates.len()];
    for index in dearest {
        let without = PerResource::of(|r| freed[r] - i128::from(candidates[index].frees[r]));
        if missing.all(|r, amount| *amount <= without[r]) {
            (freed, spared[index]) = (without, true);
        }
    }
    let picked = candidates.iter().enumerate().filter(|(index, _)| !spared[*index]);
    // What it frees is not clipped: nothing is added to it.
    Some(picked.fold(nothing.clone(), |selection, (index, candidate)| {
        selection.with(index, candidate, Amounts::new(i64::MAX, i64::MAX))
    }))
}

/// The sums of what the candidates free from each position on, and zero at the end. Wider than an amount, so that they do not
/// overflow.
fn sums_from(candidates: &[Candidate]) -> Vec<PerResource<i128>> {
    let mut sums = vec![PerResource::default(); candidates.len() + 1];
    for (index, candidate) in candidates.iter().enumerate().rev() {
        sums[index] = PerResource::of(|r| sums[index + 1][r] + i128::from(candidate.frees[r]));
    }
    sums
}

/// The selections without those that another one beats: it is not dearer, and frees at least as much.
fn undominated(mut selections: Vec<Selection>) -> Vec<Selection> {
    selections.sort_by(|a, b| a.cost.cmp(&b.cost).then_with(|| b.freed.cmp(&a.freed)));
    let mut left: Vec<Selection> = Vec::new();
    for selection in selections {
        if !left.iter().any(|cheaper| selection.freed.within(cheaper.freed)) {
            left.push(selection);
        }
    }
    left
}
