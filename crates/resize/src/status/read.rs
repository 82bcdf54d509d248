//! Reading where a resize stands, from any pod, whoever runs it.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::allocation::{Pending, Refusal};
use super::projection::InProgress;
use super::word::ResizeWord;
use super::{ERROR, IN_PROGRESS, PENDING, condition};
use crate::list::BadQuantity;
use crate::pod::{PodResources, containers, has_ended};
use crate::resource::{Declared, Requirements};

/// Where the latest desired state of a pod stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It is in force; nothing is under way.
    Settled,
    /// The node has not answered yet.
    Proposed,
    /// The node has promised it and is carrying it out.
    InProgress,
    /// The node has promised it, but carrying it out failed; it tries again.
    Failing {
        /// What went wrong.
        message: String,
    },
    /// Not now. (Also what a word or a reason that is not known means.)
    Deferred {
        /// Why.
        message: String,
    },
    /// Never, on this node.
    Infeasible {
        /// Why.
        message: String,
    },
}

impl Stage {
    /// Whether waiting can still change it: not once it is settled or refused for good.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Settled | Self::Infeasible { .. })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("in force"),
            Self::Proposed => f.write_str("proposed: the node has not answered yet"),
            Self::InProgress => f.write_str("in progress: promised, and being carried out"),
            Self::Failing { message } => write!(f, "failing: {message}"),
            Self::Deferred { message } => write!(f, "deferred: {message}"),
            Self::Infeasible { message } => write!(f, "infeasible: {message}"),
        }
    }
}

/// What can be read of a pod's resize.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Where the latest desired state stands.
    pub stage: Stage,
    /// Since when, where the pod says so.
    pub since: Option<Time>,
    /// The desired state that was not taken.
    pub pending: Option<Pending>,
    /// The promise that is being carried out, which may be an older one.
    pub in_progress: Option<InProgress>,
    /// `status.resize`, where it is published.
    pub word: Option<ResizeWord>,
    /// The values side by side, in the order of the shape.
    pub containers: Vec<ContainerReading>,
}

/// The values of one container side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerReading {
    /// Its name.
    pub name: String,
    /// What the spec asks for.
    pub desired: Requirements,
    /// The requests that are promised, if the status says.
    pub allocated: Option<Declared>,
    /// What is in force, if the status says.
    pub actual: Option<Requirements>,
}

/// Reads where a pod's resize stands.
///
/// Conditions are read first, since every node publishes them, then the word, then the values themselves. An
/// answer to an older generation is not an answer to the latest.
pub fn read(pod: &Pod) -> Result<Reading, BadQuantity> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let containers = read_containers(pod, status)?;
    let pending = condition(status, PENDING);
    let in_progress = condition(status, IN_PROGRESS);
    let word = status.resize.as_deref().filter(|word| !word.is_empty()).map(ResizeWord::read);
    let generation = pod.metadata.generation.unwrap_or(0);
    let reading = Reading {
        stage: stage(status, generation, word, &containers),
        since: pending.or(in_progress).and_then(|condition| condition.last_transition_time.clone()),
        pending: pending.map(read_pending),
        in_progress: in_progress.map(read_in_progress),
        word,
        containers,
    };
    Ok(reading)
}

fn stage(
    status: &PodStatus,
    generation: i64,
    word: Option<ResizeWord>,
    containers: &[ContainerReading],
) -> Stage {
    if has_ended(Some(status)) {
        return Stage::Settled;
    }
    let current =
        |condition: &&PodCondition| condition.observed_generation.is_none_or(|seen| seen >= generation);
    if let Some(pending) = condition(status, PENDING) {
        return match read_pending(pending) {
            _ if !current(&pending) || word == Some(ResizeWord::Proposed) => Stage::Proposed,
            Pending { refusal: Refusal::Infeasible, message, .. } => Stage::Infeasible { message },
            Pending { refusal: Refusal::Deferred, message, .. } => Stage::Deferred { message },
        };
    }
    let untaken =
        || containers.iter().any(|c| c.allocated.is_some_and(|allocated| allocated != c.desired.requests));
    if let Some(in_progress) = condition(status, IN_PROGRESS) {
        if word == Some(ResizeWord::Proposed) || (!current(&in_progress) && untaken()) {
            return Stage::Proposed;
        }
        return match read_in_progress(in_progress).error {
            Some(message) => Stage::Failing { message },
            None => Stage::InProgress,
        };
    }
    let message = || "the node gave no reason".to_owned();
    match word {
        Some(ResizeWord::Proposed) => Stage::Proposed,
        Some(ResizeWord::InProgress) => Stage::InProgress,
        Some(ResizeWord::Deferred) => Stage::Deferred { message: message() },
        Some(ResizeWord::Infeasible) => Stage::Infeasible { message: message() },
        None if untaken() => Stage::Proposed,
        None if containers.iter().any(|c| c.actual.is_some_and(|actual| actual != c.desired)) => {
            // Nothing announced, but not there yet: a limit that the node has yet to look at, or an older node.
            if status.observed_generation.is_some_and(|seen| seen < generation) {
                Stage::Proposed
            } else {
                Stage::InProgress
            }
        }
        None => Stage::Settled,
    }
}

fn read_containers(pod: &Pod, status: &PodStatus) -> Result<Vec<ContainerReading>, BadQuantity> {
    let Some(spec) = &pod.spec else { return Ok(Vec::new()) };
    let desired = PodResources::desired(spec)?;
    let allocated = PodResources::allocated_requests(spec, status)?;
    let actual = PodResources::actual(spec, status)?;
    let values = desired.containers.into_iter().zip(allocated.into_iter().zip(actual));
    Ok(containers(spec)
        .zip(values)
        .map(|((_, container), (desired, (allocated, actual)))| ContainerReading {
            name: container.name.clone(),
            desired,
            allocated,
            actual,
        })
        .collect())
}

fn read_pending(condition: &PodCondition) -> Pending {
    let refusal = match condition.reason.as_deref() {
        Some(reason) if reason == Refusal::Infeasible.name() => Refusal::Infeasible,
        _ => Refusal::Deferred,
    };
    Pending {
        refusal,
        message: condition.message.clone().unwrap_or_default(),
        generation: condition.observed_generation.unwrap_or(0),
    }
}

fn read_in_progress(condition: &PodCondition) -> InProgress {
    let error =
        (condition.reason.as_deref() == Some(ERROR)).then(|| condition.message.clone().unwrap_or_default());
    InProgress { generation: condition.observed_generation.unwrap_or(0), error }
}
