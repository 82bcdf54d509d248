//! From what the node knows to what is shown.

use super::allocation::{Allocation, Pending, Refusal};
use super::word::ResizeWord;
use crate::pod::PodResources;
use crate::rules::Rules;

/// What is shown of a pod's resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Projection {
    /// What the pod is promised.
    pub allocated: PodResources,
    /// What is in force; for a container that does not run, what it is promised.
    pub actual: PodResources,
    /// The condition `PodResizePending`.
    pub pending: Option<Pending>,
    /// The condition `PodResizeInProgress`.
    pub in_progress: Option<InProgress>,
    /// `status.resize`, where the rules publish it.
    pub word: Option<ResizeWord>,
    /// The generation of the spec that the node has looked at.
    pub observed_generation: i64,
}

/// A promise that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InProgress {
    /// The generation of the spec that was promised. It stays while newer specs come and are refused.
    pub generation: i64,
    /// What went wrong at the last attempt.
    pub error: Option<String>,
}

/// Works out what is to be shown.
///
/// `desired` is the spec at `generation`, which the node has looked at; `actual` is what the runtime reports.
pub fn project(
    allocation: &Allocation,
    desired: &PodResources,
    generation: i64,
    actual: &PodResources,
    rules: &Rules,
) -> Projection {
    // With the feature switched off, nothing carries it out.
    let in_progress = (*actual != allocation.allocated && rules.resize)
        .then(|| InProgress { generation: allocation.generation, error: allocation.error.clone() });
    let untaken = *desired != allocation.allocated;
    let pending = allocation.pending.as_ref().filter(|_| untaken);
    // An answer to an older spec stays shown, with its generation, but the word speaks of the latest.
    let word = match pending.filter(|pending| pending.generation == generation) {
        Some(Pending { refusal: Refusal::Infeasible, .. }) => Some(ResizeWord::Infeasible),
        Some(Pending { refusal: Refusal::Deferred, .. }) => Some(ResizeWord::Deferred),
        None if untaken => Some(ResizeWord::Proposed),
        None => in_progress.is_some().then_some(ResizeWord::InProgress),
    };
    Projection {
        allocated: allocation.allocated.clone(),
        actual: actual.clone(),
        pending: pending.cloned(),
        in_progress,
        word: word.filter(|_| rules.resize_word),
        observed_generation: generation,
    }
}
