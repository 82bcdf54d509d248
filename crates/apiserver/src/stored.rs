//! Reads of stored objects.

use plumb_store::{List, Object};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

use crate::error::ApiError;
use crate::object::decode;
use crate::server::ApiServer;

/// An object, if it is there.
pub(crate) fn one(
    server: &ApiServer,
    (group, plural): (&str, &str),
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let Some(row) = server.kinds().find(group, plural) else { return Ok(None) };
    // What cannot be a key is not there.
    let Ok(key) = row.key(namespace, name) else { return Ok(None) };
    server.store().get(&key).map(|object| decode(&object.value)).transpose()
}

/// All objects of a kind, or those in a namespace, as they are stored.
pub(crate) fn raw(
    server: &ApiServer,
    (group, plural): (&str, &str),
    namespace: Option<&str>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    let Some(row) = server.kinds().find(group, plural) else { return Ok(Vec::new()) };
    let list = List::all(row.prefix(namespace)?);
    let page = server.store().list(&list).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(page.objects)
}

/// All objects of a kind, or those in a namespace.
pub(crate) fn all<T: DeserializeOwned>(
    server: &ApiServer,
    kind: (&str, &str),
    namespace: Option<&str>,
) -> Result<Vec<T>, ApiError> {
    raw(server, kind, namespace)?.iter().map(|object| typed(&object.value)).collect()
}

/// A stored object as a type.
pub(crate) fn typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))
}
