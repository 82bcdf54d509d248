//! Validation of data and of `immutable`, which `ConfigMaps` and Secrets share.

use plumb_validation::field::FieldError;
use serde_json::{Map, Value};

use plumb_apiserver::validation::Errors;
use plumb_apiserver::validation::json::{boolean, map as object};

/// The maximum total size of the values, in bytes.
pub(super) const MAX_SIZE: usize = 1 << 20;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// Validates that an update of an object with `immutable: true` changes neither that field nor the data.
pub(super) fn validate_immutable_data(old: &Value, new: &Value, fields: &[&str], errors: &mut Errors) {
    if !boolean(old, "immutable") {
        return;
    }
    if !boolean(new, "immutable") {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    let content = |value: &Value, field: &str| object(value, field).cloned().unwrap_or_else(Map::new);
    for field in fields.iter().filter(|field| content(old, field) != content(new, field)) {
        errors.push(FieldError::forbidden(*field, IMMUTABLE));
    }
}

/// The length of a base64 value once decoded, in bytes.
pub(in crate::registry) fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}
