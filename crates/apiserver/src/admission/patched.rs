//! Decoding and conversion of objects that webhooks or policies changed.

use plumb_apischema::{Schema, json as schema_json};
use serde_json::Value;

use super::Attributes;
use super::matching::Invocation;
use crate::error::ApiError;

/// Decodes an object that was changed in the version of an invocation, applies defaults and converts it back.
pub(super) async fn accept(
    invocation: &Invocation,
    attributes: &Attributes<'_>,
    patched: Value,
) -> Result<Value, ApiError> {
    let patched = invocation.convert_back(attributes, patched).await?;
    let mut patched = match attributes.body() {
        Some(kind) => {
            schema_json::decode_value(Schema::builtin(), kind, patched)
                .map_err(|error| ApiError::internal(error.to_string()))?
                .value
        }
        None => patched,
    };
    if attributes.is_whole() {
        let cx = attributes.cluster.context(attributes.row);
        attributes.row.strategy().apply_defaults(cx, attributes.old, &mut patched)?;
    }
    Ok(patched)
}
