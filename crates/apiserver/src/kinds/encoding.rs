//! Objects as bytes in the store.
//!
//! A stored object is a byte string that begins with its kind and its version, in the order of Go's fields, with a newline
//! at its end, as kube-apiserver sends it:
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"name":"web",…,"resourceVersion":"42",…},"spec":…}⏎
//! ```
//!
//! The store inserts the revision once it is known, and an item of a list, which has no kind, is the same bytes without the
//! first few. GET and watch copy them; no object is decoded to be read.
//!
//! A custom resource, which has no Go struct, begins with its resource version, so that it is read without a search:
//! `"metadata":{"resourceVersion":"42","name":…`. So do objects of built-in kinds that earlier versions have stored; those
//! have no newline either.

use bytes::{BufMut, Bytes, BytesMut};
use plumb_apischema::schema::{Field, Kind};
use plumb_apischema::{Schema, json};
use plumb_store::Value as Stored;
use serde_json::Value;

use super::{Row, whole_numbers};
use crate::error::ApiError;
use crate::fragments;
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
pub fn encode(row: &Row, object: &Value) -> Result<Stored, ApiError> {
    match row.custom() {
        Some(custom) => {
            let mut object = object.clone();
            whole_numbers(&mut object);
            encode_as(row.kind(), &custom.stored, &object)
        }
        None => match row.builtin() {
            Some(kind) => encode_builtin(row, kind, object),
            None => encode_as(row.kind(), &row.api_version(), object),
        },
    }
}

/// Encodes an object of a built-in kind in the field order of its Go struct.
fn encode_builtin(row: &Row, kind: &Kind, object: &Value) -> Result<Stored, ApiError> {
    let schema = Schema::builtin();
    let mut before = head(row).into_bytes();
    let mut after = Vec::with_capacity(512);
    let metadata = schema[kind.body].field("metadata").and_then(|field| schema.struct_behind(field.ty));
    let revision = metadata.and_then(|metadata| schema[metadata].field("resourceVersion"));
    if let (Some(id), Some(revision)) = (metadata, revision)
        && let Some(fields) = object.get("metadata").and_then(Value::as_object)
    {
        let position = |field: Option<&Field>| field.map_or(u16::MAX, |field| field.position);
        let is_before = |field: Option<&Field>| position(field) < revision.position;
        if json::write_fields(schema, id, fields, is_before, &mut before) {
            before.push(b',');
        }
        after.push(b',');
        let is_after = |field: Option<&Field>| position(field) > revision.position;
        if !json::write_fields(schema, id, fields, is_after, &mut after) {
            after.clear();
        }
    }
    after.extend_from_slice(b"},");
    if let Some(fields) = object.as_object() {
        let is_other = |field: Option<&Field>| {
            field.is_none_or(|field| !matches!(field.json, "kind" | "apiVersion" | "metadata"))
        };
        if !json::write_fields(schema, kind.body, fields, is_other, &mut after) {
            after.pop();
        }
    }
    after.extend_from_slice(b"}\n");
    storable(before, after.into())
}

/// The bytes before and after the revision, as the store gets them.
fn storable(before: Vec<u8>, after: Bytes) -> Result<Stored, ApiError> {
    if before.len() + after.len() > MAX_OBJECT {
        return Err(ApiError::body_too_large(MAX_OBJECT));
    }
    Ok(Stored::stamped(move |revision| stamped(&before, &after, revision)))
}

/// Encodes an object as one of a kind and version.
pub(crate) fn encode_as(kind: &str, api_version: &str, object: &Value) -> Result<Stored, ApiError> {
    let (head, rest) = parts(kind, api_version, object)?;
    storable(head.into_bytes(), rest.freeze())
}

/// Encodes an object in the version of a row, with a revision that is known.
pub(crate) fn encode_at(
    row: &Row,
    object: &Value,
    revision: plumb_store::Revision,
) -> Result<Bytes, ApiError> {
    let (head, rest) = parts(row.kind(), &row.api_version(), object)?;
    Ok(stamped(head.as_bytes(), &rest, revision))
}

fn stamped(head: &[u8], rest: &[u8], revision: plumb_store::Revision) -> Bytes {
    let mut bytes = BytesMut::with_capacity(head.len() + rest.len() + 40);
    bytes.put_slice(head);
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
    rest.put_slice(b"}\n");
    Ok((head, rest))
}

/// The length of the kind and version of a stored object, which items of a list leave out.
pub(crate) fn head_before_metadata(row: &Row) -> usize {
    head(row).len() - "\"metadata\":{".len()
}

/// A copy of an object with another resource version.
pub fn restamp(bytes: &Bytes, revision: plumb_store::Revision) -> Bytes {
    let Some(place) = fragments::resource_version(bytes) else { return bytes.clone() };
    let mut out = BytesMut::with_capacity(bytes.len() + 8);
    out.put_slice(&bytes[..place.start]);
    out.put_slice(format!("\"{revision}\"").as_bytes());
    out.put_slice(&bytes[place.end..]);
    out.freeze()
}
