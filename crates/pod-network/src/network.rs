//! The network of a node's own pods, and the removal of everything.

use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig};
use plumb_validation::network::Ipv4Network;

use crate::config::Names;
use crate::kernel::Kernel;
use crate::rules;

/// After this long without a network it is logged that the node waits.
const WARN_AFTER: Duration = Duration::from_secs(10);

/// Waits until the controller has given a node its network, and returns the first IPv4 one.
pub async fn wait_for_pod_network(client: Client, node: &str) -> Ipv4Network {
    let nodes: Api<Node> = Api::all(client);
    let config = WatchConfig::default().fields(format!("metadata.name={node}"));
    let mut events = std::pin::pin!(Reflector::new(nodes, config).into_stream());
    let waiting = async {
        while let Some(event) = events.next().await {
            let found = event.into_objects().into_iter().find_map(|node| {
                node.spec?.pod_cidrs?.iter().find_map(|network| network.parse::<Ipv4Network>().ok())
            });
            if let Some(network) = found {
                return network;
            }
        }
        std::future::pending().await
    };
    let mut waiting = std::pin::pin!(waiting);
    if let Ok(network) = tokio::time::timeout(WARN_AFTER, &mut waiting).await {
        return network;
    }
    tracing::warn!(
        node,
        "the node has no podCIDR yet, and runs no pods until then: does the cluster CIDR have a free network?"
    );
    waiting.await
}

/// Removes the routes, the tunnels and the rules of a cluster from this machine.
pub fn clear(names: &Names) -> io::Result<()> {
    let cleared = Kernel::open().and_then(|kernel| kernel.clear(names));
    cleared.and_then(|()| rules::remove(names)).map_err(io::Error::other)
}
