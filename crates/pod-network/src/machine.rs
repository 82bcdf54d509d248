//! Network namespaces that are machines of their own, so that several nodes run on one machine.
//!
//! ```text
//!   this machine: plumbn<hash> 10.x.y.1/24 ──┬── veth ── eth0 10.x.y.2/24 :namespace of the second node
//!                                            └── veth ── eth0 10.x.y.3/24 :namespace of the third node
//! ```
//!
//! A namespace is held by a mount and no process: it outlives the agent of its node, as pods do, and the next agent finds it with
//! its bridge, its pods' interfaces and its rules.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use plumb_nftables::{Batch, Chain, ChainKind, Expression, Hook, Register};
use plumb_validation::network::Ipv4Network;
use rustix::fs::statfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::kernel::{Kernel, KernelError, doing};

/// The interface of a namespace.
const INSIDE: &str = "eth0";
/// `NSFS_MAGIC`: the file system of namespaces.
const NSFS: i64 = 0x6e73_6673;
const POSTROUTING: Chain<'static> =
    Chain { name: "postrouting", kind: ChainKind::Nat, hook: Hook::Postrouting, priority: 100 };
const FIRST: Register = Register(0);

/// The network of the nodes of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNetwork {
    /// The addresses: the machine has the first one.
    pub network: Ipv4Network,
    /// The bridge that connects the nodes.
    pub bridge: String,
    /// The table of the rule by which they reach beyond the machine.
    table: String,
    /// What the names of interfaces begin with.
    prefix: String,
}

impl NodeNetwork {
    /// The network of a cluster that calls itself `plumb-` and at least eight hexadecimal digits on this machine. It is in
    /// 10.64.0.0/10 as those of pods are, and in none of theirs.
    pub fn new(cluster: &str, pods: Ipv4Network) -> Self {
        let digits = cluster.rsplit('-').next().unwrap_or(cluster);
        let short: String = digits.chars().take(8).collect();
        let [_, _, high, low] = u32::from_str_radix(&short, 16).unwrap_or_default().to_be_bytes();
        let at = |second: u8| Ipv4Network::new(Ipv4Addr::new(10, second, low, 0), 24);
        // Of two neighbours at most one is in a network of at least /16; a larger one leaves another part of the range. None is
        // of Services, 10.96.0.0/12.
        let second = high % 32;
        let candidates = [at(64 + second), at(64 + (second ^ 1)), at(112 + second % 16)];
        let first = candidates[0];
        let network = candidates.into_iter().find(|network| !network.overlaps(pods)).unwrap_or(first);
        Self {
            network,
            bridge: format!("plumbn{short}"),
            table: format!("{cluster}-machine"),
            prefix: format!("n{}-", short.get(..6).unwrap_or(&short)),
        }
    }

    /// The address of this machine, which the first node has.
    pub fn gateway(&self) -> Ipv4Addr {
        self.address(0)
    }

    /// The address of a node, the first one being 0.
    pub fn address(&self, index: u16) -> Ipv4Addr {
        self.network.at(u32::from(index) + 1).unwrap_or(self.network.address())
    }

    /// The most nodes that have addresses.
    pub const MAX_NODES: u16 = 253;

    /// Makes the bridge, unless it exists. With `masquerade` the nodes reach beyond the machine with its address, but for
    /// `pods`, which see each other's own addresses.
    pub fn ensure(&self, masquerade: Option<Ipv4Network>) -> io::Result<()> {
        let make = || -> Result<(), KernelError> {
            Kernel::open()?.ensure_bridge(&self.bridge, self.gateway(), self.network.prefix())?;
            if let Some(pods) = masquerade {
                self.masquerade(pods).map_err(doing("making the rules for nodes of this machine"))?;
                let forwarding = "/proc/sys/net/ipv4/ip_forward";
                fs::write(forwarding, "1").map_err(doing(format!("setting {forwarding}")))?;
            }
            Ok(())
        };
        make().map_err(io::Error::other)
    }

    fn masquerade(&self, pods: Ipv4Network) -> io::Result<()> {
        let mut batch = Batch::new(&self.table);
        batch.remove_table();
        batch.add_table();
        batch.add_chain(&POSTROUTING);
        let mask = |network: Ipv4Network| Expression::Mask(FIRST, network.mask().octets());
        let first = |network: Ipv4Network| network.address().octets().to_vec();
        batch.add_rule(
            &POSTROUTING,
            &[
                Expression::SourceAddress(FIRST),
                mask(self.network),
                Expression::Equals(FIRST, first(self.network)),
                Expression::OutputInterface(FIRST),
                Expression::is_other_interface(FIRST, &self.bridge),
                Expression::DestinationAddress(FIRST),
                mask(pods),
                Expression::Differs(FIRST, first(pods)),
                Expression::Masquerade,
            ],
        );
        batch.commit()
    }

