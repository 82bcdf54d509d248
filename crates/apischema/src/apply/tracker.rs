//! Tracking of managed fields through updates and applies.

mod applying;
mod pruning;
mod updating;

use serde_json::Value;

pub use applying::ApplyError;

use super::set::FieldSet;
use super::versions::Versions;

/// Tracks the managed fields of a kind's objects for requests to the object or to one subresource.
#[derive(Clone, Copy)]
pub struct Tracker<'t> {
    /// The versions of the kind.
    pub versions: &'t dyn Versions,
    /// The API version of the request.
    pub api_version: &'t str,
    /// The name of the kind.
    pub kind: &'t str,
    /// The subresource; empty for the object itself.
    pub subresource: &'t str,
    /// The time of the request, in the format of the API.
    pub now: &'t str,
}

/// The fields that are never managed (`stripMeta` upstream).
fn unmanaged() -> FieldSet<'static> {
    FieldSet::from_names(&[
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

/// Removes `managedFields` from an object and returns it.
fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// `managedFields` of an object.
fn managed(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Sets `managedFields` of an object that has metadata.
fn put_managed(object: &mut Value, list: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match list {
        Some(list) => metadata.insert("managedFields".to_owned(), list),
        None => metadata.remove("managedFields"),
    };
}

/// Whether a request resets `managedFields`: the list is empty, or has one empty entry.
fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}
