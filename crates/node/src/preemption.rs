//! Preemption at the admission of a critical pod: pods that are not critical are terminated until it fits, as by the kubelet.
//!
//! As few as possible of a higher QoS class: Guaranteed pods only for what all others do not free, Burstable ones only for
//! what these and the `BestEffort` ones do not.

use std::time::Duration;

use futures_util::future::join_all;
use plumb_controller_runtime::Backoff;
use plumb_resize::qos::QosClass;
use tokio::sync::oneshot;

use crate::events::Kind;
use crate::node::Node;
use crate::shutdown::{Cause, Termination};
use crate::worker::{Message, grace_period, to_duration};

/// The reason in the status of a pod that was preempted, and of its event.
pub(crate) const REASON: &str = "Preempting";
/// Its message.
pub(crate) const MESSAGE: &str = "Preempted in order to admit critical pod";
/// The message of the condition `DisruptionTarget`.
pub(crate) const DISRUPTION_MESSAGE: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";
/// How long the critical pod waits for the others beyond the longest of their grace periods: containers may be stopped one after
/// the other, and the end of a pod is reported to the API server.
const MARGIN: Duration = Duration::from_mins(5);

/// Amounts of CPU, memory, ephemeral storage and pods.
pub(crate) type Freed = [i64; 4];

/// A pod that may be preempted.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) uid: String,
    pub(crate) class: QosClass,
    /// What its end frees.
    pub(crate) freed: Freed,
}

/// The pods to preempt so that these amounts are freed, after `ending`, which were preempted already; `None` if all of them do
/// not free enough.
pub(crate) fn victims(
    missing: Freed,
    ending: Vec<Candidate>,
    candidates: Vec<Candidate>,
) -> Option<Vec<String>> {
    let missing = less(missing, &ending);
    let of_class = |class: QosClass| -> Vec<Candidate> {
        candidates.iter().filter(|candidate| candidate.class == class).cloned().collect()
    };
    if !is_covered(less(missing, &candidates)) {
        return None;
    }
    let [guaranteed, burstable, best_effort] =
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(of_class);
    let guaranteed = nearest(less(less(missing, &burstable), &best_effort), guaranteed);
    let burstable = nearest(less(less(missing, &guaranteed), &best_effort), burstable);
    let best_effort = nearest(less(less(missing, &guaranteed), &burstable), best_effort);
    let all = ending.into_iter().chain(guaranteed).chain(burstable).chain(best_effort);
    Some(all.map(|candidate| candidate.uid).collect())
}

/// What is missing once these have ended.
fn less(missing: Freed, ended: &[Candidate]) -> Freed {
    ended.iter().fold(missing, |left, candidate| {
        std::array::from_fn(|index| left[index].saturating_sub(candidate.freed[index]).max(0))
    })
}

fn is_covered(missing: Freed) -> bool {
    missing == [0; 4]
}

/// Takes the candidate that leaves the least missing, until nothing is; of equal ones that which frees the least.
fn nearest(mut missing: Freed, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let wanted = missing;
    let mut taken = Vec::new();
    while !is_covered(missing) && !candidates.is_empty() {
        // In thousandths of what is missing, squared, so that resources with different units compare.
        let distance = |candidate: &Candidate| -> i64 {
            let left = less(missing, std::slice::from_ref(candidate));
            let parts = left.into_iter().zip(wanted).filter(|(_, wanted)| *wanted > 0);
            parts.map(|(left, wanted)| (left.saturating_mul(1000) / wanted).saturating_pow(2)).sum()
        };
        let best = (0..candidates.len()).min_by_key(|index| {
            let candidate = &candidates[*index];
            (distance(candidate), candidate.freed, candidate.uid.clone())
        });
        let Some(best) = best else { break };
        let candidate = candidates.swap_remove(best);
        missing = less(missing, std::slice::from_ref(&candidate));
        taken.push(candidate);
    }
    taken
}

/// Terminates pods for a critical one. Returns when they have ended, when they should have, or when the critical pod is deleted.
pub(crate) async fn preempt(node: &Node, critical: &str, uids: &[String]) {
    let waiting = join_all(uids.iter().map(|uid| terminate(node, uid)));
    let timeout = uids
        .iter()
        .filter_map(|uid| node.workers.latest(uid))
        .map(|(pod, _)| to_duration(grace_period(&pod)));
    let timeout = timeout.max().unwrap_or_default().saturating_add(MARGIN);
    tokio::select! {
        ended = tokio::time::timeout(timeout, waiting) => if ended.is_err() {
            tracing::warn!(?timeout, "pods that were preempted by a critical pod do not end");
        },
        () = node.workers.deletion(critical) => {}
    }
}

/// Terminates a pod, and returns when it has ended.
async fn terminate(node: &Node, uid: &str) {
    let mut backoff = Backoff::default();
    if let Some((pod, _)) = node.workers.latest(uid) {
        node.events.pod(&pod, Kind::Warning, REASON, MESSAGE);
    }
    loop {
        let (ended, has_ended) = oneshot::channel();
        let termination = Termination { cause: Cause::Preemption, grace: Duration::MAX, ended };
        // A pod without a worker has ended: the sender is dropped.
        node.workers.send(uid, Message::Terminate(Box::new(termination)));
        if has_ended.await.is_ok() || node.workers.latest(uid).is_none() {
            return;
        }
        // Its worker has panicked, and is replaced.
        backoff.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_pods_are_preempted_than_necessary_and_the_least_important_ones_first() {
        let candidate = |uid: &str, class: QosClass, cpu: i64| Candidate {
            uid: uid.to_owned(),
            class,
            freed: [cpu, cpu, 0, 1],
        };
        let all = || {
            vec![
                candidate("best-effort", QosClass::BestEffort, 0),
                candidate("small", QosClass::Burstable, 100),
                candidate("large", QosClass::Burstable, 500),
                candidate("guaranteed", QosClass::Guaranteed, 1000),
            ]
        };
        let table: [(Freed, Option<&[&str]>); 6] = [
            ([0, 0, 0, 1], Some(&["best-effort"])),
            ([100, 0, 0, 0], Some(&["small"])),
            ([300, 0, 0, 0], Some(&["large"])),
            ([600, 0, 0, 0], Some(&["large", "small"])),
            ([601, 0, 0, 0], Some(&["guaranteed"])),
            ([0, 0, 1, 0], None),
        ];
        for (missing, expected) in table {
            let found = victims(missing, Vec::new(), all());
            let expected = expected.map(|uids| uids.iter().map(|uid| (*uid).to_owned()).collect());
            assert_eq!(found, expected, "{missing:?}");
        }
    }

    #[test]
    fn what_pods_free_that_end_already_counts_before_more_are_preempted() {
        let candidate = |uid: &str, class: QosClass, cpu: i64| Candidate {
            uid: uid.to_owned(),
            class,
            freed: [cpu, 0, 0, 1],
        };
        let found = |missing: i64| {
            let ending = vec![candidate("ending", QosClass::Guaranteed, 500)];
            victims([missing, 0, 0, 0], ending, vec![candidate("other", QosClass::BestEffort, 200)])
        };
        assert_eq!(found(500).unwrap(), ["ending"]);
        assert_eq!(found(501).unwrap(), ["ending", "other"]);
        assert_eq!(found(701), None);
    }
}
