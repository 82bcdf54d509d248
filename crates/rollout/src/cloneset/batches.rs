//! In-place updates in batches, by the launch priorities of containers.
//!
//! ```text
//!   first batch: images, intent ▸ resize ──▶ its containers run, are resized and ready ──▶ next batch ──▶ … ──▶ done
//! ```
//!
//! What is left is in the annotation [`UPDATE_STATE`](keys::UPDATE_STATE) of the pod, in OpenKruise's fields.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::action::Action;
use super::in_place::{
    InPlace, NewCondition, PreCheck, UpdateBatch, UpdateState, condition_patch, has_gate, unready_since,
};
use super::lifecycle::seconds;
use super::scope::{Scope, is_applied};
use super::view::PodView;
use super::{keys, priorities};
use crate::engine::{Change, Direction, Hooks as _, Vertical, compare_desired, plan_next};

/// The first batch of an update.
pub(super) struct FirstBatch {
    /// The patch by which it begins, but for the resize.
    pub(super) patch: Value,
    /// The containers that are updated later.
    pub(super) later: BTreeSet<String>,
}

impl Scope<'_> {
    /// The first batch of an update, which includes all containers if no priorities say otherwise.
    pub(super) fn first_batch(
        &self,
        view: &PodView,
        in_place: &InPlace,
        change: Option<&Vertical>,
        lifecycle: Value,
    ) -> FirstBatch {
        let (pod, now) = (&view.pod, self.context.now);
        let resized = change.into_iter().flat_map(|change| &change.containers);
        let updated: BTreeSet<&str> =
            in_place.images.keys().map(String::as_str).chain(resized.map(|one| one.name.as_str())).collect();
        // A resize alone has the pace of the engine, which knows no batches.
        let later = if in_place.images.is_empty() {
            BTreeSet::new()
        } else {
            priorities::later(pod, updated.iter().copied())
        };
        let first = without(in_place, &later);
        let restarts = change.is_some_and(|change| change.restarts);
        let mut state = first.state(pod, self.revisions.update_name(), restarts, now);
        state.update_images = !in_place.images.is_empty();
        let names: Vec<&str> = updated.into_iter().filter(|name| !later.contains(*name)).collect();
        if !names.is_empty() {
            state.container_batches_record.push(UpdateBatch {
                timestamp: seconds(now),
                containers: names.iter().map(|name| (*name).to_owned()).collect(),
            });
        }
        if !later.is_empty() {
            let images = in_place.images.iter().filter(|(name, _)| later.contains(*name));
            state.next_container_images = images.map(|(name, image)| (name.clone(), image.clone())).collect();
            let resized = change.into_iter().flat_map(|change| &change.containers);
            let resized = resized.filter(|one| later.contains(&one.name));
            state.next_container_resources =
                resized.map(|one| (one.name.clone(), one.resources.set.clone())).collect();
            state.pre_check_before_next = Some(PreCheck::of(&names));
        }
        FirstBatch { patch: first.patch(&state, lifecycle), later }
    }

    /// The next batch of an update, once the containers of the one before run their new images, are resized and ready.
    pub(super) fn next_batch(&self, view: &PodView) -> Option<Action> {
        let (pod, now) = (&view.pod, self.context.now);
        let mut state = UpdateState::read(pod).filter(UpdateState::has_next)?;
        let record = view.record.as_ref()?;
        if record.direction == Direction::Back || record.finished_at.is_some() {
            return None;
        }
        let hooks = self.hooks_under_way(view);
        let is_resized = matches!(hooks.change(pod, hooks.desired()), Change::None) && is_applied(pod);
        let required = state.pre_check_before_next.iter().flat_map(|check| &check.containers_required_ready);
        let is_ready = required.into_iter().all(|name| is_ready(pod, name));
        if state.waiting(pod).next().is_some() || !is_resized || !is_ready {
            return None;
        }
        let names: BTreeSet<String> = state.next_containers().map(ToOwned::to_owned).collect();
        let later = priorities::later(pod, names.iter().map(String::as_str));
        let batch: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !later.contains(*name)).collect();
        let images = state.next_container_images.clone();
        let next = without(&InPlace { images, ..InPlace::default() }, &later);
        let change = match compare_desired(&self.desired_of(view, &later), pod, self.context.rules) {
            Change::Vertical(change) if self.context.vertical && state.update_resources => Some(change),
            _ => None,
        };
        state.next_container_images.retain(|name, _| later.contains(name));
        state.next_container_resources.retain(|name, _| later.contains(name));
        state.last_container_statuses.extend(next.last_statuses(pod));
        state.pre_check_before_next = (!later.is_empty()).then(|| PreCheck::of(&batch));
        state.container_batches_record.push(UpdateBatch {
            timestamp: seconds(now),
            containers: batch.iter().map(|name| (*name).to_owned()).collect(),
        });
        // The state is plain data: it can be written.
        let text = serde_json::to_string(&state).unwrap_or_default();
        let mut fields = json!({ "metadata": { "annotations": { keys::UPDATE_STATE: text } } });
        if let Some(containers) = next.containers() {
            fields["spec"] = json!({ "containers": containers });
        }
        let plan = plan_next(pod, record, fields, change.as_deref());
        let closes = has_gate(pod, keys::UPDATE_READY) && unready_since(pod).is_none();
        let condition = NewCondition::new(keys::UPDATE_READY, false, keys::START_UPDATE);
        let unready = closes.then(|| condition_patch(pod, &[condition], now));
        Some(Action::UpdatePod { pod: pod.clone(), unready, plan: Box::new(plan) })
    }
}

/// An update without the images of containers that are updated later.
fn without(in_place: &InPlace, later: &BTreeSet<String>) -> InPlace {
    let mut first = in_place.clone();
    first.images.retain(|name, _| !later.contains(name));
    first
}

fn is_ready(pod: &Pod, container: &str) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default().iter().any(|status| status.name == container && status.ready)
}
