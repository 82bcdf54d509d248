//! How the generic handlers call the [`Strategy`](super::Strategy) of a kind, as upstream's `rest.BeforeCreate` and
//! `rest.BeforeUpdate`.

use jiff::Timestamp;
use plumb_apischema::{Schema, apply, json as schema_json};
use serde_json::{Value, json};
use uuid::Uuid;

use super::strategy::reset;
use super::{Context, Row};
use crate::error::ApiError;
use crate::object::{generate_name, metadata, moment};

/// Sets the kind and the version of an object. The kind of a custom resource is left to its validation.
pub(crate) fn set_kind(row: &Row, object: &mut Value) {
    if row.custom().is_none() {
        object["kind"] = json!(row.kind());
    }
    object["apiVersion"] = json!(row.api_version());
}

/// Sets the metadata that every new object gets from the server.
pub fn fill_system_fields(row: &Row, new: &mut Value, now: Timestamp) {
    set_kind(row, new);
    let fields = metadata(new);
    let prefix = fields.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !named && !prefix.is_empty() {
        fields.insert("name".into(), json!(generate_name(&prefix, Uuid::new_v4())));
    }
    fields.insert("uid".into(), json!(Uuid::new_v4().to_string()));
    fields.insert("creationTimestamp".into(), json!(moment(now)));
}

/// Prepares a new object for validation, after defaulting. Returns warnings about its changes.
pub fn prepare_for_create(cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
    let strategy = cx.row.strategy();
    if cx.row.has("status") && !strategy.allow_status_on_create() {
        reset_status(cx.row, new);
    }
    strategy.drop_disabled_fields(None, new);
    let warnings = strategy.prepare_for_create(cx, new)?;
    if strategy.counts_generation() {
        metadata(new).insert("generation".into(), json!(1));
    }
    Ok(warnings)
}

/// Resets the status of a new object to its initial value, which has the required fields.
fn reset_status(row: &Row, new: &mut Value) {
    let Some(object) = new.as_object_mut() else { return };
    let Some(kind) = row.builtin() else {
        object.remove("status");
        return;
    };
    match apply::empty(Schema::builtin(), kind).get_mut("status") {
        Some(status) => object.insert("status".to_owned(), status.take()),
        None => object.remove("status"),
    };
}

/// Prepares an updated object for validation, after defaulting.
pub(crate) fn prepare_for_update(cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let strategy = cx.row.strategy();
    if cx.row.has("status") {
        reset::field(old, new, "status");
    }
    strategy.drop_disabled_fields(Some(old), new);
    strategy.prepare_for_update(cx, old, new)
}

/// Prepares an updated status for validation, after defaulting.
pub(crate) fn prepare_for_status_update(
    cx: Context<'_>,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let strategy = cx.row.strategy();
    strategy.reset_fields_on_status_update(old, new);
    strategy.prepare_for_status_update(cx, old, new)
}

/// Increments the generation of an object if its desired state has changed.
pub(crate) fn count_generation(row: &Row, old: &Value, new: &mut Value) {
    let strategy = row.strategy();
    if !strategy.counts_generation() {
        return;
    }
    let Some(generation) = old.pointer("/metadata/generation").and_then(Value::as_i64) else { return };
    if strategy.is_new_generation(row, old, new) {
        metadata(new).insert("generation".into(), json!(generation.saturating_add(1)));
    }
}

/// Whether an object has the form in which it is stored.
pub(crate) fn is_canonical(row: &Row, object: &Value) -> bool {
    row.builtin().is_none_or(|kind| schema_json::is_settled(Schema::builtin(), kind, object))
}

/// Brings a valid object into the form in which it is stored and returned. Upstream does this when it decodes the stored
/// object.
pub(crate) fn canonicalize(row: &Row, new: &mut Value) {
    canonicalize_fields(row, new);
    row.strategy().canonicalize(new);
}

/// The same for a new object, to which upstream also applies defaults when it decodes it.
pub(crate) fn canonicalize_new(row: &Row, new: &mut Value) {
    canonicalize_fields(row, new);
    row.strategy().canonicalize_new(new);
}

fn canonicalize_fields(row: &Row, new: &mut Value) {
    if let Some(kind) = row.builtin() {
        schema_json::settle(Schema::builtin(), kind, new);
    }
}

/// Drops duplicate owner references of an object. Returns a warning about them.
pub(crate) fn drop_duplicate_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    let mut unique: Vec<Value> = Vec::new();
    let mut duplicates: Vec<String> = Vec::new();
    for owner in owners.drain(..) {
        if unique.contains(&owner) {
            duplicates.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            unique.push(owner);
        }
    }
    *owners = unique;
    let uids = duplicates.join(", ");
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        )
    })
}
