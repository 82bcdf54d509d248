//! The decision of the local-path provisioner about a volume whose claim is deleted.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use plumb_controller_runtime::finalizer;
use plumb_placement::volumes::{LOCAL_PATH_PROVISIONER, LOCAL_VOLUMES, PROVISIONED_BY, annotation};

use super::{FINALIZER, NODE};

/// What to do about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing: it is not this provisioner's, or it is in use, or it is retained.
    Nothing,
    /// Have this node remove the directory, then [finish](Self::Finish).
    RemoveFrom(String),
    /// Remove the finalizer and the volume.
    Finish,
    /// Remove the finalizer; a user deletes a volume whose data is retained.
    RemoveFinalizer,
}

/// The node of a volume.
pub fn node_of(volume: &PersistentVolume) -> Option<&str> {
    let is_ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(LOCAL_PATH_PROVISIONER);
    annotation(&volume.metadata, NODE).filter(|_| is_ours)
}

/// Decides about a volume. `node` is the node that has its directory, if it exists.
pub fn decide(volume: &PersistentVolume, node: Option<&Node>) -> Reclaim {
    let Some(name) = node_of(volume) else { return Reclaim::Nothing };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let is_deleted = volume.metadata.deletion_timestamp.is_some();
    let is_released = matches!(phase, "Released" | "Failed");
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if phase == "Bound" || !(is_released || is_deleted) {
        return Reclaim::Nothing;
    }
    if policy != Some("Delete") {
        let is_awaited = finalizer::is_awaited(&volume.metadata, FINALIZER);
        return if is_awaited { Reclaim::RemoveFinalizer } else { Reclaim::Nothing };
    }
    match node {
        // A node that has no directory is virtual. One that is gone for good has taken its disk with it; should it come
        // back, its agent finds a directory without a volume, which an administrator may remove.
        Some(node) if annotation(&node.metadata, LOCAL_VOLUMES).is_some() => {
            Reclaim::RemoveFrom(name.to_owned())
        }
        _ => Reclaim::Finish,
    }
}
