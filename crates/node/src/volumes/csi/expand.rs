//! Volumes that grow, and those that are published again from time to time.
//!
//! The controller of the driver grows the volume, and writes the new capacity of the persistent volume. Then the file system
//! has to grow on the node, which writes the capacity of the claim.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_csi::api::Capability;
use plumb_placement::volumes::{capacity, requested};
use plumb_resize::Quantity;
use serde_json::json;

use super::State;
use super::mount::{Call, Mounted, publish, secrets};
use super::source::Claimed;
use crate::volumes::error::VolumeError;

/// How often claims are read: a node may read the claims of its pods, and not watch them.
const CHECK: Duration = Duration::from_secs(15);
/// The conditions that are over once the node has expanded a volume.
const OVER: [&str; 4] = ["FileSystemResizePending", "Resizing", "NodeResizeError", "ControllerResizeError"];

/// Expands the volumes that have grown while pods have them, and publishes those anew whose drivers ask for it.
pub(super) async fn run(state: &Arc<State>) {
    loop {
        tokio::time::sleep(CHECK).await;
        let mounted: Vec<Arc<Mounted>> = state.mounted.lock().values().cloned().collect();
        // At a time, so that a driver that hangs delays no volume of another one.
        let each = mounted.into_iter().map(|mounted| async move {
            if let Err(error) = follow(state, &mounted).await {
                let (driver, volume) = (&mounted.source.id.driver, &mounted.source.name);
                tracing::warn!(%error, driver, volume, "cannot update a mounted volume, will retry");
            }
        });
        futures_util::future::join_all(each).await;
    }
}

async fn follow(state: &State, mounted: &Mounted) -> Result<(), VolumeError> {
    let call = mounted.call(state)?;
    let republishes = mounted.driver_object.spec.requires_republish == Some(true);
    if !republishes && !call.registered.can(Capability::ExpandVolume) {
        return Ok(());
    }
    let lock = state.lock(&mounted.source.id);
    let _locked = lock.lock().await;
    let uid = mounted.pod.metadata.uid.as_deref().unwrap_or_default();
    let is_mounted =
        state.mounted.lock().keys().any(|(pod, name)| pod == uid && *name == mounted.source.name);
    if !is_mounted {
        return Ok(());
    }
    if republishes {
        publish(state, mounted, &call).await?;
    }
    let Some(claimed) = &mounted.source.claim else { return Ok(()) };
    let Some(claim) = read_claim(state, claimed).await? else { return Ok(()) };
    if requested(&claim) <= shown(&claim) {
        return Ok(());
    }
    let volumes = Api::<PersistentVolume>::all(state.client.clone());
    let volume =
        volumes.get(&mounted.source.name).await.map_err(|error| VolumeError::Api(Box::new(error)))?;
    expand(state, &call, &claim, capacity(&volume)).await
}

/// Expands a volume that has grown before a pod got it.
pub(super) async fn on_mount(state: &State, mounted: &Mounted, call: &Call<'_>) -> Result<(), VolumeError> {
    let Some(claimed) = &mounted.source.claim else { return Ok(()) };
    if !call.registered.can(Capability::ExpandVolume) {
        return Ok(());
    }
    let Some(claim) = read_claim(state, claimed).await? else { return Ok(()) };
    expand(state, call, &claim, mounted.source.capacity).await
}

async fn read_claim(state: &State, claim: &Claimed) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(state.client.clone(), &claim.namespace);
    claims.get_opt(&claim.name).await.map_err(|error| VolumeError::Api(Box::new(error)))
}

/// The capacity that a claim shows.
fn shown(claim: &PersistentVolumeClaim) -> Quantity {
    let capacity = || claim.status.as_ref()?.capacity.as_ref()?.get("storage")?.0.parse().ok();
    capacity().unwrap_or(Quantity::ZERO)
}

/// Expands a volume to the capacity of the persistent volume, if the claim shows less.
async fn expand(
    state: &State,
    call: &Call<'_>,
    claim: &PersistentVolumeClaim,
    capacity: Quantity,
) -> Result<(), VolumeError> {
    // A claim without a capacity is one that its binder has not written yet.
    if capacity <= shown(claim) || shown(claim).is_zero() || call.source.read_only {
        return Ok(());
    }
    let staging = call.staging();
    let secrets = secrets(state, call.source.expand_secret.as_ref()).await?;
    let paths = (call.published.target(), staging);
    let as_mounted = (&call.access_type, call.mode);
    let expanded = call.registered.driver.expand(
        &call.source.id.handle,
        (&paths.0, paths.1.as_deref()),
        capacity.saturating_units(),
        as_mounted,
        secrets,
    );
    expanded.await?;
    let status = claim.status.clone().unwrap_or_default();
    let conditions: Vec<_> = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .filter(|one| !OVER.contains(&&*one.type_))
        .collect();
    let patch = json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": {
            "capacity": { "storage": capacity.to_string() },
            "conditions": conditions,
            "allocatedResourceStatuses": { "storage": null },
        },
    });
    let claims = Api::<PersistentVolumeClaim>::namespaced(
        state.client.clone(),
        claim.metadata.namespace.as_deref().unwrap_or_default(),
    );
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        // The next attempt reads the newer version; expanding again changes nothing.
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        Err(error) => Err(VolumeError::Api(Box::new(error))),
    }
}
