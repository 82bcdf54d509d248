//! Pods that need a feature that this node does not have. The agent rejects such a pod, with the reason that the
//! kubelet reports on a machine without the feature: to run it without its `AppArmor` profile would drop a protection
//! silently.

use std::fmt;

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod, PodSpec};

/// Why a pod is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// It has an `AppArmor` profile.
    AppArmor,
    /// It is for another operating system.
    Os,
    /// It is for another operating system by its label.
    OsLabel,
}

impl Unsupported {
    /// The reason in the status of the pod and of the event.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::AppArmor => "AppArmor",
            Self::Os => "PodOSNotSupported",
            Self::OsLabel => "PodOSSelectorNodeLabelDoesNotMatch",
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AppArmor => "Cannot enforce AppArmor: the container runtime does not support AppArmor",
            Self::Os => "Failed to admit pod as the OS field doesn't match node OS",
            Self::OsLabel => "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        })
    }
}

/// The features of a pod that this node does not have.
pub(crate) fn check(pod: &Pod) -> Option<Unsupported> {
    let spec = pod.spec.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    // As with the kubelet, a pod that runs already is not checked again.
    let is_pending = matches!(phase, None | Some("" | "Pending"));
    if is_pending && has_app_armor(spec) {
        return Some(Unsupported::AppArmor);
    }
    // The kubelet reads the pod's label, not its node selector.
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os"));
    if label.is_some_and(|os| os != "linux") {
        return Some(Unsupported::OsLabel);
    }
    spec.os.as_ref().is_some_and(|os| os.name != "linux").then_some(Unsupported::Os)
}

/// Whether the pod or one of its containers has a profile. The API server has copied those of the annotations.
fn has_app_armor(spec: &PodSpec) -> bool {
    let is_confined = |profile: Option<&AppArmorProfile>| profile.is_some_and(|p| p.type_ != "Unconfined");
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    is_confined(of_pod)
        || containers.any(|container| {
            let context = container.security_context.as_ref();
            is_confined(context.and_then(|context| context.app_armor_profile.as_ref()))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(spec: &Value, phase: &str) -> Option<Unsupported> {
        let pod = json!({ "spec": spec, "status": { "phase": phase } });
        check(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn an_app_armor_profile_is_rejected_wherever_the_pod_has_it() {
        let with = |kind: &str| json!({ "appArmorProfile": { "type": kind } });
        let container = |context: &Value| json!({ "name": "a", "securityContext": context });
        for (kind, expected) in [
            ("RuntimeDefault", Some(Unsupported::AppArmor)),
            ("Localhost", Some(Unsupported::AppArmor)),
            ("Unconfined", None),
        ] {
            for spec in [
                json!({ "securityContext": with(kind), "containers": [] }),
                json!({ "containers": [container(&json!({})), container(&with(kind))] }),
                json!({ "containers": [], "initContainers": [container(&with(kind))] }),
            ] {
                assert_eq!(checked(&spec, "Pending"), expected, "{spec}");
                assert_eq!(checked(&spec, "Running"), None, "{spec}");
            }
        }
    }

    #[test]
    fn a_pod_for_another_operating_system_is_rejected() {
        let of = |os: &str| json!({ "containers": [], "os": { "name": os } });
        assert_eq!(checked(&of("windows"), "Running"), Some(Unsupported::Os));
        assert_eq!(checked(&of("linux"), "Pending"), None);
        assert_eq!(checked(&json!({ "containers": [] }), "Pending"), None);
    }
}
