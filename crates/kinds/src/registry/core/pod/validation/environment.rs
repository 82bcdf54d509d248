//! Validation of environment variables and of references to fields of the pod.

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
};
use plumb_resize::Quantity;
use plumb_validation::field::{FieldError, Path};

use super::{container, files};
use plumb_apiserver::validation::format;
use plumb_apiserver::validation::{Errors, add_invalid};

/// The field paths that an environment variable can refer to.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The field paths that a file of a downward API volume can refer to.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// All field paths that the downward API knows.
const FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";

/// Validates `env` of a container.
pub(super) fn validate_env(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let list = path.child("env");
        let path = list.index(i);
        if variable.name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else {
            add_invalid(errors, &path.child("name"), &variable.name, format::env_var_name(&variable.name));
        }
        if let Some(source) = &variable.value_from {
            validate_env_var_value_from(variable, source, &path.child("valueFrom"), errors);
        }
    }
}

/// Validates `envFrom` of a container.
pub(super) fn validate_env_from(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("envFrom");
    for (i, source) in container.env_from.iter().flatten().enumerate() {
        let path = list.index(i);
        if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            add_invalid(errors, &path.child("prefix"), prefix, format::env_var_name(prefix));
        }
        let map = source.config_map_ref.as_ref().map(|map| ("configMapRef", map.name.as_str()));
        let secret = source.secret_ref.as_ref().map(|secret| ("secretRef", secret.name.as_str()));
        for (field, name) in [map, secret].into_iter().flatten() {
            let path = path.child(field);
            if name.is_empty() {
                errors.push(FieldError::required(path.child("name"), ""));
            } else {
                // SPEC: kube-apiserver validates this name as a prefix, so it may end in a dash.
                add_invalid(errors, &path.child("name"), name, format::dns_subdomain_prefix(name));
            }
        }
        match (map, secret) {
            (None, None) => {
                let rule = "must specify one of: `configMapRef` or `secretRef`";
                errors.push(FieldError::invalid(list, "", rule));
            }
            (Some(_), Some(_)) => {
                let rule = "may not have more than one field specified at a time";
                errors.push(FieldError::invalid(list, "", rule));
            }
            _ => {}
        }
    }
}

/// Validates that `fileKeyRef` refers to emptyDir volumes of the pod.
pub(super) fn validate_file_key_ref_volumes(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    container::visit_containers(spec, path, |container, path| {
        for (i, variable) in container.env.iter().flatten().enumerate() {
            let Some(file) = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref())
            else {
                continue;
            };
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == file.volume_name);
            let path = format!("{}.valueFrom.fileKeyRef.volumeName", path.child("env").index(i));
            match volume {
                None => errors.push(FieldError::not_found(path, &file.volume_name)),
                Some(volume) if volume.empty_dir.is_none() => {
                    let rule = "referenced volume must be of type emptyDir";
                    errors.push(FieldError::invalid(path, &file.volume_name, rule));
                }
                Some(_) => {}
            }
        }
    });
}

fn validate_env_var_value_from(
    variable: &EnvVar,
    source: &EnvVarSource,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut sources = 0;
    if let Some(field) = &source.field_ref {
        sources += 1;
        validate_object_field_selector(field, &VARIABLE_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = &source.resource_field_ref {
        sources += 1;
        validate_resource_field_selector(resource, false, &path.child("resourceFieldRef"), errors);
    }
    let map = source.config_map_key_ref.as_ref().map(|s| ("configMapKeyRef", &s.name, &s.key));
    let secret = source.secret_key_ref.as_ref().map(|s| ("secretKeyRef", &s.name, &s.key));
    for (field, name, key) in [map, secret].into_iter().flatten() {
        sources += 1;
        let path = path.child(field);
        add_invalid(errors, &path.child("name"), name, format::dns_subdomain(name));
        if key.is_empty() {
            errors.push(FieldError::required(path.child("key"), ""));
        } else {
            add_invalid(errors, &path.child("key"), key, format::config_key(key));
        }
    }
    if let Some(file) = &source.file_key_ref {
        sources += 1;
        validate_file_key_selector(file, &path.child("fileKeyRef"), errors);
    }
    let rule = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, "", rule));
}

fn validate_file_key_selector(file: &FileKeySelector, path: &Path<'_>, errors: &mut Errors) {
    if file.key.is_empty() {
        errors.push(FieldError::required(path.child("key"), ""));
    } else {
        add_invalid(errors, &path.child("key"), &file.key, format::env_var_name(&file.key));
    }
    if file.volume_name.is_empty() {
        errors.push(FieldError::required(path.child("volumeName"), ""));
    } else {
        add_invalid(
            errors,
            &path.child("volumeName"),
            &file.volume_name,
            format::dns_label(&file.volume_name),
        );
    }
    if file.path.is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
    } else {
        files::validate_path_no_backsteps(&file.path, &path.child("path"), errors);
    }
}

/// Validates a `fieldRef`.
pub(super) fn validate_object_field_selector(
    field: &ObjectFieldSelector,
    supported: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let version = field.api_version.as_deref().unwrap_or_default();
    if version.is_empty() {
        errors.push(FieldError::required(path.child("apiVersion"), ""));
        return;
    }
    if field.field_path.is_empty() {
        errors.push(FieldError::required(path.child("fieldPath"), ""));
        return;
    }
    let whole = field.field_path.as_str();
    let subscripted =
        whole.strip_suffix("']").and_then(|s| s.split_once("['")).filter(|(name, _)| !name.is_empty());
    let problem = match subscripted {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {whole}")),
        None if FIELDS.contains(&whole) || whole == "spec.host" => None,
        None => Some(format!("field label not supported: {whole}")),
    };
    if let Some(problem) = problem {
        let rule = format!("error converting fieldPath: {problem}");
        errors.push(FieldError::invalid(path.child("fieldPath"), whole, rule));
        return;
    }
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            add_invalid(errors, path, &key, format::qualified_name(&key));
        }
        Some((_, key)) => add_invalid(errors, path, key, format::qualified_name(key)),
        None => {
            let name = if whole == "spec.host" { "spec.nodeName" } else { whole };
            if !supported.contains(&name) {
                errors.push(FieldError::not_supported(path.child("fieldPath"), name, supported));
            }
        }
    }
}

/// Validates a `resourceFieldRef`.
pub(super) fn validate_resource_field_selector(
    field: &ResourceFieldSelector,
    in_volume: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let resource = field.resource.as_str();
    let is_huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && field.container_name.as_deref().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !is_huge {
        errors.push(FieldError::not_supported(path.child("resource"), resource, &RESOURCES));
    }
    let Some(Ok(divisor)) = field.divisor.as_ref().map(|divisor| divisor.0.parse::<Quantity>()) else {
        return;
    };
    if divisor.is_zero() {
        return;
    }
    let text = field.divisor.as_ref().map(|divisor| divisor.0.trim()).unwrap_or_default();
    let (allowed, name) = match resource {
        "limits.cpu" | "requests.cpu" if ["1m", "1"].contains(&text) => return,
        "limits.cpu" | "requests.cpu" => ("1m and 1", "cpu"),
        _ if SIZES.split(", ").any(|size| size == text) => return,
        "limits.memory" | "requests.memory" => (SIZES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (SIZES, "local ephemeral storage"),
        _ if is_huge => (SIZES, "hugepages"),
        _ => return,
    };
    let rule = format!("only divisor's values {allowed} are supported with the {name} resource");
    errors.push(FieldError::invalid(path.child("divisor"), resource, rule));
}
