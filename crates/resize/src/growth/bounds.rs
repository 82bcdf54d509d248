//! How far the limits of a pod may grow.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use crate::list::{amount_of, quantity_of};
use crate::quantity::{Quantity, QuantityError};
use crate::resource::Resource;

/// The annotation of a pod whose memory limits may grow under pressure. Its value is the maximum of each container's limit
/// (`512Mi`), or that of the containers that it names (`app=512Mi,proxy=64Mi`).
pub const MEMORY_PRESSURE_GROWTH: &str = "plumb.dev/memory-pressure-growth";

/// The annotation of a pod whose CPU limits may grow while a container is throttled and its node has idle CPU. Its value is the
/// maximum of each container's limit (`2`), or that of the containers that it names (`app=2,proxy=500m`).
pub const THROTTLING_GROWTH: &str = "plumb.dev/throttling-growth";

/// The annotation of a pod with the resources whose bounds of growth its VPA wrote, separated by commas; other bounds are its own.
pub const GROWTH_BOUNDS_FROM_VPA: &str = "plumb.dev/growth-bounds-from-vpa";

/// The annotations that say how far the limits of a pod may grow. A node must not change them.
pub const GROWTH_ANNOTATIONS: [&str; 3] = [MEMORY_PRESSURE_GROWTH, THROTTLING_GROWTH, GROWTH_BOUNDS_FROM_VPA];

/// The annotation with which a pod opts in to growth of its limits of a resource.
pub const fn annotation(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => THROTTLING_GROWTH,
        Resource::Memory => MEMORY_PRESSURE_GROWTH,
    }
}

/// How far the limits of a pod's containers may grow, for one resource.
///
/// ```
/// use plumb_resize::growth::GrowthBounds;
/// use plumb_resize::resource::Resource;
///
/// let all = GrowthBounds::parse(Resource::Memory, "512Mi").unwrap();
/// assert_eq!(all.maximum("any"), Some(512 << 20));
/// let some = GrowthBounds::parse(Resource::Cpu, "app=2, proxy=500m").unwrap();
/// assert_eq!((some.maximum("app"), some.maximum("other")), (Some(2000), None));
/// assert_eq!(some.to_string(), "app=2,proxy=500m");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthBounds {
    resource: Resource,
    maxima: Maxima,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Maxima {
    /// One maximum for each container.
    All(i64),
    /// The maximum of the containers that are named; others do not grow.
    Named(BTreeMap<String, i64>),
}

/// A value of the annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBounds {
    /// Not an amount of the resource.
    #[error("invalid amount of {resource} {text:?}")]
    Amount {
        /// The resource.
        resource: Resource,
        /// The text.
        text: String,
        /// Why not.
        source: QuantityError,
    },
    /// Zero or less.
    #[error("the maximum {0:?} is not above zero")]
    NotPositive(String),
    /// A container is named twice.
    #[error("container {0:?} is named twice")]
    Duplicate(String),
    /// A part without a name, beside others.
    #[error("{0:?} is not CONTAINER=AMOUNT")]
    Form(String),
}

impl GrowthBounds {
    /// One maximum for each container.
    pub fn all(resource: Resource, maximum: i64) -> Self {
        Self { resource, maxima: Maxima::All(maximum) }
    }

    /// The maximum of the containers that are named.
    pub fn named(resource: Resource, maxima: BTreeMap<String, i64>) -> Self {
        Self { resource, maxima: Maxima::Named(maxima) }
    }

    /// The bounds of a pod for a resource; none if it has not opted in.
    pub fn for_pod(pod: &Pod, resource: Resource) -> Option<Result<Self, InvalidBounds>> {
        let value = pod.metadata.annotations.as_ref()?.get(annotation(resource))?;
        Some(Self::parse(resource, value))
    }

    /// The maximum of a container's limit; none if it does not grow.
    pub fn maximum(&self, container: &str) -> Option<i64> {
        match &self.maxima {
            Maxima::All(maximum) => Some(*maximum),
            Maxima::Named(named) => named.get(container).copied(),
        }
    }

    /// Reads the value of an annotation.
    pub fn parse(resource: Resource, text: &str) -> Result<Self, InvalidBounds> {
        if !text.contains('=') {
            return Ok(Self::all(resource, amount(resource, text.trim())?));
        }
        let mut named = BTreeMap::new();
        for part in text.split(',') {
            let (name, maximum) =
                part.split_once('=').ok_or_else(|| InvalidBounds::Form(part.trim().to_owned()))?;
            let name = name.trim().to_owned();
            if name.is_empty() {
                return Err(InvalidBounds::Form(part.trim().to_owned()));
            }
            let maximum = amount(resource, maximum.trim())?;
            if named.insert(name.clone(), maximum).is_some() {
                return Err(InvalidBounds::Duplicate(name));
            }
        }
        Ok(Self::named(resource, named))
    }
}

fn amount(resource: Resource, text: &str) -> Result<i64, InvalidBounds> {
    let invalid = |source| InvalidBounds::Amount { resource, text: text.to_owned(), source };
    let quantity: Quantity = text.parse().map_err(invalid)?;
    let amount = amount_of(resource, quantity).map_err(invalid)?;
    if amount > 0 { Ok(amount) } else { Err(InvalidBounds::NotPositive(text.to_owned())) }
}

impl fmt::Display for GrowthBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantity = |amount: i64| quantity_of(self.resource, amount);
        match &self.maxima {
            Maxima::All(maximum) => quantity(*maximum).fmt(f),
            Maxima::Named(named) => {
                let parts: Vec<String> =
                    named.iter().map(|(name, maximum)| format!("{name}={}", quantity(*maximum))).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}
