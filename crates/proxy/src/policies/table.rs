//! The content of the table of the kernel, and the changes from one content to another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use super::selector::PodSelector;

/// The direction of connections, as a pod sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];
}

/// Selects pods as peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerKey {
    /// Pods of one namespace.
    Within {
        /// The namespace.
        namespace: String,
        /// Their labels.
        pods: PodSelector,
    },
    /// Pods of all namespaces with certain labels.
    Across {
        /// The labels of the namespaces.
        namespaces: PodSelector,
        /// The labels of the pods.
        pods: PodSelector,
    },
}

impl PeerKey {
    /// The selector of the labels of pods.
    pub(crate) fn pods(&self) -> &PodSelector {
        match self {
            Self::Within { pods, .. } | Self::Across { pods, .. } => pods,
        }
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within { namespace, pods } => write!(f, "{namespace:?} {}", pods.text()),
            Self::Across { namespaces, pods } => write!(f, "across {} {}", namespaces.text(), pods.text()),
        }
    }
}

/// A port by its name, which is one of the pod that a connection is to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// The number of the protocol.
    pub protocol: u8,
    /// The name.
    pub name: String,
}

/// The other end of connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peers {
    /// Whatever it is.
    Any,
    /// Pods.
    Pods(PeerKey),
    /// Addresses: first and last of each range, in order and apart from each other.
    Blocks(Vec<(u32, u32)>),
}

/// The ports that connections are to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// All, of all protocols.
    Any,
    /// Protocol, first and last port of each range, in order and apart from each other.
    Numbers(Vec<(u8, u16, u16)>),
    /// A port with a name.
    Named(NamedPort),
}

/// Connections that are allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allow {
    /// Their other end.
    pub peers: Peers,
    /// Their ports.
    pub ports: Ports,
}

/// The name of a set.
pub type SetName = String;
/// The name of a chain.
pub type ChainName = String;

/// The set of addresses of pods that reach themselves.
pub(crate) const SELF: &str = "self";

/// What a set is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetKey {
    /// The pods that policies select.
    Selves,
    /// The addresses of peers.
    Pods(PeerKey),
    /// The addresses of blocks.
    Blocks(Vec<(u32, u32)>),
    /// Protocols and ports.
    Ports(Vec<(u8, u16, u16)>),
    /// The addresses, protocols and ports of a named port.
    Named(NamedPort),
}

/// An element of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// The address of a pod.
    Address(Ipv4Addr),
    /// From one address to another.
    Block(u32, u32),
    /// A protocol, from one port to another.
    Ports(u8, u16, u16),
    /// A pod's address, a protocol and a port.
    Named(Ipv4Addr, u8, u16),
}

impl SetKey {
    /// The name of the set.
    pub fn name(&self) -> SetName {
        match self {
            Self::Selves => SELF.to_owned(),
            Self::Pods(key) => format!("p-{}", hash(&key.to_string())),
            Self::Blocks(ranges) => format!("b-{}", hash(&format!("{ranges:?}"))),
            Self::Ports(ranges) => format!("t-{}", hash(&format!("{ranges:?}"))),
            Self::Named(NamedPort { protocol, name }) => format!("n-{}", hash(&format!("{protocol} {name}"))),
        }
    }

    /// The elements of a set whose key says them.
    pub(crate) fn constant_elements(&self) -> BTreeSet<Element> {
        match self {
            Self::Selves | Self::Pods(_) | Self::Named(_) => BTreeSet::new(),
            Self::Blocks(ranges) => {
                ranges.iter().map(|(first, last)| Element::Block(*first, *last)).collect()
            }
            Self::Ports(ranges) => ranges
                .iter()
                .map(|(protocol, first, last)| Element::Ports(*protocol, *first, *last))
                .collect(),
        }
    }
}

/// 128 bits: users choose what is hashed.
fn hash(text: &str) -> String {
    HEXLOWER.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

/// What pods with certain policies may do in one direction. It has no other connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The direction.
    pub direction: Direction,
    /// What is allowed: sorted, each once.
    pub allows: Vec<Allow>,
}

