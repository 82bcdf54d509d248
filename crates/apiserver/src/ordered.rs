//! JSON of objects that are not stored.

use plumb_apischema::{Schema, json};
use serde_json::Value;

/// Encodes an object in the field order of the Go struct of its kind; an object of another kind in alphabetical order, as
/// Go encodes unstructured objects.
pub(crate) fn encode_ordered(object: &Value, out: &mut Vec<u8>) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let schema = Schema::builtin();
    match schema.kind_of(text("apiVersion"), text("kind")) {
        Some(kind) => json::write_struct(schema, kind.body, object, out),
        None => out.extend_from_slice(object.to_string().as_bytes()),
    }
}
