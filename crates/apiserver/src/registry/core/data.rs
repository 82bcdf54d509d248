//! What `ConfigMaps` and Secrets have in common: data by keys.

use plumb_validation::field::FieldError;
use serde_json::{Map, Value};

use crate::validation::Errors;
use crate::validation::json::{map as object, truth};

/// The most bytes that all values have together.
pub(super) const MAX_SIZE: usize = 1 << 20;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// An object with `immutable: true` stays so, with its data.
pub(super) fn check_immutable(old: &Value, new: &Value, fields: &[&str], errors: &mut Errors) {
    if !truth(old, "immutable") {
        return;
    }
    if !truth(new, "immutable") {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    let content = |value: &Value, field: &str| object(value, field).cloned().unwrap_or_else(Map::new);
    for field in fields.iter().filter(|field| content(old, field) != content(new, field)) {
        errors.push(FieldError::forbidden(*field, IMMUTABLE));
    }
}

/// How many bytes a text in base64 stands for.
pub(super) fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}
