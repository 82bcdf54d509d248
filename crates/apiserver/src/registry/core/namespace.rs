//! Namespaces.

use serde_json::{Value, json};

use crate::defaults;
use crate::error::ApiError;
use crate::object::{meta, metadata};
use crate::registry::{Context, Strategy};

/// The strategy of Namespaces.
#[derive(Debug)]
pub(in crate::registry) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        let Context { row, server, .. } = cx;
        defaults::apply(row.group(), row.version(), row.kind(), new, server.rules());
        label_with_name(new);
        Ok(())
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        new["spec"] = json!({ "finalizers": ["kubernetes"] });
        new["status"] = json!({ "phase": "Active" });
        label_with_name(new);
        Ok(Vec::new())
    }

    /// Only `/finalize` changes the spec.
    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        new["spec"] = old["spec"].clone();
        Ok(())
    }
}

/// Labels a namespace with its name, once it has one.
fn label_with_name(namespace: &mut Value) {
    let name = meta(namespace, "name").to_owned();
    if !name.is_empty() {
        let labels = metadata(namespace).entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = json!(name);
    }
}