    /// Makes the namespace of a node, held at a path, and connects it, unless it is.
    pub fn ensure_node(&self, index: u16, path: &Path) -> io::Result<()> {
        if !is_held(path) {
            hold_new(path)?;
        }
        let namespace = File::open(path)?;
        within(path, || set_loopback_up().map_err(io::Error::other))?;
        let name = format!("{}{index}", self.prefix);
        let set_hairpin = || {
            if let Err(error) = Kernel::open().and_then(|kernel| kernel.set_hairpin(&name)) {
                tracing::warn!(%error, "pods of a node may not reach their own node by the node ports of this machine");
            }
        };
        if within(path, || Ok(if_nametoindex(INSIDE).is_ok()))? {
            set_hairpin();
            return Ok(());
        }
        let connected = Kernel::open().and_then(|kernel| {
            // The other end of one that is left is in a namespace that is not held any more.
            kernel.remove_interface(&name)?;
            kernel.add_veth(&name, &self.bridge, INSIDE, namespace.as_fd())
        });
        connected.map_err(io::Error::other)?;
        set_hairpin();
        let (address, prefix, gateway) = (self.address(index), self.network.prefix(), self.gateway());
        within(path, move || {
            let set_up = Kernel::open().and_then(|kernel| kernel.set_up(INSIDE, address, prefix, gateway));
            set_up.map_err(io::Error::other)
        })
    }

    /// Removes the bridge and the rules. Namespaces end when they are no longer mounted.
    pub fn remove(&self) -> io::Result<()> {
        Kernel::open().and_then(|kernel| kernel.remove_interface(&self.bridge)).map_err(io::Error::other)?;
        if !plumb_nftables::has_table(&self.table).unwrap_or(false) {
            return Ok(());
        }
        let mut batch = Batch::new(&self.table);
        batch.remove_table();
        batch.commit()
    }
}

fn set_loopback_up() -> Result<(), KernelError> {
    Kernel::open()?.set_link_up("lo")
}

/// Whether a namespace is held at a path: a restart of the machine releases it.
fn is_held(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == NSFS)
}

/// Holds a new network namespace at a path.
fn hold_new(path: &Path) -> io::Result<()> {
    File::create(path)?;
    let path = path.to_owned();
    on_own_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let none: Option<&str> = None;
        mount(Some("/proc/thread-self/ns/net"), &path, none, MsFlags::MS_BIND, none)?;
        Ok(())
    })
}

/// Releases a namespace that is held at a path, if there is one. It ends with the last process in it.
pub fn release_namespace(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Does something in the network namespace that is held at a path. Processes that are started there are in it.
pub fn within<T: Send + 'static>(
    path: &Path,
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = File::open(path)?;
    on_own_thread(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        run()
    })
}

/// A thread that changes its namespace is used for nothing else.
fn on_own_thread<T: Send + 'static>(run: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let thread = thread::Builder::new().name("namespace".into()).spawn(run)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("entering a network namespace broke off")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_fit() {
        let network = NodeNetwork::new("plumb-0c8a1f5e2b7d", "10.70.0.0/16".parse().unwrap());
        assert_eq!(network.network, "10.95.94.0/24".parse().unwrap());
        assert_eq!(
            (network.gateway(), network.address(2)),
            ("10.95.94.1".parse().unwrap(), "10.95.94.3".parse().unwrap())
        );
        assert!(
            network.bridge.len() <= 15 && format!("{}{}", network.prefix, NodeNetwork::MAX_NODES).len() <= 15
        );
    }

    proptest! {
        #[test]
        fn nodes_have_no_addresses_of_pods(hash in any::<u32>(), second in 64..128_u8, prefix in 11..25_u8) {
            let pods = Ipv4Network::new(Ipv4Addr::new(10, second, 0, 0), prefix);
            let nodes = NodeNetwork::new(&format!("plumb-{hash:08x}0000"), pods);
            prop_assert!(!nodes.network.overlaps(pods));
            prop_assert!("10.64.0.0/10".parse::<Ipv4Network>().unwrap().covers(nodes.network));
        }
    }
}
