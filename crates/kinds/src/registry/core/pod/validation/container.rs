//! Validation of containers, init containers and ephemeral containers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, PodSpec};
use plumb_resize::validate::SpecRules;
use plumb_validation::field::{FieldError, Path};
use serde::Deserialize;

use super::{environment, mounts, ports, probe, security};
use plumb_apiserver::validation::format;
use plumb_apiserver::validation::{Errors, add_invalid, validate_one_of};

/// The valid volumes of a pod by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, VolumeKind>;

/// Whether a container can use a volume as a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeKind {
    /// A persistent volume claim or an ephemeral volume, which may be a block device.
    Claim,
    /// Any other volume source.
    Other,
}

/// What the validation of a container reads besides the container.
pub(super) struct ContainerContext<'a> {
    /// The spec of the pod or pod template.
    pub(super) spec: &'a PodSpec,
    /// The volumes that the container can mount.
    pub(super) volumes: &'a Volumes<'a>,
    /// The validation of its resources.
    pub(super) resources: &'a SpecRules<'a>,
}

const ONLY_FOR_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";

/// Validates `spec.containers`.
pub(super) fn validate_containers(cx: &ContainerContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let spec = cx.spec;
    if spec.containers.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut names = BTreeSet::new();
    for (i, container) in spec.containers.iter().enumerate() {
        let path = path.index(i);
        validate_container_common(cx, container, &path, errors);
        if !names.insert(container.name.as_str()) {
            errors.push(FieldError::duplicate(path.child("name"), &container.name));
        }
        probe::validate_lifecycle_and_probes(spec, container, &path, errors);
        validate_container_restart_policy(container, &path, errors);
    }
    ports::validate_host_port_conflicts(&spec.containers, path, errors);
}

/// Validates `spec.initContainers`, with the sidecars among them.
pub(super) fn validate_init_containers(cx: &ContainerContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let spec = cx.spec;
    let mut names: BTreeSet<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = path.index(i);
        validate_container_common(cx, container, &own, errors);
        match container.restart_policy {
            None if has_restart_rules(container) => errors.push(missing_restart_policy(&own)),
            None => {}
            Some(_) => validate_container_restart_policy(container, &own, errors),
        }
        if names.contains(container.name.as_str()) {
            errors.push(FieldError::duplicate(own.child("name"), &container.name));
        } else if !container.name.is_empty() {
            names.insert(&container.name);
        }
        // SPEC: kube-apiserver compares the host ports of each init container only with its own, at index 0.
        ports::validate_host_port_conflicts(std::slice::from_ref(container), path, errors);
        if container.restart_policy.as_deref() == Some("Always") {
            probe::validate_lifecycle_and_probes(spec, container, &own, errors);
        } else {
            for (field, is_set) in [
                ("lifecycle", container.lifecycle.is_some()),
                ("livenessProbe", container.liveness_probe.is_some()),
                ("readinessProbe", container.readiness_probe.is_some()),
                ("startupProbe", container.startup_probe.is_some()),
            ] {
                if is_set {
                    errors.push(FieldError::forbidden(own.child(field), ONLY_FOR_SIDECARS));
                }
            }
        }
        cx.resources.init_container(container, &own.to_string(), errors);
    }
}

/// Validates `spec.ephemeralContainers`.
pub(super) fn validate_ephemeral_containers(cx: &ContainerContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let spec = cx.spec;
    let others = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut names: BTreeSet<&str> = others().map(|container| container.name.as_str()).collect();
    for (i, ephemeral) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let path = path.index(i);
        let container = as_container(ephemeral);
        if let Some(container) = &container {
            validate_container_common(cx, container, &path, errors);
            validate_image_whitespace(container, &path, errors);
        }
        if !names.insert(&ephemeral.name) {
            errors.push(FieldError::duplicate(path.child("name"), &ephemeral.name));
        }
        let target = ephemeral.target_container_name.as_deref().unwrap_or_default();
        if !target.is_empty() && !others().any(|container| container.name == target) {
            errors.push(FieldError::not_found(path.child("targetContainerName"), target));
        }
        if let Some(container) = &container {
            validate_ephemeral_container_fields(container, &path, errors);
        }
    }
}

/// Visits the init containers and containers of a spec with their paths.
pub(super) fn visit_containers(
    spec: &PodSpec,
    path: &Path<'_>,
    mut visit: impl FnMut(&Container, &Path<'_>),
) {
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        visit(container, &path.child("initContainers").index(i));
    }
    for (i, container) in spec.containers.iter().enumerate() {
        visit(container, &path.child("containers").index(i));
    }
    for (i, ephemeral) in spec.ephemeral_containers.iter().flatten().enumerate() {
        if let Some(container) = as_container(ephemeral) {
            visit(&container, &path.child("ephemeralContainers").index(i));
        }
    }
}

