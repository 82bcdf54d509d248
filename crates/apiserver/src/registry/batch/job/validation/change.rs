//! Validation of updates of a Job's pod template.

use plumb_apischema::{Schema, semantic};
use plumb_resize::rules::{JobTemplate, Rules};
use serde_json::{Map, Value};

use super::SPEC;
use crate::validation::json::{int, list, text, truth};
use crate::validation::{Errors, immutable};

/// Validates that the pod template of a Job did not change. While the Job is suspended, a queue controller can change
/// the scheduling directives and, where the rules allow it, the resources.
pub(super) fn template(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let waits = waits(old);
    let nothing = || Value::Object(Map::new());
    let mut before =
        old["spec"].get("template").filter(|template| template.is_object()).cloned().unwrap_or_else(nothing);
    let after = &new["spec"]["template"];
    let path = SPEC.child("template");
    if waits {
        take_directives(&mut before, after);
    }
    if waits && rules.job_template == JobTemplate::MutableWhileSuspended {
        take_resources(&mut before, after);
        if !means_the_same(&["template", "spec"], &before["spec"], &after["spec"]) {
            immutable(before.get("spec"), after.get("spec"), &SPEC.child("template.spec"), errors);
        }
    } else if !means_the_same(&["template"], &before, after) {
        immutable(Some(&before), Some(after), &path, errors);
    }
}

/// Whether two pod templates, or parts of them, are semantically equal.
fn means_the_same(part: &[&str], one: &Value, other: &Value) -> bool {
    let schema = Schema::builtin();
    let part = schema.kind("", "v1", "PodTemplate").and_then(|kind| schema.field_at(kind.body, part));
    part.map_or(one == other, |part| semantic::equal(schema, part.ty, one, other))
}

/// Whether a Job is suspended and has no active pods.
fn waits(job: &Value) -> bool {
    let status = &job["status"];
    let is_suspended =
        |condition: &Value| text(condition, "type") == "Suspended" && text(condition, "status") == "True";
    truth(&job["spec"], "suspend")
        && (status["startTime"].is_null() || list(status, "conditions").iter().any(is_suspended))
        && int(status, "active").unwrap_or(0) == 0
}

fn take_directives(before: &mut Value, after: &Value) {
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&mut before["spec"], &after["spec"], field);
    }
    for field in ["labels", "annotations"] {
        take(&mut before["metadata"], &after["metadata"], field);
    }
    let mut affinity = before["spec"]["affinity"].clone();
    take(&mut affinity, &after["spec"]["affinity"], "nodeAffinity");
    let affinity = affinity.as_object().filter(|affinity| !affinity.is_empty()).cloned();
    if let Some(spec) = before["spec"].as_object_mut() {
        match affinity {
            Some(affinity) => drop(spec.insert("affinity".to_owned(), affinity.into())),
            // An empty affinity has no effect, but it is not equal to a missing one.
            None => take_whole(spec, &after["spec"], "affinity"),
        }
    }
    if before["metadata"].as_object().is_some_and(Map::is_empty) && after.get("metadata").is_none() {
        drop(before.as_object_mut().and_then(|template| template.remove("metadata")));
    }
}

fn take_whole(into: &mut Map<String, Value>, from: &Value, field: &str) {
    into.remove(field);
    if let Some(value) = from.get(field).filter(|value| value.as_object().is_some_and(Map::is_empty)) {
        into.insert(field.to_owned(), value.clone());
    }
}

fn take_resources(before: &mut Value, after: &Value) {
    for list_name in ["containers", "initContainers"] {
        let new = list(&after["spec"], list_name);
        let Some(old) = before["spec"].get_mut(list_name).and_then(Value::as_array_mut) else { continue };
        if old.len() == new.len() {
            for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old["name"] == new["name"]) {
                take(old, new, "resources");
            }
        }
    }
}

fn take(into: &mut Value, from: &Value, field: &str) {
    if into.is_null() {
        *into = Value::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(into.insert(field.to_owned(), value.clone())),
        None => drop(into.remove(field)),
    }
}
