//! Validation of volumes and volume sources.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{HostPathVolumeSource, KeyToPath, PodSpec, Volume};
use plumb_resize::Quantity;
use plumb_validation::field::{FieldError, Path};

use super::container::{VolumeKind, Volumes, validate_pull_policy};
use super::{PodValidationOptions, files, projected, remote};
use crate::registry::core::persistent_volume_claim::validation as claim;
use plumb_apiserver::validation::{Errors, add_invalid, format, storage};

const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Validates the volumes of a pod. Returns the valid ones, which containers can mount.
pub(super) fn validate_volumes<'a>(
    spec: &'a PodSpec,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Volumes<'a> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let pod = options.meta.and_then(|meta| meta.name.as_deref()).filter(|name| !name.is_empty());
    let created: BTreeSet<String> = volumes
        .iter()
        .filter(|volume| volume.ephemeral.is_some())
        .filter_map(|volume| pod.map(|pod| format!("{pod}-{}", volume.name)))
        .collect();
    let mut valid = BTreeMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let before = errors.len();
        validate_volume_source(volume, options, pod, &path, errors);
        if volume.name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else {
            add_invalid(errors, &path.child("name"), &volume.name, format::dns_label(&volume.name));
        }
        if valid.contains_key(volume.name.as_str()) {
            errors.push(FieldError::duplicate(path.child("name"), &volume.name));
        }
        if errors.len() == before {
            let claimed = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
            let kind = if claimed { VolumeKind::Claim } else { VolumeKind::Other };
            valid.insert(volume.name.as_str(), kind);
        }
        if let Some(claim) =
            volume.persistent_volume_claim.as_ref().filter(|c| created.contains(&c.claim_name))
        {
            let rule = "must not reference a PVC that gets created for an ephemeral volume";
            let path = path.child("persistentVolumeClaim");
            errors.push(FieldError::invalid(path.child("claimName"), &claim.claim_name, rule));
        }
    }
    valid
}

/// The sources that a volume has, by their names in error messages.
fn sources(volume: &Volume) -> impl Iterator<Item = &'static str> {
    // SPEC: two names differ from those of the fields, as in kube-apiserver.
    [
        ("emptyDir", volume.empty_dir.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("secret", volume.secret.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephFS", volume.cephfs.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("downwarAPI", volume.downward_api.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("projected", volume.projected.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("csi", volume.csi.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("image", volume.image.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_set)| is_set.then_some(name))
}

fn validate_volume_source(
    volume: &Volume,
    options: &PodValidationOptions<'_>,
    pod: Option<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut sources = sources(volume);
    let Some(first) = sources.next() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    let own = path.child(first);
    match first {
        "emptyDir" => validate_empty_dir(volume, &own, errors),
        "hostPath" => validate_host_path(volume.host_path.as_ref(), &own, errors),
        "secret" => {
            if let Some(secret) = &volume.secret {
                let name = secret.secret_name.as_deref().unwrap_or_default();
                validate_items(
                    (name, "secretName"),
                    secret.default_mode,
                    secret.items.as_deref(),
                    &own,
                    errors,
                );
            }
        }
        "configMap" => {
            if let Some(map) = &volume.config_map {
                validate_items((&map.name, "name"), map.default_mode, map.items.as_deref(), &own, errors);
            }
        }
        "persistentVolumeClaim"
            if volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name.is_empty()) =>
        {
            errors.push(FieldError::required(own.child("claimName"), ""));
        }
        "downwarAPI" => {
            if let Some(downward) = &volume.downward_api {
                let own = path.child("downwardAPI");
                files::validate_file_mode(downward.default_mode, &own.child("defaultMode"), errors);
                for file in downward.items.iter().flatten() {
                    projected::validate_downward_api_volume_file(file, &own, errors);
                }
            }
        }
        "projected" => {
            if let Some(projected) = &volume.projected {
                projected::validate_projected_volume_source(projected, options, &own, errors);
            }
        }
        "nfs" => validate_nfs(volume, &own, errors),
        "gitRepo" => validate_git_repo(volume, &own, errors),
        "csi" => validate_csi(volume, &own, errors),
        "ephemeral" => validate_ephemeral_volume(volume, pod, path, errors),
        "image" => validate_image(volume, options, &own, errors),
        // SPEC: kube-apiserver's paths of these differ from the names of the fields.
        "gcePersistentDisk" => {
            remote::validate_remote_volume_source(volume, first, &path.child("persistentDisk"), errors);
        }
        "cephFS" => remote::validate_remote_volume_source(volume, first, &path.child("cephfs"), errors),
        other => remote::validate_remote_volume_source(volume, other, &own, errors),
    }
    for other in sources {
        errors.push(FieldError::forbidden(path.child(other), "may not specify more than 1 volume type"));
    }
}

fn validate_empty_dir(volume: &Volume, path: &Path<'_>, errors: &mut Errors) {
    let limit = volume.empty_dir.as_ref().and_then(|directory| directory.size_limit.as_ref());
    if let Some(Ok(limit)) = limit.map(|limit| limit.0.parse::<Quantity>())
        && limit.is_negative()
    {
        let rule = "SizeLimit field must be a valid resource quantity";
        errors.push(FieldError::forbidden(path.child("sizeLimit"), rule));
    }
}

fn validate_host_path(source: Option<&HostPathVolumeSource>, path: &Path<'_>, errors: &mut Errors) {
    let Some(source) = source else { return };
    if source.path.is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
        return;
    }
    files::validate_path_no_backsteps(&source.path, &path.child("path"), errors);
    if let Some(kind) = source.type_.as_deref().filter(|kind| !HOST_PATHS.contains(kind)) {
        errors.push(FieldError::not_supported(path.child("type"), kind, &HOST_PATHS));
    }
}

