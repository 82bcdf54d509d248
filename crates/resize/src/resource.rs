//! The two resources that a resize can change, and amounts of them.
//!
//! The rules count cpu in thousandths of a core and memory in bytes, both as `i64`. The kubelet compares desired, allocated
//! and actuated values in the same units. Finer quantities are rounded up when they are read, so that no request becomes
//! zero.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A resource that a resize can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// CPU, in thousandths of a core.
    Cpu,
    /// Memory, in bytes.
    Memory,
}

impl Resource {
    /// Both of them, in the order in which Kubernetes names them in messages.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// The name in a Kubernetes resource list.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    /// The resizable resource with this name; `None` if a resize cannot change it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.name() == name)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a resource is huge pages of some size.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// The prefix of the names of huge pages; the size of a page follows.
pub(crate) const HUGE_PAGES: &str = "hugepages-";

/// One value for each resizable resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PerResource<T> {
    /// The value for cpu.
    pub cpu: T,
    /// The value for memory.
    pub memory: T,
}

impl<T> PerResource<T> {
    /// A value for cpu and one for memory.
    pub const fn new(cpu: T, memory: T) -> Self {
        Self { cpu, memory }
    }

    /// Computes the value for each resource.
    pub fn of(mut make: impl FnMut(Resource) -> T) -> Self {
        Self { cpu: make(Resource::Cpu), memory: make(Resource::Memory) }
    }

    /// Whether `holds` is true for at least one resource.
    pub fn any(&self, mut holds: impl FnMut(Resource, &T) -> bool) -> bool {
        Resource::ALL.into_iter().any(|resource| holds(resource, &self[resource]))
    }

    /// Whether `holds` is true for both resources.
    pub fn all(&self, mut holds: impl FnMut(Resource, &T) -> bool) -> bool {
        Resource::ALL.into_iter().all(|resource| holds(resource, &self[resource]))
    }
}

impl<T> Index<Resource> for PerResource<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Memory => &self.memory,
        }
    }
}

impl<T> IndexMut<Resource> for PerResource<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
        }
    }
}

/// An amount of cpu and an amount of memory.
///
/// Sums saturate: a total that is too large for an `i64` becomes the largest value. No node has that much, so an overflow
/// always leads to a refusal.
pub type Amounts = PerResource<i64>;

impl Amounts {
    /// No cpu and no memory.
    pub const ZERO: Self = Self::new(0, 0);

    /// The sum, resource by resource.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::of(|r| self[r].saturating_add(other[r]))
    }

    /// The difference, resource by resource, never below zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self::of(|r| self[r].saturating_sub(other[r]).max(0))
    }

    /// The larger of the two, resource by resource.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self::of(|r| self[r].max(other[r]))
    }

    /// Whether this is at most `limit` in both resources.
    pub fn within(self, limit: Self) -> bool {
        self.all(|r, amount| *amount <= limit[r])
    }
}

/// The declared amount of each resource, or none.
///
/// For a limit "none" means unlimited; for a request it means that there is no request.
pub type Declared = PerResource<Option<i64>>;

impl Declared {
    /// No amount declared for either.
    pub const NONE: Self = Self::new(None, None);

    /// Amounts for both resources.
    pub const fn both(cpu: i64, memory: i64) -> Self {
        Self::new(Some(cpu), Some(memory))
    }

    /// The amounts, zero where none is declared.
    pub fn amounts(self) -> Amounts {
        Amounts::of(|r| self[r].unwrap_or(0))
    }

    /// Whether no amount is declared for either.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// These amounts, with those of `other` for resources without a declared amount.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::of(|r| self[r].or(other[r]))
    }
}

/// Requests and limits of one container, or of a pod as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirements {
    /// The request.
    pub requests: Declared,
    /// The limit.
    pub limits: Declared,
}

impl Requirements {
    /// No requests and no limits.
    pub const NONE: Self = Self { requests: Declared::NONE, limits: Declared::NONE };

    /// Requests equal to limits, as a Guaranteed container has them.
    pub const fn equal(cpu: i64, memory: i64) -> Self {
        Self { requests: Declared::both(cpu, memory), limits: Declared::both(cpu, memory) }
    }

    /// Request and limit of one resource.
    pub fn of(self, resource: Resource) -> (Option<i64>, Option<i64>) {
        (self.requests[resource], self.limits[resource])
    }

    /// These requirements, with those of `other` for one resource.
    #[must_use]
    pub fn with(mut self, resource: Resource, other: Self) -> Self {
        self.requests[resource] = other.requests[resource];
        self.limits[resource] = other.limits[resource];
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_overflows_stays_too_large_to_fit_anywhere() {
        let huge = Amounts::new(i64::MAX - 1, 10);
        assert_eq!(huge.plus(Amounts::new(100, 1)), Amounts::new(i64::MAX, 11));
        assert!(!huge.plus(Amounts::new(100, 1)).within(Amounts::new(i64::MAX - 1, 11)));
    }

    #[test]
    fn a_difference_never_goes_below_zero() {
        assert_eq!(Amounts::new(5, 7).less(Amounts::new(9, 2)), Amounts::new(0, 5));
    }

    #[test]
    fn names_are_those_of_a_resource_list() {
        assert_eq!(Resource::named("cpu"), Some(Resource::Cpu));
        assert_eq!(Resource::named("memory"), Some(Resource::Memory));
        assert_eq!(Resource::named("nvidia.com/gpu"), None);
    }
}
