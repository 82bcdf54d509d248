//! Namespaces.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::json::{text, texts};
use super::{Errors, complain, format};

const SPEC: Path<'_> = Path::root("spec");

/// A new namespace, or the finalizers of one that is about to go.
pub(super) fn create(namespace: &Value, _rules: &Rules, errors: &mut Errors) {
    let path = SPEC.child("finalizers");
    for finalizer in texts(&namespace["spec"], "finalizers") {
        complain(errors, &path, finalizer, format::qualified_name(finalizer));
        if !finalizer.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer) {
            let rule = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, finalizer, rule));
        }
    }
}

pub(super) fn status(_old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let phase = text(&new["status"], "phase");
    let (allowed, rule) = if new["metadata"]["deletionTimestamp"].is_null() {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    } else {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    };
    if phase != allowed {
        errors.push(FieldError::invalid("status.Phase", phase, rule));
    }
}
