//! The allocation of one pod, with its pending resize.

use serde::{Deserialize, Serialize};

use crate::admission::Verdict;
use crate::pod::PodResources;

/// The allocation of a pod, and its pending resize.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allocation {
    /// The allocated resources.
    pub allocated: PodResources,
    /// The generation of the spec that was allocated.
    pub generation: i64,
    /// The pending resize.
    pub pending: Option<Pending>,
    /// The error of the last actuation.
    pub error: Option<String>,
}

/// A resize that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pending {
    /// Whether it is deferred or infeasible.
    #[serde(rename = "refusal")]
    pub reason: PendingReason,
    /// A human-readable message.
    pub message: String,
    /// The generation of the spec that was not accepted.
    pub generation: i64,
}

/// Why a resize is pending: the reason of `PodResizePending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PendingReason {
    /// It does not fit now; it is retried when something changes on the node.
    Deferred,
    /// It can never fit; only another spec changes that.
    Infeasible,
}

impl PendingReason {
    /// The reason of the condition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// The outcome of a resize request; anything but `Unchanged` is worth an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeOutcome {
    /// It is allocated, and its actuation starts.
    Started,
    /// It is pending, for a new reason or for the first time.
    Pending(PendingReason),
    /// The desired resources are the allocated ones again; the pending resize was withdrawn.
    Withdrawn,
    /// No change.
    Unchanged,
}

impl Allocation {
    /// The allocation of a newly admitted pod.
    pub fn new(allocated: PodResources, generation: i64) -> Self {
        Self { allocated, generation, pending: None, error: None }
    }

    /// Records the verdict on the desired resources. If they do not fit, the allocation is unchanged; if they do, it is
    /// replaced and the error of the old one is cleared.
    ///
    /// `verdict` is called only if the desired resources differ from the allocated ones.
    pub fn decide(
        &mut self,
        desired: &PodResources,
        generation: i64,
        verdict: impl FnOnce(&PodResources) -> Verdict,
    ) -> ResizeOutcome {
        if *desired == self.allocated {
            return if self.pending.take().is_some() {
                ResizeOutcome::Withdrawn
            } else {
                ResizeOutcome::Unchanged
            };
        }
        let (reason, message) = match verdict(&self.allocated) {
            Verdict::Fits => {
                *self = Self::new(desired.clone(), generation);
                return ResizeOutcome::Started;
            }
            Verdict::Deferred(why) => (PendingReason::Deferred, why.to_string()),
            Verdict::Infeasible(why) => (PendingReason::Infeasible, why.to_string()),
        };
        let known = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.reason == reason && pending.generation == generation);
        self.pending = Some(Pending { reason, message, generation });
        if known { ResizeOutcome::Unchanged } else { ResizeOutcome::Pending(reason) }
    }

    /// Records an error of the actuation. It stays until the actuation succeeds, or the allocation is replaced.
    pub fn failed(&mut self, message: impl Into<String>) {
        self.error = Some(message.into());
    }

    /// Records that the allocation is actual.
    pub fn actuated(&mut self) {
        self.error = None;
    }
}
