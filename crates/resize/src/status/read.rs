//! Reading where a resize stands, from any pod, whoever runs it.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::allocation::{Pending, Refusal};
use super::projection::InProgress;
use super::word::ResizeWord;
use super::{ERROR, IN_PROGRESS, PENDING, condition};
use crate::list::{BadQuantity, declared};
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
    /// The values of the containers, in the order of the shape.
    pub containers: Vec<ContainerReading>,
    /// The values of the pod as a whole, where it declares any.
    pub pod: Option<Values>,
}

/// What can be read of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerReading {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// The values of a container, or of a pod as a whole, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// What the spec asks for.
    pub desired: Requirements,
    /// The requests that are promised, if the status says.
    pub allocated: Option<Declared>,
    /// What is in force, if the status says.
    pub actual: Option<Requirements>,
}

impl Values {
    /// Whether something else is promised than what is desired, as far as the status says.
    fn is_untaken(&self) -> bool {
        self.allocated.is_some_and(|allocated| allocated != self.desired.requests)
    }

    /// Whether something else is in force than what is desired, as far as the status says.
    fn is_elsewhere(&self) -> bool {
        self.actual.is_some_and(|actual| actual != self.desired)
    }
}

/// Reads where a pod's resize stands.
///
/// Conditions are read first, since every node publishes them, then the word, then the values themselves. An
/// answer to an older generation is not an answer to the latest.
pub fn read(pod: &Pod) -> Result<Reading, BadQuantity> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let containers = read_containers(pod, status)?;
    let pod_level = read_pod_level(pod, status)?;
    let pending = condition(status, PENDING);
    let in_progress = condition(status, IN_PROGRESS);
    let word = status.resize.as_deref().filter(|word| !word.is_empty()).map(ResizeWord::read);
    let generation = pod.metadata.generation.unwrap_or(0);
    let stage = stage(status, generation, word, &containers, pod_level);
    let says_so = match &stage {
        Stage::Settled | Stage::Proposed => None,
        Stage::InProgress | Stage::Failing { .. } => in_progress,
        Stage::Deferred { .. } | Stage::Infeasible { .. } => pending,
    };
    Ok(Reading {
        stage,
        since: says_so.and_then(|condition| condition.last_transition_time.clone()),
        pending: pending.map(read_pending),
        in_progress: in_progress.map(read_in_progress),
        word,
        containers,
        pod: pod_level,
    })
}

fn stage(
    status: &PodStatus,
    generation: i64,
    word: Option<ResizeWord>,
    containers: &[ContainerReading],
    pod: Option<Values>,
) -> Stage {
    if has_ended(Some(status)) {
        return Stage::Settled;
    }
    let current =
        |condition: &PodCondition| condition.observed_generation.is_none_or(|seen| seen >= generation);
    if let Some(pending) = condition(status, PENDING) {
        return match read_pending(pending) {
            _ if !current(pending) || word == Some(ResizeWord::Proposed) => Stage::Proposed,
            Pending { refusal: Refusal::Infeasible, message, .. } => Stage::Infeasible { message },
            Pending { refusal: Refusal::Deferred, message, .. } => Stage::Deferred { message },
        };
    }
    let values = || containers.iter().map(|container| container.values).chain(pod);
    let untaken = || values().any(|values| values.is_untaken());
    let looked_at = status.observed_generation.map(|seen| seen >= generation);
    if let Some(in_progress) = condition(status, IN_PROGRESS) {
        // It speaks of the generation that was promised, which may be older because nothing that a resize
        // changes has changed since.
        let overtaken = || !current(in_progress) && (looked_at == Some(false) || untaken());
        if word == Some(ResizeWord::Proposed) || overtaken() {
            return Stage::Proposed;
        }
        return match read_in_progress(in_progress).error {
            Some(message) => Stage::Failing { message },
            None => Stage::InProgress,
        };
    }
    let message = || "the node gave no reason".to_owned();
    match (word, looked_at) {
        (Some(ResizeWord::Proposed), _) => Stage::Proposed,
        (Some(ResizeWord::InProgress), _) => Stage::InProgress,
        (Some(ResizeWord::Deferred), _) => Stage::Deferred { message: message() },
        (Some(ResizeWord::Infeasible), _) => Stage::Infeasible { message: message() },
        (None, _) if untaken() => Stage::Proposed,
        (None, Some(false)) if values().any(|values| values.is_elsewhere()) => Stage::Proposed,
        // Whoever has looked and announces nothing is done, though what it reads back may be a little off:
        // some set a quota in coarse steps. Whoever does not say what it has looked at may be on its way.
        (None, None) if containers.iter().any(|container| container.values.is_elsewhere()) => {
            Stage::InProgress
        }
        (None, _) => Stage::Settled,
    }
}

/// The values of the pod as a whole. A kubelet counts the overhead into the requests that are allocated; it is
/// taken out again.
fn read_pod_level(pod: &Pod, status: &PodStatus) -> Result<Option<Values>, BadQuantity> {
    let Some(spec) = &pod.spec else { return Ok(None) };
    let Some(desired) = PodResources::desired(spec)?.pod else { return Ok(None) };
    let overhead = declared(spec.overhead.as_ref())?.amounts();
    let (allocated, actual) = PodResources::pod_level(status)?;
    let allocated = allocated.map(|allocated| {
        Declared::of(|r| {
            let wanted = desired.requests[r]?;
            let with_overhead = wanted.saturating_add(overhead[r]);
            if allocated[r] == Some(with_overhead) { Some(wanted) } else { allocated[r] }
        })
    });
    Ok(Some(Values { desired, allocated, actual }))
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
            values: Values { desired, allocated, actual },
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
