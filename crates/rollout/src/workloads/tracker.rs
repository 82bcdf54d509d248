//! The state of one workload in memory: the index of its pods, updated pod by pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use plumb_controller_runtime::object_ref::resource_version;
use plumb_controller_runtime::pods::is_active;
use plumb_controller_runtime::{ObjectRef, Store, controller_of};

use super::kind::WorkloadKind;
use super::replica_sets::Sets;
use crate::engine::{
    Decision, PODS_NAMED, Phase, PodFailure, PodPolicy, PodView, Pods, ResizeOnly, RolloutStatus, StuckReason,
};

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace and name.
    pub object: ObjectRef,
}

/// The inputs of the views of pods besides the pods. When they change, all pods are evaluated anew.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Epoch {
    pub(super) hooks: ResizeOnly,
    pub(super) policy: PodPolicy,
    /// The uid of the object that controls the pods.
    pub(super) owner: String,
}

/// The workloads that are tracked, by name and by what controls their pods.
#[derive(Debug, Default)]
pub(super) struct Trackers(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    by_key: HashMap<Key, Arc<Tracker>>,
    by_owner: HashMap<String, Arc<Tracker>>,
}

/// The state of one workload.
#[derive(Debug)]
pub(super) struct Tracker {
    pub(super) key: Key,
    /// The pods that changed since they were evaluated.
    dirty: Mutex<BTreeSet<String>>,
    /// The `ReplicaSets` that were found to be right, and the uid of the live one.
    prepared: Mutex<Option<(Sets, String)>>,
    /// Only the reconcile of the workload reads and writes it.
    pub(super) state: tokio::sync::Mutex<TrackerState>,
}

/// State that only the reconcile of the workload reads and writes.
#[derive(Debug, Default)]
pub(super) struct TrackerState {
    epoch: Option<Arc<Epoch>>,
    pub(super) pods: Pods,
    /// The pods that this process wrote and the store does not hold yet.
    own: BTreeMap<String, Arc<Pod>>,
    /// Pods whose writes failed, and nothing of that is recorded on them.
    pub(super) backoff: BTreeMap<String, Retry>,
    /// The last reported status, and when.
    pub(super) reported: Option<(RolloutStatus, Timestamp)>,
    /// The phase that the last event was about.
    pub(super) announced: Option<(String, Phase)>,
    /// The stuck pods that events were emitted about.
    pub(super) announced_stuck: BTreeSet<String>,
    /// Since when pods are missing, if they are.
    missing_since: Option<Timestamp>,
}

/// When the writes of a pod are sent again.
#[derive(Debug)]
pub(super) struct Retry {
    /// How often they failed in a row.
    pub(super) failures: u32,
    /// Until when nothing is sent.
    pub(super) until: Timestamp,
    /// Why the API server refuses them, if it does.
    pub(super) refused: Option<(StuckReason, String)>,
}

impl Trackers {
    /// The tracker of a workload, from now on with these pods.
    pub(super) fn track(&self, key: &Key, owner: &str) -> Arc<Tracker> {
        let mut tables = self.0.lock();
        let tracker = tables.by_key.entry(key.clone()).or_insert_with(|| {
            Arc::new(Tracker {
                key: key.clone(),
                dirty: Mutex::default(),
                prepared: Mutex::default(),
                state: tokio::sync::Mutex::default(),
            })
        });
        let tracker = tracker.clone();
        if !tables.by_owner.contains_key(owner) {
            tables.by_owner.retain(|_, other| other.key != *key);
            tables.by_owner.insert(owner.to_owned(), tracker.clone());
        }
        tracker
    }

    /// The uid of the live ReplicaSet of a Deployment, if these were found to be right before.
    pub(super) fn prepared(&self, key: &Key, sets: &Sets) -> Option<String> {
        let tracker = self.0.lock().by_key.get(key)?.clone();
        let prepared = tracker.prepared.lock();
        prepared.as_ref().filter(|(known, _)| known == sets).map(|(_, live)| live.clone())
    }

    /// Forgets a workload.
    pub(super) fn forget(&self, key: &Key) {
        let mut tables = self.0.lock();
        if tables.by_key.remove(key).is_some() {
            tables.by_owner.retain(|_, tracker| tracker.key != *key);
        }
    }

    /// Notes that a pod changed. Returns the workload that it belongs to, if that is tracked.
    pub(super) fn pod_changed(&self, pod: &Pod) -> Option<Key> {
        let owner = controller_of(&pod.metadata)?;
        let tracker = self.0.lock().by_owner.get(&owner.uid)?.clone();
        tracker.dirty.lock().insert(pod.name_any());
        Some(tracker.key.clone())
    }
}

impl Tracker {
    /// Notes which `ReplicaSets` are right.
    pub(super) fn set_prepared(&self, sets: Sets, live: &str) {
        *self.prepared.lock() = Some((sets, live.to_owned()));
    }

