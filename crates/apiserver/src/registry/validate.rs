//! Checking objects: what is checked of every kind, together with what its [`Strategy`](super::Strategy) checks.

use plumb_validation::field::FieldError;
use serde_json::Value;

use super::Context;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;
use crate::validation;

/// Checks a new object.
pub(super) fn object(cx: Context<'_>, new: &Value) -> Result<(), ApiError> {
    let Context { row, server, .. } = cx;
    let mut errors = validation::create((&row.resource).into(), new, server.rules());
    row.strategy().validate(new, server.rules(), &mut errors);
    invalid(row, new, &errors)
}

/// Checks an updated object.
pub(super) fn object_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    let Context { row, server, .. } = cx;
    let mut errors = validation::update((&row.resource).into(), old, new, server.rules());
    row.strategy().validate_update(old, new, server.rules(), &mut errors);
    invalid(row, new, &errors)
}

/// Checks an updated status.
pub(super) fn object_status_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    let Context { row, server, .. } = cx;
    let mut errors = validation::update_status((&row.resource).into(), old, new, server.rules());
    row.strategy().validate_status_update(old, new, server.rules(), &mut errors);
    invalid(row, new, &errors)
}

/// Rejects an object that has errors.
pub(crate) fn invalid(row: &Row, object: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(row.group(), row.kind(), meta(object, "name"), errors))
}
