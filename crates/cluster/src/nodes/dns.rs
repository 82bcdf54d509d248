//! The DNS of a cluster, and its server in the process of a node.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use kube::Client;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_controllers::dns_service;
use plumb_dns::{Config, ForwardConfig, Name, Server};
use plumb_metrics::Text;
use plumb_node::cri_config::{ClusterDns, read_resolv_conf};
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

use crate::flags::OnNode;

/// The address of the cluster's DNS server, as most clusters have it.
const USUAL_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The domain of Services, as most clusters have it.
const USUAL_DOMAIN: &str = "cluster.local";
/// The interface of connections of the machine to itself.
const LOOPBACK: &str = "lo";

/// The DNS of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsSettings {
    /// The address at which pods reach the server of their node; `None` if there is none.
    pub(crate) server: Option<Ipv4Addr>,
    /// The domain of Services.
    pub(crate) domain: String,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self { server: Some(USUAL_SERVER), domain: USUAL_DOMAIN.to_owned() }
    }
}

impl DnsSettings {
    /// The same, with what the command line says.
    pub(crate) fn overridden_by(self, args: &OnNode) -> Self {
        Self {
            server: args.cluster_dns.map_or(self.server, |address| address.0),
            domain: args.cluster_domain.clone().unwrap_or(self.domain),
        }
    }

    /// What pods get, if the node serves it.
    pub(super) fn for_pods(&self, is_served: bool) -> ClusterDns {
        let server = self.server.filter(|_| is_served);
        ClusterDns { servers: server.iter().map(Ipv4Addr::to_string).collect(), domain: self.domain.clone() }
    }
}

/// The DNS server of a node, which listens nowhere yet.
pub(super) struct NodeDns {
    server: Server,
    address: SocketAddr,
}

impl NodeDns {
    /// A server of a cluster that forwards to the servers of a resolver configuration. `gateway` is the node's address for its
    /// pods. `None` if the cluster has no DNS.
    pub(super) fn new(
        settings: &DnsSettings,
        resolv_conf: Option<PathBuf>,
        gateway: Ipv4Addr,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = settings.server else { return Ok(None) };
        let domain = Name::from_text(&settings.domain).context("the cluster domain is no name")?;
        let own = [address, gateway, KUBERNETES_SERVICE].map(IpAddr::V4).into();
        let forward = ForwardConfig { resolv_conf, read, port: dns_service::PORT, own };
        let server = Server::new(Config { domain, address, forward });
        Ok(Some(Self { server, address: (address, dns_service::PORT).into() }))
    }

    /// Listens at the address of the Service on the bridge of the pods, and for pods with the network of the machine on its
    /// loopback interface. Of several clusters on a machine that have the same address, the first one has it there.
    pub(super) fn listen_on_bridge(&mut self, bridge: &str) -> anyhow::Result<()> {
        let address = self.address;
        self.server.listen(Some(bridge), address).with_context(|| format!("listening on {address}"))?;
        if let Err(error) = self.server.listen(Some(LOOPBACK), address) {
            tracing::warn!(
                %error,
                %address,
                "pods with the network of the machine do not reach the cluster's DNS server: another cluster on this machine has its address"
            );
        }
        Ok(())
    }

    /// Listens at an address to which the rules of a node translate that of the Service.
    pub(super) fn listen_at(&mut self, address: Ipv4Addr) -> anyhow::Result<()> {
        let address = SocketAddr::from((address, dns_service::PORT));
        self.server.listen(None, address).with_context(|| format!("listening on {address}"))
    }

    /// Answers, and watches the Services of the cluster, in tasks of a set.
    pub(super) fn start(
        self,
        client: Client,
        supervisor: &Supervisor,
        running: &mut JoinSet<()>,
    ) -> Arc<Server> {
        let server = Arc::new(self.server);
        let serving = server.clone();
        let serve = move || -> BoxFuture<'static, ()> { Box::pin(serving.clone().run()) };
        running.spawn(supervisor.keep("dns-server", serve));
        running.spawn(plumb_dns::watch(client, server.zone().clone(), supervisor));
        server
    }
}

/// The servers of a resolver configuration.
fn read(file: &Path) -> io::Result<Vec<IpAddr>> {
    Ok(read_resolv_conf(file)?.servers.iter().filter_map(|server| server.parse().ok()).collect())
}

/// Writes the metrics of a node's server, if it has one.
pub(crate) fn render(server: Option<&Arc<Server>>, text: &mut Text) {
    if let Some(server) = server {
        server.render(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_the_server_only_where_the_node_serves_it() {
        let settings = DnsSettings::default();
        let served = settings.for_pods(true);
        assert_eq!((served.servers, &*served.domain), (vec!["10.96.0.10".to_owned()], "cluster.local"));
        assert_eq!(settings.for_pods(false).servers, [""; 0]);
        let off = DnsSettings { server: None, ..settings };
        assert_eq!(off.for_pods(true).servers, [""; 0]);
    }
}
