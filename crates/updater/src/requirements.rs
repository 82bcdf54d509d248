//! `evictionRequirements` of a VPA: which changes are worth an eviction. They bind evictions alone; an in-place
//! update is no disruption.

use plumb_resize::resource::Resource;
use plumb_resize::status::Stage;
use plumb_vpa_api::{EvictionChangeRequirement, EvictionRequirement};

use crate::state::{ContainerState, PodState, Recommendation};

/// Whether a pod may be evicted for a recommendation: a container satisfies all requirements, or lacks a request.
pub fn admit_eviction(
    pod: &PodState,
    recommendation: &Recommendation,
    requirements: &[EvictionRequirement],
) -> bool {
    requirements.is_empty()
        || pod.containers.iter().any(|container| {
            let requests = container.current(&pod.stage).requests;
            requests.any(|_, request| request.is_none())
                || requirements.iter().all(|one| holds(one, container, &pod.stage, recommendation))
        })
}

/// Whether any of the resources of a requirement changes in its direction.
fn holds(
    requirement: &EvictionRequirement,
    container: &ContainerState,
    stage: &Stage,
    recommendation: &Recommendation,
) -> bool {
    let Some(wanted) = recommendation.get(&container.name) else { return false };
    let requests = container.current(stage).requests;
    requirement.resources.iter().filter_map(|name| Resource::named(name)).any(|resource| {
        let Some((request, target)) = requests[resource].zip(wanted.target[resource]) else { return false };
        match requirement.change_requirement {
            EvictionChangeRequirement::TargetHigherThanRequests => target > request,
            EvictionChangeRequirement::TargetLowerThanRequests => target < request,
            EvictionChangeRequirement::Other(_) => false,
        }
    })
}
