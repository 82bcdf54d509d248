//! A network policy as it is evaluated.

use std::net::Ipv4Addr;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::selector::PodSelector;
use super::table::{Allow, NamedPort, PeerKey, Peers, Ports};
use crate::services::Protocol;

/// One rule of a policy: any of its peers, at any of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    peers: Vec<Peers>,
    ports: Vec<Ports>,
}

/// A network policy, without what the API server says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The namespace, which is that of the pods that it selects.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Selects the pods that it is about.
    pub subjects: PodSelector,
    /// What may begin connections to them; `None` if it does not say.
    pub ingress: Option<Vec<Rule>>,
    /// Where they may begin connections to; `None` if it does not say.
    pub egress: Option<Vec<Rule>>,
}

impl Policy {
    /// Reads a policy of the API.
    pub fn from_api(policy: &NetworkPolicy) -> Self {
        let namespace = policy.metadata.namespace.clone().unwrap_or_default();
        let none = NetworkPolicySpec::default();
        let spec = policy.spec.as_ref().unwrap_or(&none);
        let given = spec.policy_types.as_deref().unwrap_or_default();
        // SPEC: without types it is about ingress, and about egress if it has rules for that.
        let has = |name: &str, default: bool| {
            if given.is_empty() { default } else { given.iter().any(|given| given == name) }
        };
        let rule = |peers: Option<&[NetworkPolicyPeer]>, ports: Option<&[NetworkPolicyPort]>| Rule {
            peers: read_peers(&namespace, peers.unwrap_or_default()),
            ports: read_ports(ports.unwrap_or_default()),
        };
        let ingress = has("Ingress", true).then(|| {
            let rules = spec.ingress.iter().flatten();
            rules.map(|each| rule(each.from.as_deref(), each.ports.as_deref())).collect()
        });
        let egress = has("Egress", spec.egress.as_ref().is_some_and(|rules| !rules.is_empty())).then(|| {
            let rules = spec.egress.iter().flatten();
            rules.map(|each| rule(each.to.as_deref(), each.ports.as_deref())).collect()
        });
        Self {
            name: policy.metadata.name.clone().unwrap_or_default(),
            subjects: PodSelector::from_api(&spec.pod_selector.clone().unwrap_or_default()),
            ingress,
            egress,
            namespace,
        }
    }
}

impl Rule {
    /// The combinations of peers and ports that it allows.
    pub(crate) fn allows(&self) -> impl Iterator<Item = Allow> + '_ {
        self.peers.iter().flat_map(|peers| {
            self.ports.iter().map(|ports| Allow { peers: peers.clone(), ports: ports.clone() })
        })
    }
}

/// SPEC: no peers are all; peers that can be none (IPv6 blocks, for pods that have IPv4 addresses) are none.
fn read_peers(namespace: &str, peers: &[NetworkPolicyPeer]) -> Vec<Peers> {
    if peers.is_empty() {
        return vec![Peers::Any];
    }
    let mut found = Vec::new();
    let mut blocks = Vec::new();
    for peer in peers {
        if let Some(block) = &peer.ip_block {
            blocks.extend(read_block(block));
            continue;
        }
        let namespaces = peer.namespace_selector.as_ref().map(PodSelector::from_api);
        let pods = PodSelector::from_api(&peer.pod_selector.clone().unwrap_or_default());
        found.push(Peers::Pods(match namespaces {
            Some(namespaces) => PeerKey::Across { namespaces, pods },
            None => PeerKey::Within { namespace: namespace.to_owned(), pods },
        }));
    }
    let blocks = merged(blocks);
    if !blocks.is_empty() {
        found.push(Peers::Blocks(blocks));
    }
    found
}

fn read_ports(ports: &[NetworkPolicyPort]) -> Vec<Ports> {
    if ports.is_empty() {
        return vec![Ports::Any];
    }
    let mut numbers: Vec<(u8, u16, u16)> = Vec::new();
    let mut found = Vec::new();
    for port in ports {
        // The API server accepts no other protocols.
        let Some(protocol) = Protocol::from_api(port.protocol.as_deref()) else { continue };
        let protocol = protocol.number();
        match &port.port {
            None => numbers.push((protocol, 0, u16::MAX)),
            Some(IntOrString::Int(first)) => {
                let number = |port: i32| u16::try_from(port).ok();
                let last = port.end_port.unwrap_or(*first);
                if let (Some(first), Some(last)) = (number(*first), number(last))
                    && first <= last
                {
                    numbers.push((protocol, first, last));
                }
            }
            Some(IntOrString::String(name)) => {
                found.push(Ports::Named(NamedPort { protocol, name: name.clone() }));
            }
        }
    }
    numbers.sort_unstable();
    // The kernel takes no ranges that overlap.
    let mut disjoint: Vec<(u8, u16, u16)> = Vec::new();
    for (protocol, first, last) in numbers {
        match disjoint.last_mut() {
            Some(before) if before.0 == protocol && u32::from(first) <= u32::from(before.2) + 1 => {
                before.2 = before.2.max(last);
            }
            _ => disjoint.push((protocol, first, last)),
        }
    }
    if !disjoint.is_empty() {
        found.push(Ports::Numbers(disjoint));
    }
    found
}

