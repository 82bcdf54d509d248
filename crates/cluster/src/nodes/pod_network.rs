//! How a node gets the network of its pods, and reaches the pods of other nodes.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;
use kube::Client;
use plumb_client::Api;
use plumb_node::register::{NodeHealth, Registrar};
use plumb_pod_network::{Config, Mode, Names, pod_mtu, wait_for_pod_network};
use plumb_runtime::builtin::{self, bridge_of, cgroup_of};
use plumb_supervise::Backoff;

use super::environment::{NodeConfig, NodeEnvironment, setup};
use crate::flags::OnNode;
use crate::pod_network::PodNetwork;

/// Why a node is not ready that has no network yet, in the kubelet's words.
const NO_NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
    message:Network plugin returns error: the node has no podCIDR yet";

impl NodeEnvironment {
    /// Waits until the node has its network, and says how it reaches the others. `None` if it has one of its own that no other
    /// node knows.
    pub(super) async fn pod_network(
        &self,
        args: &OnNode,
        config: &NodeConfig,
    ) -> anyhow::Result<Option<Config>> {
        let Some(PodNetwork { cluster, mode, vxlan }) = config.pod_network else { return Ok(None) };
        let mode = args.pod_network.unwrap_or(mode);
        if mode == Mode::None {
            return Ok(None);
        }
        let Some(address) = config.addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        }) else {
            tracing::warn!(
                "the node has no IPv4 address: its pods and those of other nodes do not reach each other"
            );
            return Ok(None);
        };
        self.ensure_node(args, config).await;
        let network = wait_for_pod_network(config.client.clone(), &config.name).await;
        let finding = "finding the data directory";
        Ok(Some(Config {
            node: config.name.clone(),
            mode,
            cluster,
            network,
            address,
            bridge: bridge_of(self.data()).context(finding)?,
            node_bridge: config.node_bridge.clone(),
            names: Names::new(&cgroup_of(self.data()).context(finding)?),
            vxlan,
        }))
    }

    /// Creates the Node unless it exists, so that the controller gives it a network: not ready until it has it, and the agent
    /// with it.
    async fn ensure_node(&self, args: &OnNode, config: &NodeConfig) {
        let not_ready = NodeHealth { not_ready: Some(NO_NETWORK.to_owned()), ..NodeHealth::default() };
        let registrar =
            Registrar::new(config.client.clone(), setup(args, config), self.machine(), self.clock());
        let mut backoff = Backoff::default();
        while let Err(error) = register(&registrar, &config.client, &config.name, &not_ready).await {
            tracing::warn!(%error, "cannot register the node, will retry");
            backoff.wait().await;
        }
    }
}

async fn register(
    registrar: &Registrar,
    client: &Client,
    name: &str,
    health: &NodeHealth,
) -> kube::Result<()> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    if nodes.get_opt(name).await?.is_none() {
        registrar.register(health).await?;
    }
    Ok(())
}

/// Adds the network of a node to the configuration of its runtime.
pub(super) fn set_network(runtime: &mut builtin::Config, network: &Config) {
    let parts = |network: plumb_validation::network::Ipv4Network| (network.address(), network.prefix());
    runtime.pod_network = Some(parts(network.network));
    runtime.cluster_network = Some(parts(network.cluster));
    runtime.mtu = pod_mtu(network.address, network.mode.may_tunnel());
}

/// Removes the routes to other nodes, unless the bridge of the pods of a data directory stays: pods run on then.
pub(super) fn clear_routes(data: &Path) {
    let is_left = bridge_of(data).map(|bridge| nix::net::if_::if_nametoindex(bridge.as_str()).is_ok());
    if is_left.unwrap_or(true) {
        return;
    }
    let cleared = cgroup_of(data).and_then(|cluster| plumb_pod_network::clear(&Names::new(&cluster)));
    if let Err(error) = cleared {
        tracing::warn!(%error, "the routes to the pods of other nodes were not removed");
    }
}