impl Chain {
    /// The chain of these rules.
    pub fn new(direction: Direction, allows: impl IntoIterator<Item = Allow>) -> Self {
        let allows: BTreeSet<_> = allows.into_iter().collect();
        // Whatever the others allow is allowed by this one.
        let all = Allow { peers: Peers::Any, ports: Ports::Any };
        let allows = if allows.contains(&all) { vec![all] } else { allows.into_iter().collect() };
        Self { direction, allows }
    }

    /// The name of the chain, by its content.
    pub fn name(&self) -> ChainName {
        let mut text = String::new();
        for allow in &self.allows {
            use fmt::Write as _;
            let (peers, ports) = allow.sets();
            let name = |set: Option<SetKey>| set.map_or_else(|| "any".to_owned(), |set| set.name());
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {}", name(peers), name(ports));
        }
        let prefix = match self.direction {
            Direction::Ingress => 'i',
            Direction::Egress => 'e',
        };
        format!("{prefix}-{}", hash(&text))
    }

    /// The sets that it reads.
    pub fn sets(&self) -> BTreeSet<SetKey> {
        let sets = self.allows.iter().flat_map(|allow| {
            let (peers, ports) = allow.sets();
            peers.into_iter().chain(ports)
        });
        sets.collect()
    }
}

impl Allow {
    /// The sets of its peers and of its ports, unless it is about all.
    pub(crate) fn sets(&self) -> (Option<SetKey>, Option<SetKey>) {
        let peers = match &self.peers {
            Peers::Any => None,
            Peers::Pods(key) => Some(SetKey::Pods(key.clone())),
            Peers::Blocks(ranges) => Some(SetKey::Blocks(ranges.clone())),
        };
        let ports = match &self.ports {
            Ports::Any => None,
            Ports::Numbers(ranges) => Some(SetKey::Ports(ranges.clone())),
            Ports::Named(port) => Some(SetKey::Named(port.clone())),
        };
        (peers, ports)
    }
}

/// A set with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetContent {
    /// What it is of.
    pub key: SetKey,
    /// Its elements.
    pub elements: BTreeSet<Element>,
}

/// The content of the kernel's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The chains of pods that policies select, by direction and address.
    pub pods: BTreeMap<(Direction, Ipv4Addr), ChainName>,
    /// The chains.
    pub chains: BTreeMap<ChainName, Chain>,
    /// The sets.
    pub sets: BTreeMap<SetName, SetContent>,
}

/// What may differ between two tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub(crate) pods: BTreeSet<(Direction, Ipv4Addr)>,
    pub(crate) chains: BTreeSet<ChainName>,
    pub(crate) sets: BTreeSet<SetName>,
    pub(crate) elements: BTreeSet<(SetName, Element)>,
}

impl Touched {
    /// All of a table.
    pub fn all(table: &Table) -> Self {
        Self {
            pods: table.pods.keys().copied().collect(),
            chains: table.chains.keys().cloned().collect(),
            sets: table.sets.keys().cloned().collect(),
            elements: BTreeSet::new(),
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.pods.extend(other.pods);
        self.chains.extend(other.chains);
        self.sets.extend(other.sets);
        self.elements.extend(other.elements);
    }
}

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a set with elements.
    AddSet(SetContent),
    /// Adds elements to a set.
    AddElements(SetKey, Vec<Element>),
    /// Deletes elements from a set.
    DeleteElements(SetKey, Vec<Element>),
    /// Adds a chain.
    AddChain(Chain),
    /// Sends the connections of pods to other chains, or to none.
    SetPods {
        /// The direction.
        direction: Direction,
        /// Addresses that have a chain, and have it no more.
        removed: Vec<Ipv4Addr>,
        /// Addresses with their chains.
        added: Vec<(Ipv4Addr, ChainName)>,
    },
    /// Deletes a chain that no pod has any more.
    DeleteChain(ChainName),
    /// Deletes a set that no chain reads any more.
    DeleteSet(SetName),
}

