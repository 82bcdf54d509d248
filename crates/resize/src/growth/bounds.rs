//! How far the limits of a pod may grow.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Pod;

use crate::list::{amount_of, quantity_of};
use crate::quantity::{Quantity, QuantityError};
use crate::resource::Resource;

/// The annotation of a pod whose memory limits may grow under pressure. Its value is the maximum of each container's limit
/// (`512Mi`), or that of the containers that it names (`app=512Mi,proxy=64Mi`).
pub const MEMORY_PRESSURE_GROWTH: &str = "plumb.dev/memory-pressure-growth";

/// How far the memory limits of a pod's containers may grow.
///
/// ```
/// use plumb_resize::growth::GrowthBounds;
///
/// let all: GrowthBounds = "512Mi".parse().unwrap();
/// assert_eq!(all.maximum("any"), Some(512 << 20));
/// let some: GrowthBounds = "app=1Gi, proxy=64Mi".parse().unwrap();
/// assert_eq!((some.maximum("app"), some.maximum("other")), (Some(1 << 30), None));
/// assert_eq!(some.to_string(), "app=1Gi,proxy=64Mi");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthBounds {
    /// One maximum for each container.
    All(i64),
    /// The maximum of the containers that are named; others do not grow.
    Named(BTreeMap<String, i64>),
}

/// A value of the annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBounds {
    /// Not an amount of memory.
    #[error("invalid amount of memory {text:?}")]
    Amount {
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
    /// The bounds of a pod; none if it has not opted in.
    pub fn for_pod(pod: &Pod) -> Option<Result<Self, InvalidBounds>> {
        pod.metadata.annotations.as_ref()?.get(MEMORY_PRESSURE_GROWTH).map(|value| value.parse())
    }

    /// The maximum of a container's memory limit; none if it does not grow.
    pub fn maximum(&self, container: &str) -> Option<i64> {
        match self {
            Self::All(maximum) => Some(*maximum),
            Self::Named(named) => named.get(container).copied(),
        }
    }
}

impl FromStr for GrowthBounds {
    type Err = InvalidBounds;

    fn from_str(text: &str) -> Result<Self, InvalidBounds> {
        if !text.contains('=') {
            return amount(text.trim()).map(Self::All);
        }
        let mut named = BTreeMap::new();
        for part in text.split(',') {
            let (name, maximum) =
                part.split_once('=').ok_or_else(|| InvalidBounds::Form(part.trim().to_owned()))?;
            let name = name.trim().to_owned();
            if name.is_empty() {
                return Err(InvalidBounds::Form(part.trim().to_owned()));
            }
            let maximum = amount(maximum.trim())?;
            if named.insert(name.clone(), maximum).is_some() {
                return Err(InvalidBounds::Duplicate(name));
            }
        }
        Ok(Self::Named(named))
    }
}

fn amount(text: &str) -> Result<i64, InvalidBounds> {
    let invalid = |source| InvalidBounds::Amount { text: text.to_owned(), source };
    let quantity: Quantity = text.parse().map_err(invalid)?;
    let amount = amount_of(Resource::Memory, quantity).map_err(invalid)?;
    if amount > 0 { Ok(amount) } else { Err(InvalidBounds::NotPositive(text.to_owned())) }
}

impl fmt::Display for GrowthBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantity = |amount: i64| quantity_of(Resource::Memory, amount);
        match self {
            Self::All(maximum) => quantity(*maximum).fmt(f),
            Self::Named(named) => {
                let parts: Vec<String> =
                    named.iter().map(|(name, maximum)| format!("{name}={}", quantity(*maximum))).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}
