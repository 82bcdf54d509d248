//! The lifecycle states of a pod, and how hooks hold it.
//!
//! ```text
//!   PreparingNormal ──▶ Normal ──▶ PreparingUpdate ──▶ Updating ──▶ Updated ──▶ Normal
//!     preNormal           │          inPlaceUpdate                  inPlaceUpdate
//!                         └──▶ PreparingDelete ──▶ deleted
//!                                preDelete
//! ```
//!
//! A state is entered without the one before it where no hook holds the pod: from `Normal` to `Updating`, and from
//! `Updating` to `Normal`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::pods;
use serde_json::{Map, Value, json};

use super::keys;
use crate::api::cloneset::{Lifecycle, LifecycleHook};

/// The lifecycle state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The pod was created; the hook `preNormal` may hold it.
    PreparingNormal,
    /// The pod runs. A pod without the label is in this state, too.
    Normal,
    /// The pod is to be updated in place; the hook `inPlaceUpdate` holds it.
    PreparingUpdate,
    /// The pod is being updated in place.
    Updating,
    /// The pod was updated; the hook `inPlaceUpdate` holds it until its labels and finalizers are there again.
    Updated,
    /// The pod is to be deleted; the hook `preDelete` holds it.
    PreparingDelete,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::PreparingNormal,
        Self::Normal,
        Self::PreparingUpdate,
        Self::Updating,
        Self::Updated,
        Self::PreparingDelete,
    ];

    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreparingNormal => "PreparingNormal",
            Self::Normal => "Normal",
            Self::PreparingUpdate => "PreparingUpdate",
            Self::Updating => "Updating",
            Self::Updated => "Updated",
            Self::PreparingDelete => "PreparingDelete",
        }
    }

    /// The state of a pod. A value that is unknown counts as none.
    pub fn of(pod: &Pod) -> Self {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(keys::STATE));
        let state = label.and_then(|label| Self::ALL.into_iter().find(|state| state.name() == label));
        state.unwrap_or(Self::Normal)
    }

    /// The part of a patch of a pod's metadata by which it enters the state.
    pub fn patch(self, now: Timestamp) -> Value {
        json!({
            "labels": { keys::STATE: self.name() },
            "annotations": { keys::STATE_TIMESTAMP: seconds(now) },
        })
    }
}

