//! Address translation for the pods of a cluster: their way out, and host ports.
//!
//! ```text
//!   table ip plumb-<hash>
//!     map host-ports            protocol . address . port ──▶ pod address . port     0.0.0.0 is every address
//!     set hairpin               address . address of each pod with host ports
//!     chain prerouting, output  destination is this machine ▸ look it up ▸ dnat
//!     chain postrouting         from pods to elsewhere (not to other nodes'), from a pod to itself ▸ masquerade
//!     chain raw                 from pods to the machine's loopback ▸ drop
//!     chain redirects           ICMP redirects to pods ▸ drop
//!     chain confine             without masquerade, while the machine forwards nothing: from pods to elsewhere ▸ drop
//! ```
//!
//! The table belongs to one data directory, and no other table is touched. It is made and replaced as a whole; a pod with
//! host ports adds and deletes elements of the map. The kernel has the rules for as long as it has the pods: they go
//! on while no agent runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrIn;
use parking_lot::Mutex;

use super::forwarding;
use super::network::set_sysctl;
use crate::error::{Error, Result};
use crate::types::{PortMapping, Protocol};
use plumb_nftables::{
    Batch, Chain, ChainKind, DESTINATION_TRANSLATED, Direction, Element, Expression, Hook, ICMP,
    ICMP_REDIRECT, LOCAL, Map, Register, Set, Verdict, address_and_port, has_table, types,
};

const HOST_PORTS: Map = Map {
    name: "host-ports",
    // `inet_proto . ipv4_addr . inet_service`
    key_type: (types::INET_PROTO << 12) | types::ADDRESS_AND_PORT,
    key_length: 12,
    value_type: types::ADDRESS_AND_PORT,
    value_length: 8,
};

/// Source and destination of a connection to a host port that the pod itself has made.
const HAIRPIN: Set =
    Set { name: "hairpin", key_type: (types::IPV4_ADDR << 6) | types::IPV4_ADDR, key_length: 8 };

/// Before connections are tracked, and so before any translation.
const RAW: Chain = Chain { name: "raw", kind: ChainKind::Filter, hook: Hook::Prerouting, priority: -300 };
const PREROUTING: Chain =
    Chain { name: "prerouting", kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -100 };
const REDIRECTS: Chain =
    Chain { name: "redirects", kind: ChainKind::Filter, hook: Hook::Output, priority: 0 };
const CONFINE: Chain = Chain { name: "confine", kind: ChainKind::Filter, hook: Hook::Forward, priority: 0 };
const OUTPUT: Chain = Chain { name: "output", kind: ChainKind::Nat, hook: Hook::Output, priority: -100 };
const POSTROUTING: Chain =
    Chain { name: "postrouting", kind: ChainKind::Nat, hook: Hook::Postrouting, priority: 100 };

/// The input of the rules of a cluster.
#[derive(Clone, Debug)]
pub(super) struct PodNetwork {
    /// The name of the table.
    pub(super) table: String,
    /// The interface that pods are connected to.
    pub(super) bridge: String,
    /// The network of the pods.
    pub(super) network: Ipv4Addr,
    /// The length of its prefix.
    pub(super) prefix: u8,
    /// The network of the pods of all nodes and the length of its prefix: they see each other's own addresses.
    pub(super) cluster: Option<(Ipv4Addr, u8)>,
    /// Whether pods reach out with the address of the machine.
    pub(super) masquerade: bool,
}

/// A port of the machine; the unspecified address is every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostPort {
    protocol: u8,
    address: Ipv4Addr,
    port: u16,
}

impl HostPort {
    /// The host port of a mapping, if it has one; an error if no pod can have it.
    fn of(mapping: &PortMapping) -> Result<Option<Self>> {
        if mapping.host_port == 0 {
            return Ok(None);
        }
        let address = match mapping.host_ip {
            None => Ipv4Addr::UNSPECIFIED,
            Some(IpAddr::V4(address)) => address,
            Some(IpAddr::V6(address)) if address.is_unspecified() => Ipv4Addr::UNSPECIFIED,
            Some(address) => {
                return Err(Error::InvalidArgument(format!(
                    "the host port {} of {address}: pods have IPv4 addresses only",
                    mapping.host_port
                )));
            }
        };
        Ok(Some(Self { protocol: number(mapping.protocol), address, port: mapping.host_port }))
    }

