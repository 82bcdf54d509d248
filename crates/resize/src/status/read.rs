//! Reading the status of a resize from any pod, of Plumb's nodes and of kubelets.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::allocation::{Pending, PendingReason};
use super::projection::InProgress;
use super::resize_status::PodResizeStatus;
use super::{ERROR, IN_PROGRESS, PENDING, condition};
use crate::list::{BadQuantity, declared};
use crate::pod::{PodResources, containers, has_ended};
use crate::resource::{Declared, Requirements};

/// The stage of a pod's latest resize.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It is applied; no resize is in progress.
    Applied,
    /// The node has not decided yet.
    Proposed,
    /// The node has allocated it and is actuating it.
    InProgress,
    /// The node has allocated it, but its actuation failed and is retried.
    Failing {
        /// The error.
        message: String,
    },
    /// It does not fit now. (Also the meaning of an unknown status or reason.)
    Deferred {
        /// Why.
        message: String,
    },
    /// It can never fit this node.
    Infeasible {
        /// Why.
        message: String,
    },
}

impl Stage {
    /// Whether it is final: applied or infeasible.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Applied | Self::Infeasible { .. })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied => f.write_str("applied"),
            Self::Proposed => f.write_str("proposed: the node has not answered yet"),
            Self::InProgress => f.write_str("in progress: allocated, and being actuated"),
            Self::Failing { message } => write!(f, "failing: {message}"),
            Self::Deferred { message } => write!(f, "deferred: {message}"),
            Self::Infeasible { message } => write!(f, "infeasible: {message}"),
        }
    }
}

/// The status of a pod's resize.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its stage.
    pub stage: Stage,
    /// Since when, if the status has it.
    pub since: Option<Time>,
    /// Whether the condition behind the stage has no generation, and may be about an earlier spec.
    pub without_generation: bool,
    /// The pending resize.
    pub pending: Option<Pending>,
    /// The allocation that is being actuated, which may be an older one.
    pub in_progress: Option<InProgress>,
    /// `status.resize`, where it is published.
    pub resize_status: Option<PodResizeStatus>,
    /// The values of the containers, in the order of the shape.
    pub containers: Vec<ContainerReading>,
    /// The pod-level values, if there are any.
    pub pod: Option<Values>,
}

/// The values of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerReading {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// The values of a container, or at pod level, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// The resources in the spec.
    pub desired: Requirements,
    /// The allocated requests, if the status has them.
    pub allocated: Option<Declared>,
    /// The actual resources, if the status has them.
    pub actual: Option<Requirements>,
}

impl Values {
    /// Whether the allocated requests differ from the desired ones, as far as the status has them.
    fn is_untaken(&self) -> bool {
        self.allocated.is_some_and(|allocated| allocated != self.desired.requests)
    }

    /// Whether the desired resources are the allocated and the actual ones.
    fn is_held(&self) -> bool {
        self.allocated == Some(self.desired.requests) && self.actual == Some(self.desired)
    }

    /// Whether the actual resources differ from the desired ones, as far as the status has them.
    fn is_elsewhere(&self) -> bool {
        self.actual.is_some_and(|actual| actual != self.desired)
    }
}

/// Reads the status of a pod's resize.
///
/// Conditions are read first, since every node publishes them, then `status.resize`, then the values themselves. A
/// condition of an older generation is not about the latest spec.
pub fn read(pod: &Pod) -> Result<Reading, BadQuantity> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let containers = read_containers(pod, status)?;
    let pod_level = read_pod_level(pod, status)?;
    let pending = condition(status, PENDING);
    let in_progress = condition(status, IN_PROGRESS);
    let word = status.resize.as_deref().filter(|word| !word.is_empty()).map(PodResizeStatus::read);
    let generation = pod.metadata.generation.unwrap_or(0);
    let stage = stage(status, generation, word, &containers, pod_level);
    let says_so = match &stage {
        Stage::Applied | Stage::Proposed => None,
        Stage::InProgress | Stage::Failing { .. } => in_progress,
        Stage::Deferred { .. } | Stage::Infeasible { .. } => pending,
    };
    Ok(Reading {
        stage,
        // Where `status.resize` is published, a new spec resets it.
        without_generation: word.is_none()
            && says_so.is_some_and(|condition| condition.observed_generation.is_none()),
        since: says_so.and_then(|condition| condition.last_transition_time.clone()),
        pending: pending.map(read_pending),
        in_progress: in_progress.map(read_in_progress),
        resize_status: word,
        containers,
        pod: pod_level,
    })
}

