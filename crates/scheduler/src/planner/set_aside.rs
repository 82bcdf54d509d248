//! Pods that are set aside, because the planner panicked when it read them or decided about them.
//!
//! Without this, the restarted loop would panic at the same pod again, and no other pod would be scheduled.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::PodRef;
use crate::cache::Uid;

/// A pod that the planner reads or decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentPod {
    /// The pod.
    pub pod: PodRef,
    /// Whether it has a node.
    pub is_assigned: bool,
}

impl CurrentPod {
    pub(super) fn new(pod: &Pod) -> Self {
        let reference = PodRef {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.metadata.uid.clone().unwrap_or_default().into(),
            resource_version: None,
        };
        Self { pod: reference, is_assigned: is_assigned(pod) }
    }
}

fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

/// The pods that are set aside.
#[derive(Debug, Default)]
pub(super) struct SetAsidePods {
    until: HashMap<Uid, Period>,
    /// The latest objects of those that exist.
    objects: HashMap<Uid, Pod>,
}

#[derive(Debug)]
struct Period {
    until: Instant,
    is_assigned: bool,
}

impl SetAsidePods {
    pub(super) fn add(&mut self, pod: &CurrentPod, until: Instant) {
        let period = Period { until, is_assigned: pod.is_assigned };
        self.until.insert(pod.pod.uid.clone(), period);
    }

    /// Whether a pod is set aside now. A pod that got a node meanwhile is not: its requests count on the node.
    pub(super) fn applies(&self, pod: &Pod, now: Instant) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let period = self.until.get(pod.metadata.uid.as_deref().unwrap_or_default());
        period.is_some_and(|period| now < period.until && period.is_assigned == is_assigned(pod))
    }

    /// Stores the object of a pod that is set aside, for its retry.
    pub(super) fn store(&mut self, pod: &Pod) {
        self.objects.insert(pod.metadata.uid.clone().unwrap_or_default().into(), pod.clone());
    }

    /// Forgets the object of a pod that is deleted or updated.
    pub(super) fn forget(&mut self, uid: &str) {
        self.objects.remove(uid);
    }

    /// Takes the pods whose retry is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Pod> {
        if self.until.values().all(|period| now < period.until) {
            return Vec::new();
        }
        let due: Vec<Uid> =
            self.until.extract_if(|_, period| period.until <= now).map(|(uid, _)| uid).collect();
        due.iter().filter_map(|uid| self.objects.remove(uid)).collect()
    }
}