    /// As it is in the registers: each part fills four bytes.
    fn key(self) -> Vec<u8> {
        let mut key = vec![self.protocol, 0, 0, 0];
        key.extend(address_and_port(self.address, self.port));
        key
    }
}

/// The destination of connections to a host port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PodPort {
    address: Ipv4Addr,
    port: u16,
}

impl PodPort {
    fn value(self) -> Vec<u8> {
        address_and_port(self.address, self.port)
    }
}

/// The protocol's number in an IP header.
const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// The rules of a cluster.
#[derive(Debug)]
pub(super) struct Nat {
    network: PodNetwork,
    rules: Mutex<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    /// Addresses of the bridge at which the node itself listens: their ports are never host ports of pods.
    own: BTreeSet<Ipv4Addr>,
    ports: BTreeMap<HostPort, PodPort>,
    /// Whether the machine forwarded packets when the table was made.
    forwards: bool,
    /// Whether the kernel has the table, as far as is known.
    applied: bool,
    warned: bool,
}

impl Nat {
    pub(super) fn new(network: PodNetwork) -> Self {
        Self { network, rules: Mutex::default() }
    }

    /// Adopts the host ports of a pod that runs already.
    pub(super) fn adopt(&self, mappings: &[PortMapping], pod: Ipv4Addr) {
        let mut rules = self.rules.lock();
        rules.ports.extend(mappings.iter().filter_map(|mapping| entry(mapping, pod).ok().flatten()));
    }

    /// Makes the rules, or replaces them. Pods without a way out still reach each other and the API server, so that a
    /// kernel without `nf_tables` is only warned about.
    pub(super) fn ensure(&self) {
        let mut rules = self.rules.lock();
        if let Err(error) = self.replace(&mut rules)
            && !std::mem::replace(&mut rules.warned, true)
        {
            tracing::warn!(%error, "pods do not reach beyond this machine, and have no host ports");
        }
    }

    /// Makes the rules anew if another program has removed them, such as a firewall that flushes all rules at its start.
    pub(super) fn repair(&self) {
        let mut rules = self.rules.lock();
        if !rules.applied || has_table(&self.network.table).unwrap_or(true) {
            return;
        }
        match self.replace(&mut rules) {
            Ok(()) => {
                tracing::warn!(
                    "another program had removed the rules of the pod network; they are made anew"
                );
            }
            Err(error) => tracing::warn!(%error, "another program has removed the rules of the pod network"),
        }
    }

    /// Makes the rules anew if they depend on whether the machine forwards packets, and that has changed.
    pub(super) fn follow_forwarding(&self) {
        let mut rules = self.rules.lock();
        if self.network.masquerade || !rules.applied || rules.forwards == forwarding::is_on() {
            return;
        }
        if let Err(error) = self.replace(&mut rules) {
            tracing::warn!(%error, "the rules of the pod network do not follow net.ipv4.ip_forward");
        }
    }

    /// Excepts an address of the bridge from host ports.
    pub(super) fn except(&self, address: Ipv4Addr) {
        let is_new = self.rules.lock().own.insert(address);
        if is_new {
            self.ensure();
        }
    }

    /// Forwards host ports to a pod.
    pub(super) fn add(&self, mappings: &[PortMapping], pod: Ipv4Addr) -> Result<()> {
        let mut entries = BTreeMap::new();
        for mapping in mappings {
            entries.extend(entry(mapping, pod)?);
        }
        if entries.is_empty() {
            return Ok(());
        }
        let mut rules = self.rules.lock();
        for port in entries.keys().filter(|port| !rules.ports.contains_key(port)) {
            check_unused(*port, &rules.own)?;
        }
        let taken = entries.keys().filter(|port| rules.ports.contains_key(port));
        let taken: Vec<_> = taken.map(|port| port.key()).collect();
        let is_first = rules.ports.is_empty();
        let before = rules.pods();
        rules.ports.extend(&entries);
        let doing = |error: &io::Error| Error::io("forwarding host ports", error);
        if rules.applied && !is_first {
            let mut batch = Batch::new(&self.network.table);
            if !taken.is_empty() {
                batch.delete_elements(&HOST_PORTS, &taken);
            }
            batch.add_elements(&HOST_PORTS, &elements(&entries));
            change_hairpin(&mut batch, &before, &rules.pods());
            if batch.commit().is_ok() {
                return Ok(());
            }
            // An administrator may have flushed all rules: then they are made anew.
        }
        self.replace(&mut rules).map_err(|error| doing(&error))
    }