/// Validates that an image name has no leading or trailing whitespace. Upstream does this for pods, not for templates.
pub(super) fn validate_image_whitespace(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.trim() != image {
        let rule = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(path.child("image"), image, rule));
    }
}

/// The validation that all containers share.
fn validate_container_common(
    cx: &ContainerContext<'_>,
    container: &Container,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if container.name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    } else {
        add_invalid(errors, &path.child("name"), &container.name, format::dns_label(&container.name));
    }
    if container.image.as_deref().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(path.child("image"), ""));
    }
    validate_one_of(
        container.termination_message_policy.as_deref(),
        &["File", "FallbackToLogsOnError"],
        &path.child("terminationMessagePolicy"),
        errors,
    );
    ports::validate_container_ports(
        container.ports.as_deref().unwrap_or_default(),
        &path.child("ports"),
        errors,
    );
    environment::validate_env(container, path, errors);
    environment::validate_env_from(container, path, errors);
    mounts::validate_volume_mounts(container, cx.volumes, &path.child("volumeMounts"), errors);
    mounts::validate_volume_devices(container, cx.volumes, &path.child("volumeDevices"), errors);
    validate_pull_policy(container.image_pull_policy.as_deref(), &path.child("imagePullPolicy"), errors);
    let (resources, policies) = (container.resources.as_ref(), container.resize_policy.as_deref());
    cx.resources.container(resources, policies, &path.to_string(), errors);
    security::validate_security_context(cx.spec, container, &path.child("securityContext"), errors);
}

/// Validates an image pull policy.
pub(super) fn validate_pull_policy(policy: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    validate_one_of(policy, &["Always", "IfNotPresent", "Never"], path, errors);
}

fn validate_container_restart_policy(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let rules: &[ContainerRestartRule] = container.restart_policy_rules.as_deref().unwrap_or_default();
    match container.restart_policy.as_deref() {
        None if rules.is_empty() => return,
        None => errors.push(missing_restart_policy(path)),
        Some("Always" | "Never" | "OnFailure") => {}
        Some(policy) => {
            let supported = ["Always", "Never", "OnFailure"];
            errors.push(FieldError::not_supported(path.child("restartPolicy"), policy, &supported));
        }
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&rule.action.as_str()) {
            errors.push(FieldError::not_supported(path.child("action"), &rule.action, &actions));
        }
        let codes_path = path.child("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            errors.push(FieldError::required(codes_path, "must be specified"));
            continue;
        };
        if !["In", "NotIn"].contains(&codes.operator.as_str()) {
            let supported = ["In", "NotIn"];
            errors.push(FieldError::not_supported(codes_path.child("operator"), &codes.operator, &supported));
        }
        let values = codes.values.as_ref().map_or(0, Vec::len);
        if values > 255 {
            errors.push(FieldError::too_many(codes_path.child("values"), values, 255));
        }
    }
}

fn has_restart_rules(container: &Container) -> bool {
    container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty())
}

fn missing_restart_policy(path: &Path<'_>) -> FieldError {
    let rule = "must specify restartPolicy when restart rules are used";
    FieldError::required(path.child("restartPolicy"), rule)
}

fn validate_ephemeral_container_fields(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let rule = "cannot be set for an Ephemeral Container";
    let resources = container.resources.as_ref();
    for (field, is_set) in [
        ("ports", container.ports.is_some()),
        (
            "resources",
            resources.is_some_and(|r| r.limits.is_some() || r.requests.is_some() || r.claims.is_some()),
        ),
        ("resizePolicy", container.resize_policy.is_some()),
        ("restartPolicy", container.restart_policy.is_some()),
        ("restartPolicyRules", container.restart_policy_rules.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
    ] {
        if is_set {
            errors.push(FieldError::forbidden(path.child(field), rule));
        }
    }
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let list = path.child("volumeMounts");
        let path = list.index(i);
        for (field, value) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            if value.as_ref().is_some_and(|value| !value.is_empty()) {
                errors.push(FieldError::forbidden(path.child(field), rule));
            }
        }
    }
}

/// The fields that an ephemeral container shares with a container. The two types have no common trait.
fn as_container(ephemeral: &EphemeralContainer) -> Option<Container> {
    Container::deserialize(&serde_json::to_value(ephemeral).ok()?).ok()
}
