//! Preparation of an updated pod status.

use serde_json::{Value, json};

/// Prepares an updated status: a QoS class or an observed generation that the node agent omits keeps its stored value.
pub(super) fn prepare(old: &Value, new: &mut Value) {
    let before = &old["status"];
    if old["metadata"]["deletionTimestamp"].is_null() {
        new.get_mut("metadata")
            .and_then(Value::as_object_mut)
            .map(|fields| fields.remove("deletionTimestamp"));
    }
    if new["status"].is_null() {
        new["status"] = json!({});
    }
    let Some(after) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let missing =
        |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "" || value == 0);
    for field in ["qosClass", "observedGeneration"] {
        if let Some(earlier) = before.get(field).filter(|earlier| !missing(Some(earlier)))
            && missing(after.get(field))
        {
            after.insert(field.to_owned(), earlier.clone());
        }
    }
    let mut seen: Vec<&Value> = before["conditions"].as_array().into_iter().flatten().collect();
    let conditions = after.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let place = seen.iter().position(|old| old["type"] == condition["type"]);
        let earlier = place.and_then(|place| seen.remove(place).get("observedGeneration").cloned());
        if let Some(earlier) = earlier.filter(|earlier| !missing(Some(earlier)))
            && missing(condition.get("observedGeneration"))
        {
            condition["observedGeneration"] = earlier;
        }
    }
    first_address(after);
    if before.get("nodeAllocatableResourceClaimStatuses").is_none() {
        // A feature that is off.
        after.remove("nodeAllocatableResourceClaimStatuses");
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        let statuses = after.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        let mounts = statuses.filter_map(|status| status.get_mut("volumeMounts")?.as_array_mut()).flatten();
        for mount in mounts.filter_map(Value::as_object_mut) {
            // A feature that is off.
            mount.remove("volumeStatus");
        }
    }
}

/// Sets the first of `podIPs` to `podIP`, which takes precedence where they differ.
fn first_address(status: &mut serde_json::Map<String, Value>) {
    let one = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let all = status.get("podIPs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let first = all.first().and_then(|address| address["ip"].as_str()).unwrap_or_default().to_owned();
    if !one.is_empty() && one != first {
        status.insert("podIPs".to_owned(), json!([{"ip": one}]));
    } else if one.is_empty() && !first.is_empty() {
        status.insert("podIP".to_owned(), json!(first));
    }
}
