//! The decisions about `DaemonSets` in the frame of workloads.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_follow::place;

use super::failures::Failures;
use super::place::{Place, Places, node_of};
use super::{NAME, State, decide};
use crate::workload::claim::claims;
use crate::workload::{Action, Around, Clock, Shelves, Wiring, Workload, pods};

/// Looks after the pods of `DaemonSets`.
pub struct DaemonSets {
    clock: Clock,
    failures: Mutex<Failures>,
}

impl DaemonSets {
    /// With a clock, which says when pods were found to have failed.
    pub fn new(clock: Clock) -> Self {
        Self { clock, failures: Mutex::default() }
    }
}

impl Workload for DaemonSets {
    const NAME: &'static str = NAME;
    const TELLS_AS: &'static str = "daemonset-controller";
    type Kind = DaemonSet;
    type State = State;

    fn wire(&self, wiring: &Wiring<DaemonSet>) {
        wiring.owned::<Pod>(selector);
        wiring.owned::<ControllerRevision>(selector);
        let (queue, sets) = (wiring.queue.clone(), wiring.shelves.daemon_sets.clone());
        wiring.shelves.nodes.listen(move |change| {
            // Most changes of nodes are that they are still there.
            if let (Some(before), Some(now)) = (change.before, change.now)
                && before.metadata.labels == now.metadata.labels
                && taints(before) == taints(now)
            {
                return;
            }
            for set in sets.all() {
                let places = Places::of(&set);
                let on = |node: Option<&Arc<Node>>| node.map_or(Place::Forbidden, |node| places.on(node));
                if on(change.before) != on(change.now) {
                    queue.touch(place(&*set));
                }
            }
        });
    }

    fn claims(&self, set: &DaemonSet, shelves: &Shelves) -> Vec<Action> {
        let mut all = claims(set, selector(set).as_ref(), &shelves.pods);
        all.extend(claims(set, selector(set).as_ref(), &shelves.revisions));
        all
    }

    fn gather(&self, set: &Arc<DaemonSet>, shelves: &Shelves) -> State {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let controlled = shelves.pods.controlled_by(uid);
        let taken = shelves.revisions.within(namespace);
        let taken = taken.iter().filter_map(|one| one.metadata.name.clone()).collect();
        let (now, generation) = ((self.clock)(), set.metadata.generation.unwrap_or(0));
        // A clumsy count of failures is better than none.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = controlled.iter().filter(|pod| pods::phase(pod) == "Failed" && !pods::is_going(pod));
        let mended_at = failed.filter_map(|pod| {
            let at = failures.note((uid, generation), node_of(pod)?, pod, now);
            Some((pod.metadata.uid.clone()?, at))
        });
        State {
            set: set.clone(),
            mended_at: mended_at.collect(),
            pods: controlled.clone(),
            revisions: shelves.revisions.controlled_by(uid),
            taken,
            nodes: shelves.nodes.all(),
        }
    }

    fn decide(&self, state: &State, around: &Around) -> Vec<Action> {
        decide(state, around.now)
    }
}

fn selector(set: &DaemonSet) -> Option<LabelSelector> {
    set.spec.as_ref().map(|spec| spec.selector.clone())
}

fn taints(node: &Node) -> &[k8s_openapi::api::core::v1::Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}
