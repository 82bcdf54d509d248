//! Validation of the resources of a pod by itself, new or changed.

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, Pod, PodSpec, ResourceRequirements};
use plumb_validation::field::FieldError;

use super::policy::PolicyRules;
use super::values::ValueRules;

/// Checks the resources and resize policies of a new pod, or of any pod as it would be after a change.
///
/// `stored` is the stored pod of an update: violations that it has already are tolerated.
pub fn pod(new: &Pod, stored: Option<&Pod>) -> Vec<FieldError> {
    let Some(spec) = &new.spec else { return vec![FieldError::required("spec", "")] };
    let mut errors = Vec::new();
    let rules = SpecRules::of(spec, stored.and_then(|pod| pod.spec.as_ref()), "spec");
    for (i, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{i}]");
        rules.container(container.resources.as_ref(), container.resize_policy.as_deref(), &path, &mut errors);
    }
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{i}]");
        rules.container(container.resources.as_ref(), container.resize_policy.as_deref(), &path, &mut errors);
        rules.init_container(container, &path, &mut errors);
    }
    for (i, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let path = format!("spec.ephemeralContainers[{i}]");
        let (resources, policies) = (container.resources.as_ref(), container.resize_policy.as_deref());
        rules.container(resources, policies, &path, &mut errors);
        nothing_for_ephemeral(resources, policies, &path, &mut errors);
    }
    rules.pod_level(&mut errors);
    rules.overhead(&mut errors);
    errors
}

/// The rules for the resources and resize policies of one spec, of a pod or of a template.
///
/// The validation of a whole pod calls them in between its own rules, each where kube-apiserver does, since that decides
/// the order of the causes in a refusal.
pub struct SpecRules<'a> {
    spec: &'a PodSpec,
    values: ValueRules<'a>,
    policies: PolicyRules,
}

impl<'a> SpecRules<'a> {
    /// Validates a spec at `path`. Violations that the stored one has already are tolerated.
    pub fn of(spec: &'a PodSpec, stored: Option<&PodSpec>, path: &str) -> Self {
        Self { spec, values: ValueRules::of(spec, stored, path), policies: PolicyRules::of(spec, stored) }
    }

    /// Checks the resources and policies of a container of any sort.
    pub fn container(
        &self,
        resources: Option<&ResourceRequirements>,
        policies: Option<&[ContainerResizePolicy]>,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        self.values.container(resources, path, errors);
        self.policies.container(policies, path, errors);
    }

    /// Checks the additional rules for policies of init containers.
    pub fn init_container(&self, container: &Container, path: &str, errors: &mut Vec<FieldError>) {
        self.policies.init_container(container, path, errors);
    }

    /// Checks the pod-level resources.
    pub fn pod_level(&self, errors: &mut Vec<FieldError>) {
        self.values.pod_level(self.spec, errors);
    }

    /// Checks what running the pod costs on top of its containers.
    pub fn overhead(&self, errors: &mut Vec<FieldError>) {
        self.values.overhead(self.spec, errors);
    }
}

/// An ephemeral container uses free resources of the pod, and may not have requests.
fn nothing_for_ephemeral(
    resources: Option<&ResourceRequirements>,
    policies: Option<&[ContainerResizePolicy]>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let has_resources = resources.is_some_and(|own| *own != ResourceRequirements::default());
    for (field, set) in [("resources", has_resources), ("resizePolicy", policies.is_some())] {
        if set {
            let rule = "cannot be set for an Ephemeral Container";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), rule));
        }
    }
}
