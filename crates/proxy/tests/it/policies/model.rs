//! Who may reach whom, evaluated from the objects of the API themselves, one connection at a time.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_proxy::policies::ServedPeer;

type Labels = BTreeMap<String, String>;

/// The cluster, as the API has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    pub(crate) pods: BTreeMap<(String, String), Pod>,
    pub(crate) policies: BTreeMap<(String, String), NetworkPolicy>,
    pub(crate) served: Vec<ServedPeer>,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
}

/// What a policy sees of one end.
struct End {
    address: Ipv4Addr,
    /// Namespace and labels of a pod.
    pod: Option<(String, Labels)>,
    /// Name, protocol, number.
    ports: Vec<(String, String, u16)>,
}

impl Cluster {
    fn end(&self, address: Ipv4Addr) -> End {
        let has = |pod: &&Pod| {
            let status = pod.status.as_ref().unwrap();
            let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            !has_ended
                && pod.spec.as_ref().unwrap().host_network != Some(true)
                && status.pod_ip.as_deref() == Some(&address.to_string())
        };
        if let Some(served) = self.served.iter().find(|served| served.address == address) {
            let name = |protocol: u8| if protocol == 17 { "UDP" } else { "TCP" };
            let ports = served.ports.iter();
            return End {
                address,
                pod: Some((served.namespace.clone(), served.labels.clone())),
                ports: ports
                    .map(|(port, protocol, number)| (port.clone(), name(*protocol).to_owned(), *number))
                    .collect(),
            };
        }
        let Some(pod) = self.pods.values().find(has) else {
            return End { address, pod: None, ports: Vec::new() };
        };
        let containers = &pod.spec.as_ref().unwrap().containers;
        let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
        let ports = ports.filter_map(|port| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((port.name.clone()?, protocol, u16::try_from(port.container_port).unwrap()))
        });
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        End { address, pod: Some((pod.metadata.namespace.clone().unwrap(), labels)), ports: ports.collect() }
    }

    /// Whether a connection is allowed, of whose ends `is_local` says which are pods of the node.
    pub(crate) fn allows(&self, connection: Connection, is_local: impl Fn(Ipv4Addr) -> bool) -> bool {
        let Connection { source, destination, protocol, port } = connection;
        if source == destination {
            return true;
        }
        let (from, to) = (self.end(source), self.end(destination));
        let at = |ports: Option<&Vec<NetworkPolicyPort>>| match ports {
            Some(ports) if !ports.is_empty() => {
                ports.iter().any(|each| port_matches(each, &to, protocol, port))
            }
            _ => true,
        };
        let is_egress = || {
            let policies = self.selecting(&from, "Egress");
            policies.is_empty()
                || policies.iter().any(|(namespace, spec)| {
                    spec.egress
                        .iter()
                        .flatten()
                        .any(|rule| self.is_peer(namespace, rule.to.as_ref(), &to) && at(rule.ports.as_ref()))
                })
        };
        let is_ingress = || {
            let policies = self.selecting(&to, "Ingress");
            policies.is_empty()
                || policies.iter().any(|(namespace, spec)| {
                    spec.ingress.iter().flatten().any(|rule| {
                        self.is_peer(namespace, rule.from.as_ref(), &from) && at(rule.ports.as_ref())
                    })
                })
        };
        (!is_local(source) || is_egress()) && (!is_local(destination) || is_ingress())
    }

    fn selecting(&self, end: &End, kind: &str) -> Vec<(&str, &NetworkPolicySpec)> {
        let Some((namespace, labels)) = &end.pod else { return Vec::new() };
        let policies = self.policies.iter().filter(|((within, _), _)| within == namespace);
        let specs = policies.map(|((within, _), policy)| (within.as_str(), policy.spec.as_ref().unwrap()));
        let has_type = |spec: &NetworkPolicySpec| match spec.policy_types.as_deref() {
            Some(types) if !types.is_empty() => types.iter().any(|each| each == kind),
            _ => kind == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        };
        specs
            .filter(|(_, spec)| {
                let none = LabelSelector::default();
                selects(spec.pod_selector.as_ref().unwrap_or(&none), labels) && has_type(spec)
            })
            .collect()
    }

    fn is_peer(&self, namespace: &str, peers: Option<&Vec<NetworkPolicyPeer>>, end: &End) -> bool {
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else { return true };
        let none = Labels::new();
        peers.iter().any(|peer| {
            if let Some(block) = &peer.ip_block {
                return is_in(block, end.address);
            }
            let Some((within, labels)) = &end.pod else { return false };
            let in_namespace = match &peer.namespace_selector {
                None => within == namespace,
                Some(selector) => {
                    let labels = self.namespaces.get(within).and_then(|each| each.metadata.labels.as_ref());
                    selects(selector, labels.unwrap_or(&none))
                }
            };
            in_namespace && peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, labels))
        })
    }
}

fn port_matches(port: &NetworkPolicyPort, to: &End, protocol: &str, number: u16) -> bool {
    if port.protocol.as_deref().unwrap_or("TCP") != protocol {
        return false;
    }
    match &port.port {
        None => true,
        Some(IntOrString::Int(first)) => {
            (*first..=port.end_port.unwrap_or(*first)).contains(&i32::from(number))
        }
        Some(IntOrString::String(name)) => {
            to.ports.iter().any(|(named, over, at)| named == name && over == protocol && *at == number)
        }
    }
}

fn is_in(block: &IPBlock, address: Ipv4Addr) -> bool {
    let within = |cidr: &str| {
        let (network, prefix) = cidr.split_once('/').unwrap();
        let Ok(network) = network.parse::<Ipv4Addr>() else { return false };
        let network = u32::from(network);
        let shift = 32 - prefix.parse::<u32>().unwrap();
        u64::from(network) >> shift == u64::from(u32::from(address)) >> shift
    };
    within(&block.cidr) && !block.except.iter().flatten().any(|except| within(except))
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let all = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    all && selector.match_expressions.iter().flatten().all(|each| {
        let value = labels.get(&each.key);
        let is_in = || each.values.iter().flatten().any(|one| Some(one) == value);
        match each.operator.as_str() {
            "In" => is_in(),
            "NotIn" => !is_in(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            other => panic!("{other}"),
        }
    })
}
