//! The binder's decision about a claim (upstream's `syncClaim`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus};
use k8s_openapi::api::storage::v1::StorageClass;
use plumb_placement::volumes::{
    BETA_STORAGE_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, Finder, SELECTED_NODE,
    STORAGE_PROVISIONER, annotation, class_of_claim, find_match, has_class, is_bound_to, mismatch,
    refer_to_claim, waits_for_consumer,
};

use super::{About, Step, Write, set_volume_phase};
use crate::workload::Note;

/// A claim with the objects that a decision reads.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The volume that it names, if there is one.
    pub volume: Option<Arc<PersistentVolume>>,
    /// The volumes that refer to it, and those of its class that no claim has.
    pub candidates: Vec<Arc<PersistentVolume>>,
    /// The class that it names, if there is one.
    pub class: Option<Arc<StorageClass>>,
    /// The name of the default class.
    pub default_class: Option<String>,
    /// The pods without a node that use it, by name.
    pub waiting_pods: Vec<String>,
}

/// Decides the next step for a claim.
pub fn decide(state: &State) -> Step {
    if annotation(&state.claim.metadata, BIND_COMPLETED).is_some() {
        bound(state)
    } else if volume_name(&state.claim).is_empty() {
        unbound(state)
    } else {
        names_volume(state)
    }
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

fn has_provisioning_node(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, SELECTED_NODE).is_some()
}

/// A claim that takes any volume.
fn unbound(state: &State) -> Step {
    let claim = &*state.claim;
    let waits_for_consumer = state.class.as_deref().is_some_and(waits_for_consumer);
    let volumes = state.candidates.iter().map(|volume| &**volume);
    if let Some(volume) = find_match(claim, volumes, Finder::Binder { waits_for_consumer }, &|_| false) {
        return bind(volume, claim);
    }
    if let Some(class) = state.default_class.as_ref().filter(|_| !has_class(claim)) {
        let mut claim = claim.clone();
        claim.spec.get_or_insert_default().storage_class_name = Some(class.clone());
        return Step::write(Write::Claim(Box::new(claim)));
    }
    let pending = set_claim_phase(claim, "Pending", None);
    if waits_for_consumer && !has_provisioning_node(claim) {
        let (reason, message) = match state.waiting_pods.as_slice() {
            [] => {
                ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned())
            }
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        };
        return Step::event(Note::normal(reason, message)).with_write(pending);
    }
    if class_of_claim(claim).is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return Step::event(Note::normal("FailedBinding", message)).with_write(pending);
    }
    provision(state).unwrap_or_else(|event| event.with_write(pending))
}

/// Asks the provisioner of the class for a volume.
fn provision(state: &State) -> Result<Step, Step> {
    let claim = &*state.claim;
    let failed = |message: String| Step::event(Note::warning("ProvisioningFailed", message));
    let Some(class) = state.class.as_deref() else {
        let class = class_of_claim(claim);
        return Err(failed(format!("storageclass.storage.k8s.io {class:?} not found")));
    };
    let provisioner = class.provisioner.as_str();
    if provisioner.starts_with("kubernetes.io/") {
        // Of the provisioners in the tree of Kubernetes none is left here, and `no-provisioner` never was one.
        let message = format!("no volume plugin matched name: {provisioner}");
        return Err(failed(message));
    }
    let is_set = |key: &str| annotation(&claim.metadata, key) == Some(provisioner);
    let keys = [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER];
    if !keys.into_iter().all(is_set) {
        let mut claim = claim.clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        for key in keys {
            annotations.insert(key.to_owned(), provisioner.to_owned());
        }
        return Ok(Step::write(Write::Claim(Box::new(claim))));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    Err(Step::event(Note::normal("ExternalProvisioning", message)))
}

/// A claim that names a volume, and was never bound.
fn names_volume(state: &State) -> Step {
    let claim = &*state.claim;
    let pending = || set_claim_phase(claim, "Pending", None);
    let Some(volume) = state.volume.as_deref() else {
        return Step::default().with_write(pending());
    };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let is_claimed = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
    if !is_claimed {
        return match mismatch(volume, claim) {
            None => bind(volume, claim),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {name:?}: {}", why.message());
                Step::event(Note::warning("VolumeMismatch", message)).with_write(pending())
            }
        };
    }
    if is_bound_to(volume, claim) {
        return bind(volume, claim);
    }
    let message = format!("volume {name:?} already bound to a different claim.");
    Step::event(Note::warning("FailedBinding", message)).with_write(pending())
}

/// A claim that was bound once.
fn bound(state: &State) -> Step {
    let claim = &*state.claim;
    if volume_name(claim).is_empty() {
        return lost(
            claim,
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = state.volume.as_deref() else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost(claim, "ClaimLost", message);
    };
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match owner {
        Some(owner) if owner.uid != claim.metadata.uid => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost(claim, "ClaimMisbound", message)
        }
        _ => bind(volume, claim),
    }
}

fn lost(claim: &PersistentVolumeClaim, reason: &'static str, message: &str) -> Step {
    match set_claim_phase(claim, "Lost", None) {
        // The event comes with the change of the phase, once.
        Some(write) => {
            Step { events: vec![(About::Claim, Note::warning(reason, message))], write: Some(write) }
        }
        None => Step::default(),
    }
}

/// The next write of a binding: first the volume refers to the claim, then the claim to the volume.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Step {
    let write = refer_to_claim(volume, claim)
        .map(|volume| Write::Volume(Box::new(volume)))
        .or_else(|| set_volume_phase(volume, "Bound", ""))
        .or_else(|| refer_to_volume(claim, volume))
        .or_else(|| set_claim_phase(claim, "Bound", Some(volume)));
    Step::default().with_write(write)
}

fn refer_to_volume(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Write> {
    let refers = Some(volume_name(claim)) == volume.metadata.name.as_deref();
    if refers && annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return None;
    }
    let mut claim = claim.clone();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
    if !refers {
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        claim.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
    }
    Some(Write::Claim(Box::new(claim)))
}

/// The write of a claim's phase; what a volume offers is shown with it. `None` if the status is so already.
fn set_claim_phase(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<Write> {
    let before = claim.status.clone().unwrap_or_default();
    let is_new = before.phase.as_deref() != Some(phase);
    let offered = volume.and_then(|volume| volume.spec.as_ref());
    let capacity = match offered {
        None => None,
        // The capacity of a bound claim is that of a completed expansion, which the volume's own may precede.
        Some(_) if !is_new && before.capacity.is_some() => before.capacity.clone(),
        Some(offered) => offered.capacity.clone(),
    };
    let after = PersistentVolumeClaimStatus {
        phase: Some(phase.to_owned()),
        access_modes: offered.and_then(|offered| offered.access_modes.clone()),
        capacity,
        ..before.clone()
    };
    if after == before {
        return None;
    }
    Some(Write::ClaimStatus(Box::new(PersistentVolumeClaim { status: Some(after), ..claim.clone() })))
}