/// A time in whole seconds, as Go's RFC 3339 has it.
pub(super) fn seconds(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

/// The state after an in-place update: whether the hook has to be complete again first.
pub fn after_update(lifecycle: &Lifecycle, pod: &Pod) -> State {
    match &lifecycle.in_place_update {
        Some(hook) if !hook.is_complete(pod) => State::Updated,
        _ => State::Normal,
    }
}

/// The state that a pod enters without anything being done to it, if there is one. A pod is at its target if its revision
/// is the one that it should have.
pub fn next(lifecycle: &Lifecycle, pod: &Pod, at_target: bool) -> Option<State> {
    match State::of(pod) {
        State::PreparingNormal => {
            let normal = match &lifecycle.pre_normal {
                // Before it is assigned, a change of its labels could confuse a scheduler (OpenKruise's issue 1485).
                None => pods::node_of(pod).is_some(),
                Some(hook) => hook.is_complete(pod),
            };
            normal.then_some(State::Normal)
        }
        // The template was reverted before the update began (OpenKruise's issue 1156).
        State::PreparingUpdate if at_target => Some(after_update(lifecycle, pod)),
        State::Updated if after_update(lifecycle, pod) == State::Normal => Some(State::Normal),
        _ => None,
    }
}

/// Whether a hook holds a pod.
pub fn is_held(hook: Option<&LifecycleHook>, pod: &Pod) -> bool {
    hook.is_some_and(|hook| hook.holds(pod))
}

/// The metadata by which a pod that was updated and is to be updated again is held once more: with all labels and
/// finalizers of the hook.
pub fn hold_again(hook: &LifecycleHook, pod: &Pod, now: Timestamp) -> Value {
    let mut metadata = State::PreparingUpdate.patch(now);
    if let Some(labels) = metadata["labels"].as_object_mut() {
        let added: Map<String, Value> =
            hook.labels_handler.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        labels.extend(added);
    }
    let present = pod.metadata.finalizers.iter().flatten();
    let missing = hook.finalizers_handler.iter().filter(|name| !present.clone().any(|one| one == *name));
    let missing: Vec<&String> = missing.collect();
    if !missing.is_empty() {
        // A strategic merge patch adds them to the others.
        metadata["finalizers"] = json!(missing);
    }
    metadata
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn pod(state: Option<State>, hooked: &[&str], node: Option<&str>) -> Pod {
        let mut labels = Map::new();
        if let Some(state) = state {
            labels.insert(keys::STATE.to_owned(), json!(state.name()));
        }
        for label in hooked.iter().filter(|key| !key.contains('/')) {
            labels.insert((*label).to_owned(), json!("on"));
        }
        let finalizers: Vec<&&str> = hooked.iter().filter(|key| key.contains('/')).collect();
        from_value(json!({
            "metadata": { "name": "p", "labels": labels, "finalizers": finalizers },
            "spec": { "containers": [], "nodeName": node },
        }))
        .unwrap()
    }

    fn lifecycle(hook: &str) -> Lifecycle {
        let handler = json!({ "labelsHandler": { "warm": "on" }, "finalizersHandler": ["example.com/a"] });
        if hook.is_empty() { Lifecycle::default() } else { from_value(json!({ hook: handler })).unwrap() }
    }

    const BOTH: &[&str] = &["warm", "example.com/a"];
    const ONE: &[&str] = &["warm"];

    #[test]
    fn pods_move_through_their_states() {
        use State::{Normal, PreparingDelete, PreparingNormal, PreparingUpdate, Updated, Updating};
        // Hook, state, which of its two labels and finalizers, node, at its target; the next state.
        type Row =
            (&'static str, Option<State>, &'static [&'static str], Option<&'static str>, bool, Option<State>);
        let table: [Row; 19] = [
            ("", Some(PreparingNormal), &[], None, true, None),
            ("", Some(PreparingNormal), &[], Some("n"), true, Some(Normal)),
            ("preNormal", Some(PreparingNormal), ONE, Some("n"), true, None),
            ("preNormal", Some(PreparingNormal), BOTH, None, true, Some(Normal)),
            ("inPlaceUpdate", Some(PreparingNormal), &[], Some("n"), true, Some(Normal)),
            ("", None, &[], Some("n"), true, None),
            ("", Some(Normal), &[], Some("n"), false, None),
            ("inPlaceUpdate", Some(PreparingUpdate), BOTH, Some("n"), false, None),
            ("inPlaceUpdate", Some(PreparingUpdate), &[], Some("n"), false, None),
            ("inPlaceUpdate", Some(PreparingUpdate), BOTH, Some("n"), true, Some(Normal)),
            ("inPlaceUpdate", Some(PreparingUpdate), ONE, Some("n"), true, Some(Updated)),
            ("", Some(PreparingUpdate), &[], Some("n"), true, Some(Normal)),
            ("inPlaceUpdate", Some(Updating), BOTH, Some("n"), true, None),
            ("inPlaceUpdate", Some(Updated), &[], Some("n"), true, None),
            ("inPlaceUpdate", Some(Updated), ONE, Some("n"), true, None),
            ("inPlaceUpdate", Some(Updated), BOTH, Some("n"), true, Some(Normal)),
            // The hook was removed (OpenKruise's issue 676).
            ("", Some(Updated), &[], Some("n"), true, Some(Normal)),
            ("preDelete", Some(Updated), &[], Some("n"), false, Some(Normal)),
            ("", Some(PreparingDelete), &[], Some("n"), true, None),
        ];
        for (hook, state, hooked, node, at_target, expected) in table {
            let pod = pod(state, hooked, node);
            assert_eq!(
                next(&lifecycle(hook), &pod, at_target),
                expected,
                "{hook}: {state:?} {hooked:?} {at_target}"
            );
        }
    }

    #[test]
    fn any_label_or_finalizer_holds_a_pod_and_all_complete_it() {
        let hook = lifecycle("inPlaceUpdate").in_place_update.unwrap();
        for (hooked, holds, complete) in [(&[][..], false, false), (ONE, true, false), (BOTH, true, true)] {
            let pod = pod(None, hooked, None);
            assert_eq!((hook.holds(&pod), hook.is_complete(&pod)), (holds, complete), "{hooked:?}");
        }
    }

    #[test]
    fn a_pod_that_is_held_again_gets_what_it_lacks() {
        let hook = lifecycle("inPlaceUpdate").in_place_update.unwrap();
        let metadata = hold_again(&hook, &pod(Some(State::Updated), &[], None), Timestamp::UNIX_EPOCH);
        assert_eq!(
            metadata,
            json!({
                "labels": { keys::STATE: "PreparingUpdate", "warm": "on" },
                "annotations": { keys::STATE_TIMESTAMP: "1970-01-01T00:00:00Z" },
                "finalizers": ["example.com/a"],
            })
        );
        let metadata = hold_again(&hook, &pod(Some(State::Updated), BOTH, None), Timestamp::UNIX_EPOCH);
        assert_eq!(metadata.get("finalizers"), None);
    }
}
