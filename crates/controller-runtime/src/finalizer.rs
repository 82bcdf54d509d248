//! Finalizers: they block the deletion of an object until a controller has cleaned up.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether an object has a finalizer.
pub fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// Whether an object is terminating and waits for a finalizer to be removed.
pub fn is_awaited(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.deletion_timestamp.is_some() && has(metadata, finalizer)
}

/// Removes a finalizer.
pub fn remove(metadata: &mut ObjectMeta, finalizer: &str) {
    metadata.finalizers.iter_mut().for_each(|all| all.retain(|one| one != finalizer));
}
