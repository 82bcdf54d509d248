//! The addresses that a component can connect to on behalf of a client.

use std::net::IpAddr;

/// Whether an address is a global unicast address, like Go's `IsGlobalUnicast`. Loopback, link-local (such as the metadata
/// service of clouds), unspecified, multicast and broadcast addresses are not.
pub fn is_global_unicast(address: &IpAddr) -> bool {
    // An IPv4-mapped IPv6 address reaches the same host as the IPv4 address.
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_addresses_are_not_global_in_any_notation() {
        for (address, global) in [
            ("10.1.2.3", true),
            ("2001:db8::1", true),
            ("::ffff:10.1.2.3", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(is_global_unicast(&address.parse().unwrap()), global, "{address}");
        }
    }
}
