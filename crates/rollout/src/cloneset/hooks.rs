//! The hooks of the engine for pods of a `CloneSet`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::pods;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::in_place::UpdateState;
use super::keys;
use super::lifecycle::after_update;
use crate::api::cloneset::Lifecycle;
use crate::engine::{Desired, Hooks, NotDone, PodRecord};

/// The hooks of one pod and the revision that it follows.
pub(super) struct PodHooks<'a> {
    pub(super) revision: String,
    /// The revision that all pods had last.
    pub(super) base: String,
    /// The resources of the revision; none if the update does not change resources.
    pub(super) desired: Desired,
    pub(super) rules: &'a Rules,
    pub(super) lifecycle: &'a Lifecycle,
    /// The fields that are written with the intent.
    pub(super) begin: Option<Value>,
    /// The containers that are not resized with the intent, but later.
    pub(super) later: BTreeSet<String>,
    /// The fields that are written once the pod was resized back.
    pub(super) back: Option<Value>,
    pub(super) now: Timestamp,
}

impl Hooks for PodHooks<'_> {
    fn revision(&self) -> &str {
        &self.revision
    }

    fn base(&self) -> &str {
        &self.base
    }

    fn desired(&self) -> &Desired {
        &self.desired
    }

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn on_begin(&self, _: &Pod) -> Option<Value> {
        self.begin.clone()
    }

    fn resizes_later(&self, container: &str) -> bool {
        self.later.contains(container)
    }

    fn on_done(&self, pod: &Pod) -> Option<Value> {
        Some(json!({ "metadata": after_update(self.lifecycle, pod).patch(self.now) }))
    }

    fn on_back(&self, _: &Pod, _: &PodRecord) -> Option<Value> {
        self.back.clone()
    }

    fn ready_since(&self, pod: &Pod) -> Option<Timestamp> {
        // A hook with `markPodNotReady` keeps the pod unready until its update is over: only its containers tell.
        let is_held = pods::condition(pod, keys::POD_READY).is_some_and(|held| held.status == "False");
        let ready = pods::condition(pod, if is_held { "ContainersReady" } else { "Ready" });
        let ready = ready.filter(|ready| ready.status == "True")?;
        Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
    }

    fn containers_done(&self, pod: &Pod, _: &PodRecord) -> Result<(), NotDone> {
        let state = UpdateState::read(pod).unwrap_or_default();
        let waiting: Vec<&str> = state.waiting(pod).collect();
        if !waiting.is_empty() {
            return Err(NotDone(format!("new images of containers {}", waiting.join(", "))));
        }
        let next: BTreeSet<&str> = state.next_containers().collect();
        if next.is_empty() {
            return Ok(());
        }
        let next: Vec<&str> = next.into_iter().collect();
        Err(NotDone(format!("the update of containers of a lower launch priority: {}", next.join(", "))))
    }
}
