//! The binder's decision about a volume (upstream's `syncVolume`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use plumb_placement::volumes::{BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, has_same_mode};

use super::{About, Step, Write, set_volume_phase, volume_phase};
use crate::workload::Note;

/// A volume with the objects that a decision reads.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The volume.
    pub volume: Arc<PersistentVolume>,
    /// The claim of the namespace and name that it refers to, if there is one.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
}

/// Decides the next step for a volume.
pub fn decide(state: &State) -> Step {
    let volume = &*state.volume;
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let uid = reference.and_then(|reference| reference.uid.as_deref()).unwrap_or_default();
    if uid.is_empty() {
        // No claim has it; one may be reserved for it by name.
        return Step::default().with_write(set_volume_phase(volume, "Available", ""));
    }
    // Another claim of the same name is another claim.
    let claim = state.claim.as_deref().filter(|claim| claim.metadata.uid.as_deref() == Some(uid));
    let Some(claim) = claim else { return release(volume) };
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if named == name {
        return Step::default().with_write(set_volume_phase(volume, "Bound", ""));
    }
    if named.is_empty() {
        return awaits_claim(volume, claim);
    }
    let is_provisioned = annotation(&volume.metadata, PROVISIONED_BY).is_some();
    if is_provisioned && reclaim_policy(volume) == "Delete" {
        // It was made for a claim that is bound to another one meanwhile.
        return release(volume);
    }
    Step::write(Write::Volume(Box::new(unbind(volume))))
}

fn reclaim_policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}

/// A volume that refers to a claim which does not refer to it yet: the decision about the claim completes the binding.
fn awaits_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Step {
    if has_same_mode(volume, claim) {
        return Step::default();
    }
    let (volume, claim) = (volume.metadata.name.as_deref(), claim.metadata.name.as_deref());
    let (volume, claim) = (volume.unwrap_or_default(), claim.unwrap_or_default());
    let to_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim:?} due to incompatible volumeMode."
    );
    let to_claim = format!(
        "Cannot bind PersistentVolume {volume:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
    );
    Step {
        events: vec![
            (About::Volume, Note::warning("VolumeMismatch", to_volume)),
            (About::Claim, Note::warning("VolumeMismatch", to_claim)),
        ],
        write: None,
    }
}

/// The volume without its reference to a claim; one that a user has written keeps the name.
fn unbind(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let by_controller = annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some();
    let spec = volume.spec.get_or_insert_default();
    if by_controller {
        spec.claim_ref = None;
    } else if let Some(reference) = &mut spec.claim_ref {
        reference.uid = None;
    }
    volume.metadata.annotations.iter_mut().for_each(|all| {
        all.remove(BOUND_BY_CONTROLLER);
    });
    volume
}

/// A volume whose claim is deleted.
fn release(volume: &PersistentVolume) -> Step {
    let phase = volume_phase(volume);
    if !matches!(phase, "Released" | "Failed") {
        return Step::default().with_write(set_volume_phase(volume, "Released", ""));
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let failed = |reason: &'static str, message: String| {
        let write = set_volume_phase(volume, "Failed", &message);
        let events = vec![(About::Volume, Note::warning(reason, message))];
        // With the change of the phase, once.
        if write.is_some() { Step { events, write } } else { Step::default() }
    };
    match reclaim_policy(volume) {
        "Retain" => Step::default(),
        "Delete" => {
            let provisioner = annotation(&volume.metadata, PROVISIONED_BY).unwrap_or_default();
            if !provisioner.is_empty() && !provisioner.starts_with("kubernetes.io/") {
                // Its provisioner removes it.
                return Step::default();
            }
            let message = deletion_error(volume, name);
            failed("VolumeFailedDelete", message)
        }
        "Recycle" => failed("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        _ => failed(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned(),
        ),
    }
}

/// Why no volume plugin deletes a volume that an administrator has made, in upstream's words for its kind.
fn deletion_error(volume: &PersistentVolume, name: &str) -> String {
    let spec = volume.spec.clone().unwrap_or_default();
    let why = match (&spec.host_path, &spec.nfs) {
        (Some(source), _) if !source.path.starts_with("/tmp/") => {
            return format!("host_path deleter only supports /tmp/.+ but received provided {}", source.path);
        }
        (None, None) => "no volume plugin matched",
        _ => "no deletable volume plugin matched",
    };
    format!("error getting deleter volume plugin for volume {name:?}: {why}")
}