    /// Stops forwarding host ports to a pod.
    pub(super) fn remove(&self, mappings: &[PortMapping], pod: Ipv4Addr) {
        let mut rules = self.rules.lock();
        let entries = mappings.iter().filter_map(|mapping| entry(mapping, pod).ok().flatten());
        // Another pod may have the port by now.
        let own: Vec<_> = entries.filter(|(port, to)| rules.ports.get(port) == Some(to)).collect();
        if own.is_empty() {
            return;
        }
        let before = rules.pods();
        for (port, _) in &own {
            rules.ports.remove(port);
        }
        if !rules.applied {
            return;
        }
        let mut batch = Batch::new(&self.network.table);
        batch.delete_elements(&HOST_PORTS, &own.iter().map(|(port, _)| port.key()).collect::<Vec<_>>());
        change_hairpin(&mut batch, &before, &rules.pods());
        let deleted = batch.commit();
        if let Err(error) = deleted.or_else(|_| self.replace(&mut rules)) {
            tracing::warn!(%error, "host ports of a pod that has ended are still forwarded");
        }
    }

    /// Removes all rules.
    pub(super) fn clear(&self) -> io::Result<()> {
        let mut rules = self.rules.lock();
        let mut batch = Batch::new(&self.network.table);
        batch.remove_table();
        let removed = batch.commit();
        match removed {
            // A kernel without `nf_tables` has no rules to remove.
            Err(error) if rules.applied => return Err(error),
            _ => {}
        }
        rules.applied = false;
        Ok(())
    }

    fn replace(&self, rules: &mut Rules) -> io::Result<()> {
        rules.forwards = forwarding::is_on();
        let mut batch = Batch::new(&self.network.table);
        batch.remove_table();
        self.network.fill(&mut batch, rules);
        rules.applied = false;
        let is_needed = self.network.masquerade || !rules.ports.is_empty();
        match batch.commit() {
            // Without the rule about redirects pods still reach each other, since they refuse redirects.
            Err(_) if !is_needed => return Ok(()),
            done => done?,
        }
        rules.applied = true;
        if self.network.masquerade {
            set_sysctl("net/ipv4/ip_forward", "1")?;
        }
        if !rules.ports.is_empty() {
            // The kernel otherwise sends no packet from 127.0.0.1 to a pod. The chain `raw` drops packets that pods
            // would send there.
            set_sysctl(&format!("net/ipv4/conf/{}/route_localnet", self.network.bridge), "1")?;
        }
        Ok(())
    }
}

impl Rules {
    /// The pods with host ports.
    fn pods(&self) -> BTreeSet<Ipv4Addr> {
        self.ports.values().map(|to| to.address).collect()
    }
}

/// Changes the set of pods that reach themselves at host ports.
fn change_hairpin(batch: &mut Batch, before: &BTreeSet<Ipv4Addr>, after: &BTreeSet<Ipv4Addr>) {
    let keys = |pods: &mut dyn Iterator<Item = &Ipv4Addr>| pods.copied().map(hairpin_key).collect::<Vec<_>>();
    let removed = keys(&mut before.difference(after));
    if !removed.is_empty() {
        batch.delete_keys(&HAIRPIN, &removed);
    }
    let added = keys(&mut after.difference(before));
    if !added.is_empty() {
        batch.add_keys(&HAIRPIN, &added);
    }
}

fn hairpin_key(pod: Ipv4Addr) -> Vec<u8> {
    [pod.octets(), pod.octets()].concat()
}

fn entry(mapping: &PortMapping, pod: Ipv4Addr) -> Result<Option<(HostPort, PodPort)>> {
    let to = PodPort { address: pod, port: mapping.container_port };
    Ok(HostPort::of(mapping)?.map(|port| (port, to)))
}

fn elements(ports: &BTreeMap<HostPort, PodPort>) -> Vec<Element> {
    ports.iter().map(|(port, to)| Element { key: port.key(), value: to.value() }).collect()
}

