//! What becomes of a pod before it is looked at: keys of labels become selectors, annotations become fields.

use serde_json::{Value, json};

use crate::defaults::service_account;
use crate::object::moment;

/// Where terms of affinity are, and where in an element the term itself is.
const TERMS: [(&str, &str, &str); 4] = [
    ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
    ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
    ("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
];

/// Completes a new pod. Answers with what its author is warned of: what is done here can't be seen afterwards.
pub(super) fn begin(pod: &mut Value, now: jiff::Timestamp) -> Vec<String> {
    // Whoever named the account on the way here used one of its two names.
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        service_account(spec);
    }
    hold_back(pod, now);
    select_by_keys(pod);
    profiles_from_annotations(pod)
}

/// Says of a pod with gates that it is not scheduled yet.
fn hold_back(pod: &mut Value, now: jiff::Timestamp) {
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": moment(now),
        }]);
    }
}

/// Writes the pod's own values of the label keys that a rule of placement names into its selector, so that
/// schedulers need not know of such keys.
fn select_by_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let constraints = pod.pointer_mut("/spec/topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_keys(constraint, &labels);
    }
    for (side, list, term) in TERMS {
        let terms = pod.pointer_mut(&format!("/spec/affinity/{side}/{list}")).and_then(Value::as_array_mut);
        for element in terms.into_iter().flatten() {
            if let Some(term) = element.pointer_mut(term) {
                merge_keys(term, &labels);
            }
        }
    }
}

fn merge_keys(rule: &mut Value, labels: &Value) {
    let mut requirements = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in rule[field].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    // Without a selector a rule is about no pod, and stays so.
    let Some(selector) = rule.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if requirements.is_empty() {
        return;
    }
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if let Some(expressions) = expressions.as_array_mut() {
        expressions.extend(requirements);
    }
}

const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Copies profiles from the annotations that were their place once into the fields that are it now.
fn profiles_from_annotations(pod: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if pod["spec"]["os"]["name"] == "windows" {
        return warnings;
    }
    let annotations = pod["metadata"]["annotations"].clone();
    let of_pod = pod["spec"]["securityContext"]["appArmorProfile"].clone();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let key = format!("{APPARMOR}{}", container["name"].as_str().unwrap_or_default());
            let Some(annotation) = annotations[&key].as_str() else { continue };
            if !container["securityContext"]["appArmorProfile"].is_null() {
                continue;
            }
            let profile = profile(annotation);
            let warned = match &profile {
                Some(profile) if *profile == of_pod => false,
                Some(profile) => {
                    container["securityContext"]["appArmorProfile"] = profile.clone();
                    true
                }
                None => true,
            };
            if warned {
                warnings.push(format!(
                    "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
                ));
            }
        }
    }
    warnings
}

/// The profile that an annotation names, if it names a valid one.
pub(crate) fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            let sound = name.trim() == name && name.len() <= 4095;
            sound.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// What a node says of a pod keeps what it does not say: the class of the pod, and which generation was seen.
pub(super) fn keep_in_status(old: &Value, new: &mut Value) {
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

/// The one address of a pod is the first of its addresses; where they differ, the one was meant.
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
