//! What a `CloneSet` asks for, in either form, with defaults.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_controller_runtime::int_or_percent::{percent, rounded_down, rounded_up};

use super::strategy::Pace;
use super::{CloneSet, Lifecycle, PriorityStrategy, ScatterTerm};

/// The label of a `v1alpha1` object that excludes pods in `PreparingDelete` from the replicas.
const EXCLUDE_PREPARING_DELETE: &str = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete";
/// The default of `maxUnavailable`.
const MAX_UNAVAILABLE: &str = "20%";
/// The default of `revisionHistoryLimit`.
const HISTORY_LIMIT: i32 = 10;
/// A `progressDeadlineSeconds` that means none.
const NO_DEADLINE: i32 = i32::MAX;

/// How a pod is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodUpdatePolicy {
    /// It is deleted, and another is created.
    #[default]
    ReCreate,
    /// In place where that is possible, else it is recreated.
    InPlaceIfPossible,
    /// In place, or not at all.
    InPlaceOnly,
}

/// What a `CloneSet` asks for.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the object")]
pub struct Settings {
    /// How many pods.
    pub replicas: i32,
    /// Whether pods are updated only when something else deletes them.
    pub on_delete: bool,
    /// How a pod is updated.
    pub policy: PodUpdatePolicy,
    /// How many pods stay at an old revision.
    pub partition: i32,
    /// How many pods may be unavailable.
    pub max_unavailable: i32,
    /// How many pods there may be beyond the replicas; none while the update is paused.
    pub max_surge: i32,
    /// Whether the update is paused: the controller updates no further pods.
    pub paused: bool,
    /// Which pods are updated first.
    pub priority: PriorityStrategy,
    /// Labels whose pods are spread over the whole update.
    pub scatter: Vec<ScatterTerm>,
    /// For how many seconds a pod is not ready before it is updated in place with a restart.
    pub grace_period_seconds: i32,
    /// Names of pods to delete.
    pub pods_to_delete: BTreeSet<String>,
    /// How many pods may be unavailable for further ones to be created.
    pub scale_max_unavailable: Option<i32>,
    /// Whether claims of pods that are gone are given to new ones.
    pub reuse_claims: bool,
    /// Whether pods in `PreparingDelete` are not counted as replicas.
    pub exclude_preparing_delete: bool,
    /// For how many seconds a pod has to be ready to be available.
    pub min_ready_seconds: i32,
    /// How many revisions of the past are kept.
    pub history_limit: i32,
    /// The hooks.
    pub lifecycle: Lifecycle,
    /// For how many seconds an update may make no progress.
    pub progress_deadline_seconds: Option<i32>,
}

impl CloneSet {
    /// What it asks for, with OpenKruise's defaults. A value that the schema refuses counts as its default, so that an
    /// object of another schema does no harm.
    pub fn settings(&self) -> Settings {
        let spec = &self.spec;
        let replicas = spec.replicas.unwrap_or(1).max(0);
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        let nested = strategy.rolling_update.clone().unwrap_or_default();
        let pace = merged(nested.pace, strategy.pace);
        let policy = match strategy.type_.as_deref() {
            Some("ReCreate") => PodUpdatePolicy::ReCreate,
            Some("InPlaceIfPossible") => PodUpdatePolicy::InPlaceIfPossible,
            Some("InPlaceOnly") => PodUpdatePolicy::InPlaceOnly,
            _ => match nested.pod_update_policy.as_deref() {
                Some("InPlaceIfPossible") => PodUpdatePolicy::InPlaceIfPossible,
                Some("InPlaceOnly") => PodUpdatePolicy::InPlaceOnly,
                _ => PodUpdatePolicy::ReCreate,
            },
        };
        let paused = pace.paused.unwrap_or(false);
        let surge = pace.max_surge.as_ref().filter(|_| !paused);
        let max_surge = surge.map_or(0, |surge| rounded_up(surge, replicas)).max(0);
        let unavailable =
            pace.max_unavailable.unwrap_or_else(|| IntOrString::String(MAX_UNAVAILABLE.to_owned()));
        let max_unavailable = if max_surge == 0 {
            rounded_up(&unavailable, replicas)
        } else {
            rounded_down(&unavailable, replicas)
        };
        let scale = spec.scale_strategy.clone().unwrap_or_default();
        let label = self.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDE_PREPARING_DELETE));
        Settings {
            replicas,
            on_delete: strategy.type_.as_deref() == Some("OnDelete"),
            policy,
            partition: pace.partition.map_or(0, |value| partition(&value, replicas)),
            max_unavailable: max_unavailable.max(0),
            max_surge,
            paused,
            priority: pace.priority_strategy.unwrap_or_default(),
            scatter: pace.scatter_strategy,
            grace_period_seconds: pace
                .in_place_update_strategy
                .and_then(|strategy| strategy.grace_period_seconds)
                .unwrap_or(0)
                .max(0),
            pods_to_delete: scale.pods_to_delete.into_iter().collect(),
            scale_max_unavailable: scale.max_unavailable.map(|value| rounded_up(&value, replicas).max(0)),
            reuse_claims: scale.enable_pvc_reuse.or(scale.disable_pvc_reuse.map(|off| !off)).unwrap_or(false),
            exclude_preparing_delete: scale
                .exclude_preparing_delete
                .unwrap_or_else(|| label.is_some_and(|value| value == "true")),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0).max(0),
            history_limit: spec.revision_history_limit.unwrap_or(HISTORY_LIMIT).max(0),
            lifecycle: spec.lifecycle.clone().unwrap_or_default(),
            progress_deadline_seconds: spec
                .progress_deadline_seconds
                .filter(|seconds| *seconds != NO_DEADLINE),
        }
    }

    /// The labels by which its pods and claims are selected.
    pub fn match_labels(&self) -> BTreeMap<String, String> {
        self.spec.selector.match_labels.clone().unwrap_or_default()
    }
}

