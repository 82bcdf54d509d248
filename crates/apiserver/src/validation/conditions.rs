//! Validation of `metav1.Condition`.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::json::{int, list, text};
use super::{Errors, add_invalid, format};

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MAX_REASON_LENGTH: usize = 1024;
const MAX_MESSAGE_LENGTH: usize = 32 * 1024;

/// Validates the conditions of a status: each type occurs once, with a reason and a transition time.
pub fn validate_conditions(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let conditions = list(status, "conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let kind = text(condition, "type");
        if conditions[..i].iter().any(|other| text(other, "type") == kind) {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
        add_invalid(errors, &path.child("type"), kind, format::qualified_name(kind));
        let status = text(condition, "status");
        if !STATUSES.contains(&status) {
            errors.push(FieldError::not_supported(path.child("status"), status, &STATUSES));
        }
        if let Some(generation) = int(condition, "observedGeneration").filter(|generation| *generation < 0) {
            let rule = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(path.child("observedGeneration"), generation, rule));
        }
        if text(condition, "lastTransitionTime").is_empty() {
            errors.push(FieldError::required(path.child("lastTransitionTime"), ""));
        }
        validate_reason(text(condition, "reason"), &path.child("reason"), errors);
        if text(condition, "message").len() > MAX_MESSAGE_LENGTH {
            errors.push(FieldError::too_long(path.child("message"), MAX_MESSAGE_LENGTH));
        }
    }
}

fn validate_reason(reason: &str, path: &Path<'_>, errors: &mut Errors) {
    if reason.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    add_invalid(errors, path, reason, format::condition_reason(reason));
    if reason.len() > MAX_REASON_LENGTH {
        errors.push(FieldError::too_long(path, MAX_REASON_LENGTH));
    }
}
