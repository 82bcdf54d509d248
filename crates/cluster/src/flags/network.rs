//! Flags of the network of a cluster's pods.

use clap::Args;
use plumb_pod_network::{Mode, Vxlan};
use plumb_validation::network::Ipv4Network;

/// The flags of the network that all pods of a cluster have their addresses of.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pod network")]
pub(crate) struct ClusterNetworkFlags {
    /// The network of all pods; each node gets a part of it (`spec.podCIDR`). [default: a /16 of 10.64.0.0/10, derived
    /// from the data directory]
    #[arg(long, value_name = "CIDR")]
    pub(crate) cluster_cidr: Option<Ipv4Network>,
    /// The length of the prefix of a node's part.
    #[arg(long, default_value = "24", value_name = "BITS", value_parser = clap::value_parser!(u8).range(8..=29))]
    pub(crate) node_cidr_mask_size: u8,
    /// The network identifier of VXLAN tunnels between nodes. [default: derived from the data directory]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    pub(crate) vxlan_vni: Option<u32>,
    /// The UDP port of VXLAN tunnels between nodes.
    #[arg(long, default_value_t = Vxlan::PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) vxlan_port: u16,
}

/// How pods of different nodes reach each other.
pub(super) fn mode(text: &str) -> Result<Mode, plumb_pod_network::UnknownMode> {
    text.parse()
}