/// The fields of the nested form, and those of the flat form that it lacks.
fn merged(nested: Pace, flat: Pace) -> Pace {
    Pace {
        partition: nested.partition.or(flat.partition),
        max_unavailable: nested.max_unavailable.or(flat.max_unavailable),
        max_surge: nested.max_surge.or(flat.max_surge),
        paused: nested.paused.or(flat.paused),
        priority_strategy: nested.priority_strategy.or(flat.priority_strategy),
        scatter_strategy: if nested.scatter_strategy.is_empty() {
            flat.scatter_strategy
        } else {
            nested.scatter_strategy
        },
        in_place_update_strategy: nested.in_place_update_strategy.or(flat.in_place_update_strategy),
    }
}

/// How many pods stay at an old revision. A percentage below 100 leaves at least one pod of several to update.
fn partition(value: &IntOrString, replicas: i32) -> i32 {
    let stay = rounded_up(value, replicas).clamp(0, replicas);
    if replicas > 1 && stay == replicas && percent(value).is_some_and(|percent| percent < 100) {
        replicas - 1
    } else {
        stay
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(spec: Value) -> Settings {
        let mut whole = json!({ "selector": {}, "template": {} });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let set: CloneSet =
            serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": whole })).unwrap();
        set.settings()
    }

    #[test]
    fn absent_fields_have_the_defaults_of_openkruise() {
        let found = settings(json!({ "replicas": 10 }));
        assert_eq!((found.replicas, found.partition, found.max_unavailable, found.max_surge), (10, 0, 2, 0));
        assert_eq!(found.policy, PodUpdatePolicy::ReCreate);
        assert!(!found.on_delete && !found.paused && !found.reuse_claims && !found.exclude_preparing_delete);
        assert_eq!((found.history_limit, found.min_ready_seconds, found.grace_period_seconds), (10, 0, 0));
        assert_eq!((found.progress_deadline_seconds, found.scale_max_unavailable), (None, None));
        assert_eq!(settings(json!({})).replicas, 1);
    }

    #[test]
    fn both_forms_say_the_same() {
        let pace = json!({
            "partition": "30%", "maxUnavailable": 3, "maxSurge": "10%", "paused": false,
            "priorityStrategy": { "orderPriority": [{ "orderedKey": "zone" }] },
            "scatterStrategy": [{ "key": "a", "value": "b" }],
            "inPlaceUpdateStrategy": { "gracePeriodSeconds": 7 },
        });
        for policy in ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"] {
            let (mut flat, mut nested) = (pace.clone(), pace.clone());
            flat["type"] = json!(policy);
            nested["podUpdatePolicy"] = json!(policy);
            let nested = json!({ "type": "RollingUpdate", "rollingUpdate": nested });
            let of = |strategy: Value| settings(json!({ "replicas": 10, "updateStrategy": strategy }));
            assert_eq!(of(flat), of(nested), "{policy}");
        }
        let on_delete = settings(json!({ "updateStrategy": { "type": "OnDelete" } }));
        assert!(on_delete.on_delete);
    }

    #[test]
    fn percentages_are_rounded_as_openkruise_does() {
        // Replicas, partition, maxUnavailable, maxSurge; what they come to.
        let table = [
            (10, json!("25%"), json!("25%"), json!(0), (3, 3, 0)),
            (10, json!("25%"), json!("25%"), json!("25%"), (3, 2, 3)),
            (10, json!(20), json!(20), json!(20), (10, 20, 20)),
            (3, json!("99%"), json!("1%"), json!(0), (2, 1, 0)),
            (3, json!("100%"), json!("0%"), json!(0), (3, 0, 0)),
            (1, json!("50%"), json!("50%"), json!(0), (1, 1, 0)),
            (0, json!("50%"), json!("50%"), json!("50%"), (0, 0, 0)),
        ];
        for (replicas, partition, unavailable, surge, expected) in table {
            let strategy =
                json!({ "partition": partition, "maxUnavailable": unavailable, "maxSurge": surge });
            let found = settings(json!({ "replicas": replicas, "updateStrategy": strategy }));
            assert_eq!((found.partition, found.max_unavailable, found.max_surge), expected, "{strategy}");
        }
    }

    #[test]
    fn a_paused_update_does_not_surge() {
        let found = settings(json!({ "updateStrategy": { "paused": true, "maxSurge": 3 } }));
        assert_eq!(found.max_surge, 0);
    }

    #[test]
    fn claims_are_reused_if_either_form_says_so() {
        let reuse = |strategy: Value| settings(json!({ "scaleStrategy": strategy })).reuse_claims;
        assert!(reuse(json!({ "enablePVCReuse": true })));
        assert!(reuse(json!({ "disablePVCReuse": false })));
        assert!(!reuse(json!({ "disablePVCReuse": true })));
        assert!(!reuse(json!({ "enablePVCReuse": false, "disablePVCReuse": false })));
        assert!(!reuse(json!({})));
    }
}
