//! Warnings about unqualified finalizers of custom resources: two controllers could use the same name.

use std::collections::BTreeSet;

use plumb_validation::names::qualified_name;
use serde_json::Value;

use crate::object::finalizers;

/// The finalizers of Kubernetes.
const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// Warnings about the finalizers that an object has and had not before.
pub(super) fn warnings(old: &Value, new: &Value) -> Vec<String> {
    let known = finalizers(old);
    let added: BTreeSet<&str> = finalizers(new).into_iter().filter(|own| !known.contains(own)).collect();
    added.into_iter().flat_map(check).collect()
}

fn check(name: &str) -> Vec<String> {
    let mut messages = qualified_name(name);
    if !name.contains('/') && !STANDARD.contains(&name) {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        messages.push(format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer \
             writers"
        ));
    }
    messages.into_iter().map(|why| format!("metadata.finalizers: {name:?}: {why}")).collect()
}
