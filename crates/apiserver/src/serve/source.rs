//! The source of connections, by which limits are shared among clients that are not authenticated.

use std::net::{IpAddr, Ipv6Addr};

/// The source of connections by its address. One machine has all addresses of a /64 of IPv6.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_share_for_all_its_addresses_of_ipv6() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(source(address("2001:db8::1")), source(address("2001:db8::ffff:2")));
        assert_ne!(source(address("2001:db8::1")), source(address("2001:db8:0:1::1")));
        assert_eq!(source(address("::ffff:10.0.0.1")), address("10.0.0.1"));
        assert_ne!(source(address("10.0.0.1")), source(address("10.0.0.2")));
    }
}
