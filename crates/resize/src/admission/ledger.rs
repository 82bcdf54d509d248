//! The accounting of a node's resources.

use std::collections::BTreeMap;

use crate::resource::{Amounts, PerResource, Resource};

/// The resources of a pod that count against its node, overhead included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LedgerEntry {
    /// Its allocated requests.
    pub allocated: Amounts,
    /// Its actual requests. A container that does not run counts with its allocated ones: it may be started at any
    /// moment, while others of its pod have not been lowered yet.
    pub actual: Amounts,
}

impl LedgerEntry {
    /// The resources that count against the node: the maximum of both.
    pub fn counted(self) -> Amounts {
        self.allocated.larger(self.actual)
    }

    /// The resources that are freed once its allocation is actual.
    pub fn freed_when_settled(self) -> Amounts {
        self.counted().less(self.allocated)
    }
}

/// The accounting of a node. Queries take constant time, however many pods there are.
///
/// ```
/// use plumb_resize::admission::{LedgerEntry, Ledger};
/// use plumb_resize::resource::Amounts;
///
/// let mut ledger = Ledger::new(Amounts::new(4000, 8 << 30));
/// let web = Amounts::new(1000, 1 << 30);
/// ledger.hold("web", LedgerEntry { allocated: web, actual: web });
/// assert_eq!(ledger.available_to("other").free(), Amounts::new(3000, 7 << 30));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    allocatable: Amounts,
    /// The sum for all pods. Wider than an amount, so that sums do not overflow.
    counted: PerResource<i128>,
    pods: BTreeMap<String, LedgerEntry>,
}

impl Ledger {
    /// An empty node with these allocatable resources.
    pub fn new(allocatable: Amounts) -> Self {
        Self { allocatable, ..Self::default() }
    }

    /// The node's allocatable resources.
    pub fn allocatable(&self) -> Amounts {
        self.allocatable
    }

    /// Sets what counts for a pod.
    pub fn hold(&mut self, pod: &str, held: LedgerEntry) {
        let before = self.pods.insert(pod.to_owned(), held).unwrap_or_default();
        self.count(before, held);
    }

    /// Removes a pod.
    pub fn release(&mut self, pod: &str) {
        if let Some(held) = self.pods.remove(pod) {
            self.count(held, LedgerEntry::default());
        }
    }

    /// The resources that count for a pod.
    pub fn held(&self, pod: &str) -> Option<LedgerEntry> {
        self.pods.get(pod).copied()
    }

    /// The capacity that is available to one pod.
    pub fn available_to(&self, pod: &str) -> Available {
        let held = self.held(pod).unwrap_or_default().counted();
        let others = |r: Resource| self.counted[r] - i128::from(held[r]);
        let others = Amounts::of(|r| i64::try_from(others(r)).unwrap_or(i64::MAX));
        Available { allocatable: self.allocatable, others, held }
    }

    fn count(&mut self, before: LedgerEntry, after: LedgerEntry) {
        for resource in Resource::ALL {
            self.counted[resource] += i128::from(after.counted()[resource]);
            self.counted[resource] -= i128::from(before.counted()[resource]);
        }
    }

    /// The pods whose resources are being lowered, and what each will free. (Iterates over all pods: for explanations,
    /// not for decisions.)
    pub fn shrinking(&self) -> impl Iterator<Item = (&str, Amounts)> {
        self.pods
            .iter()
            .map(|(pod, held)| (pod.as_str(), held.freed_when_settled()))
            .filter(|(_, freed)| *freed != Amounts::ZERO)
    }
}

/// The capacity of a node for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// The node's allocatable resources.
    pub allocatable: Amounts,
    /// The requests of the other pods.
    pub others: Amounts,
    /// The requests of this pod that count already.
    pub held: Amounts,
}

impl Available {
    /// The free capacity besides the other pods.
    pub fn free(self) -> Amounts {
        self.allocatable.less(self.others)
    }

    /// How much of a resource is missing. A pod retains its allocation, also on a node that has become too small.
    pub fn missing_of(self, resource: Resource, wanted: Amounts) -> i64 {
        if wanted[resource] <= self.held[resource] {
            return 0;
        }
        wanted[resource]
            .saturating_add(self.others[resource])
            .saturating_sub(self.allocatable[resource])
            .max(0)
    }

    /// Whether these requests fit.
    pub fn fits(self, wanted: Amounts) -> bool {
        Resource::ALL.into_iter().all(|resource| self.missing_of(resource, wanted) == 0)
    }

    /// Whether a request does not even fit the empty node.
    pub fn never_fits(self, resource: Resource, wanted: Amounts) -> bool {
        Self { others: Amounts::ZERO, ..self }.missing_of(resource, wanted) > 0
    }
}
