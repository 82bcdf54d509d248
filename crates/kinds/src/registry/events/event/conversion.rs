//! Conversion: Events are stored as `v1` and served as `events.k8s.io/v1` too.

use serde_json::{Value, json};

use plumb_apiserver::kinds::conversion::Pair;

/// `events.k8s.io/v1`, stored as `v1`.
pub(super) static V1: Pair =
    Pair { store: |event| names(event, false), serve: show, field: core_field, own_rules: true };

/// The fields with different names: first that of `v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn names(event: &mut Value, to_own_group: bool) {
    for (core, own) in NAMES {
        let (from, to) = if to_own_group { (core, own) } else { (own, core) };
        rename(event, from, to);
    }
}

/// Renames a field; an absent one stays absent.
fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}

fn show(event: &mut Value) {
    names(event, true);
    // `v1` has empty strings and null times where `events.k8s.io/v1` leaves the fields out.
    for field in ["reportingController", "reportingInstance"] {
        if event[field] == json!("") {
            event.as_object_mut().map(|fields| fields.remove(field));
        }
    }
}

fn core_field(field: &str) -> Option<&'static str> {
    Some(match field {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_same_fields_in_both_groups() {
        let own = json!({
            "regarding": { "kind": "Pod", "name": "a" }, "note": "pulled", "reason": "Pulled",
            "deprecatedCount": 2, "deprecatedSource": { "component": "x" }, "reportingController": "c",
        });
        let mut event = own.clone();
        (V1.store)(&mut event);
        assert_eq!(
            event,
            json!({
                "involvedObject": { "kind": "Pod", "name": "a" }, "message": "pulled", "reason": "Pulled",
                "count": 2, "source": { "component": "x" }, "reportingComponent": "c",
            })
        );
        (V1.serve)(&mut event);
        assert_eq!(event, own);
    }
}
