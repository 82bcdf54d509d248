//! The table of Services in the kernel.
//!
//! ```text
//!   table ip <name>
//!     map cluster, external, node-ports   protocol . address . port ──▶ goto a chain of the port
//!     map …-unavailable                   protocol . address . port ──▶ goto reject, drop
//!     map firewall                        protocol . address . port ──▶ goto a chain that drops other clients
//!     chain service/NS/NAME/PROTO/PORT    a random one of its endpoints ▸ dnat; with session affinity ▸ goto the chain of one
//!     chain endpoint/…/ADDRESS:PORT       remember it for the client ▸ dnat
//!     chain prerouting, output            look up ▸ the chain of the port
//!     chain unavailable-…                 no endpoint, no such Service or port ▸ reject
//!     chain postrouting                   masquerade what is marked, or what comes back to where it comes from
//! ```
//!
//! What a packet costs does not grow with the number of Services: it is looked up in at most three maps. Chains of the type nat see
//! the first packet of a connection alone, and the others decide about first packets alone.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use plumb_nftables::{
    Batch, CONNECTION_NEW, Chain, ChainKind, DESTINATION_TRANSLATED, Element, Expression, Hook, Interval,
    LOCAL, Map, Register, Rejection, Set, SetName, SetOptions, Verdict, VerdictMap, address_and_port, types,
};

use super::decide::{ChainRules, EndpointWithClients, Entry, SharedMap, Target};
use super::service::Network;
use super::transaction::Transaction;

/// The bit of the packet mark of connections that are to be masqueraded, which is removed before the packet leaves. kube-proxy
/// has 0x4000 and the port mapping of the CNI project 0x2000; the higher bits are Calico's, Cilium's and Tailscale's.
const MASQUERADE: u32 = 0x1000;
/// How many clients an endpoint remembers at most. Beyond that a client's connections go to any endpoint.
const MAX_CLIENTS: u32 = 65_536;

const FIREWALL_PRIORITY: i32 = -110;
/// After the host ports of pods, which are in a table of their own.
const NAT_PRIORITY: i32 = -99;
/// After the translation: what still has the address of a Service has no endpoint.
const UNAVAILABLE_PRIORITY: i32 = -90;
/// Before the rules of the pod network, which masquerade what leaves.
const POSTROUTING_PRIORITY: i32 = 99;

const RAW: Chain = filter("raw", Hook::Prerouting, -300);
const FIREWALL_PREROUTING: Chain = filter("firewall-prerouting", Hook::Prerouting, FIREWALL_PRIORITY);
const FIREWALL_OUTPUT: Chain = filter("firewall-output", Hook::Output, FIREWALL_PRIORITY);
const PREROUTING: Chain = nat("prerouting", Hook::Prerouting, NAT_PRIORITY);
const OUTPUT: Chain = nat("output", Hook::Output, NAT_PRIORITY);
const UNAVAILABLE_PREROUTING: Chain =
    filter("unavailable-prerouting", Hook::Prerouting, UNAVAILABLE_PRIORITY);
const UNAVAILABLE_OUTPUT: Chain = filter("unavailable-output", Hook::Output, UNAVAILABLE_PRIORITY);
const POSTROUTING: Chain = nat("postrouting", Hook::Postrouting, POSTROUTING_PRIORITY);
const REJECT: &str = "reject";

