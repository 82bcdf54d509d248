//! Fields of features that Kubernetes 1.36 disables by default. The API server drops them, unless the stored object has
//! them.

use serde_json::{Map, Value};

/// Drops disabled fields from the spec of a pod or pod template.
pub(super) fn drop_from_pod_spec(old: Option<&Value>, spec: &mut Value) {
    let uses_signals = old.is_some_and(|old| containers(old).any(has_signal));
    if !uses_signals {
        for container in containers_mut(spec) {
            drop_signal(container);
        }
    }
    drop_unless_used(old, spec, &["schedulingGroup"]);
    for kind in ["podCertificate", "clusterTrustBundle"] {
        let used = |spec: &Value| sources(spec).any(|source| source.get(kind).is_some());
        if old.is_some_and(used) {
            continue;
        }
        let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
        let sources = volumes.filter_map(|volume| volume.pointer_mut("/projected/sources")?.as_array_mut());
        for source in sources.flatten().filter_map(Value::as_object_mut) {
            source.remove(kind);
        }
    }
}

/// The sources of all projected volumes of a pod.
fn sources(spec: &Value) -> impl Iterator<Item = &Value> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten()
}

/// Drops fields unless the stored object has them.
pub(super) fn drop_unless_used(old: Option<&Value>, new: &mut Value, fields: &[&str]) {
    for field in fields {
        let used = old.is_some_and(|old| old.get(*field).is_some());
        if let Some(new) = new.as_object_mut().filter(|_| !used) {
            new.remove(*field);
        }
    }
}

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    LISTS.into_iter().filter_map(|list| spec[list].as_array()).flatten()
}

fn containers_mut(spec: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let lists = spec.as_object_mut().into_iter().flatten().filter(|(key, _)| LISTS.contains(&key.as_str()));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().filter_map(Value::as_object_mut)
}

fn has_signal(container: &Value) -> bool {
    container.pointer("/lifecycle/stopSignal").is_some()
}

fn drop_signal(container: &mut Map<String, Value>) {
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}
