//! From an estimated amount to the quantity in the status: rounding, whole cores, minimum and maximum.

use std::fmt;

use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};

use super::super::amount::{self, float};
use super::Container;

/// A maximum from elsewhere than the policy and the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Where it comes from.
    pub source: CeilingSource,
    /// The largest recommendation, where there is one.
    pub max: PerResource<Option<Quantity>>,
}

/// Where a [`Ceiling`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CeilingSource {
    /// The capacity of the largest node.
    LargestNode,
    /// The unused part of the namespace's quota.
    Quota,
}

/// Something that changed an amount after it was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Raised to `minAllowed` of the VPA.
    MinAllowed(Quantity),
    /// Lowered to `maxAllowed` of the VPA.
    MaxAllowed(Quantity),
    /// Lowered to the maximum of the recommender's flags.
    GlobalMaxAllowed(Quantity),
    /// Lowered to a maximum from elsewhere.
    Ceiling(CeilingSource, Quantity),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinAllowed(to) => write!(f, "raised to minAllowed {to}"),
            Self::MaxAllowed(to) => write!(f, "capped to maxAllowed {to}"),
            Self::GlobalMaxAllowed(to) => write!(f, "capped to the recommender's max allowed {to}"),
            Self::Ceiling(CeilingSource::LargestNode, to) => write!(f, "capped to the largest node, {to}"),
            Self::Ceiling(CeilingSource::Quota, to) => write!(f, "capped to the quota, {to}"),
        }
    }
}

impl Container<'_> {
    /// The amount rounded up by the flags and the annotations, as a quantity.
    pub(super) fn written(&self, resource: Resource, amount: i64) -> Quantity {
        let rounded = round_up(amount, self.settings.round_up_to[resource]);
        let quantity = amount::quantity(resource, rounded);
        match resource {
            Resource::Memory if self.settings.humanize_memory && rounded != 0 => {
                humanized(rounded).parse().unwrap_or(quantity)
            }
            Resource::Cpu if self.whole_cores() => quantity.units().map_or(quantity, Quantity::from_units),
            Resource::Cpu | Resource::Memory => quantity,
        }
    }

    /// Whether CPU is rounded up to whole cores.
    pub(super) fn whole_cores(&self) -> bool {
        self.settings.integer_cpu && self.vpa.integer_cpu.iter().any(|container| container == self.name)
    }

    /// The quantity within the limits that apply. Each that changes it is passed to `note`.
    pub(super) fn capped(
        &self,
        resource: Resource,
        quantity: Quantity,
        mut note: impl FnMut(Limit),
    ) -> Quantity {
        let mut capped = quantity;
        let mut limit = |to: Option<Quantity>, limit: fn(Quantity) -> Limit| {
            let Some(to) = to.filter(|to| !to.is_zero()) else { return };
            let applies = match limit(to) {
                Limit::MinAllowed(_) => capped < to,
                Limit::MaxAllowed(_) | Limit::GlobalMaxAllowed(_) | Limit::Ceiling(..) => capped > to,
            };
            if applies {
                note(limit(to));
                capped = to;
            }
        };
        limit(self.policy.and_then(|policy| policy.min_allowed[resource]), Limit::MinAllowed);
        match self.policy.and_then(|policy| policy.max_allowed[resource]) {
            Some(own) => limit(Some(own), Limit::MaxAllowed),
            None => limit(self.settings.max_allowed[resource], Limit::GlobalMaxAllowed),
        }
        for ceiling in &self.vpa.ceilings {
            limit(
                ceiling.max[resource],
                match ceiling.source {
                    CeilingSource::LargestNode => |to| Limit::Ceiling(CeilingSource::LargestNode, to),
                    CeilingSource::Quota => |to| Limit::Ceiling(CeilingSource::Quota, to),
                },
            );
        }
        capped
    }
}

/// The next multiple of `scale`, which 1 and less leave as it is.
fn round_up(amount: i64, scale: i64) -> i64 {
    if scale <= 1 {
        return amount;
    }
    #[allow(clippy::cast_possible_truncation)] // At most the amount.
    let multiples = (float(amount) / float(scale)).ceil() as i64;
    multiples.saturating_mul(scale)
}

/// Bytes in the largest binary unit that fits, with two decimals.
fn humanized(bytes: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match UNITS.into_iter().find(|&(_, size)| bytes >= size) {
        Some((unit, size)) => format!("{:.2}{unit}", float(bytes) / float(size)),
        None => bytes.to_string(),
    }
}
