//! Validation that workloads share.

use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use crate::registry::core::pod::validation as pod;
use crate::validation::template::{self, Selection};
use plumb_apiserver::validation::json::{int, internal, raw, text};
use plumb_apiserver::validation::{Errors, validate_nonnegative_fields};

const SPEC: Path<'_> = Path::root("spec");
pub(super) const STATUS: Path<'_> = Path::root("status");
/// The fields of a rolling update of a `StatefulSet`.
pub(super) const STATEFUL_SET_FIELDS: [&str; 2] = ["Partition", "MaxUnavailable"];
const OVER_REPLICAS: &str = "cannot be greater than status.replicas";

/// Validates the selector and the pod template of a Deployment or `ReplicaSet`.
pub(super) fn validate_selector_and_template(spec: &Value, errors: &mut Errors) {
    let empty = "empty selector is invalid for deployment";
    let selection =
        template::validate_selector(spec, true, Some(empty), Some("invalid label selector"), errors);
    if matches!(selection, Selection::Invalid) {
        return;
    }
    if let Some(template) = template::validate_template_labels(spec, &selection, errors) {
        pod::validate_pod_template_spec(&template, &SPEC.child("template"), errors);
        template::validate_always_restart_policy(&template, "ReplicaSet", errors);
    }
}

/// An update strategy as error messages show it.
pub(super) fn shown_strategy(strategy: &Value, fields: &[&str]) -> BadValue {
    let rolling = strategy.get("rollingUpdate");
    let rolling = rolling.map_or_else(|| "null".to_owned(), |rolling| shown_rolling_update(rolling, fields));
    BadValue::Bare(internal(&[("Type", raw(&text(strategy, "type"))), ("RollingUpdate", rolling)]))
}

/// The parameters of a rolling update as error messages show them.
pub(super) fn shown_rolling_update(rolling: &Value, fields: &[&str]) -> String {
    let value = |field: &str| match rolling.get(field[..1].to_lowercase() + &field[1..]) {
        Some(value) => value.to_string(),
        // Only this field is a pointer in upstream's type; the others have a zero value.
        None if field == "MaxUnavailable" && fields == STATEFUL_SET_FIELDS => "null".to_owned(),
        None => "0".to_owned(),
    };
    internal(&fields.iter().map(|field| (*field, value(field))).collect::<Vec<_>>())
}

/// Validates the replica counts of a status: none is negative, `parts` do not exceed `status.replicas`, and available
/// replicas do not exceed ready ones.
pub(super) fn validate_replica_counts(
    status: &Value,
    fields: &[&str],
    parts: &[&str],
    over_ready: &str,
    errors: &mut Errors,
) {
    validate_nonnegative_fields(status, fields, &STATUS, errors);
    let number = |field: &str| int(status, field).unwrap_or(0);
    for part in parts {
        if number(part) > number("replicas") {
            errors.push(FieldError::invalid(STATUS.child(part), number(part), OVER_REPLICAS));
        }
    }
    let available = number("availableReplicas");
    if available > number("readyReplicas") {
        errors.push(FieldError::invalid(STATUS.child("availableReplicas"), available, over_ready));
    }
}

/// Validates that `status.collisionCount` does not decrease.
pub(super) fn validate_collision_count(old: &Value, new: &Value, errors: &mut Errors) {
    let count = |object: &Value| int(&object["status"], "collisionCount");
    if let Some(before) = count(old)
        && count(new).is_none_or(|after| after < before)
    {
        let path = STATUS.child("collisionCount");
        errors.push(FieldError::invalid(path, count(new).unwrap_or(0), "cannot be decremented"));
    }
}
