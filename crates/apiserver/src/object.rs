//! Objects: JSON values in requests, encoded bytes in the store.
//!
//! A stored object is a byte string that begins with its kind, its version and its resource version:
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":…},"spec":…}
//! ```
//!
//! So the revision can be spliced in when it is known, and an item of a list, which carries no kind, is the
//! same bytes without the first few. GET and watch copy them; nothing is decoded to be read.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use plumb_store::Value as Stored;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::custom::whole_numbers;
use crate::error::ApiError;
use crate::kinds::Row;

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

/// The first bytes of the objects of a kind and version.
pub(crate) fn head(row: &Row) -> String {
    head_of(row.kind(), &row.api_version())
}

fn head_of(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{")
}

/// Encodes an object so that the store can insert its revision.
pub fn encode(row: &Row, object: &Value) -> Result<Stored, ApiError> {
    match row.custom() {
        Some(custom) => {
            let mut object = object.clone();
            whole_numbers(&mut object);
            encode_as(row.kind(), &custom.stored, &object)
        }
        None => encode_as(row.kind(), &row.api_version(), object),
    }
}

/// Encodes an object as one of a kind and version.
pub(crate) fn encode_as(kind: &str, api_version: &str, object: &Value) -> Result<Stored, ApiError> {
    let (head, rest) = parts(kind, api_version, object)?;
    Ok(Stored::stamped(move |revision| stamped(&head, &rest, revision)))
}

/// Encodes an object as a version shows it, with a revision that is known.
pub(crate) fn encode_at(
    row: &Row,
    object: &Value,
    revision: plumb_store::Revision,
) -> Result<Bytes, ApiError> {
    let (head, rest) = parts(row.kind(), &row.api_version(), object)?;
    Ok(stamped(&head, &rest, revision))
}

fn stamped(head: &str, rest: &[u8], revision: plumb_store::Revision) -> Bytes {
    let mut bytes = BytesMut::with_capacity(head.len() + rest.len() + 40);
    bytes.put_slice(head.as_bytes());
    bytes.put_slice(format!("\"resourceVersion\":\"{revision}\"").as_bytes());
    bytes.put_slice(rest);
    bytes.freeze()
}

/// The bytes before the revision, and those after it.
fn parts(kind: &str, api_version: &str, object: &Value) -> Result<(String, BytesMut), ApiError> {
    let failed = |error: serde_json::Error| ApiError::internal(format!("encoding: {error}"));
    let head = head_of(kind, api_version);
    let mut rest = BytesMut::with_capacity(512);
    if let Some(metadata) = object.get("metadata").and_then(Value::as_object) {
        for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
            rest.put_u8(b',');
            serde_json::to_writer((&mut rest).writer(), key).map_err(failed)?;
            rest.put_u8(b':');
            serde_json::to_writer((&mut rest).writer(), value).map_err(failed)?;
        }
    }
    rest.put_u8(b'}');
    let others = object.as_object().into_iter().flatten();
    for (key, value) in others.filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"))
    {
        rest.put_u8(b',');
        serde_json::to_writer((&mut rest).writer(), key).map_err(failed)?;
        rest.put_u8(b':');
        serde_json::to_writer((&mut rest).writer(), value).map_err(failed)?;
    }
    rest.put_u8(b'}');
    Ok((head, rest))
}

/// Decodes a stored object.
pub fn decode(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))
}

/// The length of the kind and version of a stored object, which items of a list leave out.
pub(crate) fn head_before_metadata(row: &Row) -> usize {
    head(row).len() - "\"metadata\":{".len()
}

/// The same object with another resource version.
pub fn restamp(row: &Row, bytes: &Bytes, revision: plumb_store::Revision) -> Bytes {
    let start = format!("{}\"resourceVersion\":\"", head(row));
    let Some(rest) = bytes.strip_prefix(start.as_bytes()) else { return bytes.clone() };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut out = BytesMut::with_capacity(bytes.len() + 8);
    out.put_slice(start.as_bytes());
    out.put_slice(revision.to_string().as_bytes());
    out.put_slice(&rest[digits..]);
    out.freeze()
}

/// A generated name: a prefix and five random letters that make no words.
pub(crate) fn generate_name(prefix: &str, random: Uuid) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_PREFIX: usize = 63 - 5;
    let suffix =
        random.as_bytes()[..5].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().take(LONGEST_PREFIX).chain(suffix).collect()
}
