//! Stored objects as a version of their kind shows them.

use std::borrow::Cow;

use bytes::Bytes;
use plumb_store::Revision;
use serde_json::{Value, json};

use super::signed_numbers;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::{decode, encode_at, head, meta};

/// How a row shows stored objects: made once for all objects of an answer.
pub(crate) struct Presenter<'a> {
    row: &'a Row,
    /// What the bytes of an object start with that is stored in the row's own version.
    start: String,
}

impl<'a> Presenter<'a> {
    pub(crate) fn of(row: &'a Row) -> Self {
        let start = row.custom().map(|_| format!("{}\"resourceVersion\":\"", head(row)));
        Self { row, start: start.unwrap_or_default() }
    }

    /// A stored object as the row shows it: the same bytes, unless it was stored in another version or before the
    /// schema became what it is.
    pub(crate) fn show<'b>(&self, bytes: &'b Bytes) -> Cow<'b, Bytes> {
        let Some(custom) = self.row.custom() else { return Cow::Borrowed(bytes) };
        if custom.alike && self.revision_of(bytes).is_some_and(|revision| custom.since.covers(revision)) {
            return Cow::Borrowed(bytes);
        }
        let shown = presented_value(self.row, bytes).and_then(|object| {
            let revision = meta(&object, "resourceVersion").parse().unwrap_or_default();
            encode_at(self.row, &object, revision)
        });
        // What cannot be read cannot be shown otherwise either.
        shown.map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// The revision in the bytes of an object of this very version.
    fn revision_of(&self, bytes: &Bytes) -> Option<Revision> {
        let rest = bytes.strip_prefix(self.start.as_bytes())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }
}

/// One stored object as a row shows it.
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
