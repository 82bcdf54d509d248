//! Resetting fields of an update to their stored values where the endpoint of the update does not change them.

use std::collections::BTreeSet;

use serde_json::Value;

/// Sets a field to its stored value.
pub fn field(old: &Value, new: &mut Value, field: &str) {
    let Some(object) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

/// Sets a field of the metadata to its stored value.
pub fn metadata_field(old: &Value, new: &mut Value, name: &str) {
    if let (Some(old), Some(new)) = (old.get("metadata"), new.get_mut("metadata")) {
        field(old, new, name);
    }
}

/// Sets all fields to their stored values, except those in `changed`.
pub fn all_but(old: &Value, new: &mut Value, changed: &[&str]) {
    let names =
        |object: &Value| object.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let (stored, mut given): (BTreeSet<String>, BTreeSet<String>) = (names(old), names(new));
    given.extend(stored);
    for name in given.iter().filter(|name| !changed.contains(&name.as_str())) {
        field(old, new, name);
    }
}