fn stage(
    status: &PodStatus,
    generation: i64,
    word: Option<PodResizeStatus>,
    containers: &[ContainerReading],
    pod: Option<Values>,
) -> Stage {
    if has_ended(Some(status)) {
        return Stage::Applied;
    }
    let current =
        |condition: &PodCondition| condition.observed_generation.is_none_or(|seen| seen >= generation);
    let values = || containers.iter().map(|container| container.values).chain(pod);
    // A kubelet of Kubernetes 1.33 sets no generation. The desired resources are not pending if they are the allocated and the
    // actual ones: the condition is about an earlier spec.
    let is_of_earlier_spec = |condition: &PodCondition| {
        condition.observed_generation.is_none()
            && !containers.is_empty()
            && values().all(|values| values.is_held())
    };
    if let Some(pending) = condition(status, PENDING) {
        return match read_pending(pending) {
            _ if !current(pending) || word == Some(PodResizeStatus::Proposed) => Stage::Proposed,
            _ if is_of_earlier_spec(pending) => Stage::Proposed,
            Pending { reason: PendingReason::Infeasible, message, .. } => Stage::Infeasible { message },
            Pending { reason: PendingReason::Deferred, message, .. } => Stage::Deferred { message },
        };
    }
    let untaken = || values().any(|values| values.is_untaken());
    let looked_at = status.observed_generation.map(|seen| seen >= generation);
    if let Some(in_progress) = condition(status, IN_PROGRESS) {
        // It has the allocated generation, which may be older because later changes were not to resources.
        let overtaken = || !current(in_progress) && (looked_at == Some(false) || untaken());
        if word == Some(PodResizeStatus::Proposed) || overtaken() {
            return Stage::Proposed;
        }
        return match read_in_progress(in_progress).error {
            Some(message) => Stage::Failing { message },
            None => Stage::InProgress,
        };
    }
    let message = || "the node gave no reason".to_owned();
    match (word, looked_at) {
        (Some(PodResizeStatus::Proposed), _) => Stage::Proposed,
        (Some(PodResizeStatus::InProgress), _) => Stage::InProgress,
        (Some(PodResizeStatus::Deferred), _) => Stage::Deferred { message: message() },
        (Some(PodResizeStatus::Infeasible), _) => Stage::Infeasible { message: message() },
        (None, _) if untaken() => Stage::Proposed,
        (None, Some(false)) if values().any(|values| values.is_elsewhere()) => Stage::Proposed,
        // A node that has observed the spec and publishes no condition is done, though the actual values may differ a
        // little: some set a quota in coarse steps. A node without an observed generation may still be busy.
        (None, None) if containers.iter().any(|container| container.values.is_elsewhere()) => {
            Stage::InProgress
        }
        (None, _) => Stage::Applied,
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
    let reason = match condition.reason.as_deref() {
        Some(reason) if reason == PendingReason::Infeasible.name() => PendingReason::Infeasible,
        _ => PendingReason::Deferred,
    };
    Pending {
        reason,
        message: condition.message.clone().unwrap_or_default(),
        generation: condition.observed_generation.unwrap_or(0),
    }
}

fn read_in_progress(condition: &PodCondition) -> InProgress {
    let error =
        (condition.reason.as_deref() == Some(ERROR)).then(|| condition.message.clone().unwrap_or_default());
    InProgress { generation: condition.observed_generation.unwrap_or(0), error }
}