const fn filter(name: &'static str, hook: Hook, priority: i32) -> Chain<'static> {
    Chain { name, kind: ChainKind::Filter, hook, priority }
}

const fn nat(name: &'static str, hook: Hook, priority: i32) -> Chain<'static> {
    Chain { name, kind: ChainKind::Nat, hook, priority }
}

const HAIRPINS: Set =
    Set { name: "hairpins", key_type: (types::IPV4_ADDR << 6) | types::IPV4_ADDR, key_length: 8 };
const PODS: Set = Set { name: "pods", key_type: types::IPV4_ADDR, key_length: 4 };
const ENDPOINTS: Map = Map {
    name: "",
    key_type: types::INTEGER,
    key_length: 4,
    value_type: types::ADDRESS_AND_PORT,
    value_length: 8,
};
const CLIENTS: Set = Set { name: "", key_type: types::IPV4_ADDR, key_length: 4 };
const BY_NUMBER: VerdictMap = VerdictMap { name: "", key_type: types::INTEGER, key_length: 4 };
const SOURCES: Set = Set { name: "", key_type: types::IPV4_ADDR, key_length: 4 };

/// The registers of the parts of a key, and of an endpoint that was chosen.
const PROTOCOL: Register = Register(0);
const FIRST: Register = Register(0);
const SECOND: Register = Register(1);
const THIRD: Register = Register(2);
const TRANSLATE: Expression = Expression::TranslateDestination { address: FIRST, port: SECOND };

const ALL_MAPS: [SharedMap; 7] = [
    SharedMap::Cluster,
    SharedMap::External,
    SharedMap::NodePorts,
    SharedMap::Firewall,
    SharedMap::ClusterUnavailable,
    SharedMap::ExternalUnavailable,
    SharedMap::NodePortsUnavailable,
];

impl SharedMap {
    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::NodePorts => "node-ports",
            Self::Firewall => "firewall",
            Self::ClusterUnavailable => "cluster-unavailable",
            Self::ExternalUnavailable => "external-unavailable",
            Self::NodePortsUnavailable => "node-ports-unavailable",
        }
    }

    fn has_addresses(self) -> bool {
        !matches!(self, Self::NodePorts | Self::NodePortsUnavailable)
    }

    fn definition(self) -> VerdictMap<'static> {
        let (key_type, key_length) = if self.has_addresses() {
            (types::PROTOCOL_ADDRESS_AND_PORT, 12)
        } else {
            (types::PROTOCOL_AND_PORT, 8)
        };
        VerdictMap { name: self.name(), key_type, key_length }
    }

    /// Looks up a packet, and goes to the chain that the map has for it.
    fn look_up(self) -> Vec<Expression> {
        let mut rule = Vec::new();
        if !self.has_addresses() {
            rule.extend([
                Expression::DestinationKind(FIRST),
                Expression::Equals(FIRST, LOCAL.to_ne_bytes().to_vec()),
            ]);
        }
        rule.push(Expression::TransportProtocol(PROTOCOL));
        if self.has_addresses() {
            rule.extend([Expression::DestinationAddress(SECOND), Expression::DestinationPort(THIRD)]);
        } else {
            rule.push(Expression::DestinationPort(SECOND));
        }
        rule.push(Expression::LookupVerdict { map: self.name().into(), key: PROTOCOL });
        rule
    }
}

impl Entry {
    /// As it is in the registers: each part fills four bytes.
    fn key(&self) -> Vec<u8> {
        let mut key = vec![self.protocol.number(), 0, 0, 0];
        key.extend(self.address.map(|address| address.octets()).into_iter().flatten());
        key.extend(self.port.to_be_bytes());
        key.extend([0, 0]);
        key
    }
}

impl Target {
    fn verdict(&self) -> Verdict {
        match self {
            Self::Chain(chain) => Verdict::Goto(chain.clone().into()),
            Self::Reject => Verdict::Goto(REJECT.into()),
            Self::Drop => Verdict::Drop,
        }
    }
}

/// Which packets come from pods of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Those of the bridge of this name.
    Bridge(String),
    /// Those from addresses that [`Services::add_pod`](super::Services::add_pod) names, on the network of a container runtime.
    Addresses,
}

/// The table of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct KernelTable {
    pub(crate) name: String,
    pub(crate) pods: Pods,
    /// The addresses of Services.
    pub(crate) services: Network,
}

impl KernelTable {
    /// Replaces the table, whatever is in it, by one with this content.
    pub(crate) fn replace(&self, content: &Transaction, pods: &BTreeSet<Ipv4Addr>) -> Batch {
        let mut batch = Batch::new(&self.name);
        batch.remove_table();
        batch.add_table();
        for map in ALL_MAPS {
            batch.add_verdict_map(&map.definition());
        }
        batch.add_set(&HAIRPINS);
        if self.pods == Pods::Addresses {
            batch.add_set(&PODS);
            let keys: Vec<Vec<u8>> = pods.iter().map(|pod| pod.octets().to_vec()).collect();
            batch.add_keys(&PODS, &keys);
        }
        self.add_base_chains(&mut batch);
        self.write(&mut batch, content);
        batch
    }

    /// Changes the table.
    pub(crate) fn change(&self, transaction: &Transaction) -> Batch {
        let mut batch = Batch::new(&self.name);
        self.write(&mut batch, transaction);
        batch
    }

    /// Removes a table, if it exists.
    pub(crate) fn removal(name: &str) -> Batch {
        let mut batch = Batch::new(name);
        batch.remove_table();
        batch
    }

    /// Adds a pod's address, or removes it.
    pub(crate) fn change_pod(&self, pod: Ipv4Addr, add: bool) -> Batch {
        let mut batch = Batch::new(&self.name);
        let key = [pod.octets().to_vec()];
        if add {
            batch.add_keys(&PODS, &key);
        } else {
            batch.delete_keys(&PODS, &key);
        }
        batch
    }

