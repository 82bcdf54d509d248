//! Custom kinds: definitions and custom resources.

mod clients;
mod conversions;
mod goldens;
mod kinds;
mod life;
mod named;
mod published;
mod warned;

use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of a namespaced kind in `example.com`.
pub(crate) fn definition(plural: &str, kind: &str, versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": plural, "kind": kind }, "versions": versions,
        },
    })
}

/// One version with a schema for `spec`.
pub(crate) fn version(name: &str, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
    })
}
