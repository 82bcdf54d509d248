//! Persistent volumes and their claims.
//!
//! ```text
//!   claim ──▶ binder ──▶ Available volume: volume.claimRef ▸ Bound ▸ claim.volumeName ▸ Bound
//!               │
//!               └── none: the scheduler selects a node (WaitForFirstConsumer) ▸ storage-provisioner ──▶ provisioner: a volume
//!
//!   claim deleted ──▶ protection ──▶ binder: Released ──▶ Retain: stays ▸ Delete: the provisioner removes data and volume
//! ```
//!
//! | controller | module | upstream's |
//! |---|---|---|
//! | binds claims to volumes, and releases volumes | [`binder`] | `persistent-volume-binder` |
//! | attaches volumes to nodes, and detaches them | [`attach_detach`] | `attachdetach-controller` |
//! | creates the claims of generic ephemeral volumes | [`ephemeral`] | `ephemeral-volume-controller` |
//! | provisions directories of nodes, grows and removes them | [`local_path`] | Rancher's local-path-provisioner |
//!
//! Protection of claims and volumes in use is in [`crate::protection`]; what matches what in
//! [`plumb_placement::volumes`], which the scheduler shares.

pub mod attach_detach;
pub mod binder;
pub mod claim;
pub mod ephemeral;
pub mod local_path;
pub mod volume;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::workload::Note;

/// A write of the binder.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Update a volume.
    Volume(Box<PersistentVolume>),
    /// Update the status of a volume.
    VolumeStatus(Box<PersistentVolume>),
    /// Update a claim.
    Claim(Box<PersistentVolumeClaim>),
    /// Update the status of a claim.
    ClaimStatus(Box<PersistentVolumeClaim>),
}

/// Which object an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The claim.
    Claim,
    /// The volume.
    Volume,
}

/// One step of a binding: the decision is made anew once its write is observed, so that an interrupted binding continues
/// from what is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The events to emit.
    pub events: Vec<(About, Note)>,
    /// The next write; nothing is left to do without one.
    pub write: Option<Write>,
}

impl Step {
    /// A step that writes.
    fn write(write: Write) -> Self {
        Self { events: Vec::new(), write: Some(write) }
    }

    /// A step with an event about the claim.
    fn event(note: Note) -> Self {
        Self { events: vec![(About::Claim, note)], write: None }
    }

    /// The same with a write.
    fn with_write(self, write: Option<Write>) -> Self {
        Self { write, ..self }
    }
}

/// The phase of a volume.
fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The write of a phase of a volume; `None` if it has this phase and message.
fn set_volume_phase(volume: &PersistentVolume, phase: &str, message: &str) -> Option<Write> {
    let status = volume.status.clone().unwrap_or_default();
    if status.phase.as_deref() == Some(phase) && status.message.as_deref().unwrap_or_default() == message {
        return None;
    }
    let mut volume = volume.clone();
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    let status = volume.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    status.message = message;
    // The API server sets the time of a transition only if the client has left it alone.
    Some(Write::VolumeStatus(Box::new(volume)))
}
