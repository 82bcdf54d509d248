//! Conditions of the common form.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::json::{int, list, text};
use super::{Errors, complain, format};

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32 * 1024;

/// The conditions of a status: each once, and each with a reason and a time.
pub(crate) fn check(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let conditions = list(status, "conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let kind = text(condition, "type");
        if conditions[..i].iter().any(|other| text(other, "type") == kind) {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
        complain(errors, &path.child("type"), kind, format::qualified_name(kind));
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
        reason(text(condition, "reason"), &path.child("reason"), errors);
        if text(condition, "message").len() > LONGEST_MESSAGE {
            errors.push(FieldError::too_long(path.child("message"), LONGEST_MESSAGE));
        }
    }
}

fn reason(reason: &str, path: &Path<'_>, errors: &mut Errors) {
    if reason.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    complain(errors, path, reason, format::condition_reason(reason));
    if reason.len() > LONGEST_REASON {
        errors.push(FieldError::too_long(path, LONGEST_REASON));
    }
}
