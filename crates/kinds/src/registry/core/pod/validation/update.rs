//! Validation of the mutable fields of a pod update.

use k8s_openapi::api::core::v1::{
    Container, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use plumb_resize::rules::Rules;
use plumb_resize::validate;
use plumb_validation::field::{BadValue, FieldError, Path};

use super::{SPEC, add_missing, container, scheduling};
use plumb_apiserver::validation::json::{internal, raw, raw_list, shown_as_json};
use plumb_apiserver::validation::{Errors, format};

/// Validates the changes of a pod update. The updated pod is already validated.
pub(super) fn validate_pod_update(old: &Pod, new: &Pod, rules: &Rules, errors: &mut Errors) {
    let (Some(before), Some(after)) = (&old.spec, &new.spec) else { return };
    let lists = [
        ("containers", before.containers.as_slice(), after.containers.as_slice()),
        ("initContainers", init_containers(before), init_containers(after)),
    ];
    for (list, before, after) in lists {
        if before.len() != after.len() {
            // The comparison of the whole specs reports lists of different length.
            add_missing(validate::update(old, new, rules), errors);
            return;
        }
        validate_images(after, list, errors);
    }
    if !validate_active_deadline(before, after, errors) {
        return;
    }
    validate_only_added_tolerations(before, after, errors);
    validate_only_deleted_scheduling_gates(before, after, errors);
    add_missing(validate::update(old, new, rules), errors);
    if before.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        validate_node_selector_additions(before, after, errors);
        validate_node_affinity_additions(before, after, errors);
    }
}

fn init_containers(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

fn validate_images(containers: &[Container], list: &str, errors: &mut Errors) {
    let list = SPEC.child(list);
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        if container.image.as_deref().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(path.child("image"), ""));
        }
        container::validate_image_whitespace(container, &path, errors);
    }
}

/// Validates that `activeDeadlineSeconds` is only set or lowered. Returns whether validation continues.
fn validate_active_deadline(before: &PodSpec, after: &PodSpec, errors: &mut Errors) -> bool {
    let path = SPEC.child("activeDeadlineSeconds");
    let most = i64::from(i32::MAX);
    match (before.active_deadline_seconds, after.active_deadline_seconds) {
        (_, Some(new)) if !(0..=most).contains(&new) => {
            errors.push(FieldError::invalid(path, new, format::range_error(0, most)));
            return false;
        }
        (Some(old), Some(new)) if old < new => {
            errors.push(FieldError::invalid(path, new, "must be less than or equal to previous value"));
            return false;
        }
        (Some(_), None) => {
            let rule = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(path, None::<i64>, rule));
        }
        _ => {}
    }
    true
}

/// Validates that an update only adds tolerations or changes their `tolerationSeconds`.
fn validate_only_added_tolerations(before: &PodSpec, after: &PodSpec, errors: &mut Errors) {
    let path = SPEC.child("tolerations");
    let new = after.tolerations.as_deref().unwrap_or_default();
    let without_seconds =
        |toleration: &Toleration| Toleration { toleration_seconds: None, ..toleration.clone() };
    let kept = |old: &Toleration| new.iter().any(|new| without_seconds(new) == without_seconds(old));
    if !before.tolerations.iter().flatten().all(kept) {
        let rule = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path, rule));
        return;
    }
    scheduling::validate_tolerations(new, &path, errors);
}

/// Validates that an update only removes scheduling gates.
fn validate_only_deleted_scheduling_gates(before: &PodSpec, after: &PodSpec, errors: &mut Errors) {
    let path = SPEC.child("schedulingGates");
    for (i, gate) in after.scheduling_gates.iter().flatten().enumerate() {
        if !before.scheduling_gates.iter().flatten().any(|old| old.name == gate.name) {
            let rule = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.name);
            errors.push(FieldError::forbidden(path.index(i).child("name"), rule));
        }
    }
}

/// Validates that an update of a gated pod only adds to its node selector.
fn validate_node_selector_additions(before: &PodSpec, after: &PodSpec, errors: &mut Errors) {
    let new = after.node_selector.as_ref();
    let kept = |(key, value): (&String, &String)| new.and_then(|new| new.get(key)) == Some(value);
    if !before.node_selector.iter().flatten().all(kept) {
        let rule = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(SPEC.child("nodeSelector"), shown_as_json(&new), rule));
    }
}

fn validate_node_affinity_additions(before: &PodSpec, after: &PodSpec, errors: &mut Errors) {
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let path = Path::root(path);
    let (old, new) = (required_terms(before), required_terms(after));
    if !old.is_empty() && old.len() != new.len() {
        let rule = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(path, shown_terms(new), rule));
        return;
    }
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        if !has_only_additions(old, new) {
            let rule = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(path.index(i), BadValue::Bare(shown_term(new)), rule));
        }
    }
}

fn shown_terms(terms: &[NodeSelectorTerm]) -> BadValue {
    BadValue::Bare(raw_list((!terms.is_empty()).then(|| terms.iter().map(shown_term).collect())))
}

fn shown_term(term: &NodeSelectorTerm) -> String {
    let list = |requirements: &Option<Vec<NodeSelectorRequirement>>| {
        let shown = |requirement: &NodeSelectorRequirement| {
            internal(&[
                ("Key", raw(&requirement.key)),
                ("Operator", raw(&requirement.operator)),
                ("Values", raw(&requirement.values)),
            ])
        };
        raw_list(requirements.as_ref().map(|list| list.iter().map(shown).collect()))
    };
    internal(&[
        ("MatchExpressions", list(&term.match_expressions)),
        ("MatchFields", list(&term.match_fields)),
    ])
}

fn required_terms(spec: &PodSpec) -> &[NodeSelectorTerm] {
    let affinity: Option<&NodeAffinity> = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let selector = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selector.map_or(&[], |selector| selector.node_selector_terms.as_slice())
}

fn has_only_additions(old: &NodeSelectorTerm, new: &NodeSelectorTerm) -> bool {
    let lists = |term: &NodeSelectorTerm| {
        (term.match_expressions.clone().unwrap_or_default(), term.match_fields.clone().unwrap_or_default())
    };
    let ((old_labels, old_fields), (new_labels, new_fields)) = (lists(old), lists(new));
    if old_labels.is_empty() && old_fields.is_empty() {
        // A term without requirements matches no node, so a requirement would make it match more nodes.
        return new_labels.is_empty() && new_fields.is_empty();
    }
    new_labels.starts_with(&old_labels) && new_fields.starts_with(&old_fields)
}
