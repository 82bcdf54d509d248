//! Preparation of a new pod: `matchLabelKeys` become selector requirements, `AppArmor` annotations become fields.

use serde_json::{Value, json};

use crate::defaults::service_account;
use plumb_apiserver::object::moment;

/// The lists of pod affinity terms, each with the pointer from an element to its term.
const TERMS: [(&str, &str, &str); 4] = [
    ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
    ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
    ("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
];

/// Prepares a new pod. Returns the warnings about annotations, which cannot be computed once they are fields.
pub(super) fn prepare(pod: &mut Value, now: jiff::Timestamp) -> Vec<String> {
    // Admission may have set only one of `serviceAccountName` and `serviceAccount`.
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        service_account(spec);
    }
    set_scheduling_gated(pod, now);
    merge_label_keys(pod);
    app_armor_profiles_from_annotations(pod)
}

/// Sets the condition `PodScheduled` to false with the reason `SchedulingGated` on a pod with scheduling gates.
fn set_scheduling_gated(pod: &mut Value, now: jiff::Timestamp) {
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": moment(now),
        }]);
    }
}

/// Merges the values that the pod's labels have for `matchLabelKeys` and `mismatchLabelKeys` into the label selector of
/// the same term, so that the scheduler reads only the selector.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let constraints = pod.pointer_mut("/spec/topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_keys_into_selector(constraint, &labels);
    }
    for (side, list, term) in TERMS {
        let terms = pod.pointer_mut(&format!("/spec/affinity/{side}/{list}")).and_then(Value::as_array_mut);
        for element in terms.into_iter().flatten() {
            if let Some(term) = element.pointer_mut(term) {
                merge_keys_into_selector(term, &labels);
            }
        }
    }
}

fn merge_keys_into_selector(rule: &mut Value, labels: &Value) {
    let mut requirements = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in rule[field].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    // A term without a label selector selects no pods.
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

/// Copies `AppArmor` profiles from the deprecated annotations into the fields.
fn app_armor_profiles_from_annotations(pod: &mut Value) -> Vec<String> {
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
            let profile = apparmor_profile(annotation);
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
pub(crate) fn apparmor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            let is_valid = name.trim() == name && name.len() <= 4095;
            is_valid.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}
