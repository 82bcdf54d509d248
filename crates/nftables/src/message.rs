//! Netlink messages with their attributes.

use std::net::Ipv4Addr;

use crate::expression::Expression;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NEWTABLE: u16 = 0;
const GETTABLE: u16 = 1;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;
const NEWSET: u16 = 9;
const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLA_F_NESTED: u16 = 0x8000;

const NFPROTO_UNSPEC: u8 = 0;
const NFT_SET_MAP: u32 = 0x8;
const NFTA_LIST_ELEM: u16 = 1;
/// `NF_NETDEV_INGRESS`: the hook of the family `netdev`.
const NF_NETDEV_INGRESS: u32 = 0;
const NFTA_DATA_VALUE: u16 = 1;

/// The length of a netlink message header.
pub(crate) const HEADER: usize = 16;

/// Attributes of a message, or of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // The kernel's attributes of this module are far below 64 KiB; a longer one would be refused by it.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    pub(crate) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inner.0)
    }

    /// `NFTA_DATA_VALUE` in an attribute.
    pub(crate) fn data(self, kind: u16, value: &[u8]) -> Self {
        self.nested(kind, &Self::default().bytes(NFTA_DATA_VALUE, value))
    }

    fn list(self, kind: u16, elements: impl IntoIterator<Item = Self>) -> Self {
        let inner =
            elements.into_iter().fold(Self::default(), |list, element| list.nested(NFTA_LIST_ELEM, &element));
        self.nested(kind, &inner)
    }
}

/// The family of a table: which packets its chains see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 packets.
    Ip = 2,
    /// Whatever an interface receives, before the bridge or a protocol of the machine has it.
    Netdev = 5,
    /// Frames of bridges.
    Bridge = 7,
}

/// A request for a table.
pub(crate) fn table_request(family: Family, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = (NFNL_SUBSYS_NFTABLES << 8) | GETTABLE;
    write(&mut bytes, family, kind, 0, 0, &Attributes::default().text(1, name));
    bytes
}

/// Appends a message; returns where its flags are.
fn write(
    bytes: &mut Vec<u8>,
    family: Family,
    kind: u16,
    flags: u16,
    sequence: u32,
    attributes: &Attributes,
) -> usize {
    // `struct nfgenmsg`: family, version, and for the limits of a batch the subsystem.
    let (family, resource) = if kind >> 8 == NFNL_SUBSYS_NFTABLES {
        (family as u8, 0)
    } else {
        (NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES)
    };
    let length = u32::try_from(HEADER + 4 + attributes.0.len()).unwrap_or(u32::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    let at = bytes.len();
    bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(&attributes.0);
    at
}

/// The netfilter hook of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A packet has arrived, and is not routed yet.
    Prerouting = 0,
    /// A process of this machine sends a packet.
    Output = 3,
    /// A packet is about to leave.
    Postrouting = 4,
}

/// The type of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Accept and drop packets.
    Filter,
    /// Translate addresses: it sees the first packet of each connection.
    Nat,
}

/// A chain that the kernel calls.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Its name within the table.
    pub name: &'static str,
    /// What its rules can do.
    pub kind: ChainKind,
    /// Where packets enter it.
    pub hook: Hook,
    /// Chains of the same hook are called in ascending order of this.
    pub priority: i32,
}

/// A map from keys of one length to values of another.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Its name within the table.
    pub name: &'static str,
    /// The type of the key for `nft list`: types of the `nft` program, six bits each. The kernel does not read it.
    pub key_type: u32,
    /// The length of a key in bytes.
    pub key_length: u32,
    /// The type of the value for `nft list`.
    pub value_type: u32,
    /// The length of a value in bytes.
    pub value_length: u32,
}

/// A set of keys of one length.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// Its name within the table.
    pub name: &'static str,
    /// The type of a key, as in [`Map`].
    pub key_type: u32,
    /// The length of a key in bytes.
    pub key_length: u32,
}

/// The types of the `nft` program, for [`Map`] and [`Set`].
pub mod types {
    /// `ipv4_addr`.
    pub const IPV4_ADDR: u32 = 7;
    /// `ether_addr`.
    pub const ETHER_ADDR: u32 = 9;
    /// `ifname`.
    pub const IFNAME: u32 = 41;
    /// `inet_proto`.
    pub const INET_PROTO: u32 = 12;
    /// `inet_service`: a port.
    pub const INET_SERVICE: u32 = 13;
    /// `ipv4_addr . inet_service`.
    pub const ADDRESS_AND_PORT: u32 = (IPV4_ADDR << 6) | INET_SERVICE;
}

/// An address and a port, as they are in the registers: each part fills four bytes.
pub fn address_and_port(address: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = address.octets().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, as it is in registers.
    pub key: Vec<u8>,
    /// The value, as it is in registers.
    pub value: Vec<u8>,
}

