//! The rules that a pod keeps by itself, whether it is new or changed.

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};

use super::policy::PolicyRules;
use super::values::ValueRules;
use crate::field::FieldError;

/// Checks the resources and resize policies of a new pod, or of any pod as it would be after a change.
///
/// `stored` is the pod as it was, if there was one: what it already got away with is tolerated.
pub fn pod(new: &Pod, stored: Option<&Pod>) -> Vec<FieldError> {
    let Some(new) = &new.spec else { return vec![FieldError::required("spec", "")] };
    spec(new, stored.and_then(|pod| pod.spec.as_ref()))
}

/// The same for the spec of a pod, or of a pod that is yet to be made from a template. Paths begin with `spec`.
pub fn spec(spec: &PodSpec, stored: Option<&PodSpec>) -> Vec<FieldError> {
    let values = ValueRules::of(spec, stored);
    let policies = PolicyRules::of(spec, stored);
    let mut errors = Vec::new();
    for (i, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{i}]");
        values.container(container.resources.as_ref(), &path, &mut errors);
        policies.container(container.resize_policy.as_deref(), &path, &mut errors);
    }
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{i}]");
        values.container(container.resources.as_ref(), &path, &mut errors);
        policies.container(container.resize_policy.as_deref(), &path, &mut errors);
        policies.init_container(container, &path, &mut errors);
    }
    ephemeral_containers(spec, &values, &policies, &mut errors);
    values.pod_level(spec, &mut errors);
    values.overhead(spec, &mut errors);
    errors
}

/// A container that is added to look into a pod takes what room there is, and keeps none for itself.
fn ephemeral_containers(
    spec: &PodSpec,
    values: &ValueRules<'_>,
    policies: &PolicyRules,
    errors: &mut Vec<FieldError>,
) {
    for (i, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let path = format!("spec.ephemeralContainers[{i}]");
        values.container(container.resources.as_ref(), &path, errors);
        policies.container(container.resize_policy.as_deref(), &path, errors);
        let resources = container.resources.as_ref();
        let has_resources = resources.is_some_and(|own| *own != ResourceRequirements::default());
        let has_policies = container.resize_policy.as_ref().is_some_and(|own| !own.is_empty());
        for (field, set) in [("resources", has_resources), ("resizePolicy", has_policies)] {
            if set {
                let rule = "cannot be set for an Ephemeral Container";
                errors.push(FieldError::forbidden(format!("{path}.{field}"), rule));
            }
        }
    }
}
