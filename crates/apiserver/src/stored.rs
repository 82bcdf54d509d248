//! Reads of stored objects of built-in kinds, by their keys.

use plumb_store::{Key, List, Object, Prefix, Store};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

use crate::error::ApiError;
use crate::object::decode;

/// The prefix of the objects of a kind in the store.
pub(crate) fn root(group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{group}/{plural}")
}

/// The path of the objects of a kind in the store, or of those in a namespace.
fn path((group, plural): (&str, &str), namespace: Option<&str>) -> String {
    let root = root(group, plural);
    match namespace {
        Some(namespace) => format!("{root}/{namespace}"),
        None => root,
    }
}

/// An object, if it exists.
pub fn one(
    store: &Store,
    kind: (&str, &str),
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    // No object has an invalid key.
    let Ok(key) = Key::new(format!("{}/{name}", path(kind, namespace))) else { return Ok(None) };
    store.get(&key).map(|object| decode(&object.value)).transpose()
}

/// All objects of a kind, or those in a namespace, as they are stored.
pub fn raw(store: &Store, kind: (&str, &str), namespace: Option<&str>) -> Result<Vec<Arc<Object>>, ApiError> {
    let prefix = Prefix::new(path(kind, namespace))
        .map_err(|error| ApiError::bad_request(format!("invalid namespace: {error}")))?;
    let page = store.list(&List::all(prefix)).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(page.objects)
}

/// All objects of a kind, or those in a namespace.
pub fn all<T: DeserializeOwned>(
    store: &Store,
    kind: (&str, &str),
    namespace: Option<&str>,
) -> Result<Vec<T>, ApiError> {
    raw(store, kind, namespace)?.iter().map(|object| typed(&object.value)).collect()
}

/// A stored object as a type.
pub fn typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))
}
