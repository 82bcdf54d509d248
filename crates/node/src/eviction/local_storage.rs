//! The limits of the local storage of pods: `sizeLimit` of an `emptyDir`, and `ephemeral-storage` of containers.

use super::candidate::{Candidate, DiskUsage, PodUsage, limit, size_limit};
use super::message::bytes;
use super::rank::Disks;
use crate::ephemeral_storage;

/// A limit that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    /// The name of the limit in metrics.
    pub(super) signal: &'static str,
    /// The message of the eviction.
    pub(super) message: String,
}

/// The first limit that a pod exceeds, in the kubelet's order: of a volume, of the pod, of a container.
pub(super) fn exceeded(candidate: &Candidate, disks: Disks) -> Option<Exceeded> {
    let usage = candidate.usage.as_ref()?;
    of_volume(candidate, usage)
        .or_else(|| of_pod(candidate, usage))
        .or_else(|| of_container(candidate, usage, disks))
}

fn of_volume(candidate: &Candidate, usage: &PodUsage) -> Option<Exceeded> {
    candidate.volumes().find_map(|volume| {
        let (name, limit) = (&volume.name, size_limit(volume)?);
        let used = usage.volumes.get(name)?;
        (bytes(used.bytes) > limit).then(|| Exceeded {
            signal: "emptydirfs.limit",
            message: format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "),
        })
    })
}

fn of_pod(candidate: &Candidate, usage: &PodUsage) -> Option<Exceeded> {
    let limit = ephemeral_storage::limit(candidate.pod.spec.as_ref()?)?;
    (bytes(usage.disk(true, true).bytes) > limit).then(|| Exceeded {
        signal: "ephemeralpodfs.limit",
        message: format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "),
    })
}

fn of_container(candidate: &Candidate, usage: &PodUsage, disks: Disks) -> Option<Exceeded> {
    let containers = candidate.pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().find_map(|container| {
        let (name, limit) = (&container.name, limit(container)?);
        let measured = usage.containers.iter().find(|measured| measured.name == *name)?;
        // Writable layers on a file system of their own do not fill that of the node.
        let layer = measured.writable_layer.filter(|_| !disks.dedicated_image_fs);
        let used = [layer, measured.logs].into_iter().flatten().fold(DiskUsage::default(), DiskUsage::plus);
        (bytes(used.bytes) > limit).then(|| Exceeded {
            signal: "ephemeralcontainerfs.limit",
            message: format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "),
        })
    })
}
