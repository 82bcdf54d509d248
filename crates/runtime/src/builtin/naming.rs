//! Names on the machine, made from the data directory: two clusters don't meet.

use std::net::Ipv4Addr;
use std::path::Path;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// Names that are this cluster's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Naming {
    hash: String,
    seed: [u8; 2],
}

impl Naming {
    pub(crate) fn of(data_dir: &Path) -> Self {
        let hash = digest(&SHA256, data_dir.as_os_str().as_encoded_bytes());
        let seed = [hash.as_ref().first().copied().unwrap_or(0), hash.as_ref().get(1).copied().unwrap_or(0)];
        Self { hash: HEXLOWER.encode(hash.as_ref()), seed }
    }

    /// The cgroup that all pods are in.
    pub(super) fn cgroup(&self) -> String {
        format!("plumb-{}", &self.hash[..12])
    }

    /// The bridge that all pods are connected to. Interfaces have at most 15 letters.
    pub(super) fn bridge(&self) -> String {
        format!("plumb{}", &self.hash[..8])
    }

    /// The table of the rules that translate the addresses of pods.
    pub(super) fn table(&self) -> String {
        self.cgroup()
    }

    /// The table of the rules of network policies.
    pub(super) fn policies_table(&self) -> String {
        format!("{}-policies", self.cgroup())
    }

    /// The interface with the address at which pods of a network that is not ours reach the API server.
    pub(crate) fn service_interface(&self) -> String {
        format!("plumbapi{}", &self.hash[..7])
    }

    /// The table of the rules that translate the address of the Service `kubernetes` for them.
    pub(crate) fn service_table(&self) -> String {
        format!("{}-api", self.cgroup())
    }

    /// The host's end of a pod's veth pair.
    pub(super) fn veth(&self, sandbox: &str) -> String {
        format!("v{}{}", &self.hash[..6], sandbox.get(..8).unwrap_or(sandbox))
    }

    /// The first address of the default pod network of 256 addresses, in 10.64.0.0/10 without the network of Services,
    /// 10.96.0.0/12.
    pub(super) fn network(&self) -> Ipv4Addr {
        let second = match 64 + self.seed[0] % 64 {
            services @ 96..112 => services - 32,
            second => second,
        };
        Ipv4Addr::new(10, second, self.seed[1], 0)
    }

    /// An id for something, 64 letters like those of other runtimes.
    pub(super) fn id(&self, of: &str) -> String {
        HEXLOWER.encode(digest(&SHA256, format!("{} {of}", self.hash).as_bytes()).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_default_network_has_addresses_of_services() {
        for first in 0..=255 {
            let naming = Naming { hash: String::new(), seed: [first, 7] };
            let [a, b, c, d] = naming.network().octets();
            assert_eq!((a, c, d), (10, 7, 0));
            assert!((64..96).contains(&b) || (112..128).contains(&b), "{b}");
        }
    }

    #[test]
    fn names_fit_and_differ() {
        let (one, two) = (Naming::of(Path::new("/a")), Naming::of(Path::new("/b")));
        for interface in [one.bridge(), one.service_interface(), one.veth(&one.id("x"))] {
            assert!(interface.len() <= 15, "{interface}");
        }
        assert_ne!(one.bridge(), two.bridge());
        assert_ne!(one.cgroup(), two.cgroup());
        assert_ne!(one.id("x"), two.id("x"));
    }
}
