//! The deferred resizes that pods are preempted for.
//!
//! A resize preempts once: pods whose preemption was decided count as terminated from the decision on, whether or not their
//! deletion was observed. A restarted scheduler recognizes them by their deletion timestamp and their condition `DisruptionTarget`.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::{CurrentPod, Planner, PodRef, Preemption, parsed, preemption};
use crate::cache::Uid;
use crate::preempt::preempt_for_resize;

/// When a preemption that the API server refused or did not answer is decided again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The deferred resizes of all nodes.
#[derive(Debug, Default)]
pub(super) struct DeferredResizes {
    /// Pods whose deferred resize may need preemption.
    pending: BTreeSet<Uid>,
    /// The pods that are being preempted, each with the pod that preempts it, until they are deleted.
    victims: HashMap<Uid, Uid>,
    /// Pods whose preemption failed, and when it is decided again.
    retries: HashMap<Uid, Instant>,
}

impl DeferredResizes {
    /// Adds pods whose deferred resize may need preemption.
    pub(super) fn extend(&mut self, pods: impl IntoIterator<Item = Uid>) {
        self.pending.extend(pods);
    }

    /// Forgets a pod that is deleted or has no node any more.
    pub(super) fn remove(&mut self, uid: &Uid) {
        self.pending.remove(uid);
        self.victims.remove(uid);
        self.retries.remove(uid);
    }

    /// The victims of a pod, whose preemption failed, are selected again after a while.
    pub(super) fn failed(&mut self, preemptor: &str, now: Instant) {
        let before = self.victims.len();
        self.victims.retain(|_, of| **of != *preemptor);
        if self.victims.len() < before {
            self.retries.insert(preemptor.into(), now + RETRY_AFTER);
        }
    }

    /// When the next of the failed ones is decided again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.retries.values().min().copied()
    }

    fn next(&mut self, now: Instant) -> Option<Uid> {
        let due = self.retries.extract_if(|_, at| *at <= now);
        self.pending.extend(due.map(|(uid, _)| uid));
        self.pending.pop_first()
    }
}

impl Planner {
    /// The next preemption for a deferred resize, if there is one now.
    pub(super) fn next_preemption_for_resize(&mut self, now: Instant) -> Option<Preemption> {
        while let Some(uid) = self.deferred_resizes.next(now) {
            if let Some(preemption) = self.preempt_for_resize(&uid) {
                return Some(preemption);
            }
        }
        None
    }

    /// Preempts pods on the node of this one, for its deferred resize or for one that the node retries before it.
    fn preempt_for_resize(&mut self, uid: &Uid) -> Option<Preemption> {
        let (slot, pod) = self.cache.find_pod(uid).filter(|(_, pod)| pod.deferred.is_some())?;
        let current = CurrentPod { pod: PodRef::assigned(pod), is_assigned: true };
        self.begin(current);
        let budgets = parsed(&mut self.parsed_budgets, &self.budgets);
        let node_info = self.cache.node_info(slot);
        let victims = &mut self.deferred_resizes.victims;
        let (preemptor, candidate) =
            preempt_for_resize(slot, node_info, &budgets, |pod| victims.contains_key(&pod.uid))?;
        victims.extend(candidate.victims.iter().map(|victim| (victim.uid.clone(), preemptor.uid.clone())));
        // The next one of the node is decided with these victims.
        self.deferred_resizes.extend([uid.clone()]);
        Some(preemption(&candidate, node_info.name.clone(), PodRef::assigned(&preemptor), true))
    }
}
