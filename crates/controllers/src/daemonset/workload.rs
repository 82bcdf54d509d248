//! The `DaemonSet` controller as a [`Workload`](crate::workload::Workload).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use parking_lot::Mutex;
use plumb_controller_runtime::{Clock, ObjectRef};

use super::failures::Failures;
use super::predicates::{Predicates, ShouldRun, node_of};
use super::{NAME, State, decide};
use crate::workload::claim::claims;
use crate::workload::{Action, Context, Informers, Watches, Workload, pods};

/// The `DaemonSet` controller.
pub struct DaemonSets {
    clock: Clock,
    failures: Mutex<Failures>,
}

impl DaemonSets {
    /// Creates the controller. The clock times failed pods.
    pub fn new(clock: Clock) -> Self {
        Self { clock, failures: Mutex::default() }
    }
}

impl Workload for DaemonSets {
    const NAME: &'static str = NAME;
    const EVENT_SOURCE: &'static str = "daemonset-controller";
    type Kind = DaemonSet;
    type State = State;

    fn watch(&self, watches: &Watches<DaemonSet>) {
        watches.owned::<Pod>(selector);
        watches.owned::<ControllerRevision>(selector);
        let queue = watches.queue.clone();
        let sets = watches.informers.daemon_sets.clone();
        watches.informers.nodes.add_handler(move |change| {
            // Most node updates are heartbeats.
            if let (Some(before), Some(now)) = (change.before, change.after)
                && before.metadata.labels == now.metadata.labels
                && taints(before) == taints(now)
            {
                return;
            }
            for set in sets.all() {
                let predicates = Predicates::for_daemon_set(&set);
                let on =
                    |node: Option<&Arc<Node>>| node.map_or(ShouldRun::No, |node| predicates.should_run(node));
                if on(change.before) != on(change.after) {
                    queue.add(ObjectRef::of(&*set));
                }
            }
        });
    }

    fn claims(&self, set: &DaemonSet, informers: &Informers) -> Vec<Action> {
        let mut all = claims(set, selector(set).as_ref(), &informers.pods);
        all.extend(claims(set, selector(set).as_ref(), &informers.revisions));
        all
    }

    fn gather(&self, set: &Arc<DaemonSet>, informers: &Informers) -> State {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let controlled = informers.pods.controlled_by(uid);
        let taken = informers.revisions.in_namespace(namespace);
        let taken = taken.iter().filter_map(|one| one.metadata.name.clone()).collect();
        let now = self.clock.now();
        let generation = set.metadata.generation.unwrap_or(0);
        // The backoff stays usable after a panic.
        let mut failures = self.failures.lock();
        let failed =
            controlled.iter().filter(|pod| pods::phase(pod) == "Failed" && !pods::is_terminating(pod));
        let mended_at = failed.filter_map(|pod| {
            let at = failures.note((uid, generation), node_of(pod)?, pod, now);
            Some((pod.metadata.uid.clone()?, at))
        });
        State {
            set: set.clone(),
            mended_at: mended_at.collect(),
            pods: controlled.clone(),
            revisions: informers.revisions.controlled_by(uid),
            taken,
            nodes: informers.nodes.all(),
        }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        decide(state, context.now)
    }
}

fn selector(set: &DaemonSet) -> Option<LabelSelector> {
    set.spec.as_ref().map(|spec| spec.selector.clone())
}

fn taints(node: &Node) -> &[k8s_openapi::api::core::v1::Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}
