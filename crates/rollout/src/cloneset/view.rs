//! A pod of a set, as decisions see it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::pods;
use plumb_resize::status::{self, Stage};

use super::in_place::{UpdateState, has_gate};
use super::lifecycle::State;
use super::{keys, revisions};
use crate::api::cloneset::Settings;
use crate::engine::PodRecord;

/// A pod of a set, as decisions see it. The pod neither has ended nor is terminating.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct PodView {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its lifecycle state.
    pub state: State,
    /// Whether it has the update revision.
    pub is_updated: bool,
    /// Whether it is ready, and no in-place update has made it unready.
    pub is_ready: bool,
    /// Whether it is available.
    pub is_available: bool,
    /// Whether it should be deleted, because of its label or the set.
    pub is_specified_delete: bool,
    /// The record of its last resize.
    pub record: Option<PodRecord>,
}

impl PodView {
    /// Creates the view of a pod.
    pub fn of(pod: &Arc<Pod>, settings: &Settings, update_revision: &str, now: Timestamp) -> Self {
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        Self {
            state: State::of(pod),
            is_updated: revisions::has(pod, update_revision),
            is_ready: is_ready(pod, 0, now),
            is_available: is_available(pod, settings.min_ready_seconds, now),
            is_specified_delete: label(keys::SPECIFIED_DELETE) == Some("true")
                || settings.pods_to_delete.contains(name),
            record: PodRecord::read(pod),
            pod: pod.clone(),
        }
    }

    /// The name of the pod.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Whether a pod runs, has been ready for long enough, and no in-place update has made it unready.
fn is_ready(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pods::phase(pod) == "Running"
        && pods::is_available(pod, min_ready_seconds, now)
        && pods::condition(pod, keys::UPDATE_READY).is_none_or(|condition| condition.status == "True")
}

/// Whether the node has reported a resize as deferred or infeasible.
pub(super) fn is_postponed(pod: &Pod) -> bool {
    let stage = status::read(pod).map(|reading| reading.stage);
    matches!(stage, Ok(Stage::Deferred { .. } | Stage::Infeasible { .. }))
}

/// Whether a pod is available. One that is resized without a restart stays so: OpenKruise counts it as unavailable, and
/// reports less than there is (OpenKruise's issue 2049). One with new images is available again once it runs them, unless its node
/// is about to restart it for a resize.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    let by_state = match State::of(pod) {
        State::Normal => true,
        State::Updating => UpdateState::read(pod).is_some_and(|state| {
            // The gate is closed until the resize is applied, or does not come.
            let serves = !state.resize_restarts || has_gate(pod, keys::UPDATE_READY) || is_postponed(pod);
            serves && state.waiting(pod).next().is_none()
        }),
        State::PreparingNormal | State::PreparingUpdate | State::Updated | State::PreparingDelete => false,
    };
    by_state && is_ready(pod, min_ready_seconds, now)
}
