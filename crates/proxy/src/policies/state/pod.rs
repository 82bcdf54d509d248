//! What policies read of a pod.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::super::local::{PodKey, StartedPod};
use super::super::selector::Labels;
use crate::services::Protocol;

/// A pod as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiPod {
    node: String,
    labels: Labels,
    /// Its own addresses; a pod on the network of its node has none, nor has one that has ended.
    addresses: Vec<Ipv4Addr>,
    ports: Vec<(String, u8, u16)>,
}

/// What policies go by: a pod that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) addresses: Vec<Ipv4Addr>,
    pub(super) labels: Labels,
    /// Name, number of the protocol, port.
    pub(super) ports: Vec<(String, u8, u16)>,
}

pub(super) fn key(pod: &Pod) -> PodKey {
    let metadata = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    PodKey { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
}

impl ApiPod {
    pub(super) fn read(pod: &Pod) -> Self {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let has_ended = status
            .and_then(|status| status.phase.as_deref())
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        let on_host = spec.and_then(|spec| spec.host_network).unwrap_or(false);
        let reported = status.into_iter().flat_map(|status| {
            let all = status.pod_ips.iter().flatten().map(|each| each.ip.as_str());
            all.chain(status.pod_ip.as_deref())
        });
        let mut addresses: Vec<Ipv4Addr> = if has_ended || on_host {
            Vec::new()
        } else {
            reported.filter_map(|address| address.parse().ok()).collect()
        };
        addresses.sort_unstable();
        addresses.dedup();
        // Sidecars are init containers that are restarted.
        let sidecars = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = spec.into_iter().flat_map(|spec| &spec.containers).chain(sidecars);
        Self {
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses,
            ports: containers.flat_map(ports).collect(),
        }
    }
}

fn ports(container: &Container) -> impl Iterator<Item = (String, u8, u16)> + '_ {
    container.ports.iter().flatten().filter_map(|port| {
        let protocol = Protocol::from_api(port.protocol.as_deref())?.number();
        Some((port.name.clone()?, protocol, u16::try_from(port.container_port).ok()?))
    })
}

impl Facts {
    /// The facts of a pod that has an address. Those of this node have what the runtime says, whatever a status says; no
    /// other pod has an address of this node's network.
    pub(super) fn of(
        api: Option<&ApiPod>,
        started: Option<&StartedPod>,
        node: &str,
        (network, prefix): (Ipv4Addr, u8),
    ) -> Option<Self> {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        let is_ours = |address: Ipv4Addr| u32::from(address) & mask == u32::from(network) & mask;
        let addresses = match (started, api) {
            (Some(started), _) => vec![started.address],
            (None, Some(api)) if api.node != node => {
                api.addresses.iter().copied().filter(|address| !is_ours(*address)).collect()
            }
            (None, _) => Vec::new(),
        };
        let labels = api.map(|api| &api.labels).or_else(|| started.map(|started| &started.labels))?;
        let ports = api.map(|api| api.ports.clone()).unwrap_or_default();
        (!addresses.is_empty()).then(|| Self { addresses, labels: labels.clone(), ports })
    }
}