/// Refuses a port that a process of this machine listens on: the translation would take its connections away from it. A port
/// of all addresses is tried at each of them, since a server may listen at one; `own` are those that are excepted from host
/// ports.
fn check_unused(port: HostPort, own: &BTreeSet<Ipv4Addr>) -> Result<()> {
    let addresses = if port.address.is_unspecified() {
        let mut all = local_addresses();
        all.retain(|address| !own.contains(address));
        all
    } else {
        [port.address].into()
    };
    for address in addresses {
        let bound = match port.protocol {
            6 => TcpListener::bind((address, port.port)).map(drop),
            17 => UdpSocket::bind((address, port.port)).map(drop),
            _ => Ok(()),
        };
        // Other errors: an address that the machine does not have yet may come.
        if let Err(error) = bound
            && error.kind() == io::ErrorKind::AddrInUse
        {
            return Err(Error::FailedPrecondition(format!(
                "cannot open hostport {}: listening on {address}: {error}",
                port.port
            )));
        }
    }
    Ok(())
}

/// The IPv4 addresses of the machine: those of the interfaces in the network namespace of the calling thread.
fn local_addresses() -> BTreeSet<Ipv4Addr> {
    let found = getifaddrs().into_iter().flatten();
    let found = found.filter_map(|interface| interface.address?.as_sockaddr_in().map(SockaddrIn::ip));
    found.chain([Ipv4Addr::LOCALHOST]).collect()
}

impl PodNetwork {
    /// All rules, for a table that does not exist.
    fn fill(&self, batch: &mut Batch, rules: &Rules) {
        batch.add_table();
        batch.add_map(&HOST_PORTS);
        batch.add_set(&HAIRPIN);
        for chain in [RAW, REDIRECTS, PREROUTING, OUTPUT, POSTROUTING] {
            batch.add_chain(&chain);
        }
        batch.add_rule(&RAW, &self.drop_to_loopback());
        batch.add_rule(&REDIRECTS, &self.drop_redirects());
        if !self.masquerade && !rules.forwards {
            batch.add_chain(&CONFINE);
            batch.add_rule(&CONFINE, &self.drop_to_others());
        }
        for chain in [PREROUTING, OUTPUT] {
            for address in &rules.own {
                batch.add_rule(&chain, &accept_to(*address));
            }
            // A port of one address has precedence over one of all.
            batch.add_rule(&chain, &forward(Expression::DestinationAddress(ADDRESS)));
            batch.add_rule(&chain, &forward(Expression::Value(ADDRESS, [0; 4])));
        }
        for rule in self.translate_sources() {
            batch.add_rule(&POSTROUTING, &rule);
        }
        if !rules.ports.is_empty() {
            batch.add_elements(&HOST_PORTS, &elements(&rules.ports));
            change_hairpin(batch, &BTreeSet::new(), &rules.pods());
        }
    }

    fn drop_to_loopback(&self) -> Vec<Expression> {
        let mut rule = vec![Expression::InputInterface(FIRST), self.on_bridge()];
        rule.extend([Expression::DestinationAddress(FIRST)]);
        rule.extend(in_loopback());
        rule.push(Expression::Verdict(Verdict::Drop));
        rule
    }

    /// The bridge forwards for the sake of packets between pods. Answers to connections from elsewhere are let pass.
    fn drop_to_others(&self) -> Vec<Expression> {
        vec![
            Expression::InputInterface(FIRST),
            self.on_bridge(),
            Expression::OutputInterface(FIRST),
            Expression::is_other_interface(FIRST, &self.bridge),
            Expression::ConnectionDirection(FIRST),
            Expression::Equals(FIRST, vec![Direction::Original as u8]),
            Expression::Verdict(Verdict::Drop),
        ]
    }

    /// A packet from a pod to another leaves by the interface that it came in by, which the kernel takes for a detour. The
    /// bridge's own `send_redirects` has no effect where that of `all` is on.
    fn drop_redirects(&self) -> Vec<Expression> {
        vec![
            Expression::OutputInterface(FIRST),
            self.on_bridge(),
            Expression::TransportProtocol(FIRST),
            Expression::Equals(FIRST, vec![ICMP]),
            Expression::IcmpType(FIRST),
            Expression::Equals(FIRST, vec![ICMP_REDIRECT]),
            Expression::Verdict(Verdict::Drop),
        ]
    }

