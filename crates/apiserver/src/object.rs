//! Objects as JSON values: their metadata, and their decoding from the store.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::error::ApiError;

/// The metadata of an object, added if it is missing.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// A string field of `metadata`, empty if it is missing.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.pointer("/metadata").and_then(|metadata| metadata[field].as_str()).unwrap_or_default()
}

/// Whether an object is terminating.
pub fn is_deleting(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// The finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A timestamp as the API writes it: in whole seconds.
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Decodes a stored object.
pub fn decode(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))
}

/// A generated name: a prefix and five random letters that make no words.
pub fn generate_name(prefix: &str, random: Uuid) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_PREFIX: usize = 63 - 5;
    let suffix =
        random.as_bytes()[..5].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().take(LONGEST_PREFIX).chain(suffix).collect()
}
