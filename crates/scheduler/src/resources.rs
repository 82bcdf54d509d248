//! Amounts of resources as the scheduler counts them.

use plumb_resize::list::ResourceList;
use plumb_resize::{Quantity, resource::Resource};

/// Requests of pods or allocatable resources of nodes: cpu in millicores, everything else in whole units, rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resources {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral: i64,
    /// Extended resources and huge pages, in the order of their names.
    others: Vec<(String, i64)>,
}

/// The name of ephemeral storage.
const EPHEMERAL: &str = "ephemeral-storage";
/// The largest number of pods of a node, which is listed like a resource but requested by no pod.
pub(crate) const PODS: &str = "pods";

impl Resources {
    /// The amounts of a list.
    pub(crate) fn read(list: &ResourceList) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list.iter() {
            let units = Quantity::saturating_units;
            match (Resource::named(name), name) {
                (Some(Resource::Cpu), _) => resources.cpu = quantity.saturating_milli(),
                (Some(Resource::Memory), _) => resources.memory = units(quantity),
                (None, EPHEMERAL) => resources.ephemeral = units(quantity),
                (None, PODS) => {}
                // The list is in the order of its names.
                (None, other) => resources.others.push((other.to_owned(), units(quantity))),
            }
        }
        resources
    }

    /// Cpu and memory alone.
    pub(crate) fn new(cpu: i64, memory: i64) -> Self {
        Self { cpu, memory, ..Self::default() }
    }

    /// Adds other amounts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts amounts that were added before.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral = with(self.ephemeral, other.ephemeral);
        for (name, amount) in &other.others {
            match self.others.binary_search_by(|(name_here, _)| name_here.cmp(name)) {
                Ok(at) => self.others[at].1 = with(self.others[at].1, *amount),
                Err(at) => self.others.insert(at, (name.clone(), with(0, *amount))),
            }
        }
    }

    /// The amount of an extended resource.
    pub(crate) fn other(&self, name: &str) -> i64 {
        let at = self.others.binary_search_by(|(name_here, _)| name_here.as_str().cmp(name));
        at.map_or(0, |at| self.others[at].1)
    }

    /// All extended resources.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.others.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Every amount with the name of its resource.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let known = [("cpu", self.cpu), ("memory", self.memory), (EPHEMERAL, self.ephemeral)];
        known.into_iter().chain(self.others())
    }

    /// Whether all amounts are zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral == 0 && self.others.is_empty()
    }

    /// Whether any amount is smaller than the other one.
    pub(crate) fn is_any_smaller(&self, than: &Self) -> bool {
        let smaller = self.cpu < than.cpu || self.memory < than.memory || self.ephemeral < than.ephemeral;
        smaller || than.others().any(|(name, amount)| self.other(name) < amount)
    }
}
