//! Pod updates: PUT and PATCH on the pod itself.

use k8s_openapi::api::core::v1::{Container, Pod, PodAffinity, PodAntiAffinity, PodSpec};
use plumb_validation::field::FieldError;

use super::changes::{container_changes, other_resources_differ, resources_differ, spec_changes};
use super::{init_containers, init_pairs, never_resizable, refused_init_change, resource_rules};
use crate::rules::Rules;

/// The mutable fields of every pod, in the words of kube-apiserver.
const MUTABLE: [&str; 5] = [
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
];
/// The additional mutable fields, if resources change by a pod update.
const MUTABLE_RESOURCES: &str = "`spec.containers[*].resources` (for CPU/memory only)";

/// Checks that an update of a pod changes no field that cannot change.
///
/// Where the rules allow resizes by a pod update, resources pass the same rules as through `/resize`; elsewhere
/// a changed resource is a field like any other. How `tolerations`, `schedulingGates` and the other mutable
/// fields may change is validated by the API server; here they may.
pub fn update(stored: &Pod, new: &Pod, rules: &Rules) -> Vec<FieldError> {
    let mut errors = super::pod(new, Some(stored));
    let Some((old_spec, new_spec)) = stored.spec.as_ref().zip(new.spec.as_ref()) else { return errors };
    if let Some(refusal) = containers_added_or_removed(old_spec, new_spec) {
        errors.push(refusal);
        return errors;
    }
    let resized = resources_changed(old_spec, new_spec);
    if resized && rules.resize_by_pod_update {
        if let Some(refusal) = never_resizable(stored, old_spec, rules) {
            return vec![refusal];
        }
        if !resource_rules(stored, old_spec, new_spec, rules, &mut errors) {
            return errors;
        }
        for (i, (old, new)) in init_pairs(old_spec, new_spec).enumerate() {
            if resources_differ(old.resources.as_ref(), new.resources.as_ref()) {
                errors.extend(refused_init_change(&format!("spec.initContainers[{i}]"), new, rules));
            }
        }
    }
    let mut changed = spec_changes(old_spec, new_spec, &mutable_fields(old_spec, new_spec));
    let containers = old_spec.containers.iter().zip(&new_spec.containers).enumerate();
    let init = init_pairs(old_spec, new_spec).enumerate();
    for (list, i, old, new) in init
        .map(|(i, (old, new))| ("initContainers", i, old, new))
        .chain(containers.map(|(i, (old, new))| ("containers", i, old, new)))
    {
        let path = format!("spec.{list}[{i}]");
        changed.extend(container_changes(old, new, &path, &["image"]));
        if immutable_resources_changed(old, new, rules) {
            changed.push(format!("{path}.resources"));
        }
    }
    let (before, after) = (old_spec.resources.as_ref(), new_spec.resources.as_ref());
    // An empty set of resources for the pod is not the same as none.
    if !rules.resize_by_pod_update && (before.is_some() != after.is_some() || resources_differ(before, after))
    {
        changed.push("spec.resources".to_owned());
    }
    if !changed.is_empty() {
        errors.push(FieldError::forbidden("spec", immutable_message(&changed, rules)));
    }
    errors
}

/// Whether any resource of a pod differs between two specs with as many containers.
fn resources_changed(old: &PodSpec, new: &PodSpec) -> bool {
    let differ = |(old, new): (&Container, &Container)| {
        resources_differ(old.resources.as_ref(), new.resources.as_ref())
    };
    old.containers.iter().zip(&new.containers).any(differ)
        || init_pairs(old, new).any(differ)
        || resources_differ(old.resources.as_ref(), new.resources.as_ref())
}

fn immutable_resources_changed(old: &Container, new: &Container, rules: &Rules) -> bool {
    let (old, new) = (old.resources.as_ref(), new.resources.as_ref());
    if rules.resize_by_pod_update { other_resources_differ(old, new) } else { resources_differ(old, new) }
}

fn containers_added_or_removed(old: &PodSpec, new: &PodSpec) -> Option<FieldError> {
    let lengths = [
        ("spec.containers", old.containers.len(), new.containers.len()),
        ("spec.initContainers", init_containers(old).len(), init_containers(new).len()),
    ];
    let (path, ..) = lengths.into_iter().find(|(_, old, new)| old != new)?;
    Some(FieldError::forbidden(path, "pod updates may not add or remove containers"))
}

/// The fields of a spec that may change, beside images and resources.
fn mutable_fields(old: &PodSpec, new: &PodSpec) -> Vec<&'static str> {
    let mut mutable = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0)
        && new.termination_grace_period_seconds == Some(1)
    {
        mutable.push("terminationGracePeriodSeconds");
    }
    if old.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        // The node selection of a pod with scheduling gates may still be changed.
        mutable.push("nodeSelector");
        if between_pods(old) == between_pods(new) {
            mutable.push("affinity");
        }
    }
    mutable
}

/// The affinities that name other pods, not nodes.
fn between_pods(spec: &PodSpec) -> (Option<&PodAffinity>, Option<&PodAntiAffinity>) {
    let affinity = spec.affinity.as_ref();
    (affinity.and_then(|a| a.pod_affinity.as_ref()), affinity.and_then(|a| a.pod_anti_affinity.as_ref()))
}

fn immutable_message(changed: &[String], rules: &Rules) -> String {
    let mut mutable = MUTABLE.to_vec();
    if rules.resize_by_pod_update {
        mutable.push(MUTABLE_RESOURCES);
    }
    let list = mutable.join(",");
    let changed = changed.join("\n  ");
    format!("pod updates may not change fields other than {list}\nchanged:\n  {changed}\n")
}
