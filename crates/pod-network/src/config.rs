//! How a node takes part in the pod network.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use plumb_validation::network::Ipv4Network;

/// How pods of different nodes reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By a route where the nodes share a link, else through a tunnel.
    #[default]
    Auto,
    /// By routes alone. Nodes that share no link do not reach each other's pods, unless a router between them has routes.
    Routes,
    /// Through tunnels alone.
    Vxlan,
    /// Not at all, or by a program of the user's.
    None,
}

impl Mode {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Auto, "auto"), (Self::Routes, "routes"), (Self::Vxlan, "vxlan"), (Self::None, "none")];

    /// Whether there may be tunnels, which take a part of each packet for their own headers.
    pub const fn may_tunnel(self) -> bool {
        matches!(self, Self::Auto | Self::Vxlan)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find_map(|(mode, name)| (mode == *self).then_some(name));
        f.write_str(name.unwrap_or_default())
    }
}

/// A mode that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write auto, routes, vxlan or none")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find_map(|(mode, name)| (name == text).then_some(mode)).ok_or(UnknownMode)
    }
}

/// The tunnels of a cluster: all of its nodes have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// The VXLAN network identifier, 24 bits.
    pub id: u32,
    /// The UDP port.
    pub port: u16,
}

impl Vxlan {
    /// The default of the kernel, which flannel and Cilium use too, so that firewalls of clusters know it. The port of RFC
    /// 7348 is 4789.
    pub const PORT: u16 = 8472;
}

/// The names on the machine, by which a later process knows what is this cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The interface of the tunnels.
    pub tunnel: String,
    /// The table of the rules.
    pub table: String,
    /// The metric of the routes: two clusters on one machine know their own by it.
    pub metric: u32,
}

impl Names {
    /// The names of a cluster that calls itself `plumb-` and at least eight hexadecimal digits on this machine.
    pub fn new(cluster: &str) -> Self {
        let digits = cluster.rsplit('-').next().unwrap_or(cluster);
        let short: String = digits.chars().take(8).collect();
        // 0 is the metric of routes that an administrator adds, which take precedence.
        let metric = u32::from_str_radix(&short, 16).unwrap_or(1).max(1);
        Self { tunnel: format!("plumbv{short}"), table: format!("{cluster}-nodes"), metric }
    }
}

/// How a node takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of the node.
    pub node: String,
    /// How it reaches others.
    pub mode: Mode,
    /// The network of all pods.
    pub cluster: Ipv4Network,
    /// The network of its own pods.
    pub network: Ipv4Network,
    /// Its address, at which others reach it.
    pub address: Ipv4Addr,
    /// The bridge of its pods, which has the first address of their network.
    pub bridge: String,
    /// The bridge that connects nodes of this machine, if there are several. With `br_netfilter` what they send each other
    /// over it passes the rules.
    pub node_bridge: Option<String>,
    /// Its names on the machine.
    pub names: Names,
    /// The tunnels.
    pub vxlan: Vxlan,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for (mode, name) in Mode::ALL {
            assert_eq!((mode.to_string().as_str(), name.parse()), (name, Ok(mode)));
        }
        assert_eq!("wireguard".parse::<Mode>(), Err(UnknownMode));
    }

    #[test]
    fn names_follow_from_the_cluster_and_fit() {
        let names = Names::new("plumb-0c8a1f5e2b7d");
        assert_eq!(names.tunnel, "plumbv0c8a1f5e");
        assert!(names.tunnel.len() <= 15);
        assert_eq!(names.table, "plumb-0c8a1f5e2b7d-nodes");
        assert_eq!(names.metric, 0x0c8a_1f5e);
        assert_eq!(Names::new("plumb-000000000000").metric, 1);
    }
}
