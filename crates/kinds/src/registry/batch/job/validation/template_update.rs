//! Validation of updates of a Job's pod template.

use plumb_apischema::{Schema, semantic};
use plumb_resize::rules::{JobTemplate, Rules};
use serde_json::{Map, Value};

use super::SPEC;
use plumb_apiserver::validation::json::{boolean, int, list, text};
use plumb_apiserver::validation::{Errors, validate_immutable_field};

/// Validates that the pod template of a Job did not change. While the Job is suspended, a queue controller can change
/// the scheduling directives and, where the rules allow it, the resources.
pub(super) fn validate_pod_template_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let is_suspended = is_suspended_without_active_pods(old);
    let nothing = || Value::Object(Map::new());
    let mut before =
        old["spec"].get("template").filter(|template| template.is_object()).cloned().unwrap_or_else(nothing);
    let after = &new["spec"]["template"];
    let path = SPEC.child("template");
    if is_suspended {
        copy_scheduling_directives(&mut before, after);
    }
    if is_suspended && rules.job_template == JobTemplate::MutableWhileSuspended {
        copy_resources(&mut before, after);
        if !is_semantically_equal(&["template", "spec"], &before["spec"], &after["spec"]) {
            validate_immutable_field(
                before.get("spec"),
                after.get("spec"),
                &SPEC.child("template.spec"),
                errors,
            );
        }
    } else if !is_semantically_equal(&["template"], &before, after) {
        validate_immutable_field(Some(&before), Some(after), &path, errors);
    }
}

/// Whether two pod templates, or parts of them, are semantically equal.
fn is_semantically_equal(part: &[&str], one: &Value, other: &Value) -> bool {
    let schema = Schema::builtin();
    let part = schema.kind("", "v1", "PodTemplate").and_then(|kind| schema.field_at(kind.body, part));
    part.map_or(one == other, |part| semantic::equal(schema, part.ty, one, other))
}

/// Whether a Job is suspended and has no active pods.
fn is_suspended_without_active_pods(job: &Value) -> bool {
    let status = &job["status"];
    let is_suspended =
        |condition: &Value| text(condition, "type") == "Suspended" && text(condition, "status") == "True";
    boolean(&job["spec"], "suspend")
        && (status["startTime"].is_null() || list(status, "conditions").iter().any(is_suspended))
        && int(status, "active").unwrap_or(0) == 0
}

fn copy_scheduling_directives(before: &mut Value, after: &Value) {
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy_field(&mut before["spec"], &after["spec"], field);
    }
    for field in ["labels", "annotations"] {
        copy_field(&mut before["metadata"], &after["metadata"], field);
    }
    let mut affinity = before["spec"]["affinity"].clone();
    copy_field(&mut affinity, &after["spec"]["affinity"], "nodeAffinity");
    let affinity = affinity.as_object().filter(|affinity| !affinity.is_empty()).cloned();
    if let Some(spec) = before["spec"].as_object_mut() {
        match affinity {
            Some(affinity) => drop(spec.insert("affinity".to_owned(), affinity.into())),
            // An empty affinity has no effect, but it is not equal to a missing one.
            None => copy_empty_object(spec, &after["spec"], "affinity"),
        }
    }
    if before["metadata"].as_object().is_some_and(Map::is_empty) && after.get("metadata").is_none() {
        drop(before.as_object_mut().and_then(|template| template.remove("metadata")));
    }
}

fn copy_empty_object(into: &mut Map<String, Value>, from: &Value, field: &str) {
    into.remove(field);
    if let Some(value) = from.get(field).filter(|value| value.as_object().is_some_and(Map::is_empty)) {
        into.insert(field.to_owned(), value.clone());
    }
}

fn copy_resources(before: &mut Value, after: &Value) {
    for list_name in ["containers", "initContainers"] {
        let new = list(&after["spec"], list_name);
        let Some(old) = before["spec"].get_mut(list_name).and_then(Value::as_array_mut) else { continue };
        if old.len() == new.len() {
            for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old["name"] == new["name"]) {
                copy_field(old, new, "resources");
            }
        }
    }
}

fn copy_field(into: &mut Value, from: &Value, field: &str) {
    if into.is_null() {
        *into = Value::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(into.insert(field.to_owned(), value.clone())),
        None => drop(into.remove(field)),
    }
}
