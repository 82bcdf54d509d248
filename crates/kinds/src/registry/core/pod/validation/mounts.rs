//! Validation of volume mounts and volume devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use plumb_validation::field::{FieldError, Path};

use super::container::{VolumeKind, Volumes};
use super::files;
use plumb_apiserver::validation::Errors;

/// Validates `volumeMounts`.
pub(super) fn validate_volume_mounts(
    container: &Container,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut points = BTreeSet::new();
    // SPEC: if several devices have one name, kube-apiserver compares with the last; likewise below.
    let devices: BTreeMap<&String, &String> =
        container.volume_devices.iter().flatten().map(|device| (&device.name, &device.device_path)).collect();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let own = path.index(i);
        if mount.name.is_empty() {
            errors.push(FieldError::required(own.child("name"), ""));
        }
        if !volumes.contains_key(mount.name.as_str()) {
            errors.push(FieldError::not_found(own.child("name"), &mount.name));
        }
        if mount.mount_path.is_empty() {
            errors.push(FieldError::required(own.child("mountPath"), ""));
        }
        if !points.insert(&mount.mount_path) {
            errors.push(FieldError::invalid(own.child("mountPath"), &mount.mount_path, "must be unique"));
        }
        if devices.contains_key(&mount.name) {
            let rule = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(own.child("name"), &mount.name, rule));
        }
        if devices.values().any(|path| **path == mount.mount_path) {
            let rule = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(own.child("mountPath"), &mount.mount_path, rule));
        }
        // SPEC: the remaining errors of kube-apiserver name the list, not the mount.
        validate_sub_paths(mount, path, &own, errors);
        validate_mount_propagation(container, mount, path, errors);
    }
}

fn validate_sub_paths(mount: &VolumeMount, list: &Path<'_>, own: &Path<'_>, errors: &mut Errors) {
    let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let sub_path = given(&mount.sub_path);
    if let Some(sub_path) = &sub_path {
        files::validate_local_descending_path(sub_path, &list.child("subPath"), errors);
    }
    if let Some(expression) = given(&mount.sub_path_expr) {
        if sub_path.is_some() {
            let rule = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(own.child("subPathExpr"), &expression, rule));
        }
        files::validate_local_descending_path(&expression, &list.child("subPathExpr"), errors);
    }
}

fn validate_mount_propagation(
    container: &Container,
    mount: &VolumeMount,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let propagation = mount.mount_propagation.as_deref();
    if let Some(mode) = propagation {
        let path = path.child("mountPropagation");
        let modes = ["Bidirectional", "HostToContainer", "None"];
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported(path, mode, &modes));
        }
        let privileged = container.security_context.as_ref().and_then(|context| context.privileged);
        if mode == "Bidirectional" && privileged != Some(true) {
            let rule = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(path, rule));
        }
    }
    let path = path.child("recursiveReadOnly");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                errors.push(FieldError::forbidden(path, "may only be specified when readOnly is true"));
            }
            if propagation.is_some_and(|mode| mode != "None") {
                let rule = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, rule));
            }
        }
        Some(mode) => {
            errors.push(FieldError::not_supported(path, mode, &["Disabled", "Enabled", "IfPossible"]));
        }
    }
}

/// Validates `volumeDevices`.
pub(super) fn validate_volume_devices(
    container: &Container,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (mut names, mut points) = (BTreeSet::new(), BTreeSet::new());
    let mounts: BTreeMap<&String, &String> =
        container.volume_mounts.iter().flatten().map(|mount| (&mount.name, &mount.mount_path)).collect();
    for (i, device) in container.volume_devices.iter().flatten().enumerate() {
        let path = path.index(i);
        let (name, point) = (device.name.as_str(), device.device_path.as_str());
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        if names.contains(name) {
            errors.push(FieldError::invalid(path.child("name"), name, "must be unique"));
        }
        match volumes.get(name) {
            Some(VolumeKind::Claim) => {}
            Some(VolumeKind::Other) => {
                let rule =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(path.child("name"), name, rule));
            }
            None => errors.push(FieldError::not_found(path.child("name"), name)),
        }
        if point.is_empty() {
            errors.push(FieldError::required(path.child("devicePath"), ""));
        }
        if points.contains(point) {
            errors.push(FieldError::invalid(path.child("devicePath"), point, "must be unique"));
        }
        if point.split('/').any(|part| part == "..") {
            let rule = "can not contain backsteps ('..')";
            errors.push(FieldError::invalid(path.child("devicePath"), point, rule));
        } else {
            points.insert(point);
        }
        if mounts.contains_key(&device.name) {
            let rule = "must not already exist in volumeMounts";
            errors.push(FieldError::invalid(path.child("name"), name, rule));
        }
        if mounts.values().any(|path| *path == point) {
            let rule = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(path.child("devicePath"), point, rule));
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
