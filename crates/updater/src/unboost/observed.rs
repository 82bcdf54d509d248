//! The boosted pods that are watched: when they were observed to be ready, and whether their boost was reported.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_controller_runtime::ObjectRef;
use plumb_vpa::boost::{Cpu, ready_since};

use crate::metrics::UpdaterMetrics;

/// Times in the API are in whole seconds.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// The boosted pods. A pod is in it until it is unboosted or deleted.
pub(super) struct ObservedBoosts {
    pods: Mutex<HashMap<ObjectRef, Observed>>,
    /// Boosts from before were reported by another process.
    since: Timestamp,
    metrics: UpdaterMetrics,
}

#[derive(Default)]
struct Observed {
    uid: Option<String>,
    /// The condition, and when it was observed.
    ready: Option<(Timestamp, Timestamp)>,
    reported: bool,
    /// The resize that ends the boost, once the API server has accepted it.
    resized: Option<Resized>,
}

/// A resize that ends boosts.
#[derive(Clone, Debug)]
pub(super) struct Resized {
    /// The CPU of containers before it.
    pub(super) from: Vec<(String, Cpu)>,
    /// How long after the end of the boost was due it was accepted.
    pub(super) delay: Duration,
}

impl ObservedBoosts {
    pub(super) fn new(since: Timestamp, metrics: UpdaterMetrics) -> Self {
        Self { pods: Mutex::default(), since, metrics }
    }

    /// A boosted pod was observed.
    pub(super) fn note(&self, key: &ObjectRef, pod: &Pod, now: Timestamp) {
        let mut pods = self.pods.lock();
        let observed = pods.entry(key.clone()).or_default();
        if observed.uid != pod.metadata.uid {
            *observed = Observed { uid: pod.metadata.uid.clone(), ..Observed::default() };
        }
        let ready = ready_since(pod);
        if observed.ready.map(|(ready, _)| ready) != ready {
            observed.ready = ready.map(|ready| (ready, now));
        }
        self.metrics.set_boosted_pods(pods.len());
    }

    /// A pod is not boosted, or does not exist.
    pub(super) fn forget(&self, key: &ObjectRef) {
        let mut pods = self.pods.lock();
        if pods.remove(key).is_some() {
            self.metrics.set_boosted_pods(pods.len());
        }
    }

    /// By how much a pod became ready later than its condition has it: the condition has whole seconds. Zero if the
    /// pod was not observed while it became ready.
    pub(super) fn delay(&self, pod: &Pod) -> SignedDuration {
        let pods = self.pods.lock();
        let observed = pods.get(&ObjectRef::of(pod)).and_then(|observed| observed.ready);
        let delay = observed.map(|(ready, at)| at.duration_since(ready));
        delay.filter(|delay| !delay.is_negative() && *delay < RESOLUTION).unwrap_or_default()
    }

    /// A resize that ends boosts of a pod was accepted. The first one counts: a second takes back what the node refused.
    pub(super) fn resized(&self, pod: &Pod, resized: Resized) {
        let mut pods = self.pods.lock();
        if let Some(observed) = pods.get_mut(&ObjectRef::of(pod))
            && observed.uid == pod.metadata.uid
        {
            observed.resized.get_or_insert(resized);
        }
    }

    /// The resize that has ended boosts of a pod, if this process has sent it.
    pub(super) fn take_resized(&self, pod: &Pod) -> Option<Resized> {
        let mut pods = self.pods.lock();
        let observed = pods.get_mut(&ObjectRef::of(pod)).filter(|observed| observed.uid == pod.metadata.uid);
        observed?.resized.take()
    }

    /// Whether the boost of a pod is to be reported; then it counts as reported.
    pub(super) fn report(&self, pod: &Pod) -> bool {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_new = created.and_then(|created| created.checked_add(RESOLUTION).ok());
        let is_new = is_new.is_some_and(|created| created > self.since);
        let mut pods = self.pods.lock();
        let Some(observed) = pods.get_mut(&ObjectRef::of(pod)) else { return false };
        is_new && !std::mem::replace(&mut observed.reported, true)
    }
}
