//! The alpha spellings of a resize policy and of allocated resources, for manifests and clients of that time: understood
//! where the rules say so, and never printed.

use plumb_resize::alpha::{ALLOCATED_FIELD, POLICY_FIELD, restart_policy};
use plumb_resize::rules::Rules;
use serde_json::Value;

/// Where a pod's spec lies in a pod, and in whatever pods are made from.
const SPECS: [&str; 4] =
    ["/spec", "/template/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];

/// Whether a body may have something to be translated. Few have, and only those are read twice.
pub(crate) fn may_concern(body: &[u8], rules: &Rules) -> bool {
    let has = |field: &str| body.windows(field.len()).any(|bytes| bytes == field.as_bytes());
    rules.alpha_spellings && ["resizePolicy", ALLOCATED_FIELD].into_iter().any(has)
}

/// Rewrites the resize policies and allocated resources of an object, or of a patch of one, as they are spelled today.
pub(crate) fn translate(object: &mut Value, rules: &Rules) {
    for spec in SPECS {
        let Some(spec) = object.pointer_mut(spec) else { continue };
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let policies = container.get_mut("resizePolicy").and_then(Value::as_array_mut);
                policies.into_iter().flatten().for_each(|policy| translate_policy(policy, rules));
            }
        }
    }
    for list in ["/status/containerStatuses", "/status/initContainerStatuses"] {
        let statuses = object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for fields in statuses.filter_map(Value::as_object_mut) {
            if let Some(value) = fields.remove(ALLOCATED_FIELD) {
                fields.entry("allocatedResources").or_insert(value);
            }
        }
    }
}

fn translate_policy(policy: &mut Value, rules: &Rules) {
    let Some(fields) = policy.as_object_mut() else { return };
    if let Some(value) = fields.remove(POLICY_FIELD) {
        fields.entry("restartPolicy").or_insert(value);
    }
    if let Some(value) = fields.get_mut("restartPolicy")
        && let Some(known) = value.as_str().and_then(|text| restart_policy(text, rules))
    {
        *value = known.name().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manifest_of_the_alpha_reads_as_one_of_today() {
        let policy = |field: &str, value: &str| json!({ "resourceName": "cpu", field: value });
        let pod =
            |policy: Value| json!({ "spec": { "containers": [{ "name": "a", "resizePolicy": [policy] }] } });
        let table = [
            (policy("policy", "RestartNotRequired"), policy("restartPolicy", "NotRequired")),
            (policy("policy", "Restart"), policy("restartPolicy", "RestartContainer")),
            (policy("restartPolicy", "RestartRequired"), policy("restartPolicy", "RestartContainer")),
            (policy("restartPolicy", "NotRequired"), policy("restartPolicy", "NotRequired")),
            (policy("policy", "Sometimes"), policy("restartPolicy", "Sometimes")),
        ];
        for (written, expected) in table {
            let mut object = pod(written.clone());
            assert!(may_concern(object.to_string().as_bytes(), &Rules::kep()));
            translate(&mut object, &Rules::kep());
            assert_eq!(object, pod(expected), "{written}");
        }
        assert!(!may_concern(b"resizePolicy", &Rules::v1_36()));
    }

    #[test]
    fn a_status_of_the_alpha_reads_as_one_of_today() {
        for list in ["containerStatuses", "initContainerStatuses"] {
            let status =
                |field: &str| json!({ "status": { list: [{ "name": "a", field: { "cpu": "1" } }] } });
            let mut object = status("resourcesAllocated");
            assert!(may_concern(object.to_string().as_bytes(), &Rules::kep()));
            translate(&mut object, &Rules::kep());
            assert_eq!(object, status("allocatedResources"));
        }
    }
}
