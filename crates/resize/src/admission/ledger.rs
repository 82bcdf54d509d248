//! Who holds how much of a node.

use std::collections::BTreeMap;

use crate::resource::{Amounts, PerResource, Resource};

/// What a pod holds of its node, overhead included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// What it was promised.
    pub allocated: Amounts,
    /// What is in force for it. A container that does not run counts with what it is promised: it may be
    /// started at any moment, while others of its pod are not yet down to theirs.
    pub actual: Amounts,
}

impl Held {
    /// What nobody else can have: the larger of both.
    pub fn counted(self) -> Amounts {
        self.allocated.larger(self.actual)
    }

    /// What it gives back once its promise is in force.
    pub fn freed_when_settled(self) -> Amounts {
        self.counted().less(self.allocated)
    }
}

/// The pods of a node and what they hold. Asking costs the same however many pods there are.
///
/// ```
/// use plumb_resize::admission::{Held, Ledger};
/// use plumb_resize::resource::Amounts;
///
/// let mut ledger = Ledger::new(Amounts::new(4000, 8 << 30));
/// let web = Amounts::new(1000, 1 << 30);
/// ledger.hold("web", Held { allocated: web, actual: web });
/// assert_eq!(ledger.room_for("other").free(), Amounts::new(3000, 7 << 30));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    allocatable: Amounts,
    /// What all pods hold together. Wider than an amount, so that what is released is what was added.
    counted: PerResource<i128>,
    pods: BTreeMap<String, Held>,
}

impl Ledger {
    /// An empty node with this much for pods.
    pub fn new(allocatable: Amounts) -> Self {
        Self { allocatable, ..Self::default() }
    }

    /// How much the node has for pods.
    pub fn allocatable(&self) -> Amounts {
        self.allocatable
    }

    /// Records what a pod holds, in place of what it held.
    pub fn hold(&mut self, pod: &str, held: Held) {
        let before = self.pods.insert(pod.to_owned(), held).unwrap_or_default();
        self.count(before, held);
    }

    /// Forgets a pod.
    pub fn release(&mut self, pod: &str) {
        if let Some(held) = self.pods.remove(pod) {
            self.count(held, Held::default());
        }
    }

    /// What a pod holds.
    pub fn held(&self, pod: &str) -> Option<Held> {
        self.pods.get(pod).copied()
    }

    /// The node as one pod finds it.
    pub fn room_for(&self, pod: &str) -> Room {
        let held = self.held(pod).unwrap_or_default().counted();
        let others = |r: Resource| self.counted[r] - i128::from(held[r]);
        let others = Amounts::of(|r| i64::try_from(others(r)).unwrap_or(i64::MAX));
        Room { capacity: self.allocatable, others, held }
    }

    fn count(&mut self, before: Held, after: Held) {
        for resource in Resource::ALL {
            self.counted[resource] += i128::from(after.counted()[resource]);
            self.counted[resource] -= i128::from(before.counted()[resource]);
        }
    }

    /// The pods that are being shrunk, and what each will free. (A pass over all pods: for explanations, not
    /// for decisions.)
    pub fn shrinking(&self) -> impl Iterator<Item = (&str, Amounts)> {
        self.pods
            .iter()
            .map(|(pod, held)| (pod.as_str(), held.freed_when_settled()))
            .filter(|(_, freed)| *freed != Amounts::ZERO)
    }
}

/// A node as one pod finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How much there is for pods.
    pub capacity: Amounts,
    /// How much the other pods hold.
    pub others: Amounts,
    /// How much this pod holds already.
    pub held: Amounts,
}

impl Room {
    /// What no other pod holds.
    pub fn free(self) -> Amounts {
        self.capacity.less(self.others)
    }

    /// How much more there would have to be of a resource. What the pod holds already it can keep, also on a
    /// node that has become too small.
    pub fn missing_of(self, resource: Resource, wanted: Amounts) -> i64 {
        if wanted[resource] <= self.held[resource] {
            return 0;
        }
        wanted[resource].saturating_add(self.others[resource]).saturating_sub(self.capacity[resource]).max(0)
    }

    /// Whether there is room for this much.
    pub fn fits(self, wanted: Amounts) -> bool {
        Resource::ALL.into_iter().all(|resource| self.missing_of(resource, wanted) == 0)
    }

    /// Whether the node could not hold this much of a resource even if it were empty.
    pub fn never_holds(self, resource: Resource, wanted: Amounts) -> bool {
        Self { others: Amounts::ZERO, ..self }.missing_of(resource, wanted) > 0
    }
}
