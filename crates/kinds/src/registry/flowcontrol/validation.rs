//! What both kinds validate alike.

use std::collections::BTreeSet;

use plumb_flowcontrol::bootstrap::mandatory_spec;
use plumb_validation::field::{FieldError, Path};
use plumb_validation::names::dns_subdomain;
use serde_json::Value;

use plumb_apiserver::validation::json::{list, shown, text};
use plumb_apiserver::validation::{Errors, add_invalid};

/// Validates the status: conditions have types, each once.
pub(super) fn validate_status(object: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("conditions");
    let mut types = BTreeSet::new();
    for (i, condition) in list(&object["status"], "conditions").iter().enumerate() {
        let (path, type_) = (path.index(i), text(condition, "type"));
        let path = path.child("type");
        if !types.insert(type_) {
            errors.push(FieldError::duplicate(path, type_));
        }
        if type_.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
    }
}

/// Validates that a mandatory object has its fixed spec. `free` is a field of it that may differ.
pub(super) fn validate_mandatory(object: &Value, kind: &str, free: Option<&str>, errors: &mut Errors) {
    let name = text(&object["metadata"], "name");
    let Some(expected) = mandatory_spec(kind, name) else { return };
    let without_free = |spec: &Value| {
        let mut spec = spec.clone();
        if let (Some(fields), Some(free)) = (spec.as_object_mut(), free) {
            fields.remove(free);
        }
        spec
    };
    if without_free(&expected) == without_free(&object["spec"]) {
        return;
    }
    let rule = match free.filter(|free| expected.get(free).is_some()) {
        Some(free) => format!("spec of '{name}' except the 'spec.{free}' field must equal the fixed value"),
        None => format!("spec of '{name}' must equal the fixed value"),
    };
    errors.push(FieldError::invalid(Path::root("spec"), shown(object.get("spec")), rule));
}

/// Validates the name of a priority level that another object refers to.
pub(super) fn validate_level_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "must reference a priority level"));
    } else {
        add_invalid(errors, path, name, dns_subdomain(name));
    }
}
