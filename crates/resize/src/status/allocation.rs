//! What a node keeps of one pod: its promise, and what it has answered.

use serde::{Deserialize, Serialize};

use crate::admission::Verdict;
use crate::pod::PodResources;

/// The node's promise to a pod and its answer to what is desired beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allocation {
    /// What the pod is promised.
    pub allocated: PodResources,
    /// The generation of the spec that was promised.
    pub generation: i64,
    /// The answer to a desired state that was not taken.
    pub pending: Option<Pending>,
    /// What went wrong when the promise was last carried out.
    pub error: Option<String>,
}

/// A desired state that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pending {
    /// For now or for good.
    pub refusal: Refusal,
    /// Why, for the person who looks.
    pub message: String,
    /// The generation of the spec that was not taken.
    pub generation: i64,
}

/// For how long a desired state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// Until something changes on the node.
    Deferred,
    /// Until something else is desired.
    Infeasible,
}

impl Refusal {
    /// The reason of the condition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// What became of a desired state; anything but `Unchanged` is worth an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is promised, and carrying it out starts.
    Started,
    /// It was refused, for a new reason or for the first time.
    Refused(Refusal),
    /// It is what was promised all along; whatever was pending is not desired any more.
    Withdrawn,
    /// Nothing new.
    Unchanged,
}

impl Allocation {
    /// A pod that was taken as it came.
    pub fn new(allocated: PodResources, generation: i64) -> Self {
        Self { allocated, generation, pending: None, error: None }
    }

    /// Notes the verdict on a desired state. A refusal leaves the promise untouched; taking it replaces the
    /// promise and clears what went wrong with the old one.
    ///
    /// `verdict` is asked only when the desired state is not what is promised already.
    pub fn decide(
        &mut self,
        desired: &PodResources,
        generation: i64,
        verdict: impl FnOnce(&PodResources) -> Verdict,
    ) -> Outcome {
        if *desired == self.allocated {
            return if self.pending.take().is_some() { Outcome::Withdrawn } else { Outcome::Unchanged };
        }
        let (refusal, message) = match verdict(&self.allocated) {
            Verdict::Fits => {
                *self = Self::new(desired.clone(), generation);
                return Outcome::Started;
            }
            Verdict::Deferred(why) => (Refusal::Deferred, why.to_string()),
            Verdict::Infeasible(why) => (Refusal::Infeasible, why.to_string()),
        };
        let known = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.refusal == refusal && pending.generation == generation);
        self.pending = Some(Pending { refusal, message, generation });
        if known { Outcome::Unchanged } else { Outcome::Refused(refusal) }
    }

    /// Notes that carrying out the promise went wrong. It stays noted until it is carried out, or until
    /// there is another promise.
    pub fn failed(&mut self, message: impl Into<String>) {
        self.error = Some(message.into());
    }

    /// Notes that the promise is in force.
    pub fn carried_out(&mut self) {
        self.error = None;
    }
}
