//! What a table consists of besides rules: chains, sets and maps.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The netfilter hook of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A packet has arrived, and is not routed yet.
    Prerouting = 0,
    /// A packet is for this machine.
    Input = 1,
    /// A packet is for another machine or a pod.
    Forward = 2,
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
pub struct Chain<'a> {
    /// Its name within the table.
    pub name: &'a str,
    /// What its rules can do.
    pub kind: ChainKind,
    /// Where packets enter it.
    pub hook: Hook,
    /// Chains of the same hook are called in ascending order of this.
    pub priority: i32,
}

/// A map from keys of one length to values of another.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    /// Its name within the table.
    pub name: &'a str,
    /// The type of the key for `nft list`: types of the `nft` program, six bits each. The kernel does not read it.
    pub key_type: u32,
    /// The length of a key in bytes.
    pub key_length: u32,
    /// The type of the value for `nft list`.
    pub value_type: u32,
    /// The length of a value in bytes.
    pub value_length: u32,
}

/// A map from keys of one length to verdicts.
#[derive(Clone, Copy, Debug)]
pub struct VerdictMap<'a> {
    /// Its name within the table.
    pub name: &'a str,
    /// The type of a key, as in [`Map`].
    pub key_type: u32,
    /// The length of a key in bytes.
    pub key_length: u32,
}

/// A set of keys of one length.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// Its name within the table.
    pub name: &'a str,
    /// The type of a key, as in [`Map`].
    pub key_type: u32,
    /// The length of a key in bytes.
    pub key_length: u32,
}

/// What a set or map can have besides elements that stay until they are deleted. The default is nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    /// Whether its keys are intervals.
    pub intervals: bool,
    /// The lengths in bytes, without padding, of the parts of a concatenated key, which the kernel needs for intervals.
    pub fields: Vec<u8>,
    /// Whether rules add elements.
    pub dynamic: bool,
    /// How long an element stays that was added or updated.
    pub timeout: Option<Duration>,
    /// How many elements it has at most: a bound for those that rules add.
    pub size: Option<u32>,
}

/// A set or map in an expression: by its name, or without one in the same [`Batch`](crate::Batch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetName {
    pub(crate) name: Cow<'static, str>,
    pub(crate) number: Option<u32>,
}

impl From<&'static str> for SetName {
    fn from(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), number: None }
    }
}

impl From<String> for SetName {
    fn from(name: String) -> Self {
        Self { name: Cow::Owned(name), number: None }
    }
}

impl From<Cow<'static, str>> for SetName {
    fn from(name: Cow<'static, str>) -> Self {
        Self { name, number: None }
    }
}

/// The types of the `nft` program, for [`Map`] and [`Set`].
pub mod types {
    /// `integer`.
    pub const INTEGER: u32 = 4;
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
    /// `mark`.
    pub const MARK: u32 = 19;
    /// `ipv4_addr . inet_service`.
    pub const ADDRESS_AND_PORT: u32 = (IPV4_ADDR << 6) | INET_SERVICE;
    /// `inet_proto . ipv4_addr . inet_service`.
    pub const PROTOCOL_ADDRESS_AND_PORT: u32 = (INET_PROTO << 12) | ADDRESS_AND_PORT;
    /// `inet_proto . inet_service`.
    pub const PROTOCOL_AND_PORT: u32 = (INET_PROTO << 6) | INET_SERVICE;
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

/// Keys from one to another, both included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The first key, as it is in registers.
    pub first: Vec<u8>,
    /// The last key.
    pub last: Vec<u8>,
}

impl Interval {
    /// The addresses of a network.
    pub fn for_network(network: Ipv4Addr, prefix: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        let first = u32::from(network) & mask;
        Self { first: first.to_be_bytes().to_vec(), last: (first | !mask).to_be_bytes().to_vec() }
    }

    /// Sorted, and those that overlap or touch combined, as a set of the kernel needs them.
    pub(crate) fn merged(mut intervals: Vec<Self>) -> Vec<Self> {
        intervals.sort_unstable();
        let mut merged: Vec<Self> = Vec::new();
        for interval in intervals {
            match merged.last_mut() {
                Some(before) if successor(&before.last).is_none_or(|next| interval.first <= next) => {
                    if interval.last > before.last {
                        before.last = interval.last;
                    }
                }
                _ => merged.push(interval),
            }
        }
        merged
    }
}

/// The key after this one, of the same length; `None` after the last.
pub(crate) fn successor(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, overflows) = byte.overflowing_add(1);
        *byte = sum;
        if !overflows {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_overlap_or_touch_are_one() {
        let network = |a, b, prefix| Interval::for_network(Ipv4Addr::new(a, b, 0, 0), prefix);
        let merged = Interval::merged(vec![
            network(255, 255, 16),
            network(10, 128, 9),
            network(10, 0, 9),
            network(192, 168, 16),
            network(192, 168, 24),
            network(255, 255, 24),
        ]);
        assert_eq!(merged, [network(10, 0, 8), network(192, 168, 16), network(255, 255, 16)]);
        assert_eq!(network(0, 0, 0), Interval { first: vec![0; 4], last: vec![255; 4] });
        assert_eq!(Interval::merged(vec![network(0, 0, 0), network(10, 0, 8)]), [network(0, 0, 0)]);
    }
}
