//! Volumes of persistent volume claims: what the claim is bound to, and where this node has it.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume,
};
use plumb_client::Api;
use plumb_placement::volumes::{
    LOCAL_PATH_PROVISIONER, PROVISIONED_BY, annotation, is_bound_to, is_owned_by, node_affinity, used_claims,
};

use super::error::VolumeError;
use super::owner::{ChangePolicy, Owner};
use super::prepared::Ready;
use super::{Shared, blocking, csi, host_path, nfs};
use crate::cri_config::{ConfigError, identity};

/// The claim of a volume of a pod.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The name of the volume in the pod.
    volume: String,
    /// The name of the claim.
    name: String,
    /// The pod must own it.
    is_ephemeral: bool,
    read_only: bool,
}

/// The claim of a volume, if it has one.
pub(super) fn used_claim(pod: &Pod, volume: &Volume) -> Option<Claim> {
    let used = used_claims(pod).find(|claim| claim.volume == volume.name)?;
    let source = volume.persistent_volume_claim.as_ref();
    let read_only = source.and_then(|source| source.read_only).unwrap_or(false);
    Some(Claim { volume: used.volume, name: used.name, is_ephemeral: used.is_ephemeral, read_only })
}

/// Prepares the volume that a claim is bound to. What is mounted is mounted below `volumes`.
pub(super) async fn prepare(
    shared: &Shared,
    pod: &Pod,
    claim: &Claim,
    volumes: &Path,
    (owner, change): (Owner, ChangePolicy),
) -> Result<Ready, ConfigError> {
    let (namespace, ..) = identity(pod);
    let unprocessed = |why: String| ConfigError::Claim {
        volume: claim.volume.clone(),
        message: format!("error processing PVC {namespace}/{}: {why}", claim.name),
    };
    let volume = find(shared, pod, claim).await.map_err(unprocessed)?;
    let name = volume.metadata.name.clone().unwrap_or_default();
    let failed =
        |error: VolumeError| ConfigError::Volume { volume: name.clone(), message: error.to_string() };
    check_node(shared, &volume).await.map_err(failed)?;
    let spec = volume.spec.clone().unwrap_or_default();
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    let claimed = csi::Claimed {
        namespace: namespace.to_owned(),
        name: claim.name.clone(),
        read_only: claim.read_only,
    };
    if let Some(source) = csi::Source::from_volume(&volume, claimed) {
        let path = shared.csi.mount(pod, source, (owner, change)).await.map_err(failed)?;
        let read_only = claim.read_only;
        return Ok(if is_block { Ready::device(path, read_only) } else { Ready::at(path, read_only) });
    }
    if is_block {
        let Some(local) = &spec.local else { return Err(failed(VolumeError::Block(kind(&spec)))) };
        let path = PathBuf::from(&local.path);
        let found = blocking(move || device(&path).map_err(io::Error::other)).await;
        let path = found.map_err(|error| failed(error.into()))?;
        return Ok(Ready::device(path, claim.read_only));
    }
    let source = Source::read(shared, &volume, &spec).map_err(failed)?;
    // As upstream's plugins: files of a host path and of a server keep their groups.
    let has_group = matches!(source, Source::Own(_) | Source::Local(_)) && !claim.read_only;
    let (local, at) = (shared.local.clone(), volumes.join("kubernetes.io~nfs").join(&name));
    let made = blocking(move || {
        let path = match source {
            Source::HostPath(source) => host_path::ready(&source).map_err(VolumeError::from),
            Source::Own(volume) => local.make(&volume).map_err(VolumeError::from),
            Source::Local(path) => directory(&path),
            Source::Nfs(server) => nfs::mount(&server, &at).map(|()| at).map_err(VolumeError::from),
        };
        let path = path.map_err(io::Error::other)?;
        if has_group {
            owner.take_persistent(&path, change)?;
        }
        Ok(path)
    });
    let path = made.await.map_err(|error| failed(error.into()))?;
    Ok(Ready::at(path, claim.read_only))
}

/// The volume of a claim, or why there is none, in the kubelet's words.
async fn find(shared: &Shared, pod: &Pod, claim: &Claim) -> Result<PersistentVolume, String> {
    let (namespace, pod_name, uid) = identity(pod);
    let claims = Api::<PersistentVolumeClaim>::namespaced(shared.client.clone(), namespace);
    let found = claims.get(&claim.name).await;
    let found = found.map_err(|error| format!("failed to fetch PVC from API server: {error}"))?;
    if claim.is_ephemeral && !is_owned_by(&found, uid) {
        let (name, pod) = (&claim.name, pod_name);
        return Err(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ));
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_new = matches!(phase, None | Some("" | "Pending"));
    // A pod that runs already keeps what it has: its claim is deleted after it.
    if found.metadata.deletion_timestamp.is_some() && is_new {
        return Err("PVC is being deleted".to_owned());
    }
    let is_bound = found.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let volume = found.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    if !is_bound || volume.is_empty() {
        return Err("PVC is not bound".to_owned());
    }
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let bound = volumes.get(&volume).await;
    let bound = bound.map_err(|error| format!("failed to fetch PV {volume} from API server: {error}"))?;
    if is_bound_to(&bound, &found) {
        Ok(bound)
    } else {
        Err(format!("PV {volume} is not bound to the claim"))
    }
}

