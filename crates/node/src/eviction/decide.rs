//! What a round of the eviction manager does: pure.

use std::time::Duration;

use plumb_resize::quantity::Quantity;

use super::candidate::Candidate;
use super::local_storage::exceeded;
use super::message;
use super::observation::Observations;
use super::rank::{Disks, rank};
use super::signal::{Signal, StarvedResource};
use super::threshold::Threshold;

/// How long the containers of a pod have that is evicted at once.
pub const IMMEDIATE: Duration = Duration::from_secs(1);

/// Everything that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The thresholds to act upon.
    pub met: &'a [Threshold],
    /// The observations that they were compared with.
    pub observations: &'a Observations,
    /// The pods of the node that have not ended.
    pub candidates: &'a [Candidate],
    /// The file systems of the node.
    pub disks: Disks,
    /// The longest grace period of a pod that is evicted for a soft threshold.
    pub max_pod_grace_period: Duration,
    /// Whether resources of the node were reclaimed in this round already, and it was not enough.
    pub reclaimed: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Remove containers of pods that have ended, and images that no container uses.
    Reclaim(StarvedResource),
    /// Evict a pod.
    Evict(Eviction),
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub uid: String,
    /// The message of its status and its event.
    pub message: String,
    /// How long its containers have at most.
    pub grace_period: Duration,
    /// The signal, or the limit that the pod exceeds, in metrics.
    pub signal: &'static str,
    /// Whether the node needs the resource, so that the pod is a target of a disruption. One that exceeds its own limit is
    /// none.
    pub is_disruption: bool,
}

/// The threshold that is acted upon: the first one in the order of signals, of two of one signal the hard one.
pub fn most_urgent(met: &[Threshold]) -> Option<&Threshold> {
    met.iter().min_by_key(|threshold| (threshold.signal, threshold.grace_period))
}

/// Decides what to do in a round: evict all pods that exceed a limit of their local storage; otherwise reclaim resources of the
/// node, if it is low on disk; otherwise evict one pod.
pub fn decide(round: Round<'_>) -> Vec<Action> {
    let over_limit: Vec<Action> = round
        .candidates
        .iter()
        .filter(|candidate| !candidate.critical)
        .filter_map(|candidate| {
            let exceeded = exceeded(candidate, round.disks)?;
            Some(Action::Evict(Eviction {
                uid: candidate.uid().to_owned(),
                message: exceeded.message,
                grace_period: IMMEDIATE,
                signal: exceeded.signal,
                is_disruption: false,
            }))
        })
        .collect();
    if !over_limit.is_empty() {
        return over_limit;
    }
    let Some(threshold) = most_urgent(round.met) else { return Vec::new() };
    let resource = threshold.signal.resource();
    if is_reclaimable(threshold.signal, round.disks) && !round.reclaimed {
        return vec![Action::Reclaim(resource)];
    }
    let ranked = rank(round.candidates, threshold.signal, round.disks);
    let Some(victim) = ranked.into_iter().find(|candidate| !candidate.critical) else { return Vec::new() };
    let grace_period =
        if threshold.is_hard() { IMMEDIATE } else { round.max_pod_grace_period.max(IMMEDIATE) };
    vec![Action::Evict(Eviction {
        uid: victim.uid().to_owned(),
        message: message::low_on_resource(victim, resource, exceeded_by(threshold, round.observations)),
        grace_period,
        signal: threshold.signal.name(),
        is_disruption: true,
    })]
}

/// Whether images and containers of ended pods are on the file system of a signal.
fn is_reclaimable(signal: Signal, disks: Disks) -> bool {
    signal.resource().is_disk() && (signal.is_of_images() || !disks.dedicated_image_fs)
}

/// The value of a threshold, and what is available.
fn exceeded_by(threshold: &Threshold, observations: &Observations) -> Option<(Quantity, Quantity)> {
    let observed = observations.0.get(&threshold.signal)?;
    Some((threshold.value.of(observed.capacity), observations.available(threshold.signal)))
}
