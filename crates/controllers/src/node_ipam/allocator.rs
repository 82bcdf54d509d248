//! Which networks nodes have, and which are free.

use std::collections::{BTreeMap, BTreeSet};

use plumb_validation::network::Ipv4Network;

/// The most networks that an allocator has, as in upstream's range allocator (`clusterSubnetMaxDiff`).
const MAX_BITS: u8 = 16;

/// How networks are allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The network that all pods have their addresses of.
    pub cluster: Ipv4Network,
    /// The length of the prefix of a node's network.
    pub node_mask: u8,
    /// The network that is allocated first; without one the first of the range.
    pub first: Option<Ipv4Network>,
    /// Networks that no node gets, such as that of Services.
    pub excluded: Vec<Ipv4Network>,
}

/// A range that no network can be allocated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    /// A node would have more addresses than the cluster.
    #[error("a node's network of /{mask} does not fit into the cluster's, {cluster}")]
    TooLarge {
        /// The length of the prefix of a node's network.
        mask: u8,
        /// The network of the cluster.
        cluster: Ipv4Network,
    },
    /// There would be more networks than an allocator has.
    #[error("{cluster} has more than 65536 networks of /{mask}")]
    TooMany {
        /// The length of the prefix of a node's network.
        mask: u8,
        /// The network of the cluster.
        cluster: Ipv4Network,
    },
    /// A node would have no address for pods.
    #[error("a node's network of /{0} is not between /8 and /29")]
    Mask(u8),
}

impl Range {
    /// Whether networks can be allocated from it.
    pub fn check(&self) -> Result<(), InvalidRange> {
        let mask = self.node_mask;
        let cluster = self.cluster;
        if !(8..=29).contains(&mask) {
            return Err(InvalidRange::Mask(mask));
        }
        match mask.checked_sub(cluster.prefix()) {
            None => Err(InvalidRange::TooLarge { mask, cluster }),
            Some(bits) if bits > MAX_BITS => Err(InvalidRange::TooMany { mask, cluster }),
            Some(_) => Ok(()),
        }
    }

    /// How many networks there are, the excluded ones included.
    fn count(&self) -> u32 {
        1 << (self.node_mask - self.cluster.prefix())
    }

    /// The network at an index below [`Range::count`].
    fn at(&self, index: u32) -> Ipv4Network {
        // A mask of 32 is refused, so that the shift is by at least three bits.
        let first = u32::from(self.cluster.address()) | (index << (32 - self.node_mask));
        Ipv4Network::new(first.into(), self.node_mask)
    }

    /// The indices of the networks that share addresses with another network, of any size.
    fn indices(&self, network: Ipv4Network) -> std::ops::Range<u32> {
        if !self.cluster.overlaps(network) {
            return 0..0;
        }
        if network.prefix() <= self.cluster.prefix() {
            return 0..self.count();
        }
        let offset = u32::from(network.address()) - u32::from(self.cluster.address());
        let first = offset >> (32 - self.node_mask);
        let count = 1_u32 << self.node_mask.saturating_sub(network.prefix());
        first..first + count
    }
}

/// The networks of nodes. A network is free unless a node has a part of it, even if an administrator allocated that.
#[derive(Debug)]
pub struct Allocator {
    range: Range,
    /// The nodes that have each network, by its index. An index without nodes has no entry.
    owners: BTreeMap<u32, BTreeSet<String>>,
    /// The networks of each node that has any.
    nodes: BTreeMap<String, Vec<Ipv4Network>>,
    /// Excluded networks, by index.
    excluded: BTreeSet<u32>,
    /// The networks that nodes had: an agent that registers its node again, which was deleted, gets the network that its pods
    /// have their addresses of, if it is free. At most as many as there are networks.
    former: BTreeMap<String, u32>,
    /// Where the search for a free network begins, so that one that was released is not reused at once.
    next: u32,
}

