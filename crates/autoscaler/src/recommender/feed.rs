//! What has changed since the last run of the loop, as watches report it.
//!
//! Handlers of informers note the names of what has changed, and the OOM kills that pods show. A run takes all of it and reads the
//! objects from the stores. So a thousand events of one pod between two runs cost what one costs, nothing is queued, and
//! nothing waits for the loop.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Resource;
use plumb_controller::{Change, ObjectRef, WatchEvent};
use tokio::sync::Notify;

use super::oom::{OomKill, kills_of_event, kills_of_pod};
use crate::api::VerticalPodAutoscaler;
use crate::informers::Informers;

/// How many OOM kills are held between two runs; more are dropped. They are a few hundred bytes each.
pub(super) const MAX_KILLS: usize = 100_000;

/// Notes what changes.
#[derive(Debug, Default)]
pub(super) struct Feed {
    changes: Mutex<Changes>,
    /// Wakes the loop when a VPA was created, deleted or edited.
    vpa_changed: Notify,
}

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) vpas: HashSet<ObjectRef>,
    pub(super) pods: HashSet<ObjectRef>,
    pub(super) kills: Vec<OomKill>,
}

impl Feed {
    /// Notes the changes that informers report from now on.
    pub(super) fn of(informers: &Informers) -> Arc<Self> {
        let feed: Arc<Self> = Arc::default();
        let of_vpas = feed.clone();
        informers.vpas.add_handler(move |change| of_vpas.vpa(change));
        let of_pods = feed.clone();
        informers.pods.add_handler(move |change| of_pods.pod(change));
        feed
    }

    /// Notes everything there is, for a loop that starts.
    pub(super) fn everything(&self, informers: &Informers) {
        let (vpas, pods) = (informers.vpas.all(), informers.pods.all());
        let kills: Vec<_> = pods.iter().flat_map(|pod| kills_of_pod(None, pod)).collect();
        let mut changes = self.changes();
        changes.vpas.extend(vpas.iter().map(|vpa| ObjectRef::of(&**vpa)));
        changes.pods.extend(pods.iter().map(|pod| ObjectRef::of(&**pod)));
        changes.kills = kills;
    }

    /// Notes all VPAs, because which of them this process is responsible for has changed.
    pub(super) fn all_vpas(&self, informers: &Informers) {
        let (vpas, pods) = (informers.vpas.all(), informers.pods.all());
        self.changes().vpas.extend(vpas.iter().map(|vpa| ObjectRef::of(&**vpa)));
        // Kills that the last owner counted and that are in no checkpoint yet. What is counted here does not count again.
        self.kills(pods.iter().flat_map(|pod| kills_of_pod(None, pod)).collect());
        self.vpa_changed.notify_one();
    }

    /// Takes what has changed since it was taken last.
    pub(super) fn take(&self) -> Changes {
        mem::take(&mut self.changes())
    }

    /// Waits until a VPA is created, deleted or edited. One that was meanwhile counts.
    pub(super) async fn vpa_changed(&self) {
        self.vpa_changed.notified().await;
    }

    /// Notes the pods that the kubelet evicted for memory.
    pub(super) fn event(&self, event: &WatchEvent<Event>) {
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
            self.vpa_changed.notify_one();
        }
    }

    fn pod(&self, change: &Change<'_, Pod>) {
        let Some(pod) = change.latest() else { return };
        self.changes().pods.insert(ObjectRef::of(&**pod));
        if let Some(after) = change.after {
            let is_same = |before: &&Arc<Pod>| before.metadata.uid == after.metadata.uid;
            let before = change.before.filter(is_same);
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
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