    /// Whether a packet comes from a pod of this cluster.
    fn is_from_pods(&self) -> Vec<Expression> {
        match &self.pods {
            Pods::Bridge(bridge) => {
                vec![Expression::InputInterface(FIRST), Expression::is_interface(FIRST, bridge)]
            }
            Pods::Addresses => vec![
                Expression::SourceAddress(FIRST),
                Expression::Contained { set: PODS.name.into(), key: FIRST },
            ],
        }
    }

    fn add_base_chains(&self, batch: &mut Batch) {
        for chain in [
            RAW,
            FIREWALL_PREROUTING,
            FIREWALL_OUTPUT,
            PREROUTING,
            OUTPUT,
            UNAVAILABLE_PREROUTING,
            UNAVAILABLE_OUTPUT,
            POSTROUTING,
        ] {
            batch.add_chain(&chain);
        }
        batch.add_regular_chain(REJECT);
        let is_tcp = [Expression::TransportProtocol(FIRST), Expression::Equals(FIRST, vec![6])];
        batch.add_rule_to(REJECT, &[&is_tcp[..], &[Expression::Reject(Rejection::TcpReset)]].concat());
        batch.add_rule_to(REJECT, &[Expression::Reject(Rejection::PortUnreachable)]);

        if let Pods::Bridge(bridge) = &self.pods {
            // `route_localnet` would let pods reach servers on the machine's loopback (CVE-2020-8558).
            batch.add_rule(
                &RAW,
                &[
                    Expression::InputInterface(FIRST),
                    Expression::is_interface(FIRST, bridge),
                    Expression::DestinationAddress(FIRST),
                    Expression::Mask(FIRST, [255, 0, 0, 0]),
                    Expression::Equals(FIRST, vec![127, 0, 0, 0]),
                    Expression::Verdict(Verdict::Drop),
                ],
            );
        }
        for chain in [FIREWALL_PREROUTING, FIREWALL_OUTPUT] {
            batch.add_rule(&chain, &first_packet(SharedMap::Firewall.look_up()));
        }
        let from_pods = |rule: Vec<Expression>| [self.is_from_pods(), rule].concat();
        batch.add_rule(&PREROUTING, &from_pods(SharedMap::Cluster.look_up()));
        batch.add_rule(&PREROUTING, &SharedMap::External.look_up());
        batch.add_rule(&PREROUTING, &SharedMap::NodePorts.look_up());
        // What the machine sends is marked as long as it may be for a Service: an endpoint elsewhere may not know the way to
        // the address that it was sent from.
        batch.add_rule(&OUTPUT, &set_mark());
        for map in [SharedMap::Cluster, SharedMap::External, SharedMap::NodePorts] {
            batch.add_rule(&OUTPUT, &map.look_up());
        }
        batch.add_rule(&OUTPUT, &remove_mark());
        let unavailable =
            [SharedMap::ClusterUnavailable, SharedMap::ExternalUnavailable, SharedMap::NodePortsUnavailable];
        for map in unavailable {
            let rule = first_packet(map.look_up());
            batch.add_rule(&UNAVAILABLE_OUTPUT, &rule);
            let rule = if map == SharedMap::ClusterUnavailable { from_pods(rule) } else { rule };
            batch.add_rule(&UNAVAILABLE_PREROUTING, &rule);
        }
        let unallocated = self.reject_unallocated();
        batch.add_rule(&UNAVAILABLE_OUTPUT, &unallocated);
        batch.add_rule(&UNAVAILABLE_PREROUTING, &from_pods(unallocated));
        self.add_masquerades(batch);
    }

    /// Rejects what still has an address of Services: no Service has this address, or this port of it. kube-proxy rejects the
    /// one and drops the other; but a first packet from before the rules of its Service is better answered than sent again.
    /// What the machine serves at such an address itself is an address of the machine.
    fn reject_unallocated(&self) -> Vec<Expression> {
        let (network, prefix) = self.services;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        first_packet(vec![
            Expression::DestinationAddress(FIRST),
            Expression::Mask(FIRST, mask.to_be_bytes()),
            Expression::Equals(FIRST, (u32::from(network) & mask).to_be_bytes().to_vec()),
            Expression::DestinationKind(FIRST),
            Expression::Differs(FIRST, LOCAL.to_ne_bytes().to_vec()),
            Expression::Verdict(Verdict::Goto(REJECT.into())),
        ])
    }

