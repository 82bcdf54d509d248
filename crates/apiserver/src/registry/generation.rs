//! When an update increments `metadata.generation`.

use plumb_apischema::{Schema, semantic};
use serde_json::Value;

use crate::kinds::{Form, Row};

/// Whether an update changes fields other than the metadata and the status.
pub(super) fn is_spec_changed(row: &Row, old: &Value, new: &Value) -> bool {
    let (old, new) = (without(old, &["metadata", "status"]), without(new, &["metadata", "status"]));
    match &row.body {
        Form::Builtin(kind) => !semantic::equal_structs(Schema::builtin(), kind.body, &old, &new),
        Form::Custom(_) => old != new,
    }
}

/// An object without some of its fields.
pub(super) fn without(object: &Value, fields: &[&str]) -> Value {
    let mut rest = object.clone();
    if let Some(object) = rest.as_object_mut() {
        for field in fields {
            object.remove(*field);
        }
    }
    rest
}
