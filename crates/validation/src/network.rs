//! IPv4 networks, such as the pod CIDR of a node.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 network: its first address, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv4Network {
    first: u32,
    prefix: u8,
}

/// Why a text is not an IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidNetwork {
    /// The text does not have the form `ADDRESS/PREFIX`.
    Form,
    /// The address has bits beyond the prefix.
    HostBits(Ipv4Network),
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("write an IPv4 network, such as 10.244.0.0/16"),
            Self::HostBits(network) => {
                write!(f, "the address has bits beyond the prefix; the network is {network}")
            }
        }
    }
}

impl std::error::Error for InvalidNetwork {}

impl Ipv4Network {
    /// The network with this prefix length that contains an address. A length above 32 counts as 32.
    pub const fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = if prefix > 32 { 32 } else { prefix };
        Self { first: address.to_bits() & mask(prefix), prefix }
    }

    /// The first address.
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first)
    }

    /// The length of the prefix.
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The subnet mask.
    pub const fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(mask(self.prefix))
    }

    /// Whether the network contains an address.
    pub const fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.first
    }

    /// Whether the network contains all addresses of another one.
    pub const fn covers(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address())
    }

    /// Whether two networks have an address in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The address at an offset from the first one; `None` if it is beyond the last one.
    pub const fn at(self, offset: u32) -> Option<Ipv4Addr> {
        if offset & mask(self.prefix) == 0 { Some(Ipv4Addr::from_bits(self.first | offset)) } else { None }
    }
}

const fn mask(prefix: u8) -> u32 {
    // A shift by 32 would overflow.
    if prefix == 0 { 0 } else { u32::MAX << (32 - prefix) }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.prefix)
    }
}

impl FromStr for Ipv4Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = text.split_once('/').ok_or(InvalidNetwork::Form)?;
        let address: Ipv4Addr = address.parse().map_err(|_| InvalidNetwork::Form)?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| is_number && *prefix <= 32);
        let network = Self::new(address, prefix.ok_or(InvalidNetwork::Form)?);
        if network.address() == address { Ok(network) } else { Err(InvalidNetwork::HostBits(network)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Ipv4Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_is_read_and_written() {
        for text in ["10.64.0.0/16", "0.0.0.0/0", "192.0.2.7/32", "10.64.3.0/24"] {
            assert_eq!(network(text).to_string(), text);
        }
        for text in
            ["", "10.64.0.0", "10.64.0.0/", "10.64.0.0/33", "10.64.0.0/+8", "10.64.0/16", "::/64", "/24"]
        {
            assert_eq!(text.parse::<Ipv4Network>(), Err(InvalidNetwork::Form), "{text}");
        }
        let error = "10.64.0.1/16".parse::<Ipv4Network>().unwrap_err();
        assert_eq!(error, InvalidNetwork::HostBits(network("10.64.0.0/16")));
    }

    #[test]
    fn networks_cover_and_overlap() {
        let table = [
            ("10.64.0.0/16", "10.64.3.0/24", true, true),
            ("10.64.3.0/24", "10.64.0.0/16", false, true),
            ("10.64.0.0/16", "10.65.0.0/24", false, false),
            ("0.0.0.0/0", "10.65.0.0/24", true, true),
            ("10.64.0.0/16", "10.64.0.0/16", true, true),
        ];
        for (one, other, covers, overlaps) in table {
            let one = network(one);
            let other = network(other);
            assert_eq!((one.covers(other), one.overlaps(other)), (covers, overlaps), "{one} {other}");
        }
    }

    #[test]
    fn an_address_beyond_the_last_one_is_none() {
        let network = network("10.64.3.0/24");
        assert_eq!(network.at(1), Some(Ipv4Addr::new(10, 64, 3, 1)));
        assert_eq!(network.at(255), Some(Ipv4Addr::new(10, 64, 3, 255)));
        assert_eq!(network.at(256), None);
        assert!(!network.contains(Ipv4Addr::new(10, 64, 4, 0)));
    }
}