    fn write(&self, batch: &mut Batch, transaction: &Transaction) {
        for map in ALL_MAPS {
            let keys: Vec<Vec<u8>> =
                transaction.remove_entries.iter().filter(|entry| entry.map == map).map(Entry::key).collect();
            batch.delete_verdicts(&map.definition(), keys.iter().map(Vec::as_slice));
        }
        for (name, timeout) in &transaction.add_affinities {
            let options = SetOptions {
                dynamic: true,
                timeout: Some(*timeout),
                size: Some(MAX_CLIENTS),
                ..SetOptions::default()
            };
            batch.add_set_with(&Set { name, ..CLIENTS }, &options);
        }
        for chain in &transaction.add_chains {
            batch.add_regular_chain(chain);
        }
        for chain in &transaction.flush_chains {
            batch.flush_chain(chain);
        }
        for (chain, rules) in &transaction.fill_chains {
            self.fill(batch, chain, rules);
        }
        for map in ALL_MAPS {
            let entries: Vec<(Vec<u8>, Verdict)> = transaction
                .add_entries
                .iter()
                .filter(|(entry, _)| entry.map == map)
                .map(|(entry, target)| (entry.key(), target.verdict()))
                .collect();
            let elements = entries.iter().map(|(key, verdict)| (key.as_slice(), verdict));
            batch.add_verdicts(&map.definition(), elements);
        }
        for chain in &transaction.remove_chains {
            batch.delete_chain(chain);
        }
        for map in &transaction.remove_affinities {
            batch.delete_set(map);
        }
        let pairs = |addresses: &BTreeSet<Ipv4Addr>| -> Vec<Vec<u8>> {
            addresses.iter().map(|address| [address.octets(), address.octets()].concat()).collect()
        };
        batch.delete_keys(&HAIRPINS, &pairs(&transaction.remove_hairpins));
        batch.add_keys(&HAIRPINS, &pairs(&transaction.add_hairpins));
    }

    fn fill(&self, batch: &mut Batch, chain: &str, rules: &ChainRules) {
        let goto = |chain: &str| Expression::Verdict(Verdict::Goto(chain.to_owned().into()));
        match rules {
            ChainRules::Endpoints(endpoints) => fill_endpoints(batch, chain, endpoints),
            ChainRules::Affinity(endpoints) => fill_affinity(batch, chain, endpoints),
            ChainRules::Endpoint { endpoint, clients } => fill_endpoint(batch, chain, *endpoint, clients),
            ChainRules::Masqueraded { to } => {
                batch.add_rule_to(chain, &[set_mark(), vec![goto(to)]].concat());
            }
            ChainRules::OnNode { cluster, local } => {
                if let Some(cluster) = cluster {
                    // What the machine sends is marked.
                    for own in [self.is_from_pods(), is_marked()] {
                        batch.add_rule_to(chain, &[own, vec![goto(cluster)]].concat());
                    }
                }
                if let Some(local) = local {
                    batch.add_rule_to(chain, &[goto(local)]);
                }
            }
            ChainRules::Firewall { allowed } => {
                let intervals: Vec<Interval> = allowed
                    .iter()
                    .map(|(network, prefix)| Interval::for_network(*network, *prefix))
                    .collect();
                let set = batch.add_anonymous_intervals(&SOURCES, &intervals);
                batch.add_rule_to(
                    chain,
                    &[
                        Expression::SourceAddress(FIRST),
                        Expression::NotContained { set, key: FIRST },
                        Expression::Verdict(Verdict::Drop),
                    ],
                );
            }
        }
    }

    fn add_masquerades(&self, batch: &mut Batch) {
        let translated = vec![
            Expression::ConnectionStatus(FIRST),
            Expression::Mask(FIRST, DESTINATION_TRANSLATED.to_ne_bytes()),
            Expression::Differs(FIRST, vec![0; 4]),
        ];
        let masquerade =
            |rule: Vec<Expression>| [translated.clone(), rule, vec![Expression::Masquerade]].concat();
        batch.add_rule(&POSTROUTING, &masquerade([is_marked(), remove_mark()].concat()));
        // An endpoint that reaches itself would answer itself directly, from an address that it did not call.
        let back = vec![
            Expression::SourceAddress(FIRST),
            Expression::DestinationAddress(SECOND),
            Expression::Contained { set: HAIRPINS.name.into(), key: FIRST },
        ];
        batch.add_rule(&POSTROUTING, &masquerade(back));
        if self.pods == Pods::Addresses && !are_bridged_packets_filtered() {
            // Pods on a bridge answer each other on the bridge, past the translation.
            let between = vec![
                Expression::SourceAddress(FIRST),
                Expression::Contained { set: PODS.name.into(), key: FIRST },
                Expression::DestinationAddress(FIRST),
                Expression::Contained { set: PODS.name.into(), key: FIRST },
            ];
            batch.add_rule(&POSTROUTING, &masquerade(between));
        }
    }
}

