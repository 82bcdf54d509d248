//! Which resizes of a pod its node may request.

use std::fmt;

use super::bounds::GrowthBounds;
use crate::list::quantity_of;
use crate::pod::{PodResources, PodShape};
use crate::resource::{Requirements, Resource};

/// Why a node may not request a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthViolation {
    /// Resources of the pod as a whole change.
    PodLevel,
    /// A container's CPU changes.
    Cpu {
        /// The container.
        container: String,
    },
    /// A container that may not grow changes.
    NotOptedIn {
        /// The container.
        container: String,
    },
    /// A memory limit is lowered, added or removed.
    NotUpward {
        /// The container.
        container: String,
    },
    /// A memory limit is above its maximum.
    AboveMaximum {
        /// The container.
        container: String,
        /// The limit.
        limit: i64,
        /// The maximum.
        maximum: i64,
    },
    /// A memory request is lowered, or raised by more than its limit.
    Request {
        /// The container.
        container: String,
    },
}

impl fmt::Display for GrowthViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = |amount: i64| quantity_of(Resource::Memory, amount);
        match self {
            Self::PodLevel => f.write_str("the resources of the pod as a whole must not change"),
            Self::Cpu { container } => write!(f, "the cpu of container {container:?} must not change"),
            Self::NotOptedIn { container } => {
                write!(f, "container {container:?} has no maximum up to which it may grow")
            }
            Self::NotUpward { container } => {
                write!(f, "the memory limit of container {container:?} may only be raised")
            }
            Self::AboveMaximum { container, limit, maximum } => write!(
                f,
                "the memory limit {} of container {container:?} is above its maximum {}",
                memory(*limit),
                memory(*maximum)
            ),
            Self::Request { container } => write!(
                f,
                "the memory request of container {container:?} may be raised by as much as its limit, and no more"
            ),
        }
    }
}

/// Checks a resize that a node requests for its own pod: only memory limits grow, within the bounds, and requests by as
/// much as limits at most.
pub fn check(
    shape: &PodShape,
    old: &PodResources,
    new: &PodResources,
    bounds: &GrowthBounds,
) -> Result<(), GrowthViolation> {
    if old.pod != new.pod {
        return Err(GrowthViolation::PodLevel);
    }
    for ((part, old), new) in shape.containers.iter().zip(&old.containers).zip(&new.containers) {
        if old != new {
            container(&part.name, *old, *new, bounds.maximum(&part.name))?;
        }
    }
    Ok(())
}

fn container(
    name: &str,
    old: Requirements,
    new: Requirements,
    maximum: Option<i64>,
) -> Result<(), GrowthViolation> {
    let container = name.to_owned();
    if old.of(Resource::Cpu) != new.of(Resource::Cpu) {
        return Err(GrowthViolation::Cpu { container });
    }
    let Some(maximum) = maximum else { return Err(GrowthViolation::NotOptedIn { container }) };
    let ((old_request, old_limit), (new_request, new_limit)) =
        (old.of(Resource::Memory), new.of(Resource::Memory));
    let (Some(from), Some(to)) = (old_limit, new_limit) else {
        return Err(GrowthViolation::NotUpward { container });
    };
    if to <= from {
        return Err(GrowthViolation::NotUpward { container });
    }
    if to > maximum {
        return Err(GrowthViolation::AboveMaximum { container, limit: to, maximum });
    }
    match (old_request, new_request) {
        (None, None) => Ok(()),
        (Some(before), Some(after)) if before <= after && after - before <= to - from => Ok(()),
        _ => Err(GrowthViolation::Request { container }),
    }
}
