//! Keeps pods from sending with the addresses of others, of another pod or of the gateway, and from sending to each other past
//! the machine.
//!
//! ```text
//!   table bridge plumb-<hash>
//!     set addresses      interface . hardware address . IPv4 address of each pod
//!     set interfaces     interface of each pod
//!     chain prerouting   IPv4 from its own addresses to the bridge's hardware address,
//!                        ARP about its own addresses to that address or for the gateway ▸ accept; else from a pod ▸ drop
//!   table netdev plumb-<hash>
//!     chain <interface>  frames to link-local addresses (STP, LLDP) from the interface of a pod ▸ drop
//! ```
//!
//! Pods have `NET_RAW` by default, as with containerd. Without these rules one could answer the ARP requests of another, and
//! read and change its traffic, or send from its address. The kernel calls the chain before the bridge learns where the source
//! of a frame is, so that a forged hardware address does not redirect frames either. It does not call it for frames to
//! link-local addresses, which [`ingress`] drops before the bridge has them. Pods have no IPv6 address, and their IPv6 packets
//! are dropped.
//!
//! A frame from one pod to another would pass none of the rules of the family `ip`, unless there is `br_netfilter`. So a pod
//! sends IPv4 packets to the hardware address of the bridge alone, and asks for no other address by ARP than the gateway's;
//! multicast and broadcast are dropped.
//!
//! The rules of a pod are there before anything runs in it, and are removed after its interface. A pod is not created without
//! them, unless the kernel lacks what they need.

mod ingress;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use nix::errno::Errno;
use parking_lot::Mutex;

use self::ingress::Ingress;
use crate::error::{Error, Result};
use plumb_nftables::{
    Batch, Chain, ChainKind, ETHERTYPE_ARP, ETHERTYPE_IPV4, Expression, Family, Hook, Register, Set, Verdict,
    errno, has_table_of, interface, types,
};

const ADDRESSES: Set = Set {
    name: "addresses",
    // `ifname . ether_addr . ipv4_addr`; each part fills a multiple of four bytes.
    key_type: (types::IFNAME << 12) | (types::ETHER_ADDR << 6) | types::IPV4_ADDR,
    key_length: 28,
};
const INTERFACES: Set = Set { name: "interfaces", key_type: types::IFNAME, key_length: 16 };

/// Before other rules, and before `br_netfilter` passes frames to the rules of IPv4.
const PRIORITY: i32 = -300;
const PREROUTING: Chain =
    Chain { name: "prerouting", kind: ChainKind::Filter, hook: Hook::Prerouting, priority: PRIORITY };

/// The registers of the parts of a key of the set of addresses.
const INTERFACE: Register = Register(0);
const HARDWARE: Register = Register(4);
const ADDRESS: Register = Register(6);
const FREE: Register = Register(8);

/// A hardware address.
pub(super) type HardwareAddress = [u8; 6];

/// Every interface of the link.
const BROADCAST: HardwareAddress = [0xff; 6];

/// The hardware address of the pod that has this address. It is derived from it, like that of the CNI project's plugins, so
/// that the rules can be made before the interface. The first bit but one marks addresses that no manufacturer assigns.
pub(super) fn hardware_address(address: Ipv4Addr) -> HardwareAddress {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

/// The addresses that a pod may send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodAddresses {
    pub(super) hardware: HardwareAddress,
    pub(super) address: Ipv4Addr,
}

/// The rules of a cluster.
#[derive(Debug)]
pub(super) struct SourceGuard {
    table: String,
    rules: Mutex<Rules>,
    ingress: Ingress,
}

/// The addresses of the machine on the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gateway {
    pub(super) hardware: HardwareAddress,
    pub(super) address: Ipv4Addr,
}

#[derive(Debug, Default)]
struct Rules {
    /// Without a bridge there is nothing to guard.
    gateway: Option<Gateway>,
    /// By the host's interface of the pod.
    pods: BTreeMap<String, PodAddresses>,
    /// Whether the kernel has the table, as far as is known.
    applied: bool,
    /// Whether the kernel does not have what the rules need.
    unsupported: bool,
    /// Whether the last attempt failed, and that was reported.
    failed: bool,
}

impl SourceGuard {
    pub(super) fn new(table: String) -> Self {
        Self { ingress: Ingress::new(table.clone()), table, rules: Mutex::default() }
    }

    /// Adopts a pod that runs already.
    pub(super) fn adopt(&self, veth: String, pod: PodAddresses) {
        self.ingress.adopt(veth.clone());
        self.rules.lock().pods.insert(veth, pod);
    }

    /// Sets the addresses of the bridge, before it has ports.
    pub(super) fn set_gateway(&self, gateway: Gateway) {
        let mut rules = self.rules.lock();
        let before = rules.gateway.replace(gateway);
        if rules.applied
            && before != Some(gateway)
            && let Err(error) = self.replace(&mut rules)
        {
            rules.note_failure(&error);
        }
    }

