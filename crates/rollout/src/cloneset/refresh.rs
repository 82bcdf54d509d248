//! Work of pods that needs no decision: updates in progress, conditions, lifecycle states.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::pods;
use serde_json::json;

use super::action::{Action, Purpose};
use super::in_place::{NewCondition, UpdateState, condition_patch, has_gate};
use super::keys;
use super::lifecycle::{self, State as Stage};
use super::scope::{Scope, is_applied, is_under_way};
use super::view::{PodView, is_postponed};
use crate::api::cloneset::LifecycleHook;
use crate::engine::{Change, Evaluation, Hooks as _, PodState, RECORD_ANNOTATION, evaluate, plan};

/// The actions for a pod, and its reported state.
#[derive(Default)]
pub(super) struct Refreshed {
    pub(super) action: Option<Action>,
    /// Why it does not follow, if it does not.
    pub(super) stuck: Option<String>,
    pub(super) due: Option<Timestamp>,
}

impl Refreshed {
    fn act(action: Action) -> Self {
        Self { action: Some(action), ..Self::default() }
    }
}

impl Scope<'_> {
    /// The work of a pod that needs no decision. A pod that is being prepared for an update stays unready.
    pub(super) fn refresh(&self, view: &PodView, preparing: bool) -> Refreshed {
        if let Some(action) = self.mark_ready_by_hooks(view) {
            return Refreshed::act(action);
        }
        if is_under_way(view) {
            return self.go_on(view);
        }
        if has_gate(&view.pod, keys::UPDATE_READY) && !is_true(&view.pod, keys::UPDATE_READY) && !preparing {
            return Refreshed::act(self.mark_ready(view));
        }
        if let Some(stage) = lifecycle::next(&self.settings.lifecycle, &view.pod, view.is_updated) {
            return Refreshed::act(self.enter(view, stage));
        }
        if self.was_rolled_back(view) {
            // A template that comes back is the same revision again: the pod follows it then.
            let patch = json!({ "metadata": { "annotations": { RECORD_ANNOTATION: null } } });
            return Refreshed::act(Action::PatchPod {
                pod: view.pod.clone(),
                patch,
                purpose: Purpose::Lifecycle,
            });
        }
        Refreshed::default()
    }

    /// Enters a lifecycle state.
    pub(super) fn enter(&self, view: &PodView, stage: Stage) -> Action {
        Action::PatchPod {
            pod: view.pod.clone(),
            patch: json!({ "metadata": stage.patch(self.context.now) }),
            purpose: Purpose::Lifecycle,
        }
    }

    fn mark_ready(&self, view: &PodView) -> Action {
        let condition = NewCondition::new(keys::UPDATE_READY, true, "");
        let patch = condition_patch(&view.pod, &[condition], self.context.now);
        Action::PatchPodStatus { pod: view.pod.clone(), patch }
    }

    /// The next step of an update that is under way.
    fn go_on(&self, view: &PodView) -> Refreshed {
        let pod = &view.pod;
        let hooks = self.hooks_under_way(view);
        let Evaluation { state, next, due, .. } =
            evaluate(pod, &hooks, &self.state.policy.pod, self.context.now);
        let stuck = match &state {
            PodState::Stuck { reason, message } | PodState::RollbackFailed { reason, message } => {
                Some(format!("{}: {reason}: {message}", view.name()))
            }
            _ => None,
        };
        let retry = self.backoff(view);
        if retry.is_none()
            && let Some(action) = self.next_batch(view)
        {
            return Refreshed { action: Some(action), stuck, due };
        }
        let gated = has_gate(pod, keys::UPDATE_READY) && !is_true(pod, keys::UPDATE_READY);
        if gated {
            let update = UpdateState::read(pod).unwrap_or_default();
            let is_resized = matches!(hooks.change(pod, hooks.desired()), Change::None) && is_applied(pod);
            let runs = update.waiting(pod).next().is_none();
            let is_resized = is_resized && !update.has_next();
            // A resize that does not come must not keep a pod out of service that runs its new images.
            if runs && (is_resized || stuck.is_some() || is_postponed(pod)) {
                return Refreshed { action: Some(self.mark_ready(view)), stuck, due };
            }
        }
        let action = match plan(pod, &next, &hooks, self.context.now) {
            Some(_) if retry.is_some() => None,
            Some(plan) => Some(Action::UpdatePod { pod: pod.clone(), unready: None, plan: Box::new(plan) }),
            // There is no record, or the record is finished.
            None if state == PodState::Done => {
                Some(self.enter(view, lifecycle::after_update(&self.settings.lifecycle, pod)))
            }
            None => None,
        };
        Refreshed { action, stuck, due: [due, retry].into_iter().flatten().min() }
    }

    /// Makes a pod unready while a hook with `markPodNotReady` holds it, and ready again.
    fn mark_ready_by_hooks(&self, view: &PodView) -> Option<Action> {
        if !has_gate(&view.pod, keys::POD_READY) {
            return None;
        }
        let marks = |hook: &Option<LifecycleHook>| hook.as_ref().is_some_and(|hook| hook.mark_pod_not_ready);
        let is_ready = is_true(&view.pod, keys::POD_READY);
        let lifecycle = &self.settings.lifecycle;
        let key = match view.state {
            Stage::PreparingDelete if marks(&lifecycle.pre_delete) => Some("preDeleteHook"),
            Stage::PreparingUpdate if marks(&lifecycle.in_place_update) => Some("preUpdateHook"),
            Stage::Updating if marks(&lifecycle.in_place_update) && !is_ready => Some("preUpdateHook"),
            _ => None,
        };
        if is_ready == key.is_none() {
            return None;
        }
        let mut condition = NewCondition::new(keys::POD_READY, key.is_none(), "");
        if let Some(key) = key {
            condition.message = json!([{ "userAgent": "Lifecycle", "key": key }]).to_string();
        }
        let patch = condition_patch(&view.pod, &[condition], self.context.now);
        Some(Action::PatchPodStatus { pod: view.pod.clone(), patch })
    }
}

fn is_true(pod: &Pod, condition: &str) -> bool {
    pods::condition(pod, condition).is_some_and(|condition| condition.status == "True")
}
