//! `dataSource` and `dataSourceRef`: the two fields that name the source of a new volume's data.

use serde_json::{Value, json};

/// Prepares the data sources of a claim's spec.
pub(super) fn prepare(old: Option<&Value>, spec: &mut Value) {
    let in_use = |field: &str| old.is_some_and(|old| old.get(field).is_some());
    // CrossNamespaceVolumeDataSource is off by default.
    let elsewhere = spec.pointer("/dataSourceRef/namespace").and_then(Value::as_str);
    if elsewhere.is_some_and(|namespace| !namespace.is_empty()) && !in_use("dataSourceRef") {
        spec.as_object_mut().map(|spec| spec.remove("dataSourceRef"));
    }
    let known = |source: &Value| {
        let group = source["apiGroup"].as_str().unwrap_or_default();
        let kind = source["kind"].as_str().unwrap_or_default();
        matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    // `dataSource` can refer to two kinds; upstream drops references to others.
    if !in_use("dataSource")
        && !in_use("dataSourceRef")
        && spec.get("dataSourceRef").is_none()
        && spec.get("dataSource").is_some_and(|source| !known(source))
    {
        spec.as_object_mut().map(|spec| spec.remove("dataSource"));
    }
    normalize(spec);
}

/// Copies the field that is set to the other one.
fn normalize(spec: &mut Value) {
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        let Some(source) = spec.get(from) else { continue };
        let elsewhere = source["namespace"].as_str().is_some_and(|namespace| !namespace.is_empty());
        if spec.get(to).is_none() && !elsewhere {
            let mut copy = json!({"kind": source["kind"], "name": source["name"]});
            // SPEC: upstream writes a missing API group as null in both fields.
            copy["apiGroup"] = source.get("apiGroup").cloned().unwrap_or_default();
            spec[to] = copy;
        }
    }
}
