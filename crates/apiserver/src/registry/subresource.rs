//! Subresources that update a part of an object, such as `/resize`.

use std::fmt;

use serde_json::Value;

use super::Context;
use crate::error::ApiError;

/// What is special about an update through a subresource.
pub(crate) trait SubresourceStrategy: fmt::Debug + Send + Sync {
    /// Whether the update gets the defaults of its kind.
    fn applies_defaults(&self) -> bool {
        true
    }

    /// Takes everything that the subresource does not change from the stored object.
    fn prepare_for_update(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError>;

    /// Whether the update counts a change of what is desired.
    fn counts_generation(&self) -> bool {
        false
    }

    /// Checks the update, with the metadata.
    fn validate_update(&self, _cx: Context<'_>, _old: &Value, _new: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}
