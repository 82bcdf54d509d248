//! Limits on the slots of one client, so that it cannot starve others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The limits on concurrent slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The maximum of one client.
    pub(super) per_source: usize,
    /// The slots that are reserved for each client. The clients are the pods of a node, whose number is bounded.
    pub(super) reserved: usize,
    /// The maximum of all clients together, without the reserved slots.
    pub(super) shared: usize,
}

/// The limits on connections. A client that needs TCP opens one for a query.
pub(super) const CONNECTIONS: Limit = Limit { per_source: 32, reserved: 4, shared: 512 };
/// The limits on queries that wait for other servers: in total as many as in kubeadm's CoreDNS (`max_concurrent 1000`).
pub(super) const PENDING: Limit = Limit { per_source: 250, reserved: 8, shared: 1000 };

/// Slots of clients.
#[derive(Debug)]
pub(super) struct Slots {
    limit: Limit,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_source: HashMap<IpAddr, usize>,
    /// The number of used slots that are not reserved.
    shared: usize,
}

impl From<Limit> for Slots {
    fn from(limit: Limit) -> Self {
        Self { limit, counts: Mutex::default() }
    }
}

impl Slots {
    /// Takes a slot for a client, if one is free.
    pub(super) fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Slot> {
        let mut counts = self.counts.lock();
        let own = counts.by_source.get(&source).copied().unwrap_or_default();
        let is_shared = own >= self.limit.reserved;
        if own >= self.limit.per_source || (is_shared && counts.shared >= self.limit.shared) {
            return None;
        }
        counts.by_source.insert(source, own + 1);
        counts.shared += usize::from(is_shared);
        Some(Slot { slots: self.clone(), source })
    }
}

/// A slot, which is released when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    source: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.counts.lock();
        let own = counts.by_source.get(&self.source).copied().unwrap_or_default().saturating_sub(1);
        if own == 0 {
            counts.by_source.remove(&self.source);
        } else {
            counts.by_source.insert(self.source, own);
        }
        counts.shared -= usize::from(own >= self.slots.limit.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_slots_to_others_and_all_others_leave_it_its_own() {
        let slots: Arc<Slots> = Arc::new(Limit { per_source: 5, reserved: 2, shared: 4 }.into());
        let client = |number| IpAddr::from([10, 64, 0, number]);
        let all = |number| std::iter::from_fn(|| slots.enter(client(number))).collect::<Vec<_>>();
        let greedy = all(2);
        assert_eq!(greedy.len(), 5);
        let others: Vec<_> = (3..6).map(&all).collect();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2, 2]);
        drop(greedy);
        assert_eq!(all(2).len(), 5);
        drop(others);
        assert!(slots.counts.lock().by_source.is_empty());
        assert_eq!(slots.counts.lock().shared, 0);
    }
}
