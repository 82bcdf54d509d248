//! Decoding of JSON bodies by the schema table: unknown fields are reported and dropped, and the result has the form
//! that Go would give it.
//!
//! One pass over the bytes finds unknown fields, duplicate fields and values of the wrong type, each with its path and
//! upstream's message, and builds the object as upstream would return it: with canonical quantities and timestamps,
//! without empty optional fields, and with zero values where Go writes them.
//!
//! ```
//! use plumb_apischema::{Schema, json};
//!
//! let schema = Schema::builtin();
//! let pod = schema.kind("", "v1", "Pod").ok_or("no pods")?;
//! let body = br#"{"apiVersion": "v1", "kind": "Pod", "spec": {"foo": 1, "hostNetwork": false, "containers": [
//!     {"name": "a", "resources": {"limits": {"cpu": 0.5}}}]}}"#;
//! let decoded = json::decode(schema, pod, body).map_err(|_| "malformed")?;
//!
//! assert_eq!(json::strict_error(&decoded.strict), r#"strict decoding error: unknown field "spec.foo""#);
//! assert_eq!(decoded.value["spec"]["containers"][0]["resources"]["limits"]["cpu"], "500m");
//! assert!(decoded.value["spec"].get("hostNetwork").is_none());
//! # Ok::<(), &str>(())
//! ```

mod any;
mod context;
mod ordered;
mod settled;
mod structure;
mod value;

use serde::de::DeserializeSeed as _;
use serde_json::Value;

pub use ordered::{write_fields, write_struct};
pub use settled::{is_settled, settle};

use crate::schema::{Kind, Schema, Shape, StructId};
use context::Context;

/// The maximum nesting depth of objects and lists: that of `serde_json`, whose parser recurses.
pub const MAX_DEPTH: usize = 127;

/// A decoded object, and the strict decoding errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object, without unknown fields.
    pub value: Value,
    /// What `fieldValidation=Strict` rejects and `Warn` warns of.
    pub strict: Vec<StrictError>,
}

/// A strict decoding error, with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StrictError {
    /// The kind has no such field.
    #[error("unknown field {0:?}")]
    Unknown(String),
    /// The field occurs twice.
    #[error("duplicate field {0:?}")]
    Duplicate(String),
    /// An error that the parser of another format than JSON found.
    #[error("{0}")]
    Yaml(String),
}

/// Why a body does not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON.
    #[error("json parse error: {0}")]
    Syntax(String),
    /// A value does not have the type of its field, with the message of Go's decoder.
    #[error("{0}")]
    Type(String),
    /// The object cannot be stored.
    #[error("{0}")]
    Unstorable(String),
    /// The body is too deep or too large.
    #[error("{0}")]
    TooLarge(String),
}

/// The error message of strict field validation.
pub fn strict_error(errors: &[StrictError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("strict decoding error: {}", errors.join(", "))
}

/// Decodes a body as an object of a kind.
pub fn decode(schema: &Schema, kind: &Kind, body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(schema);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let read = structure::seed(&mut context, kind.body).deserialize(&mut deserializer);
    let value = context.finish(read.and_then(|value| deserializer.end().map(|()| value)))?;
    Ok(Decoded { value: or_empty(value), strict: context.strict })
}

/// Decodes a parsed value, such as the result of a patch, as an object of a kind.
pub fn decode_value(schema: &Schema, kind: &Kind, value: Value) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(schema);
    let read = structure::seed(&mut context, kind.body).deserialize(value);
    let value = context.finish(read)?;
    Ok(Decoded { value: or_empty(value), strict: context.strict })
}

/// A body `null` decodes to an empty object, as in Go.
fn or_empty(value: Value) -> Value {
    if value.is_null() { Value::Object(serde_json::Map::new()) } else { value }
}

/// Converts an object to the form that upstream would return: [`decode_value`] and [`settle`], without strict errors.
pub fn canonical(schema: &Schema, kind: &Kind, value: Value) -> Result<Value, DecodeError> {
    let mut decoded = decode_value(schema, kind, value)?;
    settle(schema, kind, &mut decoded.value);
    Ok(decoded.value)
}

/// Parses a body of an unknown kind; only duplicate fields are reported.
pub fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(Schema::builtin());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let read = any::Seed::reporting(&mut context).deserialize(&mut deserializer);
    let value = context.finish(read.and_then(|value| deserializer.end().map(|()| value)))?;
    Ok(Decoded { value, strict: context.strict })
}

/// Prunes the fields that a kind does not have.
pub fn prune(schema: &Schema, kind: &Kind, value: &mut Value) {
    prune_struct(schema, kind.body, value, MAX_DEPTH);
}

fn prune_struct(schema: &Schema, id: StructId, value: &mut Value, depth: usize) {
    let (Some(object), Some(depth)) = (value.as_object_mut(), depth.checked_sub(1)) else { return };
    object.retain(|name, inner| match schema[id].field(name) {
        Some(field) => {
            prune_type(schema, schema[field.ty].shape, inner, depth);
            true
        }
        None => false,
    });
}

fn prune_type(schema: &Schema, shape: Shape, value: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match shape {
        Shape::Pointer(inner) => prune_type(schema, schema[inner].shape, value, depth),
        Shape::List(inner) => {
            for element in value.as_array_mut().into_iter().flatten() {
                prune_type(schema, schema[inner].shape, element, depth);
            }
        }
        Shape::Map(inner) => {
            for element in value.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
                prune_type(schema, schema[inner].shape, element, depth);
            }
        }
        Shape::Struct(id) | Shape::SchemaOrBool(id) | Shape::SchemaOrStrings(id) => {
            prune_struct(schema, id, value, depth);
        }
        Shape::SchemaOrArray(id) => match value {
            Value::Array(list) => {
                for element in list {
                    prune_struct(schema, id, element, depth);
                }
            }
            other => prune_struct(schema, id, other, depth),
        },
        _ => {}
    }
}
