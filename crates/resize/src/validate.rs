//! Validation of changes to a pod's resources.
//!
//! A pod's resources change in two ways: by the `/resize` subresource ([`resize`]) and, where the rules allow it, by
//! the pod itself ([`update`]). Both answer with every mistake they find, as [`FieldError`]s that render to
//! the text of kube-apiserver, since clients match on it. A body for `/resize` is first brought into shape
//! by [`prepare_resize`], which drops whatever a resize does not touch.
//!
//! This module checks resources only. The API server validates metadata and the rest of a pod before.

mod changes;
mod claims;
mod pod;
mod policy;
mod prepare;
pub mod resource_names;
mod update;
mod values;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use plumb_validation::field::FieldError;

pub use pod::{SpecRules, pod};
pub use prepare::prepare_resize;
pub use update::update;

use crate::aggregate::Role;
use crate::list::{BadQuantity, WireList};
use crate::pod::init_role;
use crate::qos::QosClass;
use crate::rules::Rules;
use changes::{container_changes, other_resources_differ, resources_differ, spec_changes};

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The path of an error about a pod as a whole, as in kube-apiserver.
const NOWHERE: &str = "[]";
const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

/// Checks a resize that came through `/resize`, after [`prepare_resize`]. No errors: it may be stored.
pub fn resize(stored: &Pod, new: &Pod, rules: &Rules) -> Vec<FieldError> {
    if !rules.resize {
        return vec![FieldError::forbidden(
            "spec",
            "pods cannot be resized when the InPlacePodVerticalScaling feature gate is disabled",
        )];
    }
    let errors = pod(new, Some(stored));
    let Some((old_spec, new_spec)) = stored.spec.as_ref().zip(new.spec.as_ref()) else { return errors };
    if let Some(refusal) = never_resizable(stored, old_spec, rules) {
        return vec![refusal];
    }
    let mut errors = errors;
    if !resource_rules(stored, old_spec, new_spec, rules, &mut errors) {
        return errors;
    }
    for (i, (old, new)) in old_spec.containers.iter().zip(&new_spec.containers).enumerate() {
        if differs_beyond_resources(old, new, &format!("spec.containers[{i}]")) {
            errors.push(FieldError::forbidden("spec", ONLY_CPU_AND_MEMORY));
        }
    }
    for (i, (old, new)) in init_pairs(old_spec, new_spec).enumerate() {
        let path = format!("spec.initContainers[{i}]");
        let beyond = differs_beyond_resources(old, new, &path);
        if beyond && init_resizable(new, rules) {
            let rule = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(FieldError::forbidden(&path, rule));
        }
        if beyond || resources_differ(old.resources.as_ref(), new.resources.as_ref()) {
            errors.extend(refused_init_change(&path, new, rules));
        }
    }
    // An empty set of resources for the pod is not the same as none.
    let came_or_went = !declares_pod_level(old_spec)
        && !declares_pod_level(new_spec)
        && old_spec.resources.is_some() != new_spec.resources.is_some();
    if errors.is_empty() && (came_or_went || !spec_changes(old_spec, new_spec, &[]).is_empty()) {
        errors.push(FieldError::forbidden("spec", ONLY_CPU_AND_MEMORY));
    }
    errors
}

/// The pods that cannot be resized at all.
fn never_resizable(stored: &Pod, spec: &PodSpec, rules: &Rules) -> Option<FieldError> {
    let annotations = stored.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION)) {
        return Some(FieldError::forbidden(NOWHERE, "static pods cannot be resized"));
    }
    let windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    (windows && !rules.resize_windows)
        .then(|| FieldError::forbidden(NOWHERE, "windows pods cannot be resized"))
}

/// The rules that both share. Returns whether the containers still correspond, so that the caller can continue to
/// compare them one by one.
fn resource_rules(
    stored: &Pod,
    old: &PodSpec,
    new: &PodSpec,
    rules: &Rules,
    errors: &mut Vec<FieldError>,
) -> bool {
    errors.extend(qos_change(stored, new));
    if !node_supports_resize(stored) {
        errors.push(FieldError::forbidden("spec", "Pod running on node without support for resize"));
    }
    if declares_pod_level(old) || declares_pod_level(new) {
        if !rules.resize_pod_level {
            errors.push(FieldError::forbidden(
                NOWHERE,
                "resize of pods with pod-level resources is forbidden when \
                 InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled",
            ));
            return false;
        }
        pod_level_rules(old.resources.as_ref(), new.resources.as_ref(), errors);
    }
    if has_node_allocatable_claims(stored) {
        let rule = "pods with node allocatable resource claims cannot be resized";
        errors.push(FieldError::forbidden("spec", rule));
    }
    let before = errors.len();
    same_containers("containers", &old.containers, &new.containers, errors);
    same_containers("initContainers", init_containers(old), init_containers(new), errors);
    if errors.len() > before {
        return false;
    }
    for (i, (old, new)) in init_pairs(old, new).enumerate().filter(|(_, (_, new))| init_resizable(new, rules))
    {
        nothing_removed(&format!("spec.initContainers[{i}].resources"), old, new, errors);
    }
    for (i, (old, new)) in old.containers.iter().zip(&new.containers).enumerate() {
        nothing_removed(&format!("spec.containers[{i}].resources"), old, new, errors);
    }
    true
}

