//! Validation of projected volumes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};
use plumb_validation::field::{FieldError, Path};

use super::{PodValidationOptions, environment, files};
use plumb_apiserver::validation::Errors;

const DUPLICATE_PATHS: &str = "conflicting duplicate paths";

/// Validates a projected volume.
pub(super) fn validate_projected_volume_source(
    volume: &ProjectedVolumeSource,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    files::validate_file_mode(volume.default_mode, &path.child("defaultMode"), errors);
    let mut paths = BTreeSet::new();
    for (i, source) in volume.sources.iter().flatten().enumerate() {
        let list = path.child("sources");
        let own = list.index(i);
        if let Some(secret) = &source.secret {
            let items = secret.items.as_deref().unwrap_or_default();
            validate_projected_keys(&secret.name, items, &mut paths, (path, &own.child("secret")), errors);
        }
        if let Some(map) = &source.config_map {
            let items = map.items.as_deref().unwrap_or_default();
            validate_projected_keys(&map.name, items, &mut paths, (path, &own.child("configMap")), errors);
        }
        for file in source.downward_api.iter().filter_map(|downward| downward.items.as_ref()).flatten() {
            validate_downward_api_volume_file(file, &own.child("downwardAPI"), errors);
            if !file.path.is_empty() && !paths.insert(file.path.clone()) {
                errors.push(FieldError::invalid(path, &file.path, DUPLICATE_PATHS));
            }
        }
        if let Some(token) = &source.service_account_token {
            // SPEC: kube-apiserver's path of this error is below the volume, not below the source.
            validate_service_account_token_projection(
                token,
                options,
                (path, &own.child("serviceAccountToken")),
                errors,
            );
        }
        if count_sources(source) > 1 {
            errors.push(FieldError::forbidden(own, "may not specify more than 1 volume type per source"));
        }
    }
}

/// Validates a file of a downward API volume.
pub(super) fn validate_downward_api_volume_file(
    file: &DownwardAPIVolumeFile,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if file.path.is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
    }
    files::validate_local_non_reserved_path(&file.path, &path.child("path"), errors);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), resource) => {
            environment::validate_object_field_selector(
                field,
                &environment::FILE_FIELDS,
                &path.child("fieldRef"),
                errors,
            );
            if resource.is_some() {
                let rule = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", rule));
            }
        }
        (None, Some(resource)) => {
            environment::validate_resource_field_selector(
                resource,
                true,
                &path.child("resourceFieldRef"),
                errors,
            );
        }
        (None, None) => {
            errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    files::validate_file_mode(file.mode, &path.child("mode"), errors);
}

fn validate_projected_keys(
    name: &str,
    items: &[KeyToPath],
    paths: &mut BTreeSet<String>,
    (volume, path): (&Path<'_>, &Path<'_>),
    errors: &mut Errors,
) {
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    for (i, item) in items.iter().enumerate() {
        files::validate_key_to_path(item, &path.child("items").index(i), errors);
        if !item.path.is_empty() && !paths.insert(item.path.clone()) {
            errors.push(FieldError::invalid(volume, name, DUPLICATE_PATHS));
        }
    }
}

fn validate_service_account_token_projection(
    token: &ServiceAccountTokenProjection,
    options: &PodValidationOptions<'_>,
    (volume, path): (&Path<'_>, &Path<'_>),
    errors: &mut Errors,
) {
    let seconds = token.expiration_seconds.unwrap_or(0);
    if seconds < 10 * 60 {
        let rule = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(path.child("expirationSeconds"), seconds, rule));
    }
    if seconds > 1 << 32 {
        let rule = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(path.child("expirationSeconds"), seconds, rule));
    }
    if token.path.is_empty() {
        errors.push(FieldError::required(volume.child("path"), ""));
    } else if !options.allows_non_local_token_paths() {
        files::validate_local_non_reserved_path(&token.path, &volume.child("path"), errors);
    }
}

fn count_sources(source: &VolumeProjection) -> usize {
    [
        source.secret.is_some(),
        source.config_map.is_some(),
        source.downward_api.is_some(),
        source.service_account_token.is_some(),
        source.cluster_trust_bundle.is_some(),
        source.pod_certificate.is_some(),
    ]
    .into_iter()
    .filter(|is_set| *is_set)
    .count()
}
