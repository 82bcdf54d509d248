//! Objects as bytes in the store.
//!
//! A stored object is a byte string that begins with its kind, its version and its resource version:
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":…},"spec":…}
//! ```
//!
//! So the store can insert the revision once it is known, and an item of a list, which has no kind, is the same bytes
//! without the first few. GET and watch copy them; no object is decoded to be read.

use bytes::{BufMut, Bytes, BytesMut};
use plumb_store::Value as Stored;
use serde_json::Value;

use super::{Row, whole_numbers};
use crate::error::ApiError;
use crate::request_body::MAX_BODY;

/// The first bytes of the objects of a kind and version.
pub(crate) fn head(row: &Row) -> String {
    head_of(row.kind(), &row.api_version())
}

fn head_of(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{")
}

/// The largest object: the largest body, and `managedFields` of the same size. Every server-side apply under a new name adds
/// an entry with all its fields, so that an object could grow without end by small requests; upstream's limit is etcd's.
const MAX_OBJECT: usize = 2 * MAX_BODY;

/// Encodes an object so that the store can insert its revision.
pub(crate) fn encode(row: &Row, object: &Value) -> Result<Stored, ApiError> {
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
    if head.len() + rest.len() > MAX_OBJECT {
        return Err(ApiError::body_too_large(MAX_OBJECT));
    }
    Ok(Stored::stamped(move |revision| stamped(&head, &rest, revision)))
}

/// Encodes an object in the version of a row, with a revision that is known.
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

/// The length of the kind and version of a stored object, which items of a list leave out.
pub(crate) fn head_before_metadata(row: &Row) -> usize {
    head(row).len() - "\"metadata\":{".len()
}

/// The same object with another resource version.
pub(crate) fn restamp(row: &Row, bytes: &Bytes, revision: plumb_store::Revision) -> Bytes {
    let start = format!("{}\"resourceVersion\":\"", head(row));
    let Some(rest) = bytes.strip_prefix(start.as_bytes()) else { return bytes.clone() };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut out = BytesMut::with_capacity(bytes.len() + 8);
    out.put_slice(start.as_bytes());
    out.put_slice(revision.to_string().as_bytes());
    out.put_slice(&rest[digits..]);
    out.freeze()
}
