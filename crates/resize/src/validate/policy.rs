//! The rules for `resizePolicy`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, PodSpec};
use plumb_validation::field::FieldError;

use crate::aggregate::Role;
use crate::pod::{RestartPolicy, init_role};
use crate::resource::Resource;

/// The inputs of the rules for policies.
pub(super) struct PolicyRules {
    /// The pod's restart policy is `Never`, so no resize policy may be `RestartContainer`.
    pod_never_restarts: bool,
    /// Init containers may have `RestartContainer`, since one of the stored pod has.
    init_may_restart: bool,
}

impl PolicyRules {
    pub(super) fn of(spec: &PodSpec, stored: Option<&PodSpec>) -> Self {
        let mut stored_init = stored.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        Self {
            pod_never_restarts: spec.restart_policy.as_deref() == Some("Never"),
            init_may_restart: stored_init.any(|c| init_role(c) == Role::Init && restarts(c)),
        }
    }

    /// Checks the policies of any container: for resources that can be resized, each once, in known words.
    pub(super) fn container(
        &self,
        policies: Option<&[ContainerResizePolicy]>,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let path = format!("{path}.resizePolicy");
        let mut seen = BTreeSet::new();
        for (i, policy) in policies.unwrap_or_default().iter().enumerate() {
            let (resource, restart) = (policy.resource_name.as_str(), policy.restart_policy.as_str());
            if !seen.insert(resource) {
                errors.push(FieldError::duplicate(format!("{path}[{i}]"), resource));
            }
            errors.extend(unsupported(&path, resource, &Resource::ALL.map(Resource::name)));
            errors.extend(unsupported(&path, restart, &RestartPolicy::ALL.map(RestartPolicy::name)));
            if self.pod_never_restarts && restart != RestartPolicy::NotRequired.name() {
                let rule = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
                errors.push(FieldError::invalid(&path, restart, rule));
            }
        }
    }

    /// Checks that a non-restartable init container, which runs once, does not have `RestartContainer`.
    pub(super) fn init_container(&self, container: &Container, path: &str, errors: &mut Vec<FieldError>) {
        if init_role(container) == Role::Sidecar || self.init_may_restart {
            return;
        }
        for (i, policy) in container.resize_policy.iter().flatten().enumerate() {
            if asks_for_restart(policy) {
                let path = format!("{path}.resizePolicy[{i}].restartPolicy");
                let rule = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(FieldError::invalid(path, policy.restart_policy.clone(), rule));
            }
        }
    }
}

/// Whether any resource of a container is changed by restarting it.
pub(super) fn restarts(container: &Container) -> bool {
    container.resize_policy.iter().flatten().any(asks_for_restart)
}

fn asks_for_restart(policy: &ContainerResizePolicy) -> bool {
    policy.restart_policy == RestartPolicy::RestartContainer.name()
}

fn unsupported(path: &str, value: &str, supported: &[&str]) -> Option<FieldError> {
    if value.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    (!supported.contains(&value)).then(|| FieldError::not_supported(path, value, supported))
}