impl Allocator {
    /// An allocator of a range of which no node has a network.
    pub fn new(range: Range) -> Result<Self, InvalidRange> {
        range.check()?;
        let excluded = range.excluded.iter().flat_map(|network| range.indices(*network)).collect();
        let next = range.first.map_or(0, |first| range.indices(first).start);
        Ok(Self {
            range,
            owners: BTreeMap::new(),
            nodes: BTreeMap::new(),
            excluded,
            former: BTreeMap::new(),
            next,
        })
    }

    /// Records the networks in a Node object, instead of those that were known. Networks that are not of
    /// the range are ignored.
    pub fn observe(&mut self, node: &str, networks: &[Ipv4Network]) {
        self.release(node);
        for index in networks.iter().flat_map(|network| self.range.indices(*network)) {
            self.owners.entry(index).or_default().insert(node.to_owned());
        }
        if !networks.is_empty() {
            self.nodes.insert(node.to_owned(), networks.to_vec());
        }
    }

    /// The network of a node that may have been written already, or a free one. `None` if there is none.
    pub fn allocate(&mut self, node: &str) -> Option<Ipv4Network> {
        if let Some(network) = self.nodes.get(node).and_then(|networks| networks.first()) {
            return Some(*network);
        }
        let count = self.range.count();
        let is_free = |index: &u32| !self.owners.contains_key(index) && !self.excluded.contains(index);
        let former = self.former.get(node).copied().filter(is_free);
        let index = if let Some(index) = former {
            index
        } else {
            let index = (0..count).map(|step| (self.next + step) % count).find(is_free)?;
            self.next = (index + 1) % count;
            index
        };
        let network = self.range.at(index);
        self.observe(node, &[network]);
        Some(network)
    }

