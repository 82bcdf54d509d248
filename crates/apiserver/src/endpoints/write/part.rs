//! What a write updates: the object, its status, or a part with a subresource of its own.

use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::{Context, Row, Strategy, SubresourceStrategy, rest};
use crate::request::RequestScope;
use crate::warnings::Warnings;

/// What a write updates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The object without its status.
    Main,
    /// The status.
    Status,
    /// What a subresource updates.
    Subresource(&'static dyn SubresourceStrategy),
}

impl Part {
    /// Fills in the defaults of the fields that the update leaves out.
    pub(crate) fn apply_defaults(
        self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        match self {
            Self::Subresource(strategy) if !strategy.applies_defaults() => Ok(()),
            _ => cx.row.strategy().apply_defaults(cx, old, new),
        }
    }

    /// Takes everything that the update does not change from the stored object, and sets what the server decides on.
    pub(crate) fn prepare_for_update(
        self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        match self {
            Self::Main => rest::prepare_for_update(cx, old, new),
            Self::Status => rest::prepare_for_status_update(cx, old, new),
            Self::Subresource(strategy) => strategy.prepare_for_update(cx, old, new),
        }
    }

    /// Counts a change of what is desired.
    pub(crate) fn count_generation(self, row: &Row, old: &Value, new: &mut Value) {
        let counts = match self {
            Self::Main => true,
            Self::Status => false,
            Self::Subresource(strategy) => strategy.counts_generation(),
        };
        if counts {
            rest::count_generation(row, old, new);
        }
    }

    /// Checks the update.
    pub(crate) fn validate_update(
        self,
        cx: Context<'_>,
        scope: &RequestScope,
        warnings: &Warnings,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        match self {
            Self::Main => {
                let ((row, old), (_, new)) = (scope.validated(old), scope.validated(new));
                row.strategy().validate_object_update(cx.with_row(row), &old, &new, warnings)
            }
            Self::Status => {
                let strategy = cx.row.strategy();
                strategy.validate_object_status_update(cx, old, new, warnings)?;
                strategy.authorize_status_update(cx, old, new)
            }
            Self::Subresource(strategy) => strategy.validate_update(cx, old, new),
        }
    }

    /// Warnings about a valid update.
    pub(crate) fn warnings(self, strategy: &dyn Strategy, old: &Value, new: &Value) -> Vec<String> {
        match self {
            Self::Main => strategy.warnings_on_update(old, new),
            Self::Status => strategy.warnings_on_status_update(new),
            Self::Subresource(_) => Vec::new(),
        }
    }
}
