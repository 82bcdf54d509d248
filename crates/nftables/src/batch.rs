//! Transactions: the changes of one table.

use std::borrow::Cow;

use crate::expression::{Expression, Verdict};
use crate::message::{Attributes, Family, NFNL_SUBSYS_NFTABLES, write};
use crate::object::{
    Chain, ChainKind, Element, Interval, Map, Set, SetName, SetOptions, VerdictMap, successor,
};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;
const DELRULE: u16 = 8;
const NEWSET: u16 = 9;
const DELSET: u16 = 11;
const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;

const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

const NFT_SET_ANONYMOUS: u32 = 0x1;
const NFT_SET_CONSTANT: u32 = 0x2;
const NFT_SET_INTERVAL: u32 = 0x4;
const NFT_SET_MAP: u32 = 0x8;
const NFT_SET_TIMEOUT: u32 = 0x10;
const NFT_SET_EVAL: u32 = 0x20;
const NFT_SET_CONCAT: u32 = 0x80;
/// `NFT_DATA_VERDICT`: the type of the values of a verdict map.
const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
const NFTA_LIST_ELEM: u16 = 1;
/// `NF_NETDEV_INGRESS`: the hook of the family `netdev`.
const NF_NETDEV_INGRESS: u32 = 0;

/// How many bytes of elements one message has at most: the length of an attribute has 16 bits.
const MAX_ELEMENTS: usize = 48 * 1024;

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

    /// Whether it has no changes. The kernel does not acknowledge such a batch.
    pub fn is_empty(&self) -> bool {
        self.messages.len() == 1
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

    /// Deletes a chain with its rules. Nothing may jump to it any more.
    pub fn delete_chain(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(3, name);
        self.change(&format!("delete the chain {name}"), DELCHAIN, 0, &attributes);
    }

    /// Deletes the rules of a chain.
    pub fn flush_chain(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(2, name);
        self.change(&format!("flush the chain {name}"), DELRULE, 0, &attributes);
    }

    /// Adds a base chain, which the kernel calls at the chain's hook.
    pub fn add_chain(&mut self, chain: &Chain<'_>) {
        let kind = match chain.kind {
            ChainKind::Filter => "filter",
            ChainKind::Nat => "nat",
        };
        let hook = Attributes::default().number(1, chain.hook as u32).bytes(2, &chain.priority.to_be_bytes());
        let attributes =
            Attributes::default().text(1, &self.table).text(3, chain.name).nested(4, &hook).text(7, kind);
        self.change(&format!("add the {kind} chain {}", chain.name), NEWCHAIN, NLM_F_CREATE, &attributes);
    }

    /// Adds a regular chain, which other chains jump to.
    pub fn add_regular_chain(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(3, name);
        self.change(&format!("add the chain {name}"), NEWCHAIN, NLM_F_CREATE, &attributes);
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, chain: &Chain<'_>, expressions: &[Expression]) {
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

    /// Adds an empty set.
    pub fn add_set(&mut self, set: &Set<'_>) {
        self.add_set_with(set, &SetOptions::default());
    }

    /// Adds an empty set with options.
    pub fn add_set_with(&mut self, set: &Set<'_>, options: &SetOptions) {
        self.new_set(set.name, 0, (set.key_type, set.key_length), None, options);
    }

    /// Adds an empty map.
    pub fn add_map(&mut self, map: &Map<'_>) {
        self.add_map_with(map, &SetOptions::default());
    }

    /// Adds an empty map with options.
    pub fn add_map_with(&mut self, map: &Map<'_>, options: &SetOptions) {
        let value = (map.value_type, map.value_length);
        self.new_set(map.name, NFT_SET_MAP, (map.key_type, map.key_length), Some(value), options);
    }

    /// Adds an empty verdict map.
    pub fn add_verdict_map(&mut self, map: &VerdictMap<'_>) {
        self.add_verdict_map_with(map, &SetOptions::default());
    }

    /// Adds an empty verdict map with options.
    pub fn add_verdict_map_with(&mut self, map: &VerdictMap<'_>, options: &SetOptions) {
        let value = (NFT_DATA_VERDICT, 0);
        self.new_set(map.name, NFT_SET_MAP, (map.key_type, map.key_length), Some(value), options);
    }

    /// Adds a map without a name for the next rule, which the kernel deletes with the rule. The name of `map` is not read.
    pub fn add_anonymous_map(&mut self, map: &Map<'_>, elements: &[Element]) -> SetName {
        let name = self.new_set(
            "__map%d",
            NFT_SET_ANONYMOUS | NFT_SET_CONSTANT | NFT_SET_MAP,
            (map.key_type, map.key_length),
            Some((map.value_type, map.value_length)),
            &SetOptions::default(),
        );
        self.change_elements(&name, true, elements.iter().map(data_element));
        name
    }

    /// Adds a verdict map without a name for the next rule, which the kernel deletes with the rule. The name of `map` is not
    /// read. A chain that a verdict refers to must exist.
    pub fn add_anonymous_verdict_map(
        &mut self,
        map: &VerdictMap<'_>,
        elements: &[(Vec<u8>, Verdict)],
    ) -> SetName {
        let name = self.new_set(
            "__map%d",
            NFT_SET_ANONYMOUS | NFT_SET_CONSTANT | NFT_SET_MAP,
            (map.key_type, map.key_length),
            Some((NFT_DATA_VERDICT, 0)),
            &SetOptions::default(),
        );
        let written = elements.iter().map(|(key, verdict)| key_element(key).nested(2, &verdict.attributes()));
        self.change_elements(&name, true, written);
        name
    }

    /// Adds a set of intervals without a name for the next rule, which the kernel deletes with the rule. The name of `set` is
    /// not read.
    pub fn add_anonymous_intervals(&mut self, set: &Set<'_>, intervals: &[Interval]) -> SetName {
        let name = self.new_set(
            "__set%d",
            NFT_SET_ANONYMOUS | NFT_SET_CONSTANT,
            (set.key_type, set.key_length),
            None,
            &SetOptions { intervals: true, ..SetOptions::default() },
        );
        self.change_elements(&name, true, bounds(intervals.to_vec()));
        name
    }

    fn new_set(
        &mut self,
        name: &'_ str,
        flags: u32,
        (key_type, key_length): (u32, u32),
        value: Option<(u32, u32)>,
        options: &SetOptions,
    ) -> SetName {
        // A number by which the rest of the batch may refer to the set; the kernel requires one.
        self.sets += 1;
        let number = self.sets;
        let concatenated = options.intervals && options.fields.len() > 1;
        let flags = [
            (options.intervals, NFT_SET_INTERVAL),
            (concatenated, NFT_SET_CONCAT),
            (options.timeout.is_some(), NFT_SET_TIMEOUT),
            (options.dynamic, NFT_SET_EVAL),
        ]
        .into_iter()
        .fold(flags, |flags, (has, flag)| if has { flags | flag } else { flags });
        let mut attributes = Attributes::default()
            .text(1, &self.table)
            .text(2, name)
            .number(3, flags)
            .number(4, key_type)
            .number(5, key_length);
        if let Some((value_type, value_length)) = value {
            attributes = attributes.number(6, value_type);
            if value_type != NFT_DATA_VERDICT {
                attributes = attributes.number(7, value_length);
            }
        }
        let mut description = Attributes::default();
        if let Some(size) = options.size {
            description = description.number(1, size);
        }
        if concatenated {
            let fields = options.fields.iter();
            let fields = fields.map(|length| Attributes::default().number(1, u32::from(*length)));
            description = description.list(2, fields);
        }
        if description.len() > 0 {
            attributes = attributes.nested(9, &description);
        }
        attributes = attributes.number(10, number);
        if let Some(timeout) = options.timeout {
            attributes = attributes.long(11, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        }
        self.change(&format!("add the set {name}"), NEWSET, NLM_F_CREATE, &attributes);
        SetName { name: Cow::Owned(name.to_owned()), number: Some(number) }
    }

    /// Deletes a set or map with its elements. No rule may use it any more.
    pub fn delete_set(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(2, name);
        self.change(&format!("delete the set {name}"), DELSET, 0, &attributes);
    }

    /// Deletes the elements of a set or map.
    pub fn flush_set(&mut self, name: &str) {
        let attributes = Attributes::default().text(1, &self.table).text(2, name);
        self.change(&format!("flush the set {name}"), DELSETELEM, 0, &attributes);
    }

    /// Adds keys to a set.
    pub fn add_keys(&mut self, set: &Set<'_>, keys: &[Vec<u8>]) {
        self.change_elements(&named(set.name), true, keys.iter().map(|key| key_element(key)));
    }

    /// Deletes keys from a set, all of which must be in it.
    pub fn delete_keys(&mut self, set: &Set<'_>, keys: &[Vec<u8>]) {
        self.change_elements(&named(set.name), false, keys.iter().map(|key| key_element(key)));
    }

    /// Adds intervals to a set of intervals whose keys have one part. Those that overlap or touch are combined.
    pub fn add_intervals(&mut self, set: &Set<'_>, intervals: &[Interval]) {
        self.change_elements(&named(set.name), true, bounds(intervals.to_vec()));
    }

    /// Deletes intervals from a set, which were added together.
    pub fn delete_intervals(&mut self, set: &Set<'_>, intervals: &[Interval]) {
        self.change_elements(&named(set.name), false, bounds(intervals.to_vec()));
    }

    /// Adds intervals to a set of concatenated intervals: each part of a key has an interval.
    pub fn add_concatenated_intervals(&mut self, set: &Set<'_>, intervals: &[Interval]) {
        self.change_elements(&named(set.name), true, intervals.iter().map(interval_element));
    }

    /// Deletes intervals from a set of concatenated intervals.
    pub fn delete_concatenated_intervals(&mut self, set: &Set<'_>, intervals: &[Interval]) {
        self.change_elements(&named(set.name), false, intervals.iter().map(interval_element));
    }

    /// Adds elements to a map.
    pub fn add_elements(&mut self, map: &Map<'_>, elements: &[Element]) {
        self.change_elements(&named(map.name), true, elements.iter().map(data_element));
    }

    /// Deletes the elements with these keys, all of which must be in the map.
    pub fn delete_elements(&mut self, map: &Map<'_>, keys: &[Vec<u8>]) {
        self.change_elements(&named(map.name), false, keys.iter().map(|key| key_element(key)));
    }

    /// Adds elements to a verdict map. A chain that a verdict refers to must exist.
    pub fn add_verdicts<'a>(
        &mut self,
        map: &VerdictMap<'_>,
        elements: impl IntoIterator<Item = (&'a [u8], &'a Verdict)>,
    ) {
        let elements = elements.into_iter();
        let written = elements.map(|(key, verdict)| key_element(key).nested(2, &verdict.attributes()));
        self.change_elements(&named(map.name), true, written);
    }

    /// Adds concatenated intervals to a verdict map. A chain that a verdict refers to must exist.
    pub fn add_interval_verdicts<'a>(
        &mut self,
        map: &VerdictMap<'_>,
        elements: impl IntoIterator<Item = (&'a Interval, &'a Verdict)>,
    ) {
        let elements = elements.into_iter();
        let written = elements.map(|(key, verdict)| interval_element(key).nested(2, &verdict.attributes()));
        self.change_elements(&named(map.name), true, written);
    }

    /// Deletes the elements with these keys, all of which must be in the map.
    pub fn delete_verdicts<'a>(&mut self, map: &VerdictMap<'_>, keys: impl IntoIterator<Item = &'a [u8]>) {
        self.change_elements(&named(map.name), false, keys.into_iter().map(key_element));
    }

    /// Adds elements, or deletes them, by as many messages as it takes.
    fn change_elements(&mut self, set: &SetName, add: bool, elements: impl Iterator<Item = Attributes>) {
        let mut list = Attributes::default();
        for element in elements {
            list = list.nested(NFTA_LIST_ELEM, &element);
            if list.len() > MAX_ELEMENTS {
                self.write_elements(set, add, &std::mem::take(&mut list));
            }
        }
        if list.len() > 0 {
            self.write_elements(set, add, &list);
        }
    }

    fn write_elements(&mut self, set: &SetName, add: bool, list: &Attributes) {
        let mut attributes = Attributes::default().text(1, &self.table).text(2, &set.name).nested(3, list);
        if let Some(number) = set.number {
            attributes = attributes.number(4, number);
        }
        if add {
            self.change(&format!("add to the set {}", set.name), NEWSETELEM, NLM_F_CREATE, &attributes);
        } else {
            self.change(&format!("delete from the set {}", set.name), DELSETELEM, 0, &attributes);
        }
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

/// A set that is referred to by its name alone.
fn named(name: &str) -> SetName {
    name.to_owned().into()
}

fn key_element(key: &[u8]) -> Attributes {
    Attributes::default().data(1, key)
}

fn data_element(element: &Element) -> Attributes {
    key_element(&element.key).data(2, &element.value)
}

/// `NFTA_SET_ELEM_KEY_END` is in the interval.
fn interval_element(interval: &Interval) -> Attributes {
    key_element(&interval.first).data(10, &interval.last)
}

/// The first key of each interval, and the one after the last as its end.
fn bounds(intervals: Vec<Interval>) -> impl Iterator<Item = Attributes> {
    Interval::merged(intervals).into_iter().flat_map(|interval| {
        let end = successor(&interval.last);
        let end = end.map(|end| key_element(&end).number(3, NFT_SET_ELEM_INTERVAL_END));
        [Some(key_element(&interval.first)), end].into_iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Hook;

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

    #[test]
    fn elements_that_exceed_an_attribute_are_in_several_messages() {
        let set = Set { name: "s", key_type: 1, key_length: 4 };
        let mut batch = Batch::new("t");
        assert!(batch.is_empty());
        batch.add_keys(&set, &(0..10_000_u32).map(|key| key.to_be_bytes().to_vec()).collect::<Vec<_>>());
        assert!(!batch.is_empty());
        let (bytes, messages) = batch.finish();
        assert!(messages.len() > 3, "{messages:?}");
        assert!(sizes(&bytes).iter().all(|(_, length)| *length < usize::from(u16::MAX)));
    }
}
