//! Validation of Events of the core group and of `events.k8s.io`.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{int, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_immutable_field};

/// The maximum lengths of the fields of an event, in bytes.
const MAX_INSTANCE_LENGTH: usize = 128;
const MAX_ACTION_LENGTH: usize = 128;
const MAX_REASON_LENGTH: usize = 128;
const MAX_NOTE_LENGTH: usize = 1024;

/// Validates a new or updated Event of the core group.
pub(in crate::registry) fn check_core_event(event: &Value, errors: &mut Errors) {
    let names = Names { object: "involvedObject", controller: "reportingComponent", message: "message" };
    validate_common(event, &names, errors);
}

/// Validates a new Event of `events.k8s.io`.
pub(super) fn create(event: &Value, errors: &mut Errors) {
    validate_common(event, &EVENTS, errors);
    validate_series(event, errors);
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    for (field, internal) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        let is_set = match event.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::Number(number)) => number.as_i64() != Some(0),
            Some(Value::Object(source)) => !source.is_empty(),
            Some(_) => true,
        };
        if is_set {
            errors.push(FieldError::invalid(internal, "", "needs to be unset"));
        }
    }
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_common(new, &EVENTS, errors);
    if old.get("series") != new.get("series") {
        validate_series(new, errors);
    }
    for (field, internal) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        validate_immutable_field(old.get(field), new.get(field), &Path::root(internal), errors);
    }
}

/// The names of the fields that differ between the groups.
struct Names {
    object: &'static str,
    controller: &'static str,
    message: &'static str,
}

const EVENTS: Names = Names { object: "regarding", controller: "reportingController", message: "note" };

fn validate_common(event: &Value, names: &Names, errors: &mut Errors) {
    let own = text(&event["metadata"], "namespace");
    let about = text(&event[names.object], "namespace");
    let timed = !event["eventTime"].is_null();
    let fits = match (about, timed) {
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (about, false) => about == own,
        (_, true) => true,
    };
    if !fits {
        errors.push(FieldError::invalid("involvedObject.namespace", about, "does not match event.namespace"));
    }
    if !timed {
        return validate_namespace(event, errors);
    }
    let controller = text(event, names.controller);
    if controller.is_empty() {
        errors.push(FieldError::required(names.controller, ""));
    }
    add_invalid(errors, &Path::root(names.controller), controller, format::qualified_name(controller));
    for (field, key, most) in [
        ("reportingInstance", "reportingInstance", MAX_INSTANCE_LENGTH),
        ("action", "action", MAX_ACTION_LENGTH),
        ("reason", "reason", MAX_REASON_LENGTH),
        ("message", names.message, MAX_NOTE_LENGTH),
    ] {
        let value = text(event, key);
        if value.is_empty() && field != "message" {
            errors.push(FieldError::required(field, ""));
        }
        if value.len() > most {
            errors.push(FieldError::invalid(field, "", format!("can have at most {most} characters")));
        }
    }
    validate_namespace(event, errors);
}

/// Validates the namespace of an event, after all other fields.
fn validate_namespace(event: &Value, errors: &mut Errors) {
    let namespace = text(&event["metadata"], "namespace");
    add_invalid(errors, &Path::root("namespace"), namespace, format::dns_subdomain(namespace));
}

fn validate_series(event: &Value, errors: &mut Errors) {
    let Some(series) = event.get("series").filter(|series| !series.is_null()) else { return };
    if int(series, "count").unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}
