//! Subresources that update a part of an object, such as `/resize`.

use std::fmt;

use serde_json::Value;

use super::Context;
use crate::error::ApiError;

/// The strategy of an update through a subresource.
pub(crate) trait SubresourceStrategy: fmt::Debug + Send + Sync {
    /// Whether defaulting applies to the update.
    fn applies_defaults(&self) -> bool {
        true
    }

    /// Resets the fields that the subresource does not change to their stored values.
    fn prepare_for_update(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError>;

    /// Whether a change of the desired state increments the generation.
    fn counts_generation(&self) -> bool {
        false
    }

    /// Validates the update with its metadata.
    fn validate_update(&self, _cx: Context<'_>, _old: &Value, _new: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}
