//! Validation of Pods: of creates, pod updates, resizes, ephemeral containers and status updates.

mod annotations;
mod container;
mod environment;
mod ephemeral_containers;
mod files;
mod mounts;
mod network;
mod os;
pub(in crate::registry) mod ports;
mod probe;
mod projected;
mod remote;
mod resources;
pub(in crate::registry) mod scheduling;
mod security;
mod spec;
mod status;
mod update;
mod volume;
mod windows;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_resize::rules::Rules;
use plumb_resize::validate;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::PodStrategy;
use plumb_apiserver::kinds::Validation;
use plumb_apiserver::validation::{Errors, labels, typed};

const SPEC: Path<'_> = Path::root("spec");
/// The validation of a pod's metadata.
const POD: Validation<'_> = Validation::new(&PodStrategy, true);

/// What the validation of a spec depends on besides the spec, as upstream's `PodValidationOptions`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PodValidationOptions<'a> {
    /// The metadata of the pod; none for a pod template.
    meta: Option<&'a ObjectMeta>,
    /// Whether the object is a pod, and not a pod template.
    is_pod: bool,
    /// The stored spec of an update. Some invalid values are tolerated if the stored spec has them.
    old: Option<&'a PodSpec>,
}

impl PodValidationOptions<'_> {
    /// Whether service account tokens may have paths that are invalid in new pods.
    fn allows_non_local_token_paths(&self) -> bool {
        let volumes = self.old.and_then(|old| old.volumes.as_ref()).into_iter().flatten();
        let sources = volumes.filter_map(|v| v.projected.as_ref()?.sources.as_ref()).flatten();
        sources.filter_map(|source| source.service_account_token.as_ref()).any(|token| {
            let mut errors = Errors::new();
            files::validate_local_non_reserved_path(&token.path, &SPEC, &mut errors);
            !errors.is_empty()
        })
    }

    /// Whether topology spread constraints may have label selectors that are invalid in new pods.
    fn allows_invalid_spread_selectors(&self) -> bool {
        let constraints =
            self.old.and_then(|old| old.topology_spread_constraints.as_ref()).into_iter().flatten();
        let mut selectors = constraints.filter_map(|constraint| constraint.label_selector.as_ref());
        selectors.any(|selector| !labels::is_valid_selector(selector))
    }

    /// Whether sysctls may be set in namespaces that the pod shares with the host.
    fn allows_host_sysctls(&self) -> bool {
        let Some(old) = self.old else { return false };
        let sysctls = old.security_context.iter().filter_map(|context| context.sysctls.as_ref()).flatten();
        sysctls.into_iter().any(|sysctl| security::host_sysctl_error(old, sysctl).is_some())
    }
}

/// Validates an update through `/resize` with its metadata, after
/// [`prepare_resize`](plumb_resize::validate::prepare_resize).
pub fn resize(old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    let mut errors = POD.common_update(old, new);
    // For a pod that cannot be resized at all, one error replaces these.
    let mut own = Errors::new();
    POD.metadata_update(old, new, &mut own);
    POD.metadata(new, &mut own);
    validate_pod_resize(old, new, rules, &mut own);
    errors.extend(own);
    errors
}

/// Validates an update through `/ephemeralcontainers` with its metadata. All other fields are the stored ones.
pub(super) fn ephemeral_containers(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = POD.common_update(old, new);
    POD.metadata_update(old, new, &mut errors);
    POD.metadata(new, &mut errors);
    validate_ephemeral_containers_update(old, new, &mut errors);
    errors
}

/// Validates a new pod, whose metadata is already validated.
pub(super) fn create(object: &Value, errors: &mut Errors) {
    let Some(pod) = typed::<Pod>(object, errors) else { return };
    validate_pod(&pod, None, errors);
    let Some(spec) = &pod.spec else { return };
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    let is_bound = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    if is_bound && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        let rule = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", rule));
    }
    annotations::validate_annotations_match_fields(&pod.metadata, spec, &SPEC, errors);
}

