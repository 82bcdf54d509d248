//! Amounts of resources as a scheduler counts them.

use plumb_resize::list::ResourceList;
use plumb_resize::{Quantity, resource::Resource};

/// What pods ask for, or nodes have: cpu in thousandths of a core, everything else in whole units, rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral: i64,
    /// Everything else by name: devices, huge pages.
    others: Vec<(String, i64)>,
}

/// What the disk that pods write to is called.
const EPHEMERAL: &str = "ephemeral-storage";
/// How many pods a node may have is listed like a resource, but asked for by none.
pub(crate) const PODS: &str = "pods";

impl Load {
    /// The amounts of a list.
    pub(crate) fn read(list: &ResourceList) -> Self {
        let mut load = Self::default();
        for (name, quantity) in list.iter() {
            let units = Quantity::saturating_units;
            match (Resource::named(name), name) {
                (Some(Resource::Cpu), _) => load.cpu = quantity.saturating_milli(),
                (Some(Resource::Memory), _) => load.memory = units(quantity),
                (None, EPHEMERAL) => load.ephemeral = units(quantity),
                (None, PODS) => {}
                // A list is in the order of its names, and so is this.
                (None, other) => load.others.push((other.to_owned(), units(quantity))),
            }
        }
        load
    }

    /// Cpu and memory alone.
    pub(crate) fn of(cpu: i64, memory: i64) -> Self {
        Self { cpu, memory, ..Self::default() }
    }

    /// Adds another load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes another load away that was added before.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral = with(self.ephemeral, other.ephemeral);
        for (name, amount) in &other.others {
            match self.others.binary_search_by(|(held, _)| held.cmp(name)) {
                Ok(at) => self.others[at].1 = with(self.others[at].1, *amount),
                Err(at) => self.others.insert(at, (name.clone(), with(0, *amount))),
            }
        }
    }

    /// How much of a resource other than cpu, memory and disk.
    pub(crate) fn other(&self, name: &str) -> i64 {
        let at = self.others.binary_search_by(|(held, _)| held.as_str().cmp(name));
        at.map_or(0, |at| self.others[at].1)
    }

    /// The resources other than cpu, memory and disk.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.others.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Every amount with the name of its resource; cpu in thousandths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let known = [("cpu", self.cpu), ("memory", self.memory), (EPHEMERAL, self.ephemeral)];
        known.into_iter().chain(self.others())
    }

    /// Whether nothing is asked for.
    pub(crate) fn is_nothing(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral == 0 && self.others.is_empty()
    }

    /// Whether any amount is smaller than in another load.
    pub(crate) fn is_smaller_somewhere(&self, than: &Self) -> bool {
        let smaller = self.cpu < than.cpu || self.memory < than.memory || self.ephemeral < than.ephemeral;
        smaller || than.others().any(|(name, amount)| self.other(name) < amount)
    }
}