    /// Connections that must return through the machine are sent from its address.
    fn translate_sources(&self) -> Vec<Vec<Expression>> {
        let to_pods = || vec![Expression::OutputInterface(FIRST), self.on_bridge()];
        // From this machine's loopback to a host port.
        let mut from_loopback = to_pods();
        from_loopback.push(Expression::SourceAddress(FIRST));
        from_loopback.extend(in_loopback());
        from_loopback.push(Expression::Masquerade);
        // From a pod to a host port of its own: it would answer itself, from an address that it did not call.
        let mut from_itself = to_pods();
        from_itself.extend([
            Expression::SourceAddress(FIRST),
            Expression::DestinationAddress(Register(1)),
            Expression::Contained { set: HAIRPIN.name.into(), key: FIRST },
            Expression::ConnectionStatus(FIRST),
            Expression::Mask(FIRST, DESTINATION_TRANSLATED.to_ne_bytes()),
            Expression::Differs(FIRST, vec![0; 4]),
            Expression::Masquerade,
        ]);
        let mut rules = vec![from_loopback, from_itself];
        if self.masquerade {
            let mut out = self.in_network();
            out.extend([
                Expression::OutputInterface(FIRST),
                Expression::is_other_interface(FIRST, &self.bridge),
            ]);
            if let Some((cluster, prefix)) = self.cluster {
                let mask = mask(prefix);
                out.extend([
                    Expression::DestinationAddress(FIRST),
                    Expression::Mask(FIRST, mask.to_be_bytes()),
                    Expression::Differs(FIRST, (u32::from(cluster) & mask).to_be_bytes().to_vec()),
                ]);
            }
            out.push(Expression::Masquerade);
            rules.push(out);
        }
        rules
    }

    fn on_bridge(&self) -> Expression {
        Expression::is_interface(FIRST, &self.bridge)
    }

    fn in_network(&self) -> Vec<Expression> {
        let mask = mask(self.prefix);
        vec![
            Expression::SourceAddress(FIRST),
            Expression::Mask(FIRST, mask.to_be_bytes()),
            Expression::Equals(FIRST, (u32::from(self.network) & mask).to_be_bytes().to_vec()),
        ]
    }
}

/// The bits of an address that a prefix of this length has.
fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

const FIRST: Register = Register(0);
/// The offsets of the parts of a key of the map.
const PROTOCOL: Register = Register(0);
const ADDRESS: Register = Register(1);
const PORT: Register = Register(2);

/// Whether the address in the first register is in 127.0.0.0/8.
fn in_loopback() -> [Expression; 2] {
    [Expression::Mask(FIRST, [255, 0, 0, 0]), Expression::Equals(FIRST, vec![127, 0, 0, 0])]
}

fn accept_to(address: Ipv4Addr) -> Vec<Expression> {
    vec![
        Expression::DestinationAddress(FIRST),
        Expression::Equals(FIRST, address.octets().to_vec()),
        Expression::Verdict(Verdict::Accept),
    ]
}

/// Looks up the host port of a connection to this machine, with the address that an expression loads.
fn forward(address: Expression) -> Vec<Expression> {
    vec![
        Expression::DestinationKind(FIRST),
        Expression::Equals(FIRST, LOCAL.to_ne_bytes().to_vec()),
        Expression::TransportProtocol(PROTOCOL),
        address,
        Expression::DestinationPort(PORT),
        Expression::Lookup { map: HOST_PORTS.name.into(), key: PROTOCOL, value: FIRST },
        Expression::TranslateDestination { address: Register(0), port: Register(1) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(host_ip: Option<&str>, host_port: u16) -> PortMapping {
        let host_ip = host_ip.map(|address| address.parse().unwrap());
        PortMapping { protocol: Protocol::Udp, container_port: 53, host_port, host_ip }
    }

    #[test]
    fn a_mapping_is_an_element_of_the_map() {
        let pod = Ipv4Addr::new(10, 64, 0, 2);
        let (port, to) = entry(&mapping(Some("192.0.2.1"), 0x1234), pod).unwrap().unwrap();
        assert_eq!(port.key(), [17, 0, 0, 0, 192, 0, 2, 1, 0x12, 0x34, 0, 0]);
        assert_eq!(to.value(), [10, 64, 0, 2, 0, 53, 0, 0]);
        for any in [None, Some("0.0.0.0"), Some("::")] {
            let (port, _) = entry(&mapping(any, 1), pod).unwrap().unwrap();
            assert_eq!(port.address, Ipv4Addr::UNSPECIFIED);
        }
        assert_eq!(entry(&mapping(None, 0), pod).unwrap(), None);
        assert!(entry(&mapping(Some("::1"), 1), pod).is_err());
    }
}