/// The changes from the table that is `applied` to the one that is `desired`, which differ in nothing but what was touched.
/// Each change refers only to what exists by then.
pub fn changes(desired: &Table, applied: &Table, touched: &Touched) -> Vec<Change> {
    let mut changes = Vec::new();
    for name in &touched.sets {
        if let (Some(set), None) = (desired.sets.get(name), applied.sets.get(name)) {
            changes.push(Change::AddSet(set.clone()));
        }
    }
    let mut added: BTreeMap<&SetName, Vec<Element>> = BTreeMap::new();
    let mut deleted: BTreeMap<&SetName, Vec<Element>> = BTreeMap::new();
    // A set that was removed and added again since may have other elements.
    let elements = |table: &Table, name: &SetName| {
        let set = table.sets.get(name).into_iter();
        let elements = set.flat_map(|set| set.elements.iter().copied());
        elements.map(|element| (name.clone(), element)).collect::<Vec<_>>()
    };
    let again = touched.sets.iter().flat_map(|name| [elements(desired, name), elements(applied, name)]);
    let all: BTreeSet<_> = again.flatten().collect();
    let touched_elements = touched.elements.union(&all);
    for (name, element) in touched_elements {
        // One that is new has all of its elements, and one that is deleted needs none deleted.
        let (Some((name, after)), Some(before)) = (desired.sets.get_key_value(name), applied.sets.get(name))
        else {
            continue;
        };
        match (after.elements.contains(element), before.elements.contains(element)) {
            (true, false) => added.entry(name).or_default().push(*element),
            (false, true) => deleted.entry(name).or_default().push(*element),
            _ => {}
        }
    }
    let key = |name: &SetName| desired.sets.get(name).map(|set| set.key.clone());
    let removals =
        deleted.into_iter().filter_map(|(name, elements)| Some(Change::DeleteElements(key(name)?, elements)));
    changes.extend(removals);
    let additions =
        added.into_iter().filter_map(|(name, elements)| Some(Change::AddElements(key(name)?, elements)));
    changes.extend(additions);
    for name in &touched.chains {
        if let (Some(chain), None) = (desired.chains.get(name), applied.chains.get(name)) {
            changes.push(Change::AddChain(chain.clone()));
        }
    }
    for direction in Direction::ALL {
        let mut removed = Vec::new();
        let mut added = Vec::new();
        for pod in touched.pods.iter().filter(|(of, _)| *of == direction) {
            let (after, before) = (desired.pods.get(pod), applied.pods.get(pod));
            if after == before {
                continue;
            }
            removed.extend(before.map(|_| pod.1));
            added.extend(after.map(|chain| (pod.1, chain.clone())));
        }
        if !(removed.is_empty() && added.is_empty()) {
            changes.push(Change::SetPods { direction, removed, added });
        }
    }
    for name in &touched.chains {
        if let (None, Some(_)) = (desired.chains.get(name), applied.chains.get(name)) {
            changes.push(Change::DeleteChain(name.clone()));
        }
    }
    for name in &touched.sets {
        if let (None, Some(_)) = (desired.sets.get(name), applied.sets.get(name)) {
            changes.push(Change::DeleteSet(name.clone()));
        }
    }
    changes
}

impl Table {
    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::AddSet(set) => {
                self.sets.insert(set.key.name(), set);
            }
            Change::AddElements(key, elements) => {
                if let Some(set) = self.sets.get_mut(&key.name()) {
                    set.elements.extend(elements);
                }
            }
            Change::DeleteElements(key, elements) => {
                if let Some(set) = self.sets.get_mut(&key.name()) {
                    for element in elements {
                        set.elements.remove(&element);
                    }
                }
            }
            Change::AddChain(chain) => {
                self.chains.insert(chain.name(), chain);
            }
            Change::SetPods { direction, removed, added } => {
                for address in removed {
                    self.pods.remove(&(direction, address));
                }
                self.pods.extend(added.into_iter().map(|(address, chain)| ((direction, address), chain)));
            }
            Change::DeleteChain(name) => {
                self.chains.remove(&name);
            }
            Change::DeleteSet(name) => {
                self.sets.remove(&name);
            }
        }
    }
}