fn qos_change(stored: &Pod, new: &PodSpec) -> Option<FieldError> {
    // A quantity that cannot be read has its own error already.
    let (old, new) = (QosClass::of_pod(stored).ok()?, QosClass::of_spec(new).ok()?);
    let recorded = stored.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default();
    let rule = "Pod QOS Class may not change as a result of resizing";
    (old != new).then(|| FieldError::invalid("spec", recorded, rule))
}

/// Whether the node supports resizes: such a node reports the resources of running containers. Without a running
/// container, support is assumed.
fn node_supports_resize(stored: &Pod) -> bool {
    let statuses = stored.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    let running = |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some();
    statuses
        .into_iter()
        .find(|status| status.state.as_ref().is_some_and(running))
        .is_none_or(|status| status.resources.is_some())
}

fn has_node_allocatable_claims(stored: &Pod) -> bool {
    let claims = stored.status.as_ref().and_then(|s| s.node_allocatable_resource_claim_statuses.as_ref());
    claims.is_some_and(|claims| !claims.is_empty())
}

fn pod_level_rules(
    old: Option<&ResourceRequirements>,
    new: Option<&ResourceRequirements>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(old) = old {
        let Some(new) = new else {
            errors.push(FieldError::forbidden("spec.resources", "pod-level resources cannot be removed"));
            return;
        };
        if removed(old.requests.as_ref(), new.requests.as_ref()) {
            let rule = "pod-level resource requests cannot be removed";
            errors.push(FieldError::forbidden("spec.resources.requests", rule));
        }
        if removed(old.limits.as_ref(), new.limits.as_ref()) {
            let rule = "pod-level resource limits cannot be removed";
            errors.push(FieldError::forbidden("spec.resources.limits", rule));
        }
    }
    if other_resources_differ(old, new) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
}

fn same_containers(list: &str, old: &[Container], new: &[Container], errors: &mut Vec<FieldError>) {
    if old.len() != new.len() {
        let rule = format!("{list} may not be added or removed on resize");
        errors.push(FieldError::forbidden(format!("spec.{list}"), rule));
        return;
    }
    for (i, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old.name != new.name) {
        let rule = format!("{list} may not be renamed or reordered on resize");
        errors.push(FieldError::forbidden(format!("spec.{list}[{i}].name"), rule));
    }
}

/// The error about a change of a non-restartable init container.
fn refused_init_change(path: &str, new: &Container, rules: &Rules) -> Option<FieldError> {
    if init_role(new) == Role::Sidecar {
        None
    } else if !rules.resize_init_containers {
        Some(FieldError::forbidden("spec", "resources for non-sidecar init containers are immutable"))
    } else if policy::restarts(new) {
        let rule = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        Some(FieldError::forbidden(path, rule))
    } else {
        None
    }
}

fn nothing_removed(path: &str, old: &Container, new: &Container, errors: &mut Vec<FieldError>) {
    if removed(requests_of(old), requests_of(new)) {
        errors.push(FieldError::forbidden(format!("{path}.requests"), "resource requests cannot be removed"));
    }
    if removed(limits_of(old), limits_of(new)) {
        errors.push(FieldError::forbidden(format!("{path}.limits"), "resource limits cannot be removed"));
    }
}

fn requests_of(container: &Container) -> Option<&WireList> {
    container.resources.as_ref()?.requests.as_ref()
}

fn limits_of(container: &Container) -> Option<&WireList> {
    container.resources.as_ref()?.limits.as_ref()
}

fn removed(old: Option<&WireList>, new: Option<&WireList>) -> bool {
    let mut names = old.into_iter().flatten().map(|(name, _)| name);
    names.any(|name| !new.is_some_and(|new| new.contains_key(name)))
}

fn differs_beyond_resources(old: &Container, new: &Container, path: &str) -> bool {
    other_resources_differ(old.resources.as_ref(), new.resources.as_ref())
        || !container_changes(old, new, path, &[]).is_empty()
}

fn init_resizable(container: &Container, rules: &Rules) -> bool {
    rules.resize_init_containers || init_role(container) == Role::Sidecar
}

fn init_containers(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

fn init_pairs<'a>(
    old: &'a PodSpec,
    new: &'a PodSpec,
) -> impl Iterator<Item = (&'a Container, &'a Container)> {
    init_containers(old).iter().zip(init_containers(new))
}

fn declares_pod_level(spec: &PodSpec) -> bool {
    let Some(resources) = &spec.resources else { return false };
    [&resources.requests, &resources.limits].into_iter().flatten().any(|list| !list.is_empty())
}

/// A quantity that cannot be read, as an error of its field.
fn bad_quantity(path: &str, bad: &BadQuantity) -> FieldError {
    FieldError::invalid(format!("{path}[{}]", bad.resource), bad.text.clone(), bad.source.to_string())
}
