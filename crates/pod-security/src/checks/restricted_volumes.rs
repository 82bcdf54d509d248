//! Volumes must be of a type that gives access to nothing but objects and storage of the pod's namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use super::host_path_volumes;
use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{plural, quoted};
use crate::pod::Pod;

pub(super) static RESTRICTED: Check = Check {
    id: "restrictedVolumes",
    level: Level::Restricted,
    revisions: &[Revision::overriding(0, v1_0, host_path_volumes::BASELINE.id)],
};

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let volumes = pod.spec.volumes.iter().flatten().filter(|volume| !is_allowed(volume));
    let bad: Vec<(&str, &str)> =
        volumes.map(|volume| (volume.name.as_str(), restricted_type(volume))).collect();
    if bad.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = bad.iter().map(|(_, name)| *name).collect();
    let volumes = plural(bad.len(), "volume", "volumes");
    let names = quoted(bad.iter().map(|(name, _)| name));
    let uses = plural(bad.len(), "uses", "use");
    let what = plural(types.len(), "restricted volume type", "restricted volume types");
    Some(Forbidden {
        reason: "restricted volume types",
        detail: format!("{volumes} {names} {uses} {what} {}", quoted(&types)),
    })
}

fn is_allowed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.csi.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some()
}

/// The type of a volume that is not allowed.
fn restricted_type(volume: &Volume) -> &'static str {
    let types = [
        (volume.host_path.is_some(), "hostPath"),
        (volume.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (volume.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (volume.git_repo.is_some(), "gitRepo"),
        (volume.nfs.is_some(), "nfs"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.glusterfs.is_some(), "glusterfs"),
        (volume.rbd.is_some(), "rbd"),
        (volume.flex_volume.is_some(), "flexVolume"),
        (volume.cinder.is_some(), "cinder"),
        (volume.cephfs.is_some(), "cephfs"),
        (volume.flocker.is_some(), "flocker"),
        (volume.fc.is_some(), "fc"),
        (volume.azure_file.is_some(), "azureFile"),
        (volume.vsphere_volume.is_some(), "vsphereVolume"),
        (volume.quobyte.is_some(), "quobyte"),
        (volume.azure_disk.is_some(), "azureDisk"),
        (volume.photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (volume.portworx_volume.is_some(), "portworxVolume"),
        (volume.scale_io.is_some(), "scaleIO"),
        (volume.storageos.is_some(), "storageos"),
    ];
    types.into_iter().find(|(is_set, _)| *is_set).map_or("unknown", |(_, name)| name)
}
