//! Subresources: those that update a part of an object, such as `/resize`, and those with a handler of their own.

use std::fmt;

use jiff::Timestamp;
use plumb_store::Object;
use serde_json::Value;

use super::{Context, FieldPaths};
use crate::error::ApiError;

/// The strategy of an update through a subresource.
pub trait SubresourceStrategy: fmt::Debug + Send + Sync {
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

    /// The fields that the update resets, so that its field manager does not own them.
    fn reset_fields(&self) -> FieldPaths {
        &[]
    }

    /// Validates the update with its metadata.
    fn validate_update(&self, _cx: Context<'_>, _old: &Value, _new: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}

/// How an object of a subresource changes the object in the URL: gets the name in the URL, the stored object, the object
/// of the request after mutating admission, and the time; returns the changed object.
pub type SubresourceAction = fn(&str, &Object, &Value, Timestamp) -> Result<Value, ApiError>;

/// The handler of a subresource that neither reads nor updates the object.
#[derive(Clone, Copy, Debug)]
pub enum SubresourceHandler {
    /// A POST of an object of the subresource's own kind changes the object in the URL, such as `pods/binding`: upstream's
    /// `NamedCreater`.
    Action(SubresourceAction),
    /// `pods/attach`.
    Attach,
    /// `pods/eviction`.
    Eviction,
    /// `pods/exec`.
    Exec,
    /// `pods/log`.
    Log,
    /// `nodes/proxy`.
    NodeProxy,
    /// `pods/proxy`.
    PodProxy,
    /// `pods/portforward`.
    PortForward,
    /// `services/proxy`.
    ServiceProxy,
    /// `serviceaccounts/token`.
    Token,
}