/// Validates a pod update.
pub(super) fn update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let (Some(old), Some(new)) = (typed::<Pod>(old, errors), typed::<Pod>(new, errors)) else { return };
    validate_pod(&new, Some(&old), errors);
    annotations::validate_pod_annotations_update(&old, &new, errors);
    update::validate_pod_update(&old, &new, rules, errors);
}

/// Validates the pod of an update through `/resize`.
fn validate_pod_resize(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let (Some(old), Some(new)) = (typed::<Pod>(old, errors), typed::<Pod>(new, errors)) else { return };
    validate_pod(&new, Some(&old), errors);
    let rejections = validate::resize(&old, &new, rules);
    // If the pod cannot be resized at all, upstream returns only this error.
    if rejections.len() == 1
        && rejections[0].path == "[]"
        && rejections[0].detail.ends_with("pods cannot be resized")
    {
        *errors = rejections;
        return;
    }
    add_missing(rejections, errors);
}

/// Validates the pod of an update through `/ephemeralcontainers`.
fn validate_ephemeral_containers_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (Some(old), Some(new)) = (typed::<Pod>(old, errors), typed::<Pod>(new, errors)) else { return };
    validate_pod(&new, Some(&old), errors);
    annotations::validate_pod_annotations_update(&old, &new, errors);
    ephemeral_containers::validate_update(&old, &new, errors);
}

/// Validates an updated status of a pod.
pub(super) fn update_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (Some(old), Some(new)) = (typed::<Pod>(old, errors), typed::<Pod>(new, errors)) else { return };
    annotations::validate_pod_annotations_update(&old, &new, errors);
    status::validate_pod_status_update(&old, &new, errors);
}

/// The validation that creates and updates of a pod share.
fn validate_pod(pod: &Pod, old: Option<&Pod>, errors: &mut Errors) {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let tolerated = old.is_some_and(|old| annotations::has_invalid_deletion_cost(&old.metadata));
    annotations::validate_pod_annotations(
        &pod.metadata,
        spec,
        tolerated,
        &Path::root("metadata").child("annotations"),
        errors,
    );
    let options = PodValidationOptions {
        meta: Some(&pod.metadata),
        is_pod: true,
        old: old.and_then(|old| old.spec.as_ref()),
    };
    spec::validate_pod_spec(spec, &options, &SPEC, errors);
    spec::validate_pod_only_fields(spec, &SPEC, errors);
}

/// Validates a pod template.
pub(in crate::registry) fn validate_pod_template_spec(
    template: &PodTemplateSpec,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (meta, spec) = (ObjectMeta::default(), PodSpec::default());
    let meta = template.metadata.as_ref().unwrap_or(&meta);
    let spec = template.spec.as_ref().unwrap_or(&spec);
    validate_pod_template_metadata(meta, spec, path, errors);
    let spec_path = path.child("spec");
    spec::validate_pod_spec(spec, &PodValidationOptions::default(), &spec_path, errors);
    annotations::validate_annotations_match_fields(meta, spec, &spec_path, errors);
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        let rule = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(spec_path.child("ephemeralContainers"), rule));
    }
}

/// Validates the labels and annotations of a pod template.
pub(in crate::registry) fn validate_pod_template_metadata(
    meta: &ObjectMeta,
    spec: &PodSpec,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    labels::validate_labels(labels::pairs(meta.labels.as_ref()), &path.child("labels"), errors);
    labels::validate_annotations(
        labels::pairs(meta.annotations.as_ref()),
        &path.child("annotations"),
        errors,
    );
    annotations::validate_pod_annotations(meta, spec, false, &path.child("annotations"), errors);
}

/// Adds the errors that other checks have not found already.
fn add_missing(more: Vec<FieldError>, errors: &mut Errors) {
    for error in more {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
}