/// Checks that this node reaches a volume: the scheduler has, but not of a pod that named its node.
async fn check_node(shared: &Shared, volume: &PersistentVolume) -> Result<(), VolumeError> {
    let affinity = node_affinity(volume);
    if affinity.is_any() {
        return Ok(());
    }
    let nodes = Api::<Node>::all(shared.client.clone());
    let node = nodes.get(&shared.node).await.map_err(|error| VolumeError::Api(Box::new(error)))?;
    if affinity.matches_node(&node) { Ok(()) } else { Err(VolumeError::NodeAffinity) }
}

/// Where a volume is.
enum Source {
    HostPath(k8s_openapi::api::core::v1::HostPathVolumeSource),
    /// A directory of the class `local-path`, by the name of the volume.
    Own(String),
    Local(PathBuf),
    Nfs(nfs::Server),
}

impl Source {
    fn read(
        shared: &Shared,
        volume: &PersistentVolume,
        spec: &PersistentVolumeSpec,
    ) -> Result<Self, VolumeError> {
        if let Some(source) = &spec.host_path {
            return Ok(Self::HostPath(source.clone()));
        }
        if let Some(source) = &spec.local {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let path = PathBuf::from(&source.path);
            let is_own = annotation(&volume.metadata, PROVISIONED_BY) == Some(LOCAL_PATH_PROVISIONER);
            // At another path it is of another data directory, and is not made anew here: that would hide its data.
            let is_here = is_own && shared.local.has(name, &path);
            return Ok(if is_here { Self::Own(name.to_owned()) } else { Self::Local(path) });
        }
        if let Some(source) = &spec.nfs {
            return Ok(Self::Nfs(nfs::Server::new(
                source,
                spec.mount_options.as_deref().unwrap_or_default(),
            )));
        }
        Err(VolumeError::Kind(kind(spec)))
    }
}

/// The kind of a volume, as its field is called.
fn kind(spec: &PersistentVolumeSpec) -> &'static str {
    let kinds = [
        (spec.csi.is_some(), "csi"),
        (spec.host_path.is_some(), "hostPath"),
        (spec.nfs.is_some(), "nfs"),
        (spec.iscsi.is_some(), "iscsi"),
        (spec.fc.is_some(), "fc"),
        (spec.cephfs.is_some(), "cephfs"),
        (spec.rbd.is_some(), "rbd"),
        (spec.flex_volume.is_some(), "flexVolume"),
        (spec.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (spec.azure_disk.is_some(), "azureDisk"),
        (spec.azure_file.is_some(), "azureFile"),
        (spec.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (spec.cinder.is_some(), "cinder"),
        (spec.vsphere_volume.is_some(), "vsphereVolume"),
        (spec.portworx_volume.is_some(), "portworxVolume"),
        (spec.glusterfs.is_some(), "glusterfs"),
        (spec.quobyte.is_some(), "quobyte"),
        (spec.scale_io.is_some(), "scaleIO"),
        (spec.storageos.is_some(), "storageos"),
        (spec.flocker.is_some(), "flocker"),
        (spec.photon_persistent_disk.is_some(), "photonPersistentDisk"),
    ];
    kinds.into_iter().find(|(is_set, _)| *is_set).map_or("unknown", |(_, kind)| kind)
}

/// The directory of a `local` volume, which an administrator has made.
fn directory(path: &Path) -> Result<PathBuf, VolumeError> {
    if found(path)?.is_dir() {
        Ok(path.to_owned())
    } else {
        Err(VolumeError::NoDirectory(path.display().to_string()))
    }
}

/// The device of a `local` volume with `volumeMode: Block`.
fn device(path: &Path) -> Result<PathBuf, VolumeError> {
    if found(path)?.file_type().is_block_device() {
        Ok(path.to_owned())
    } else {
        Err(VolumeError::NoDevice(path.display().to_string()))
    }
}

/// What is at the path of a `local` volume.
fn found(path: &Path) -> Result<fs::Metadata, VolumeError> {
    let shown = || path.display().to_string();
    if !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(VolumeError::NoPath(shown()));
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(VolumeError::NoPath(shown())),
        found => Ok(found?),
    }
}
