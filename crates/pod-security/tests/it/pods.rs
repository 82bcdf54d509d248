//! Pods for tests.

use k8s_openapi::api::core::v1::Pod;
use plumb_pod_security::{Level, LevelVersion, Version, evaluate};
use serde_json::{Value, json};

/// A pod that complies with `restricted` in every version, but for these fields: JSON pointers and values.
pub(crate) fn pod(fields: &[(&str, Value)]) -> Pod {
    let security = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let mut pod = json!({ "metadata": { "name": "pod" }, "spec": {
        "initContainers": [{ "name": "init", "securityContext": security }],
        "containers": [
            { "name": "a", "securityContext": security },
            { "name": "b", "securityContext": security },
        ],
        "ephemeralContainers": [{ "name": "debug", "securityContext": security }],
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
    } });
    for (pointer, value) in fields {
        set(&mut pod, pointer, value.clone());
    }
    serde_json::from_value(pod).unwrap()
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.trim_start_matches('/').split('/') {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            // A slash in a name is written as in JSON pointers.
            Err(_) => &mut at[step.replace("~1", "/")],
        };
    }
    *at = value;
}

/// A level in a version, as in `restricted:v1.25`.
pub(crate) fn policy(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap();
    LevelVersion { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() }
}

/// The violations of a policy: their IDs, and the message.
pub(crate) fn violations(pod: &Pod, text: &str) -> (Vec<&'static str>, String) {
    match evaluate(policy(text), &pod.metadata, pod.spec.as_ref().unwrap()) {
        Ok(()) => (Vec::new(), String::new()),
        Err(violations) => (violations.iter().map(|one| one.check).collect(), violations.to_string()),
    }
}
