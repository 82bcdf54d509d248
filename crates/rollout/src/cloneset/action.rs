//! The actions of a decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::Value;

use crate::api::cloneset::CloneSetStatus;
use crate::engine::Plan;

/// Something to be done. Actions about different pods do not depend on each other: one that fails does not stop the others.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a revision.
    CreateRevision(Box<ControllerRevision>),
    /// Update a revision, unless it was written meanwhile.
    UpdateRevision(Box<ControllerRevision>),
    /// Delete a revision.
    DeleteRevision(Arc<ControllerRevision>),
    /// Create those claims of a pod that are missing, then the pod.
    CreatePod {
        /// The pod.
        pod: Box<Pod>,
        /// Its claims.
        claims: Vec<PersistentVolumeClaim>,
    },
    /// Delete a pod, then its claims.
    DeletePod {
        /// The pod.
        pod: Arc<Pod>,
        /// Its claims.
        claims: Vec<Arc<PersistentVolumeClaim>>,
    },
    /// Delete a claim that no pod uses any more.
    DeleteClaim(Arc<PersistentVolumeClaim>),
    /// Patch a pod (strategic merge), if it still has this uid.
    PatchPod {
        /// The pod.
        pod: Arc<Pod>,
        /// The patch.
        patch: Value,
        /// Its purpose.
        purpose: Purpose,
    },
    /// Patch the status of a pod (strategic merge).
    PatchPodStatus {
        /// The pod.
        pod: Arc<Pod>,
        /// The patch.
        patch: Value,
    },
    /// Take a step of an in-place update: make the pod unready first, if the patch of its status is given.
    UpdatePod {
        /// The pod.
        pod: Arc<Pod>,
        /// The patch of its status.
        unready: Option<Value>,
        /// The writes.
        plan: Box<Plan>,
    },
    /// Patch the set itself (merge), unless it was written meanwhile.
    PatchSet(Value),
}

/// The purpose of a patch of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its lifecycle state.
    Lifecycle,
    /// The pod is to be recreated for an update.
    Recreate,
}

impl Action {
    /// The pod that an action is about, unless it creates one.
    pub fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Self::DeletePod { pod, .. }
            | Self::PatchPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::UpdatePod { pod, .. } => Some(pod),
            _ => None,
        }
    }

    /// Whether it creates or deletes pods, or holds one before its deletion.
    pub fn scales(&self) -> bool {
        match self {
            Self::CreatePod { .. } | Self::DeletePod { .. } => true,
            Self::PatchPod { patch, purpose, .. } => {
                let state = &patch["metadata"]["labels"][super::keys::STATE];
                *purpose == Purpose::Lifecycle && *state == super::lifecycle::State::PreparingDelete.name()
            }
            _ => false,
        }
    }
}

/// An event about the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// Why it happened, in one word.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The actions, the status, and when to decide again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The actions.
    pub actions: Vec<Action>,
    /// The status, if it is another one.
    pub status: Option<CloneSetStatus>,
    /// Events.
    pub notes: Vec<Note>,
    /// Why nodes have not updated pods in place, by uid.
    pub stuck: BTreeMap<String, String>,
    /// Whether pods are to be updated, once it is known whether the API server would admit a pod of the template.
    pub unchecked: bool,
    /// When to decide again, even without a change.
    pub due: Option<Timestamp>,
}

impl Decision {
    /// Emits an event, unless the decision has the same one.
    pub(super) fn say(&mut self, note: Option<Note>) {
        self.notes.extend(note.filter(|note| !self.notes.contains(note)));
    }

    /// Decides again at this time, or earlier.
    pub(super) fn wake_at(&mut self, when: Option<Timestamp>) {
        self.due = [self.due, when].into_iter().flatten().min();
    }
}
