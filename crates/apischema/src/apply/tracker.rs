//! Keeping the managers of an object: what a write makes of them, and what an apply makes of the object.

mod applying;
mod pruning;
mod updating;

use serde_json::Value;

pub use applying::ApplyError;

use super::set::FieldSet;
use super::versions::Versions;

/// Keeps the managers of a kind's objects through writes to one part of them.
#[derive(Clone, Copy)]
pub struct Tracker<'t> {
    /// The versions of the kind.
    pub versions: &'t dyn Versions,
    /// The version that is written in.
    pub api_version: &'t str,
    /// The kind's name.
    pub kind: &'t str,
    /// The part that is written; empty for the object itself.
    pub subresource: &'t str,
    /// The moment of the write, as the API writes moments.
    pub now: &'t str,
}

/// The fields of an object's metadata that nobody manages.
fn unmanaged() -> FieldSet<'static> {
    FieldSet::of_names([
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// Takes the list of managers out of an object.
fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// The list of managers of an object.
fn managed(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Puts a list of managers into an object that has metadata.
fn put_managed(object: &mut Value, list: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match list {
        Some(list) => metadata.insert("managedFields".to_owned(), list),
        None => metadata.remove("managedFields"),
    };
}

/// Whether somebody wants everything about managers to be forgotten: the list is empty, or has one empty entry.
fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}
