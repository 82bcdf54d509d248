//! The rules for `resizePolicy`.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use crate::aggregate::Role;
use crate::field::FieldError;
use crate::pod::{RestartPolicy, init_role};
use crate::resource::Resource;

/// Checks the resize policies of every container, and that ephemeral containers have none.
///
/// `stored` is the spec as it was, if there was one: a plain init container that already had
/// `RestartContainer` keeps it.
pub fn resize_policies(spec: &PodSpec, stored: Option<&PodSpec>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let pod_never_restarts = spec.restart_policy.as_deref() == Some("Never");
    let tolerated = stored
        .and_then(|spec| spec.init_containers.as_ref())
        .is_some_and(|init| init.iter().any(|c| init_role(c) == Role::Init && restarts(c)));
    for (i, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{i}].resizePolicy");
        container_policies(container, &path, pod_never_restarts, &mut errors);
    }
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{i}].resizePolicy");
        container_policies(container, &path, pod_never_restarts, &mut errors);
        if init_role(container) == Role::Init && !tolerated {
            for (j, policy) in container.resize_policy.iter().flatten().enumerate() {
                if policy.restart_policy == RestartPolicy::RestartContainer.name() {
                    errors.push(FieldError::invalid(
                        format!("{path}[{j}].restartPolicy"),
                        policy.restart_policy.clone(),
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    ));
                }
            }
        }
    }
    for (i, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let forbidden = |field: &str| {
            let path = format!("spec.ephemeralContainers[{i}].{field}");
            FieldError::forbidden(path, "cannot be set for an Ephemeral Container")
        };
        if container.resize_policy.as_ref().is_some_and(|policies| !policies.is_empty()) {
            errors.push(forbidden("resizePolicy"));
        }
        if container.resources.as_ref().is_some_and(|resources| *resources != ResourceRequirements::default())
        {
            errors.push(forbidden("resources"));
        }
    }
    errors
}

/// Whether any resource of a container is changed by restarting it.
pub(super) fn restarts(container: &Container) -> bool {
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|policy| policy.restart_policy == RestartPolicy::RestartContainer.name())
}

fn container_policies(
    container: &Container,
    path: &str,
    pod_never_restarts: bool,
    errors: &mut Vec<FieldError>,
) {
    let policies = container.resize_policy.as_deref().unwrap_or_default();
    for (i, policy) in policies.iter().enumerate() {
        let (resource, restart) = (&policy.resource_name, &policy.restart_policy);
        if policies[..i].iter().any(|earlier| earlier.resource_name == *resource) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), resource.clone()));
        }
        if resource.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if Resource::named(resource).is_none() {
            errors.push(FieldError::not_supported(
                path,
                resource.clone(),
                &Resource::ALL.map(Resource::name),
            ));
        }
        let supported =
            [RestartPolicy::NotRequired, RestartPolicy::RestartContainer].map(RestartPolicy::name);
        if restart.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !supported.contains(&restart.as_str()) {
            errors.push(FieldError::not_supported(path, restart.clone(), &supported));
        }
        if pod_never_restarts && restart != RestartPolicy::NotRequired.name() {
            let rule = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart.clone(), rule));
        }
    }
}