    pub(super) fn take_dirty(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.dirty.lock())
    }
}

impl TrackerState {
    /// Whether the index is of this epoch.
    pub(super) fn is_of(&self, epoch: &Epoch) -> bool {
        self.epoch.as_deref() == Some(epoch)
    }

    /// Updates the index: for the pods that changed, those that are due, or all if their inputs changed.
    pub(super) fn refresh(
        &mut self,
        tracker: &Tracker,
        epoch: Epoch,
        store: &Store<Pod>,
        order: impl Fn(&Pod) -> u64,
        now: Timestamp,
    ) {
        let mut dirty = tracker.take_dirty();
        if self.is_of(&epoch) {
            dirty.extend(self.pods.due(now));
            for name in dirty {
                let at = ObjectRef::namespaced(tracker.key.object.namespace.clone(), name.clone());
                let pod = self.latest(&name, store.get(&at));
                self.evaluate(&epoch, &name, pod, &order, now);
            }
            return;
        }
        self.pods = Pods::default();
        self.backoff.clear();
        for pod in store.controlled_by(&epoch.owner) {
            let name = pod.name_any();
            let pod = self.latest(&name, Some(pod));
            self.evaluate(&epoch, &name, pod, &order, now);
        }
        self.epoch = Some(Arc::new(epoch));
    }

    /// The latest version of a pod: of those in the store and in the responses to writes of this process.
    fn latest(&mut self, name: &str, stored: Option<Arc<Pod>>) -> Option<Arc<Pod>> {
        let Some(own) = self.own.get(name) else { return stored };
        let overtaken = stored.as_ref().is_none_or(|stored| {
            stored.metadata.uid != own.metadata.uid
                || resource_version(&stored.metadata) >= resource_version(&own.metadata)
        });
        if overtaken {
            self.own.remove(name);
            return stored;
        }
        Some(own.clone())
    }

    fn evaluate(
        &mut self,
        epoch: &Epoch,
        name: &str,
        pod: Option<Arc<Pod>>,
        order: &impl Fn(&Pod) -> u64,
        now: Timestamp,
    ) {
        let pod = pod.filter(|pod| {
            controller_of(&pod.metadata).is_some_and(|owner| owner.uid == epoch.owner) && is_active(pod)
        });
        if let Some(pod) = pod {
            let view = PodView::of(&pod, &epoch.hooks, &epoch.policy, order(&pod), now);
            self.pods.set(name, view);
        } else {
            self.pods.remove(name);
            self.backoff.remove(name);
        }
    }

    /// Takes over a pod as the API server answered a write.
    pub(super) fn wrote(&mut self, pod: Pod, order: &impl Fn(&Pod) -> u64, now: Timestamp) {
        let Some(epoch) = self.epoch.clone() else { return };
        let (name, pod) = (pod.name_any(), Arc::new(pod));
        self.own.insert(name.clone(), pod.clone());
        self.evaluate(&epoch, &name, Some(pod), order, now);
    }

    /// A pod as it is to be written.
    pub(super) fn pod(&mut self, namespace: &str, name: &str, store: &Store<Pod>) -> Option<Arc<Pod>> {
        let stored = store.get(&ObjectRef::namespaced(namespace, name));
        self.latest(name, stored)
    }

    /// Since when fewer pods than these were observed, if there are fewer.
    pub(super) fn missing_since(&mut self, replicas: usize, now: Timestamp) -> Option<Timestamp> {
        let since = self.missing_since.unwrap_or(now);
        self.missing_since = (self.pods.len() < replicas).then_some(since);
        self.missing_since
    }

    pub(super) fn hooks(&self) -> Option<&ResizeOnly> {
        self.epoch.as_ref().map(|epoch| &epoch.hooks)
    }

    /// The pods that nothing is sent for yet.
    pub(super) fn backing_off(&self, now: Timestamp) -> BTreeSet<String> {
        let waits = self.backoff.iter().filter(|(_, retry)| retry.until > now);
        waits.map(|(pod, _)| pod.clone()).collect()
    }

    /// Adds the pods whose writes the API server refuses to those of a status that wait.
    pub(super) fn add_refused(&self, status: &mut RolloutStatus) {
        let refused = self.backoff.iter().filter_map(|(pod, retry)| {
            let (reason, message) = retry.refused.clone()?;
            Some(PodFailure { pod: pod.clone(), reason, message })
        });
        status.waiting.extend(refused);
        status.waiting.truncate(PODS_NAMED);
    }

    /// When to reconcile again without a change.
    pub(super) fn next_due(&self, decision: &Decision) -> Option<Timestamp> {
        let retry = self.backoff.values().map(|retry| retry.until).min();
        decision.due.into_iter().chain(retry).min()
    }
}