/// Changes of one table, which the kernel applies together.
#[derive(Debug)]
pub struct Batch {
    family: Family,
    table: String,
    bytes: Vec<u8>,
    /// The operation of each message, by its sequence number, for errors.
    messages: Vec<String>,
    /// The offset of the flags of the last message.
    last_flags: usize,
    /// How many maps and sets it adds.
    sets: u32,
}

impl Batch {
    /// Changes of a table of the family `ip`.
    pub fn new(table: &str) -> Self {
        Self::for_family(Family::Ip, table)
    }

    /// Changes of a table of this family.
    pub fn for_family(family: Family, table: &str) -> Self {
        let table = table.to_owned();
        let mut batch =
            Self { family, table, bytes: Vec::new(), messages: Vec::new(), last_flags: 0, sets: 0 };
        batch.message("begin", NFNL_MSG_BATCH_BEGIN, 0, &Attributes::default());
        batch
    }

    /// Removes the table with all that is in it, if it exists.
    pub fn remove_table(&mut self) {
        // Without the first one the second one fails where there is no table.
        self.add_table();
        self.change("delete the table", DELTABLE, 0, &Attributes::default().text(1, &self.table));
    }

    /// Adds the table, unless it exists.
    pub fn add_table(&mut self) {
        self.change("add the table", NEWTABLE, NLM_F_CREATE, &Attributes::default().text(1, &self.table));
    }

    /// Adds a chain of the family `netdev` that the kernel calls for what this interface receives. The interface must exist.
    /// The kernel removes the chain with it.
    pub fn add_ingress_chain(&mut self, interface: &str, priority: i32) {
        let hook = Attributes::default()
            .number(1, NF_NETDEV_INGRESS)
            .bytes(2, &priority.to_be_bytes())
            .text(3, interface);
        let attributes =
            Attributes::default().text(1, &self.table).text(3, interface).nested(4, &hook).text(7, "filter");
        self.change(&format!("add the ingress chain {interface}"), NEWCHAIN, NLM_F_CREATE, &attributes);
    }

    /// Deletes a chain with its rules.
    pub fn delete_chain(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(3, name);
        self.change(&format!("delete the chain {name}"), DELCHAIN, 0, &attributes);
    }

    /// Adds a base chain, which the kernel calls at the chain's hook.
    pub fn add_chain(&mut self, chain: &Chain) {
        let kind = match chain.kind {
            ChainKind::Filter => "filter",
            ChainKind::Nat => "nat",
        };
        let hook = Attributes::default().number(1, chain.hook as u32).bytes(2, &chain.priority.to_be_bytes());
        let attributes =
            Attributes::default().text(1, &self.table).text(3, chain.name).nested(4, &hook).text(7, kind);
        self.change(&format!("add the {kind} chain {}", chain.name), NEWCHAIN, NLM_F_CREATE, &attributes);
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, chain: &Chain, expressions: &[Expression]) {
        self.add_rule_to(chain.name, expressions);
    }

    /// Adds a rule at the end of the chain of this name.
    pub fn add_rule_to(&mut self, chain: &str, expressions: &[Expression]) {
        let attributes = Attributes::default()
            .text(1, &self.table)
            .text(2, chain)
            .list(4, expressions.iter().map(Expression::attributes));
        let what = format!("add a rule to the chain {chain}");
        self.change(&what, NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &attributes);
    }

    /// A number by which the rest of the batch may refer to a set; the kernel requires one.
    fn next_set(&mut self) -> u32 {
        self.sets += 1;
        self.sets
    }

    /// Adds an empty set.
    pub fn add_set(&mut self, set: &Set) {
        let number = self.next_set();
        let attributes = Attributes::default()
            .text(1, &self.table)
            .text(2, set.name)
            .number(3, 0)
            .number(4, set.key_type)
            .number(5, set.key_length)
            .number(10, number);
        self.change(&format!("add the set {}", set.name), NEWSET, NLM_F_CREATE, &attributes);
    }

    /// Adds keys to a set.
    pub fn add_keys(&mut self, set: &Set, keys: &[Vec<u8>]) {
        let attributes = self.elements(set.name, keys.iter().map(|key| Attributes::default().data(1, key)));
        self.change(&format!("add to the set {}", set.name), NEWSETELEM, NLM_F_CREATE, &attributes);
    }

    /// Deletes keys from a set, all of which must be in it.
    pub fn delete_keys(&mut self, set: &Set, keys: &[Vec<u8>]) {
        let attributes = self.elements(set.name, keys.iter().map(|key| Attributes::default().data(1, key)));
        self.change(&format!("delete from the set {}", set.name), DELSETELEM, 0, &attributes);
    }