fn validate_items(
    (name, field): (&str, &str),
    mode: Option<i32>,
    items: Option<&[KeyToPath]>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if name.is_empty() {
        errors.push(FieldError::required(path.child(field), ""));
    }
    files::validate_file_mode(mode, &path.child("defaultMode"), errors);
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        files::validate_key_to_path(item, &path.child("items").index(i), errors);
    }
}

fn validate_nfs(volume: &Volume, path: &Path<'_>, errors: &mut Errors) {
    let Some(nfs) = &volume.nfs else { return };
    if nfs.server.is_empty() {
        errors.push(FieldError::required(path.child("server"), ""));
    }
    if nfs.path.is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
    }
    if !nfs.path.starts_with('/') {
        errors.push(FieldError::invalid(path.child("path"), &nfs.path, "must be an absolute path"));
    }
}

fn validate_git_repo(volume: &Volume, path: &Path<'_>, errors: &mut Errors) {
    let Some(repository) = &volume.git_repo else { return };
    if repository.repository.is_empty() {
        errors.push(FieldError::required(path.child("repository"), ""));
    }
    let directory = repository.directory.as_deref().unwrap_or_default();
    files::validate_local_descending_path(directory, &path.child("directory"), errors);
}

fn validate_image(volume: &Volume, options: &PodValidationOptions<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(image) = &volume.image else { return };
    if options.is_pod && image.reference.as_deref().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(path.child("reference"), ""));
    }
    validate_pull_policy(image.pull_policy.as_deref(), &path.child("pullPolicy"), errors);
}

fn validate_csi(volume: &Volume, path: &Path<'_>, errors: &mut Errors) {
    let Some(csi) = &volume.csi else { return };
    storage::validate_csi_driver_name(&csi.driver, &path.child("driver"), errors);
    if let Some(secret) = &csi.node_publish_secret_ref {
        if secret.name.is_empty() {
            errors.push(FieldError::required(format!("{path}.nodePublishSecretRef.name"), ""));
        } else {
            add_invalid(errors, &path.child("name"), &secret.name, format::dns_subdomain(&secret.name));
        }
    }
}

fn validate_ephemeral_volume(volume: &Volume, pod: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    let own = path.child("ephemeral");
    let template_path = own.child("volumeClaimTemplate");
    let Some(template) = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref())
    else {
        errors.push(FieldError::required(template_path, ""));
        return;
    };
    claim::validate_claim_spec(&template.spec, &template_path.child("spec"), errors);
    if let Some(pod) = pod.filter(|_| !volume.name.is_empty()) {
        let claim = format!("{pod}-{}", volume.name);
        for message in format::dns_subdomain(&claim) {
            let rule = format!("PVC name {claim:?}: {message}");
            errors.push(FieldError::invalid(path.child("name"), &volume.name, rule));
        }
    }
}
