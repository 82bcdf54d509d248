//! The changes since the last run of the loop, from watches.
//!
//! Handlers of informers record the names of changed objects, and the OOM kills in pods. A run takes all of them and
//! reads the objects from the stores. So a thousand events of one pod between two runs cost as much as one, there is
//! no queue, and no handler waits for the loop.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Event, Pod};
use kube::core::{Selector, SelectorExt as _};
use kube::{Resource, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use plumb_controller_runtime::pods::phase;
use plumb_controller_runtime::{Change, ObjectRef, WatchEvent};
use plumb_vpa::informers::Informers;
use plumb_vpa::target::ControllerRef;
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::sync::Notify;

use super::oom::{OomKill, kills_of_event, kills_of_pod};

/// How many OOM kills are held between two runs; more are dropped. They are a few hundred bytes each.
pub(crate) const MAX_KILLS: usize = 100_000;

/// Notes what changes.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    changes: Mutex<Changes>,
    /// The VPAs that match no pod, by namespace.
    unmatched: Mutex<HashMap<String, Vec<Unmatched>>>,
    /// Wakes the loop when a VPA was created, deleted or edited, or when the first pod of one starts.
    run_due: Notify,
}

/// A VPA that matches no pod.
#[derive(Debug)]
pub(crate) struct Unmatched {
    /// Its target.
    pub(crate) target: ControllerRef,
    /// The selector of the target; none while the target is not resolved, such as before it is created.
    pub(crate) selector: Option<Arc<Selector>>,
}

impl Unmatched {
    /// Whether a pod may be of the VPA. While the selector is not known, the name of the pod's controller decides: that of a
    /// `ReplicaSet` or Job begins with the name of the Deployment or `CronJob`.
    fn may_match(&self, pod: &Pod) -> bool {
        match &self.selector {
            Some(selector) => selector.matches(pod.labels()),
            None => ControllerRef::controller_of(&pod.metadata)
                .is_some_and(|controller| controller.name.starts_with(&self.target.name)),
        }
    }
}

/// The changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) vpas: HashSet<ObjectRef>,
    pub(crate) pods: HashSet<ObjectRef>,
    pub(crate) kills: Vec<OomKill>,
    /// Targets that were not resolved, and of which a pod has started since: they have been created.
    pub(crate) targets: HashSet<ControllerRef>,
}

impl Feed {
    /// Notes the changes that informers report from now on.
    pub(crate) fn of(informers: &Informers) -> Arc<Self> {
        let feed: Arc<Self> = Arc::default();
        let of_vpas = feed.clone();
        informers.vpas.add_handler(move |change| of_vpas.vpa(change));
        let of_pods = feed.clone();
        informers.pods.add_handler(move |change| of_pods.pod(change));
        feed
    }

    /// Notes everything there is, for a loop that starts.
    pub(crate) fn everything(&self, informers: &Informers) {
        let (vpas, pods) = (informers.vpas.all(), informers.pods.all());
        let kills: Vec<_> = pods.iter().flat_map(|pod| kills_of_pod(None, pod)).collect();
        let mut changes = self.changes();
        changes.vpas.extend(vpas.iter().map(|vpa| ObjectRef::of(&**vpa)));
        changes.pods.extend(pods.iter().map(|pod| ObjectRef::of(&**pod)));
        changes.kills = kills;
    }

    /// Notes all VPAs, because which of them this process is responsible for has changed.
    pub(crate) fn all_vpas(&self, informers: &Informers) {
        let (vpas, pods) = (informers.vpas.all(), informers.pods.all());
        self.changes().vpas.extend(vpas.iter().map(|vpa| ObjectRef::of(&**vpa)));
        // Kills that the last owner counted and that are in no checkpoint yet. A kill that is counted here does not
        // count again.
        self.kills(pods.iter().flat_map(|pod| kills_of_pod(None, pod)).collect());
        self.run_due.notify_one();
    }

    /// Takes the changes since the last call.
    pub(crate) fn take(&self) -> Changes {
        mem::take(&mut self.changes())
    }

    /// Waits until a VPA is created, deleted or edited, or the first pod of one starts. Earlier changes count.
    pub(crate) async fn run_due(&self) {
        self.run_due.notified().await;
    }

