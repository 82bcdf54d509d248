//! The checker of plans: after every prefix of a plan, limits stay within limits.

use super::{CgroupState, Step, bound};
use crate::resource::{PerResource, Requirements, Resource};

/// A moment at which containers may use more than their pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {steps} steps the containers may use {containers} of {resource}, more than the pod's {pod}")]
pub struct Violation {
    /// How many steps of the plan had been carried out.
    pub steps: usize,
    /// The resource.
    pub resource: Resource,
    /// The limits of the containers.
    pub containers: i64,
    /// The limits of the pod.
    pub pod: i64,
}

/// Whether the containers' limits are within the pod's.
///
/// Where the pod declares a limit of its own (`declared_by_pod`), its containers share it: none may have
/// more, but they may add up to more. Elsewhere the pod's limit is their sum, and the sum is the rule.
pub fn check(now: &CgroupState, declared_by_pod: PerResource<bool>) -> Result<(), Violation> {
    for resource in Resource::ALL {
        let limits = now.containers.iter().flatten().map(|container| bound(container.limits[resource]));
        let containers = if declared_by_pod[resource] {
            limits.max().unwrap_or(0)
        } else {
            limits.fold(0, i64::saturating_add)
        };
        let pod = bound(now.pod.limits[resource]);
        if containers > pod {
            return Err(Violation { steps: 0, resource, containers, pod });
        }
    }
    Ok(())
}

/// Whether a container that is not running may be started with these resources now, which are those that
/// [`inherited`](super::inherited) gives: without the pod's limit it would be unlimited, and never safe.
///
/// Starting is not part of a plan, but of a container's life: it may have crashed, or a plan may have failed
/// between stopping it and starting it. See [`start_with`] for the resources of other starts.
pub fn start_is_safe(
    now: &CgroupState,
    container: usize,
    to: Requirements,
    declared_by_pod: PerResource<bool>,
) -> bool {
    let mut then = now.clone();
    then.apply(&Step::Start { container, to });
    check(&then, declared_by_pod).is_ok()
}

/// The resources with which a container that is not running starts now; `to` is its allocation, as
/// [`inherited`](super::inherited) returns it.
///
/// It starts with its allocation if the other containers leave that much of the pod's limits. While another container
/// has not shrunk yet, they do not, and that may last forever: then the container starts with the resources that were
/// last applied to it, or, if those are unknown or too much as well, with the rest of the pod's limits. Each resource
/// is decided separately. `None` if there is no rest.
pub fn start_with(
    now: &CgroupState,
    container: usize,
    to: Requirements,
    applied_before: Option<Requirements>,
    declared_by_pod: PerResource<bool>,
) -> Option<Requirements> {
    let mut start = to;
    for resource in Resource::ALL {
        let left = left_for(now, container, resource, declared_by_pod[resource]);
        let fits = |size: &Requirements| bound(size.limits[resource]) <= left;
        if fits(&to) {
            continue;
        }
        if left <= 0 {
            return None;
        }
        if let Some(before) = applied_before.filter(fits) {
            start = start.with(resource, before);
        } else {
            start.limits[resource] = Some(left);
            start.requests[resource] = to.requests[resource].map(|request| request.min(left));
        }
    }
    Some(start)
}

/// How much of the pod's limit is left for a container besides the other running ones.
fn left_for(now: &CgroupState, container: usize, resource: Resource, declared_by_pod: bool) -> i64 {
    let pod = bound(now.pod.limits[resource]);
    if declared_by_pod || pod == i64::MAX {
        return pod;
    }
    let others = now.containers.iter().enumerate().filter(|(i, _)| *i != container);
    let others = others.filter_map(|(_, other)| other.as_ref()).map(|other| bound(other.limits[resource]));
    pod.saturating_sub(others.fold(0, i64::saturating_add))
}

/// Whether a container that was stopped for a restart waits for the next step of a plan: the step stops another
/// container, after which both can start with their allocations.
pub fn start_waits(steps: &[Step]) -> bool {
    matches!(steps.first(), Some(Step::Stop { .. }))
}

/// Checks the start and every prefix of a plan.
pub fn check_prefixes(
    start: &CgroupState,
    steps: &[Step],
    declared_by_pod: PerResource<bool>,
) -> Result<(), Violation> {
    let mut now = start.clone();
    check(&now, declared_by_pod)?;
    for (done, step) in steps.iter().enumerate() {
        now.apply(step);
        check(&now, declared_by_pod).map_err(|violation| Violation { steps: done + 1, ..violation })?;
    }
    Ok(())
}