    /// Makes the rules of adopted pods, if there are any: an agent that was killed may have left others.
    pub(super) fn resume(&self) {
        self.ingress.resume();
        let mut rules = self.rules.lock();
        if !rules.pods.is_empty()
            && let Err(error) = self.replace(&mut rules)
        {
            rules.note_failure(&error);
        }
    }

    /// Binds a pod to its addresses, before its interface exists. A kernel without the family `bridge` is only warned about;
    /// any other error may pass, and the pod is not to be created until then.
    pub(super) fn add(&self, veth: &str, pod: PodAddresses) -> Result<()> {
        let mut rules = self.rules.lock();
        let before = rules.pods.insert(veth.to_owned(), pod);
        if rules.unsupported {
            return Ok(());
        }
        if rules.applied && before.is_none() {
            let mut batch = self.batch();
            batch.add_keys(&ADDRESSES, &[key(veth, pod)]);
            batch.add_keys(&INTERFACES, &[interface(veth)]);
            if batch.commit().is_ok() {
                return Ok(());
            }
            // An administrator may have flushed all rules: then they are made anew.
        }
        let Err(error) = self.replace(&mut rules) else { return Ok(()) };
        if is_unsupported(&error) {
            rules.note_failure(&error);
            return Ok(());
        }
        rules.pods.remove(veth);
        rules.failed = true;
        Err(Error::io(format!("binding the interface {veth} to the addresses of its pod"), &error))
    }

    /// Adds the rules that need the interface of the pod, before anything runs in the pod.
    pub(super) fn add_ingress(&self, veth: &str) -> Result<()> {
        self.ingress.add(veth)
    }

    /// Removes the rules of a pod whose interface was removed.
    pub(super) fn remove(&self, veth: &str) {
        self.ingress.remove(veth);
        let mut rules = self.rules.lock();
        let Some(pod) = rules.pods.remove(veth) else { return };
        if !rules.applied {
            return;
        }
        let mut batch = self.batch();
        batch.delete_keys(&ADDRESSES, &[key(veth, pod)]);
        batch.delete_keys(&INTERFACES, &[interface(veth)]);
        if let Err(error) = batch.commit().or_else(|_| self.replace(&mut rules)) {
            rules.failed = true;
            tracing::warn!(%error, interface = veth, "the rules of a pod that has ended could not be removed");
        }
    }

    /// Makes the rules anew if another program has removed them, or if they could not be made before.
    pub(super) fn repair(&self) {
        self.ingress.repair();
        let mut rules = self.rules.lock();
        if rules.is_retry_due() {
            if let Err(error) = self.replace(&mut rules) {
                rules.note_failure(&error);
            }
            return;
        }
        if !rules.applied || has_table_of(Family::Bridge, &self.table).unwrap_or(true) {
            return;
        }
        match self.replace(&mut rules) {
            Ok(()) => tracing::warn!(
                "another program had removed the rules that keep pods from sending with foreign addresses; they are made anew"
            ),
            Err(error) => {
                rules.failed = true;
                tracing::warn!(
                    %error,
                    "another program has removed the rules that keep pods from sending with foreign addresses"
                );
            }
        }
    }

    /// Removes all rules.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.ingress.clear()?;
        let mut rules = self.rules.lock();
        let mut batch = self.batch();
        batch.remove_table();
        match batch.commit() {
            // A kernel without the family has no rules to remove.
            Err(error) if rules.applied => return Err(error),
            _ => {}
        }
        (rules.applied, rules.failed) = (false, false);
        Ok(())
    }

    fn batch(&self) -> Batch {
        Batch::for_family(Family::Bridge, &self.table)
    }

    fn replace(&self, rules: &mut Rules) -> io::Result<()> {
        let Some(gateway) = rules.gateway else { return Ok(()) };
        let mut batch = self.batch();
        batch.remove_table();
        batch.add_table();
        batch.add_set(&ADDRESSES);
        batch.add_set(&INTERFACES);
        batch.add_chain(&PREROUTING);
        for rule in accept_own(gateway) {
            batch.add_rule(&PREROUTING, &rule);
        }
        batch.add_rule(&PREROUTING, &[from_pods().as_slice(), &[DROP]].concat());
        if !rules.pods.is_empty() {
            let keys: Vec<_> = rules.pods.iter().map(|(veth, pod)| key(veth, *pod)).collect();
            batch.add_keys(&ADDRESSES, &keys);
            let names: Vec<_> = rules.pods.keys().map(|veth| interface(veth)).collect();
            batch.add_keys(&INTERFACES, &names);
        }
        rules.applied = false;
        batch.commit()?;
        rules.applied = true;
        if std::mem::take(&mut rules.failed) {
            tracing::info!("the rules that keep pods from sending with foreign addresses are made now");
        }
        Ok(())
    }
}

impl Rules {
    /// Warns, once, that pods are not bound to their addresses. Only a kernel without what the rules need is not tried again:
    /// other errors, such as `ENOBUFS` or `EBUSY`, pass.
    fn note_failure(&mut self, error: &io::Error) {
        self.unsupported |= is_unsupported(error);
        if !std::mem::replace(&mut self.failed, true) {
            let will_retry = !self.unsupported;
            tracing::warn!(
                %error,
                will_retry,
                "pods with the capability NET_RAW can send with the addresses of other pods: the kernel does not take \
                 nftables rules of the family bridge"
            );
        }
    }

