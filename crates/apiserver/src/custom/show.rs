//! Stored custom resources in a version of their kind.

use std::borrow::Cow;

use bytes::Bytes;
use plumb_store::Revision;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::{Row, encode_at, head, signed_numbers};
use crate::object::{decode, meta};

/// Presents stored objects in the version of a row. One value serves all objects of a response.
pub(crate) struct Presenter<'a> {
    row: &'a Row,
    /// The first bytes of an object that is stored in the version of the row.
    start: String,
}

impl<'a> Presenter<'a> {
    pub(crate) fn of(row: &'a Row) -> Self {
        let start = row.custom().map(|_| format!("{}\"resourceVersion\":\"", head(row)));
        Self { row, start: start.unwrap_or_default() }
    }

    /// A stored object in the version of the row: the same bytes, unless it was stored in another version or under an earlier
    /// schema.
    pub(crate) fn show<'b>(&self, bytes: &'b Bytes) -> Cow<'b, Bytes> {
        let Some(custom) = self.row.custom() else { return Cow::Borrowed(bytes) };
        if custom.alike && self.revision_of(bytes).is_some_and(|revision| custom.since.covers(revision)) {
            return Cow::Borrowed(bytes);
        }
        let shown = presented_value(self.row, bytes).and_then(|object| {
            let revision = meta(&object, "resourceVersion").parse().unwrap_or_default();
            encode_at(self.row, &object, revision)
        });
        // An object that cannot be decoded is sent as it is stored.
        shown.map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// The revision in the bytes of an object of this version.
    fn revision_of(&self, bytes: &Bytes) -> Option<Revision> {
        let rest = bytes.strip_prefix(self.start.as_bytes())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }
}

/// One stored object in the version of a row.
pub(crate) fn presented<'b>(row: &Row, bytes: &'b Bytes) -> Cow<'b, Bytes> {
    Presenter::of(row).show(bytes)
}

/// The same, decoded.
pub(crate) fn presented_value(row: &Row, bytes: &Bytes) -> Result<Value, ApiError> {
    let mut object = decode(bytes)?;
    if let Some(custom) = row.custom() {
        object["apiVersion"] = json!(row.api_version());
        signed_numbers(&mut object);
        custom.version.complete(&mut object);
    }
    Ok(object)
}
