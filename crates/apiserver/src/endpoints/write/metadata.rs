//! The metadata of a written object: what the URL says, what the server sets, and what an update cannot change.

use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use super::stages::Current;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::kinds::rest::set_kind;
use crate::object::{finalizers, is_deleting, meta, metadata};
use crate::request::RequestInfo;
use crate::url::Verb;

/// Sets the namespace of the URL. An object with another namespace is rejected.
pub(super) fn set_namespace(namespace: Option<&str>, new: &mut Value) -> Result<(), ApiError> {
    let given = meta(new, "namespace").to_owned();
    let fields = metadata(new);
    match namespace {
        Some(namespace) if given.is_empty() || given == namespace => {
            fields.insert("namespace".into(), json!(namespace));
            Ok(())
        }
        None => {
            fields.remove("namespace");
            Ok(())
        }
        Some(_) => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Checks that an object has the name and the namespace of the URL. A missing namespace is set.
pub(crate) fn check_url(info: &RequestInfo, new: &mut Value) -> Result<(), ApiError> {
    set_namespace(info.namespace(), new)?;
    let (given, name) = (meta(new, "name"), info.name());
    if given.is_empty() {
        return Err(ApiError::nameless(name));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Clears the metadata of a new object that the server sets.
pub(super) fn clear_system_fields(new: &mut Value) {
    let fields = metadata(new);
    for cleared in [
        "resourceVersion",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
        "creationTimestamp",
    ] {
        fields.remove(cleared);
    }
}

/// Checks that an update is of the stored object, and of the version of it that the client read, and restores the metadata
/// that no client changes.
pub(super) fn check_identity(
    info: &RequestInfo,
    row: &Row,
    current: &Current,
    new: &mut Value,
) -> Result<(), ApiError> {
    check_url(info, new)?;
    check_preconditions(info, row, current, new)?;
    set_kind(row, new);
    restore_system_fields(&current.old, new);
    Ok(())
}

/// Checks the UID and the resource version of an update.
fn check_preconditions(
    info: &RequestInfo,
    row: &Row,
    current: &Current,
    new: &Value,
) -> Result<(), ApiError> {
    let name = info.name();
    let (uid, own) = (meta(new, "uid"), meta(&current.old, "uid"));
    // The validation of a patch rejects another UID.
    if info.verb == Verb::Update && !uid.is_empty() && uid != own {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(ApiError::conflict(row.group(), row.plural(), name, &why));
    }
    let given = meta(new, "resourceVersion");
    if !given.is_empty() && given.parse::<u64>().is_err() {
        return Err(ApiError::unexplained(format!("strconv.ParseUint: parsing {given:?}: invalid syntax")));
    }
    // A resource version of zero stands for any.
    let is_unconditional = matches!(given, "" | "0");
    if is_unconditional && !row.strategy().allow_unconditional_update() {
        let missing = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(ApiError::invalid(row.group(), row.plural(), name, &[missing]));
    }
    if !is_unconditional && given != current.stored.mod_revision.to_string() {
        return Err(row.modified(name));
    }
    Ok(())
}

/// Sets the metadata that no client changes to its stored values.
fn restore_system_fields(old: &Value, new: &mut Value) {
    let stored = &old["metadata"];
    let fields = metadata(new);
    if fields.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        fields.insert("uid".to_owned(), stored["uid"].clone());
    }
    // Validation rejects an update that adds these.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = stored.get(field) {
            fields.insert(field.to_owned(), value.clone());
        }
    }
    for field in ["creationTimestamp", "generation", "resourceVersion"] {
        match stored.get(field) {
            Some(value) => fields.insert(field.to_owned(), value.clone()),
            None => fields.remove(field),
        };
    }
}

/// Whether a terminating object has neither finalizers nor a grace period left, so that it is deleted.
pub(super) fn is_finalized(row: &Row, object: &Value) -> bool {
    is_deleting(object)
        && finalizers(object).is_empty()
        && !row.strategy().has_spec_finalizers(object)
        && object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_none_or(|left| left == 0)
}
