//! The allocation of a pod by its status, for a node that has no record of it: the pod is new, or the record was lost.
//!
//! A status has allocated requests and actual limits, but no allocated limits. So a limit is that of the spec where the
//! node had accepted the spec, and else the actual one, or the request where the spec has both equal.

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::allocation::Allocation;
use super::read::{Reading, Values, read};
use super::{PENDING, condition};
use crate::pod::{PodResources, container_status, containers};
use crate::resource::{Declared, Requirements, Resource};

/// The allocation that a new pod is admitted with: the minimum of the resources that the API server allocated at its
/// creation and of the requests in its spec now. If the requests have grown meanwhile, that is a resize, which is
/// decided once the pod is admitted.
///
/// Without allocated resources in the status, it is the spec.
pub fn at_admission(pod: &Pod, desired: &PodResources) -> Allocation {
    let (Ok(reading), Some(reported)) = (read(pod), Reported::of(pod)) else {
        return Allocation::new(desired.clone(), generation(pod));
    };
    let smaller = |values: &Values, allocated: Declared| {
        let desired = values.desired;
        // Later requests were not allocated.
        let requests = Declared::of(|r| desired.requests[r].min(allocated[r]));
        Requirements { requests, limits: equal_limits(desired, requests) }
    };
    let allocated = reported.resources(&reading, smaller);
    let generation = accepted_generation(pod, &allocated, desired);
    Allocation::new(allocated, generation)
}

/// The allocation of a pod that its node had admitted before, with its pending resize and the error of its actuation.
/// Desired resources that the node had not accepted are never part of it.
pub fn recovered(pod: &Pod, desired: &PodResources) -> Allocation {
    let (Ok(reading), Some(reported)) = (read(pod), Reported::of(pod)) else {
        return Allocation::new(desired.clone(), generation(pod));
    };
    let allocated = if is_accepted(pod, &reading, &reported) {
        desired.clone()
    } else {
        reported.resources(&reading, |values, requests| {
            let limits = values.actual.map_or_else(
                || equal_limits(values.desired, requests),
                // While a growth is in progress, the actual limit may be below the allocated request.
                |actual| Declared::of(|r| actual.limits[r].map(|limit| limit.max(requests[r].unwrap_or(0)))),
            );
            Requirements { requests, limits }
        })
    };
    let Reading { pending, in_progress, .. } = reading;
    Allocation {
        generation: in_progress
            .as_ref()
            .map_or_else(|| accepted_generation(pod, &allocated, desired), |progress| progress.generation),
        pending: pending.filter(|_| allocated != *desired),
        error: in_progress.and_then(|progress| progress.error),
        allocated,
    }
}

/// The allocated resources in a status.
struct Reported {
    /// By container; `None` for one that has no status.
    requests: Vec<Option<Declared>>,
    /// At pod level.
    pod: Option<Declared>,
}

impl Reported {
    /// The allocated resources in a pod's status; `None` if it has none at all. Only a BestEffort pod has none by
    /// itself, and that cannot be resized.
    fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let requests = PodResources::allocated_requests(spec, status).ok()?;
        let pod = read(pod).ok()?.pod.and_then(|values| values.allocated);
        if requests.iter().all(Option::is_none) && pod.is_none() {
            return None;
        }
        // A container that has a status without allocated resources had no requests.
        let has_status: Vec<bool> = containers(spec)
            .map(|(role, container)| container_status(status, role, &container.name).is_some())
            .collect();
        let requests = requests.into_iter().zip(has_status);
        let requests =
            requests.map(|(requests, has_status)| requests.or(has_status.then_some(Declared::NONE)));
        Some(Self { requests: requests.collect(), pod })
    }

    /// The resources of a pod, computed from its allocated requests; those of the spec where the status has none.
    fn resources(&self, reading: &Reading, of: impl Fn(&Values, Declared) -> Requirements) -> PodResources {
        let part = |values: &Values, allocated: Option<Declared>| {
            allocated.map_or(values.desired, |allocated| of(values, allocated))
        };
        let containers = reading.containers.iter().zip(&self.requests);
        PodResources {
            containers: containers.map(|(reading, allocated)| part(&reading.values, *allocated)).collect(),
            // Pod-level resources that the status does not have were added to the spec since.
            pod: reading.pod.zip(self.pod).map(|(values, allocated)| of(&values, allocated)),
        }
    }
}

/// Whether the node has accepted the spec: it has observed it, has no resize pending, and has allocated its requests.
fn is_accepted(pod: &Pod, reading: &Reading, reported: &Reported) -> bool {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let same = |values: &Values, allocated: &Option<Declared>| {
        allocated.is_none_or(|allocated| allocated == values.desired.requests)
    };
    status.observed_generation.is_some_and(|observed| observed >= generation(pod))
        && condition(status, PENDING).is_none()
        && reading.containers.iter().zip(&reported.requests).all(|(reading, one)| same(&reading.values, one))
        && reading.pod.is_none_or(|values| same(&values, &reported.pod))
}

/// The limits of the spec, but with the request where both are equal in the spec.
fn equal_limits(desired: Requirements, requests: Declared) -> Declared {
    let limit = |r: Resource| match (desired.requests[r], desired.limits[r]) {
        (Some(request), Some(limit)) if request == limit => requests[r],
        (_, limit) => limit,
    };
    Declared::of(limit)
}

fn generation(pod: &Pod) -> i64 {
    pod.metadata.generation.unwrap_or(0)
}

/// The generation of the spec that was allocated: the latest, or one before it that the node has observed.
fn accepted_generation(pod: &Pod, allocated: &PodResources, desired: &PodResources) -> i64 {
    let generation = generation(pod);
    if allocated == desired {
        return generation;
    }
    let observed = pod.status.as_ref().and_then(|status| status.observed_generation);
    observed.unwrap_or(1).min(generation.saturating_sub(1))
}
