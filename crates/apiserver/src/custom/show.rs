//! Stored objects as a version of their kind shows them.

use bytes::Bytes;
use plumb_store::Revision;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::{decode, encode_at, head, meta};

/// A stored object as a row shows it: the same bytes, unless it was stored in another version or before the schema
/// became what it is.
pub(crate) fn presented(row: &Row, bytes: &Bytes) -> Bytes {
    let Some(custom) = row.custom() else { return bytes.clone() };
    if custom.alike && revision_of(row, bytes).is_some_and(|revision| revision > custom.since) {
        return bytes.clone();
    }
    let shown = presented_value(row, bytes).and_then(|object| {
        let revision = meta(&object, "resourceVersion").parse().unwrap_or_default();
        encode_at(row, &object, revision)
    });
    // What cannot be read cannot be shown otherwise either.
    shown.unwrap_or_else(|_| bytes.clone())
}

/// The same, decoded.
pub(crate) fn presented_value(row: &Row, bytes: &Bytes) -> Result<Value, ApiError> {
    let mut object = decode(bytes)?;
    if let Some(custom) = row.custom() {
        object["apiVersion"] = json!(row.api_version());
        custom.version.complete(&mut object);
    }
    Ok(object)
}

/// The revision in the bytes of an object of this very version.
fn revision_of(row: &Row, bytes: &Bytes) -> Option<Revision> {
    let start = format!("{}\"resourceVersion\":\"", head(row));
    let rest = bytes.strip_prefix(start.as_bytes())?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}