/// Whether the kernel passes bridged packets to the rules of IPv4 (`br_netfilter`).
fn are_bridged_packets_filtered() -> bool {
    std::fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables")
        .is_ok_and(|value| value.trim() == "1")
}

fn fill_endpoints(batch: &mut Batch, chain: &str, endpoints: &[SocketAddrV4]) {
    let mut rule = Vec::new();
    if let [endpoint] = endpoints {
        rule.extend(endpoint_values(*endpoint));
    } else {
        let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let elements: Vec<Element> = (0..count)
            .zip(endpoints)
            .map(|(index, endpoint)| Element {
                key: index.to_ne_bytes().to_vec(),
                value: address_and_port(*endpoint.ip(), endpoint.port()),
            })
            .collect();
        let map: SetName = batch.add_anonymous_map(&ENDPOINTS, &elements);
        rule.push(Expression::Random { register: FIRST, modulus: count });
        rule.push(Expression::Lookup { map, key: FIRST, value: FIRST });
    }
    rule.push(TRANSLATE);
    batch.add_rule_to(chain, &rule);
}

/// The rules that choose an endpoint with session affinity. The rules that remember a client are apart from those that look it
/// up, as kube-proxy has them: nft 1.0.6 aborts (`consumed > 0`) when it lists a rule that uses what a map has for the client.
fn fill_affinity(batch: &mut Batch, chain: &str, endpoints: &[EndpointWithClients]) {
    let goto = |chain: &str| Verdict::Goto(chain.to_owned().into());
    for EndpointWithClients { chain: endpoint, clients } in endpoints {
        batch.add_rule_to(
            chain,
            &[
                Expression::SourceAddress(FIRST),
                Expression::Contained { set: clients.clone().into(), key: FIRST },
                Expression::Verdict(goto(endpoint)),
            ],
        );
    }
    let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
    let by_number: Vec<(Vec<u8>, Verdict)> = (0..count)
        .zip(endpoints)
        .map(|(index, endpoint)| (index.to_ne_bytes().to_vec(), goto(&endpoint.chain)))
        .collect();
    let map = batch.add_anonymous_verdict_map(&BY_NUMBER, &by_number);
    let random = Expression::Random { register: FIRST, modulus: count };
    batch.add_rule_to(chain, &[random, Expression::LookupVerdict { map, key: FIRST }]);
}

fn fill_endpoint(batch: &mut Batch, chain: &str, endpoint: SocketAddrV4, clients: &str) {
    let set = clients.to_owned().into();
    let remember = Expression::Update { set, key: FIRST, value: None, timeout: None };
    batch.add_rule_to(chain, &[Expression::SourceAddress(FIRST), remember]);
    // A rule of its own: the one above ends at its update while the set is full.
    let [address, port] = endpoint_values(endpoint);
    batch.add_rule_to(chain, &[address, port, TRANSLATE]);
}

fn endpoint_values(endpoint: SocketAddrV4) -> [Expression; 2] {
    let [high, low] = endpoint.port().to_be_bytes();
    [Expression::Value(FIRST, endpoint.ip().octets()), Expression::Value(SECOND, [high, low, 0, 0])]
}

fn first_packet(rule: Vec<Expression>) -> Vec<Expression> {
    let mut first = vec![
        Expression::ConnectionState(FIRST),
        Expression::Mask(FIRST, CONNECTION_NEW.to_ne_bytes()),
        Expression::Differs(FIRST, vec![0; 4]),
    ];
    first.extend(rule);
    first
}

fn set_mark() -> Vec<Expression> {
    change_mark(MASQUERADE)
}

fn remove_mark() -> Vec<Expression> {
    change_mark(0)
}

fn change_mark(to: u32) -> Vec<Expression> {
    vec![
        Expression::PacketMark(FIRST),
        Expression::MaskAndXor(FIRST, (!MASQUERADE).to_ne_bytes(), to.to_ne_bytes()),
        Expression::SetPacketMark(FIRST),
    ]
}

fn is_marked() -> Vec<Expression> {
    vec![
        Expression::PacketMark(FIRST),
        Expression::Mask(FIRST, MASQUERADE.to_ne_bytes()),
        Expression::Differs(FIRST, vec![0; 4]),
    ]
}