/// The addresses of a block, without its exceptions: first and last of each range.
fn read_block(block: &IPBlock) -> Vec<(u32, u32)> {
    let Some(whole) = read_network(&block.cidr) else { return Vec::new() };
    let mut ranges = vec![whole];
    for except in block.except.iter().flatten().filter_map(|except| read_network(except)) {
        ranges = ranges.into_iter().flat_map(|range| without(range, except)).collect();
    }
    ranges
}

fn without((first, last): (u32, u32), (from, to): (u32, u32)) -> Vec<(u32, u32)> {
    if to < first || from > last {
        return vec![(first, last)];
    }
    let before = from.checked_sub(1).filter(|end| from > first && *end >= first).map(|end| (first, end));
    let after = to.checked_add(1).filter(|start| *start <= last).map(|start| (start, last));
    before.into_iter().chain(after).collect()
}

/// An IPv4 network; pods have no other addresses. Bits beyond the prefix are ignored, as Go's `net.ParseCIDR` does.
fn read_network(text: &str) -> Option<(u32, u32)> {
    let (address, prefix) = text.split_once('/')?;
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    Some((address & mask, address | !mask))
}

fn merged(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if u64::from(first) <= u64::from(before.1) + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(spec: Value) -> Policy {
        let object = json!({ "metadata": { "namespace": "ns", "name": "p" }, "spec": spec });
        Policy::from_api(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn types_have_upstreams_defaults() {
        let cases = [
            (json!({}), (true, false)),
            (json!({ "egress": [] }), (true, false)),
            (json!({ "egress": [{}] }), (true, true)),
            (json!({ "ingress": [{}], "policyTypes": ["Egress"] }), (false, true)),
            (json!({ "egress": [{}], "policyTypes": ["Ingress"] }), (true, false)),
        ];
        for (spec, expected) in cases {
            let policy = policy(spec.clone());
            assert_eq!((policy.ingress.is_some(), policy.egress.is_some()), expected, "{spec}");
        }
    }

    #[test]
    fn blocks_have_exceptions_and_are_combined() {
        let peers = |peers: Value| {
            let policy = policy(json!({ "ingress": [{ "from": peers }] }));
            policy.ingress.unwrap().remove(0).peers
        };
        let ranges = |cidr: &str, except: &[&str]| {
            let block = json!([{ "ipBlock": { "cidr": cidr, "except": except } }]);
            match peers(block).as_slice() {
                [Peers::Blocks(ranges)] => ranges
                    .iter()
                    .map(|(first, last)| format!("{}-{}", Ipv4Addr::from(*first), Ipv4Addr::from(*last)))
                    .collect(),
                [] => Vec::new(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ranges("10.0.0.0/30", &[]), ["10.0.0.0-10.0.0.3"]);
        assert_eq!(ranges("10.0.0.0/30", &["10.0.0.1/32"]), ["10.0.0.0-10.0.0.0", "10.0.0.2-10.0.0.3"]);
        assert_eq!(ranges("10.0.0.0/30", &["10.0.0.0/31"]), ["10.0.0.2-10.0.0.3"]);
        assert_eq!(ranges("10.0.0.0/30", &["10.0.0.2/31"]), ["10.0.0.0-10.0.0.1"]);
        assert_eq!(ranges("0.0.0.0/0", &["255.255.255.255/32"]), ["0.0.0.0-255.255.255.254"]);
        assert_eq!(ranges("10.0.0.0/30", &["10.0.0.0/29"]), Vec::<String>::new());
        // Peers that no address of a pod can be are none, not all.
        assert_eq!(ranges("2001:db8::/32", &[]), Vec::<String>::new());
        let two = peers(json!([
            { "ipBlock": { "cidr": "10.0.0.0/25" } },
            { "ipBlock": { "cidr": "10.0.0.128/25" } },
        ]));
        assert_eq!(two, [Peers::Blocks(vec![(0x0a00_0000, 0x0a00_00ff)])]);
        assert_eq!(peers(json!([])), [Peers::Any]);
    }

    #[test]
    fn ports_are_disjoint_ranges_and_names() {
        let ports = |ports: Value| {
            let policy = policy(json!({ "ingress": [{ "ports": ports }] }));
            policy.ingress.unwrap().remove(0).ports
        };
        assert_eq!(ports(json!([])), [Ports::Any]);
        assert_eq!(
            ports(json!([
                { "port": 80 },
                { "port": 80, "protocol": "TCP" },
                { "port": 81, "endPort": 90 },
                { "port": 85, "endPort": 100 },
                { "port": 53, "protocol": "UDP" },
                { "port": "web" },
                { "protocol": "SCTP" },
            ])),
            [
                Ports::Named(NamedPort { protocol: 6, name: "web".into() }),
                Ports::Numbers(vec![(6, 80, 100), (17, 53, 53), (132, 0, 65535)]),
            ]
        );
    }
}