    /// Adds an empty map.
    pub fn add_map(&mut self, map: &Map) {
        let number = self.next_set();
        let attributes = Attributes::default()
            .text(1, &self.table)
            .text(2, map.name)
            .number(3, NFT_SET_MAP)
            .number(4, map.key_type)
            .number(5, map.key_length)
            .number(6, map.value_type)
            .number(7, map.value_length)
            .number(10, number);
        self.change(&format!("add the map {}", map.name), NEWSET, NLM_F_CREATE, &attributes);
    }

    /// Adds elements to a map.
    pub fn add_elements(&mut self, map: &Map, elements: &[Element]) {
        let written = elements
            .iter()
            .map(|element| Attributes::default().data(1, &element.key).data(2, &element.value));
        let attributes = self.elements(map.name, written);
        self.change(&format!("add to the map {}", map.name), NEWSETELEM, NLM_F_CREATE, &attributes);
    }

    /// Deletes the elements with these keys, all of which must be in the map.
    pub fn delete_elements(&mut self, map: &Map, keys: &[Vec<u8>]) {
        let attributes = self.elements(map.name, keys.iter().map(|key| Attributes::default().data(1, key)));
        self.change(&format!("delete from the map {}", map.name), DELSETELEM, 0, &attributes);
    }

    fn elements(&self, set: &str, elements: impl Iterator<Item = Attributes>) -> Attributes {
        Attributes::default().text(1, &self.table).text(2, set).list(3, elements)
    }

    fn change(&mut self, what: &str, kind: u16, flags: u16, attributes: &Attributes) {
        self.message(what, (NFNL_SUBSYS_NFTABLES << 8) | kind, flags, attributes);
    }

    fn message(&mut self, what: &str, kind: u16, flags: u16, attributes: &Attributes) {
        let sequence = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        self.messages.push(what.to_owned());
        let flags = write(&mut self.bytes, self.family, kind, flags, sequence, attributes);
        if kind >> 8 == NFNL_SUBSYS_NFTABLES {
            self.last_flags = flags;
        }
    }

    /// The bytes to send, and what each message of them does. The kernel acknowledges the last change: it does so only if
    /// it has accepted all of them.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<String>) {
        if let Some(flags) = self.bytes.get_mut(self.last_flags..self.last_flags + 2) {
            let old = u16::from_ne_bytes([flags[0], flags[1]]);
            flags.copy_from_slice(&(old | NLM_F_ACK).to_ne_bytes());
        }
        self.message("end", NFNL_MSG_BATCH_END, 0, &Attributes::default());
        (self.bytes, self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(bytes: &[u8]) -> Vec<(u16, usize)> {
        let mut rest = bytes;
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            found.push((u16::from_ne_bytes(rest[4..6].try_into().unwrap()), length));
            rest = &rest[length..];
        }
        found
    }

    #[test]
    fn attributes_are_padded_to_four_bytes_and_their_length_is_without_the_padding() {
        let attributes = Attributes::default().text(3, "nat").bytes(9, &[7]).number(2, 1);
        let expected = [&[8, 0, 3, 0][..], b"nat\0", &[5, 0, 9, 0, 7, 0, 0, 0], &[8, 0, 2, 0, 0, 0, 0, 1]];
        if cfg!(target_endian = "little") {
            assert_eq!(attributes.0, expected.concat());
        }
        assert_eq!(attributes.0.len(), 24);
    }

    #[test]
    fn a_batch_begins_and_ends_and_requests_one_acknowledgement() {
        let mut batch = Batch::new("t");
        batch.remove_table();
        let (bytes, messages) = batch.finish();
        let kinds: Vec<u16> = sizes(&bytes).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [0x10, 0xa00, 0xa02, 0x11]);
        assert_eq!(messages, ["begin", "add the table", "delete the table", "end"]);
        let mut acknowledged = 0;
        let mut at = 0;
        for (_, length) in sizes(&bytes) {
            let flags = u16::from_ne_bytes(bytes[at + 6..at + 8].try_into().unwrap());
            acknowledged += u16::from(flags & NLM_F_ACK != 0);
            at += length;
        }
        assert_eq!(acknowledged, 1);
    }

    #[test]
    fn every_message_has_the_length_that_it_says() {
        let chain = Chain { name: "c", kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -100 };
        let map = Map { name: "m", key_type: 1, key_length: 4, value_type: 1, value_length: 4 };
        let mut batch = Batch::new("table");
        batch.add_table();
        batch.add_map(&map);
        batch.add_chain(&chain);
        batch.add_rule(&chain, &[Expression::Masquerade]);
        batch.add_elements(&map, &[Element { key: vec![1; 4], value: vec![2; 4] }]);
        batch.delete_elements(&map, &[vec![1; 4]]);
        let (bytes, messages) = batch.finish();
        let found = sizes(&bytes);
        assert_eq!(found.len(), messages.len());
        assert!(found.iter().all(|(_, length)| length % 4 == 0));
    }
}
