//! When an update increments `metadata.generation`.

use plumb_apischema::{Schema, semantic};
use serde_json::Value;

use crate::kinds::Row;

/// Whether two versions of an object differ in more than their metadata and their status.
pub fn is_spec_changed(row: &Row, old: &Value, new: &Value) -> bool {
    let (old, new) = (without(old, &["metadata", "status"]), without(new, &["metadata", "status"]));
    match row.builtin() {
        Some(kind) => !semantic::equal_structs(Schema::builtin(), kind.body, &old, &new),
        None => old != new,
    }
}

/// An object without some of its fields.
pub(crate) fn without(object: &Value, fields: &[&str]) -> Value {
    let mut rest = object.clone();
    if let Some(object) = rest.as_object_mut() {
        for field in fields {
            object.remove(*field);
        }
    }
    rest
}
