//! The grace period in which the node agent terminates the containers of a pod.

use serde_json::Value;

use plumb_apiserver::object::is_deleting;

/// The grace period of a deletion; none if the pod is already terminating with a grace period that is no longer.
pub(super) fn grace_period(given: Option<i64>, pod: &Value) -> Option<i64> {
    let given = given.map(|grace| if grace < 0 { 1 } else { grace });
    if is_deleting(pod) {
        let pending = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        return match pending.unwrap_or(0) {
            0 => Some(0),
            pending => given.filter(|given| *given < pending),
        };
    }
    let runs = pod.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !runs || ended {
        return Some(0);
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    Some(match given.unwrap_or(own) {
        negative if negative < 0 => 1,
        grace => grace,
    })
}