    /// Wakes the loop when a pod starts that one of these VPAs may match. A pod that has started since the changes were taken
    /// counts.
    pub(crate) fn watch_for_pods(&self, unmatched: Vec<Unmatched>, informers: &Informers) {
        let mut by_namespace: HashMap<String, Vec<Unmatched>> = HashMap::new();
        for vpa in unmatched {
            by_namespace.entry(vpa.target.namespace.clone()).or_default().push(vpa);
        }
        *self.unmatched() = by_namespace;
        let changed: Vec<ObjectRef> = self.changes().pods.iter().cloned().collect();
        for pod in changed.iter().filter_map(|key| informers.pods.get(key)).filter(|pod| has_started(pod)) {
            self.pod_started(&pod);
        }
    }

    /// Wakes the loop if a VPA that matches no pod may match this one, which has started.
    fn pod_started(&self, pod: &Pod) {
        let unmatched = self.unmatched();
        let of_namespace = unmatched.get(pod.metadata.namespace.as_deref().unwrap_or_default());
        let matching: Vec<&Unmatched> =
            of_namespace.into_iter().flatten().filter(|vpa| vpa.may_match(pod)).collect();
        if matching.is_empty() {
            return;
        }
        let unresolved = matching.iter().filter(|vpa| vpa.selector.is_none());
        let unresolved: Vec<ControllerRef> = unresolved.map(|vpa| vpa.target.clone()).collect();
        drop(unmatched);
        self.changes().targets.extend(unresolved);
        self.run_due.notify_one();
    }

    /// Notes the pods that the kubelet evicted for memory.
    pub(crate) fn event(&self, event: &WatchEvent<Event>) {
        let kills = match event {
            WatchEvent::Restarted(events) => events.iter().flat_map(kills_of_event).collect(),
            WatchEvent::Applied(event) => kills_of_event(event),
            WatchEvent::Deleted(_) => return,
        };
        self.kills(kills);
    }

    fn vpa(&self, change: &Change<'_, VerticalPodAutoscaler>) {
        let Some(vpa) = change.latest() else { return };
        self.changes().vpas.insert(ObjectRef::of(&**vpa));
        // A status, most often one of our own, can wait for the next run.
        let is_status = change.before.zip(change.after).is_some_and(|(before, after)| {
            let meta = |vpa: &VerticalPodAutoscaler| {
                let meta = vpa.meta();
                (meta.uid.clone(), meta.generation, meta.annotations.clone())
            };
            meta(before) == meta(after)
        });
        if !is_status {
            self.run_due.notify_one();
        }
    }

    fn pod(&self, change: &Change<'_, Pod>) {
        let Some(pod) = change.latest() else { return };
        self.changes().pods.insert(ObjectRef::of(&**pod));
        if let Some(after) = change.after {
            let is_same = |before: &&Arc<Pod>| before.metadata.uid == after.metadata.uid;
            let before = change.before.filter(is_same);
            // The kills that a pod shows before it has started are not counted then.
            let before = before.filter(|before| has_started(before) || !has_started(after));
            if has_started(after) && before.is_none() {
                self.pod_started(after);
            }
            self.kills(kills_of_pod(before.map(|pod| &**pod), after));
        }
    }

    fn kills(&self, kills: Vec<OomKill>) {
        if kills.is_empty() {
            return;
        }
        let mut changes = self.changes();
        let free = MAX_KILLS.saturating_sub(changes.kills.len());
        if kills.len() > free {
            tracing::warn!(dropped = kills.len() - free, "too many OOM kills between two runs");
        }
        changes.kills.extend(kills.into_iter().take(free));
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock()
    }

    fn unmatched(&self) -> MutexGuard<'_, HashMap<String, Vec<Unmatched>>> {
        self.unmatched.lock()
    }
}

/// Whether a pod counts for VPAs: a pending pod has no usage, unless a sidecar of it has started.
pub(crate) fn has_started(pod: &Pod) -> bool {
    if phase(pod) != "Pending" {
        return true;
    }
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    let mut started = statuses.into_iter().flatten().filter(|status| has_run(status));
    let sidecars: Vec<&str> = sidecars(pod).map(|container| container.name.as_str()).collect();
    started.any(|status| sidecars.contains(&status.name.as_str()))
}

/// Whether a container runs or has run.
fn has_run(status: &ContainerStatus) -> bool {
    let states = [&status.state, &status.last_state];
    states.into_iter().flatten().any(|state| state.running.is_some() || state.terminated.is_some())
}

/// The init containers of a pod that run as long as it does.
pub(crate) fn sidecars(pod: &Pod) -> impl Iterator<Item = &Container> {
    let containers = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    containers.into_iter().flatten().filter(is_sidecar)
}
