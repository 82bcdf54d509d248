//! The subresource `/binding`: the scheduler binds a pod to a node.

use jiff::Timestamp;
use plumb_store::Object;
use plumb_validation::field::{FieldError, aggregate_message};
use serde_json::{Value, json};

use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{decode, is_deleting, meta, metadata, moment};

/// The pod of a name as it is stored, bound to the node that a `Binding` names.
pub(super) fn bind(name: &str, stored: &Object, binding: &Value, now: Timestamp) -> Result<Value, ApiError> {
    if meta(binding, "name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (node, kind) = (text("/target/name"), text("/target/kind"));
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        // SPEC: upstream returns these errors without a reason.
        return Err(ApiError::unexplained(aggregate_message(&errors)));
    }
    let mut pod = decode(&stored.value)?;
    let found = [
        ("uid", "UID", meta(&pod, "uid").to_owned()),
        ("resourceVersion", "ResourceVersion", stored.mod_revision.to_string()),
    ];
    for (field, what, found) in found {
        let wanted = meta(binding, field);
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
    }
    let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
    if is_deleting(&pod) {
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let bound = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty());
    if let Some(bound) = bound {
        return Err(conflict(format!("pod {name} is already assigned to node {bound:?}")));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = json!(node);
    for field in ["annotations", "labels"] {
        let given = binding["metadata"][field].as_object().filter(|given| !given.is_empty());
        if let Some(given) = given {
            let own = metadata(&mut pod).entry(field).or_insert_with(|| json!({}));
            own.as_object_mut().into_iter().for_each(|own| own.extend(given.clone()));
        }
    }
    set_scheduled(&mut pod["status"], &moment(now));
    Ok(pod)
}

/// Sets the condition `PodScheduled` to true and clears the nominated node.
fn set_scheduled(status: &mut Value, now: &str) {
    let mut condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if !status.is_object() {
        *status = json!({});
    }
    let Some(status) = status.as_object_mut() else { return };
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|own| own["type"] == "PodScheduled") {
        Some(own) => {
            if own["status"] == "True" {
                condition["lastTransitionTime"] = own["lastTransitionTime"].clone();
            }
            *own = condition;
        }
        None => conditions.push(condition),
    }
}
