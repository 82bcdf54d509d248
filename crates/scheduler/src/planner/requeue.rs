//! Requeues unschedulable pods when a change of the cache may make them schedulable (upstream: queueing hints).

use std::sync::Arc;

use tokio::time::Instant;

use super::Planner;
use crate::cache::{Cache, Uid};
use crate::filter::{CycleState, Queries, min_free};
use crate::pod_state::PendingPod;

impl Planner {
    /// Moves the pods that the changes since the last call may help to the active queue.
    pub(super) fn requeue_schedulable(&mut self, now: Instant) {
        self.queue.flush_unschedulable(now);
        let changes = std::mem::take(&mut self.cache.changes);
        if changes.nodes.is_empty() && !changes.pods && !changes.volumes {
            return;
        }
        if self.settings.preempt_for_resizes {
            let node_infos = changes.nodes.iter().map(|slot| self.cache.node_info(*slot));
            let deferred =
                node_infos.flat_map(|node_info| node_info.pods.values()).filter(|pod| pod.deferred.is_some());
            self.deferred_resizes.extend(deferred.map(|pod| pod.uid.clone()));
        }
        for slot in &changes.nodes {
            let nominated = self.cache.node_info(*slot).nominated.keys();
            for uid in nominated.cloned().collect::<Vec<Uid>>() {
                let pod = self.queue.get(&uid).map(|queued| queued.pod.clone());
                if pod.is_some_and(|pod| fits(&mut self.cache, *slot, &pod, &uid)) {
                    self.queue.activate_nominated(&uid, now);
                }
            }
        }
        let classes = self.queue.unschedulable_classes();
        let classes = classes.map(|(queued, depends_on_pods)| (queued.pod.clone(), depends_on_pods));
        for (pod, depends_on_pods) in classes.collect::<Vec<(Arc<PendingPod>, bool)>>() {
            let class = pod.class.id;
            // As upstream's queueing hints: a change that does not help the pod costs one attempt.
            let volumes_changed = changes.volumes && !pod.class.claims.is_empty();
            if depends_on_pods && changes.pods || volumes_changed {
                self.queue.activate_class(class, None, now);
                continue;
            }
            let helped = changes.nodes.iter().find_map(|slot| feasible_pod(&mut self.cache, *slot, &pod));
            if let Some(first) = helped {
                self.queue.activate_class(class, Some(&first), now);
            }
        }
    }
}

/// The pod of a class that a node is feasible for: one that is nominated to it, or the first.
fn feasible_pod(cache: &mut Cache, slot: usize, pod: &PendingPod) -> Option<Uid> {
    let nominated = cache.node_info(slot).nominated.iter();
    let mut nominated = nominated.filter(|(_, class)| class.id == pod.class.id);
    let uid = nominated.next().map_or_else(|| pod.uid.clone(), |(uid, _)| uid.clone());
    fits(cache, slot, pod, &uid).then_some(uid)
}

/// Whether a node is feasible for a pod of a class with this uid.
fn fits(cache: &mut Cache, slot: usize, pod: &PendingPod, uid: &Uid) -> bool {
    if !cache.has_free(slot, &min_free(&pod.class)) {
        return false;
    }
    let queries = Queries::prepare_filters(&pod.class, cache);
    CycleState::new(&pod.class, &queries, cache).filter(slot, uid).is_none()
}
