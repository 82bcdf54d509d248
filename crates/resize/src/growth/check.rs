//! Which resizes of a pod its node may request.

use std::fmt;

use super::bounds::GrowthBounds;
use crate::list::quantity_of;
use crate::pod::{PodResources, PodShape};
use crate::resource::{PerResource, Requirements, Resource};

/// Why a node may not request a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthViolation {
    /// Resources of the pod as a whole change.
    PodLevel,
    /// A resource of a container.
    Container {
        /// The container.
        container: String,
        /// The resource.
        resource: Resource,
        /// What is wrong with it.
        violation: ContainerViolation,
    },
}

/// Why a node may not change a resource of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerViolation {
    /// It may not grow.
    NotOptedIn,
    /// The limit is lowered, added or removed.
    NotUpward,
    /// The limit is above its maximum.
    AboveMaximum {
        /// The limit.
        limit: i64,
        /// The maximum.
        maximum: i64,
    },
    /// The request is lowered, or raised by more than the limit.
    Request,
}

impl fmt::Display for GrowthViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Container { container, resource, violation } = self else {
            return f.write_str("the resources of the pod as a whole must not change");
        };
        match violation {
            ContainerViolation::NotOptedIn => {
                write!(f, "container {container:?} has no maximum up to which its {resource} may grow")
            }
            ContainerViolation::NotUpward => {
                write!(f, "the {resource} limit of container {container:?} may only be raised")
            }
            ContainerViolation::AboveMaximum { limit, maximum } => write!(
                f,
                "the {resource} limit {} of container {container:?} is above its maximum {}",
                quantity_of(*resource, *limit),
                quantity_of(*resource, *maximum)
            ),
            ContainerViolation::Request => write!(
                f,
                "the {resource} request of container {container:?} may be raised by as much as its limit, and no more"
            ),
        }
    }
}

/// Checks a resize that a node requests for its own pod: only limits of containers grow, within the bounds of their resource,
/// and requests by as much as limits at most. A resource without bounds must not change.
pub fn check(
    shape: &PodShape,
    old: &PodResources,
    new: &PodResources,
    bounds: &PerResource<Option<GrowthBounds>>,
) -> Result<(), GrowthViolation> {
    if old.pod != new.pod {
        return Err(GrowthViolation::PodLevel);
    }
    for ((part, old), new) in shape.containers.iter().zip(&old.containers).zip(&new.containers) {
        for resource in Resource::ALL {
            let maximum = bounds[resource].as_ref().and_then(|bounds| bounds.maximum(&part.name));
            check_container(resource, *old, *new, maximum).map_err(|violation| {
                GrowthViolation::Container { container: part.name.clone(), resource, violation }
            })?;
        }
    }
    Ok(())
}

fn check_container(
    resource: Resource,
    old: Requirements,
    new: Requirements,
    maximum: Option<i64>,
) -> Result<(), ContainerViolation> {
    if old.of(resource) == new.of(resource) {
        return Ok(());
    }
    let Some(maximum) = maximum else { return Err(ContainerViolation::NotOptedIn) };
    let ((old_request, old_limit), (new_request, new_limit)) = (old.of(resource), new.of(resource));
    let (Some(from), Some(to)) = (old_limit, new_limit) else { return Err(ContainerViolation::NotUpward) };
    if to <= from {
        return Err(ContainerViolation::NotUpward);
    }
    if to > maximum {
        return Err(ContainerViolation::AboveMaximum { limit: to, maximum });
    }
    match (old_request, new_request) {
        (None, None) => Ok(()),
        (Some(before), Some(after)) if before <= after && after - before <= to - from => Ok(()),
        _ => Err(ContainerViolation::Request),
    }
}