    /// Releases the networks of a node.
    pub fn release(&mut self, node: &str) {
        let networks = self.nodes.remove(node).unwrap_or_default();
        for network in networks {
            for index in self.range.indices(network) {
                if let Some(owners) = self.owners.get_mut(&index) {
                    owners.remove(node);
                    if owners.is_empty() {
                        self.owners.remove(&index);
                    }
                }
                if self.range.at(index) == network {
                    self.former.insert(node.to_owned(), index);
                }
            }
        }
        if self.former.len() > usize::try_from(self.range.count()).unwrap_or(usize::MAX) {
            self.former.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Ipv4Network {
        text.parse().unwrap()
    }

    fn range(cluster: &str, node_mask: u8) -> Range {
        Range { cluster: network(cluster), node_mask, first: None, excluded: Vec::new() }
    }

    #[test]
    fn a_range_is_checked() {
        let table = [
            ("10.0.0.0/16", 24, None),
            ("10.0.0.0/8", 24, None),
            ("10.0.0.0/8", 25, Some("10.0.0.0/8 has more than 65536 networks of /25")),
            ("10.0.0.0/24", 24, None),
            ("10.0.0.0/24", 23, Some("a node's network of /23 does not fit into the cluster's, 10.0.0.0/24")),
            ("10.0.0.0/24", 30, Some("a node's network of /30 is not between /8 and /29")),
        ];
        for (cluster, mask, expected) in table {
            let checked = range(cluster, mask).check().map_err(|error| error.to_string());
            assert_eq!(checked.err().as_deref(), expected, "{cluster} /{mask}");
        }
    }

    #[test]
    fn networks_are_allocated_in_order_and_reused_last() {
        let mut allocator = Allocator::new(Range {
            first: Some(network("10.0.2.0/24")),
            excluded: vec![network("10.0.3.0/25")],
            ..range("10.0.0.0/22", 24)
        })
        .unwrap();
        let mut next = |node: &str| allocator.allocate(node).map(|network| network.to_string());
        assert_eq!(next("a").as_deref(), Some("10.0.2.0/24"));
        assert_eq!(next("a").as_deref(), Some("10.0.2.0/24"), "a second time it has it already");
        assert_eq!(next("b").as_deref(), Some("10.0.0.0/24"));
        allocator.release("b");
        assert_eq!(allocator.allocate("c"), Some(network("10.0.1.0/24")));
        assert_eq!(allocator.allocate("d"), Some(network("10.0.0.0/24")));
        assert_eq!(allocator.allocate("e"), None);
    }

    #[test]
    fn a_node_that_comes_back_has_its_former_network_if_that_is_free() {
        let mut allocator = Allocator::new(range("10.0.0.0/22", 24)).unwrap();
        for node in ["a", "b", "c"] {
            allocator.allocate(node);
        }
        allocator.release("a");
        allocator.release("b");
        assert_eq!(allocator.allocate("b"), Some(network("10.0.1.0/24")));
        assert_eq!(allocator.allocate("d"), Some(network("10.0.3.0/24")));
        assert_eq!(allocator.allocate("e"), Some(network("10.0.0.0/24")));
        assert_eq!(allocator.allocate("a"), None, "another node has it");
    }

    #[test]
    fn what_a_node_has_is_not_allocated_whatever_its_size() {
        let mut allocator = Allocator::new(range("10.0.0.0/22", 24)).unwrap();
        allocator.observe("half", &[network("10.0.0.128/25")]);
        allocator.observe("two", &[network("10.0.2.0/23")]);
        allocator.observe("foreign", &[network("192.168.0.0/16")]);
        assert_eq!(allocator.allocate("a"), Some(network("10.0.1.0/24")));
        assert_eq!(allocator.allocate("b"), None);
        // What a node has counts, even if it is of another range.
        assert_eq!(allocator.allocate("foreign"), Some(network("192.168.0.0/16")));
        allocator.observe("all", &[network("10.0.0.0/8")]);
        allocator.release("two");
        assert_eq!(allocator.allocate("b"), None);
        allocator.release("all");
        assert_eq!(allocator.allocate("b"), Some(network("10.0.2.0/24")));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u8),
        Release(u8),
        /// The node has a network by its object, which an administrator wrote.
        Observe(u8, u32, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..20_u8).prop_map(Step::Allocate),
            2 => (0..20_u8).prop_map(Step::Release),
            1 => (0..20_u8, 0..2048_u32, 20..28_u8)
                .prop_map(|(node, offset, prefix)| Step::Observe(node, offset, prefix)),
        ];
        vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn no_two_nodes_are_allocated_the_same_addresses(steps in steps()) {
            let range = range("10.0.0.0/21", 24);
            let mut allocator = Allocator::new(range.clone()).unwrap();
            let mut model: BTreeMap<String, Ipv4Network> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Allocate(node) => {
                        let node = node.to_string();
                        let others = || model.iter().filter(|(name, _)| **name != node);
                        if let Some(network) = allocator.allocate(&node) {
                            if let Some(had) = model.get(&node) {
                                prop_assert_eq!(*had, network);
                            } else {
                                prop_assert!(range.cluster.covers(network) && network.prefix() == 24);
                                prop_assert!(!others().any(|(_, other)| other.overlaps(network)));
                            }
                            model.insert(node, network);
                        } else {
                            let is_taken = |index| model.values().any(|other| other.overlaps(range.at(index)));
                            prop_assert!((0..range.count()).all(is_taken));
                        }
                    }
                    Step::Release(node) => {
                        allocator.release(&node.to_string());
                        model.remove(&node.to_string());
                    }
                    Step::Observe(node, offset, prefix) => {
                        let first = u32::from(range.cluster.address()) + offset;
                        let network = Ipv4Network::new(first.into(), prefix);
                        allocator.observe(&node.to_string(), &[network]);
                        model.insert(node.to_string(), network);
                    }
                }
            }
        }

        #[test]
        fn an_allocator_that_adopts_all_nodes_is_as_the_one_before(count in 0..9_u8) {
            let mut before = Allocator::new(range("10.0.0.0/21", 24)).unwrap();
            let mut after = Allocator::new(range("10.0.0.0/21", 24)).unwrap();
            for node in 0..count {
                if let Some(network) = before.allocate(&node.to_string()) {
                    after.observe(&node.to_string(), &[network]);
                }
            }
            prop_assert_eq!(&before.owners, &after.owners);
            for node in 0..count {
                prop_assert_eq!(before.allocate(&node.to_string()), after.allocate(&node.to_string()));
            }
        }
    }
}