    /// Whether there are pods whose rules could not be made, and may be now.
    fn is_retry_due(&self) -> bool {
        self.failed && !self.applied && !self.unsupported && !self.pods.is_empty()
    }
}

/// Whether the kernel lacks nftables, a family, or an expression of the rules.
fn is_unsupported(error: &io::Error) -> bool {
    let lacking = [Errno::EOPNOTSUPP, Errno::EAFNOSUPPORT, Errno::ENOENT, Errno::EPROTONOSUPPORT];
    errno(error).is_some_and(|number| lacking.contains(&number))
}

const DROP: Expression = Expression::Verdict(Verdict::Drop);
const ACCEPT: Expression = Expression::Verdict(Verdict::Accept);

/// As it is in the registers.
fn key(veth: &str, pod: PodAddresses) -> Vec<u8> {
    let mut key = interface(veth);
    key.extend(pod.hardware);
    key.extend([0, 0]);
    key.extend(pod.address.octets());
    key
}

fn from_pods() -> [Expression; 2] {
    [
        Expression::InputInterface(INTERFACE),
        Expression::Contained { set: INTERFACES.name.into(), key: INTERFACE },
    ]
}

/// The rules for what a pod may send.
fn accept_own(gateway: Gateway) -> [Vec<Expression>; 3] {
    let is_protocol =
        |number: [u8; 2]| [Expression::Protocol(INTERFACE), Expression::Equals(INTERFACE, number.to_vec())];
    let goes_to = |hardware: HardwareAddress| {
        [Expression::EthernetDestination(FREE), Expression::Equals(FREE, hardware.to_vec())]
    };
    let known = || Expression::Contained { set: ADDRESSES.name.into(), key: INTERFACE };
    let mut ipv4 = is_protocol(ETHERTYPE_IPV4).to_vec();
    ipv4.extend(goes_to(gateway.hardware));
    ipv4.extend([
        Expression::InputInterface(INTERFACE),
        Expression::EthernetSource(HARDWARE),
        Expression::SourceAddress(ADDRESS),
        known(),
        ACCEPT,
    ]);
    // The sender that the packet claims, and the one that the frame has.
    let about_itself = [
        Expression::InputInterface(INTERFACE),
        Expression::EthernetSource(HARDWARE),
        Expression::ArpSenderAddress(ADDRESS),
        known(),
        Expression::ArpSenderHardware(HARDWARE),
        known(),
        ACCEPT,
    ];
    // An answer, which may be to any address of the machine, or a question that checks a cached answer.
    let mut arp_to_gateway = is_protocol(ETHERTYPE_ARP).to_vec();
    arp_to_gateway.extend(goes_to(gateway.hardware));
    arp_to_gateway.extend(about_itself.clone());
    let mut arp_for_gateway = is_protocol(ETHERTYPE_ARP).to_vec();
    arp_for_gateway.extend(goes_to(BROADCAST));
    arp_for_gateway.extend([
        Expression::ArpTargetAddress(FREE),
        Expression::Equals(FREE, gateway.address.octets().to_vec()),
    ]);
    arp_for_gateway.extend(about_itself);
    [ipv4, arp_to_gateway, arp_for_gateway]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_without_what_the_rules_need_is_not_tried_again() {
        let table = [
            (Errno::EOPNOTSUPP, false),
            (Errno::EAFNOSUPPORT, false),
            (Errno::ENOENT, false),
            (Errno::EPROTONOSUPPORT, false),
            (Errno::ENOBUFS, true),
            (Errno::EBUSY, true),
            (Errno::EINTR, true),
            (Errno::ENOMEM, true),
        ];
        for (errno, is_retried) in table {
            let address = Ipv4Addr::new(10, 64, 0, 2);
            let pod = PodAddresses { hardware: hardware_address(address), address };
            let mut rules = Rules { pods: [("v0".to_owned(), pod)].into(), ..Rules::default() };
            rules.note_failure(&io::Error::from_raw_os_error(errno as i32));
            assert_eq!((rules.is_retry_due(), rules.unsupported), (is_retried, !is_retried), "{errno}");
            rules.applied = true;
            assert!(!rules.is_retry_due(), "{errno}");
        }
        assert!(!is_unsupported(&io::Error::other("a netlink answer that cannot be read")));
    }

    #[test]
    fn a_key_has_the_length_of_the_set() {
        let address = Ipv4Addr::new(10, 64, 0, 2);
        let pod = PodAddresses { hardware: hardware_address(address), address };
        let key = key("v0123456789abcd", pod);
        assert_eq!(key.len(), usize::try_from(ADDRESSES.key_length).unwrap());
        assert_eq!(key[16..], [0x0a, 0x58, 10, 64, 0, 2, 0, 0, 10, 64, 0, 2]);
    }
}
