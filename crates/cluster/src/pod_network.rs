//! The network of all pods of a cluster: which it is, and what nodes have to know of it.

use std::path::Path;

use anyhow::{Context as _, ensure};
use plumb_controllers::node_ipam::Range;
use plumb_pod_network::{Mode, Names, Vxlan};
use plumb_runtime::builtin;
use plumb_validation::network::Ipv4Network;
use serde_json::{Map, Value};

use crate::components::{CONTROLLERS, NODE};
use crate::flags::{RuntimeKind, Up};

/// The length of the prefix of the default network of a cluster.
const USUAL_PREFIX: u8 = 16;
/// The network of Services, in which no pod has an address.
const SERVICES: Ipv4Network = Ipv4Network::new(std::net::Ipv4Addr::new(10, 96, 0, 0), 12);

/// The keys of what nodes know, in the ConfigMap that they read.
const CLUSTER_CIDR: &str = "cluster-cidr";
const POD_NETWORK: &str = "pod-network";
const VXLAN_VNI: &str = "vxlan-vni";
const VXLAN_PORT: &str = "vxlan-port";

/// What the nodes of a cluster know of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodNetwork {
    /// The network of all pods.
    pub(crate) cluster: Ipv4Network,
    /// How pods of different nodes reach each other.
    pub(crate) mode: Mode,
    /// The tunnels between nodes.
    pub(crate) vxlan: Vxlan,
}

impl PodNetwork {
    /// As entries of a ConfigMap.
    pub(crate) fn to_entries(self) -> Map<String, Value> {
        let entries = [
            (CLUSTER_CIDR, self.cluster.to_string()),
            (POD_NETWORK, self.mode.to_string()),
            (VXLAN_VNI, self.vxlan.id.to_string()),
            (VXLAN_PORT, self.vxlan.port.to_string()),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }

    /// From entries of a ConfigMap. A cluster that has none, or whose entries this version does not know, has no network over
    /// its nodes.
    pub(crate) fn from_entries<'a>(entry: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            cluster: entry(CLUSTER_CIDR)?.parse().ok()?,
            mode: entry(POD_NETWORK)?.parse().ok()?,
            vxlan: Vxlan { id: entry(VXLAN_VNI)?.parse().ok()?, port: entry(VXLAN_PORT)?.parse().ok()? },
        })
    }
}

/// The network of a cluster, with how its nodes get their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterNetwork {
    /// What its nodes know.
    pub(crate) network: PodNetwork,
    /// How they get their parts.
    pub(crate) range: Range,
}

impl ClusterNetwork {
    /// The network of a cluster with these flags on a data directory. `None` if its nodes have no networks: without
    /// controllers none gives them any, and virtual pods, of which there may be more nodes than networks, have none.
    pub(crate) fn new(args: &Up, data: &Path) -> anyhow::Result<Option<Self>> {
        let (flags, mode) = (&args.network, args.node.pod_network.unwrap_or_default());
        let is_virtual = args.components.contains(NODE) && args.node.runtime.chosen() == RuntimeKind::Virtual;
        let is_needless = mode == Mode::None || is_virtual;
        if !args.components.contains(CONTROLLERS) || (is_needless && flags.cluster_cidr.is_none()) {
            return Ok(None);
        }
        let (address, prefix) = builtin::network_of(data).context("finding the data directory")?;
        let cluster = flags.cluster_cidr.unwrap_or(Ipv4Network::new(address, USUAL_PREFIX));
        ensure!(
            !SERVICES.covers(cluster),
            "--cluster-cidr {cluster}: Services have the addresses of {SERVICES}"
        );
        // The node of an earlier version has this network, and its pods have addresses of it.
        let first = Some(Ipv4Network::new(address, prefix)).filter(|first| cluster.covers(*first));
        let range = Range { cluster, node_mask: flags.node_cidr_mask_size, first, excluded: vec![SERVICES] };
        range.check().context("--cluster-cidr and --node-cidr-mask-size")?;
        let cgroup = builtin::cgroup_of(data).context("finding the data directory")?;
        // 24 bits, of which 0 is none.
        let id = flags.vxlan_vni.unwrap_or((Names::new(&cgroup).metric >> 8).max(1));
        let vxlan = Vxlan { id, port: flags.vxlan_port };
        Ok(Some(Self { network: PodNetwork { cluster, mode, vxlan }, range }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_know_is_read_as_it_is_written() {
        let network = PodNetwork {
            cluster: "10.70.0.0/16".parse().unwrap(),
            mode: Mode::Vxlan,
            vxlan: Vxlan { id: 4711, port: 4789 },
        };
        let entries = network.to_entries();
        let entry = |key: &str| entries.get(key).and_then(Value::as_str);
        assert_eq!(PodNetwork::from_entries(entry), Some(network));
        assert_eq!(PodNetwork::from_entries(|_| None), None);
        let other = |key: &str| if key == POD_NETWORK { Some("carrier-pigeon") } else { entry(key) };
        assert_eq!(PodNetwork::from_entries(other), None);
    }
}
