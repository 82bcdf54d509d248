//! The service proxy of a node: what it serves, on which network of pods, and when its rules end.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use nix::net::if_::if_nametoindex;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_controller_runtime::Clock;
use plumb_controllers::{dns_service, kubernetes_service};
use plumb_metrics::Text;
use plumb_proxy::services::{self, Config, Network, Pods, RulesConfig, Services};
use plumb_runtime::builtin::{bridge_of, cgroup_of};
use plumb_runtime::service_nat::ServiceNat;

use super::NodeConfig;
use crate::flags::{OnNode, ServiceProxy as Kind};

/// The addresses of Services, as the API server allocates them.
const SERVICES: Network = (Ipv4Addr::new(10, 96, 0, 0), 12);

/// The proxy of a node.
pub(super) struct ServiceProxy {
    services: Arc<Services>,
    interface: String,
}

impl ServiceProxy {
    /// That of a node whose pods are on our bridge, which exists.
    pub(super) fn for_builtin(data: &Path, args: &OnNode, config: &NodeConfig) -> Option<Self> {
        let bridge = bridge_of(data).context("finding the data directory");
        Self::new(data, args, config, bridge.map(|bridge| (bridge.clone(), Pods::Bridge(bridge))))
    }

    /// That of a node whose pods are on the network of a container runtime.
    pub(super) fn for_cri(
        data: &Path,
        args: &OnNode,
        config: &NodeConfig,
        nat: &Arc<ServiceNat>,
    ) -> Option<Self> {
        let proxy = Self::new(data, args, config, Ok((nat.interface().to_owned(), Pods::Addresses)))?;
        let services = proxy.services.clone();
        nat.follow(move |address, begins| {
            let changed = if begins { services.add_pod(address) } else { services.remove_pod(address) };
            if let Err(error) = changed {
                tracing::warn!(%error, %address, "the rules of Services do not know a pod");
            }
        });
        Some(proxy)
    }

    fn new(
        data: &Path,
        args: &OnNode,
        config: &NodeConfig,
        network: anyhow::Result<(String, Pods)>,
    ) -> Option<Self> {
        if args.service_proxy == Kind::None {
            return None;
        }
        let configured = network.and_then(|(interface, pods)| {
            let rules = RulesConfig {
                node: config.name.clone(),
                table: table_of(data)?,
                pods,
                interface,
                services: SERVICES,
                forward: args.masquerade,
                local: served_here(config),
            };
            Ok(Config { client: config.client.clone(), rules, clock: Clock::default() })
        });
        let configured = configured
            .inspect_err(|error| tracing::warn!(error = format!("{error:#}"), "Services have no proxy"));
        let config = configured.ok()?;
        let interface = config.rules.interface.clone();
        let missing = services::missing(&config.rules.table);
        if !missing.is_empty() {
            tracing::warn!(
                missing = missing.join(", "),
                "Services have no proxy: this kernel lacks what its rules need"
            );
            return None;
        }
        Some(Self { services: Services::new(config), interface })
    }

    /// Follows Services until the future is dropped.
    pub(super) fn run(&self) -> impl Future<Output = ()> + use<> {
        let services = self.services.clone();
        plumb_supervise::process().keep("service-proxy", move || services.run())
    }

    /// Writes its metrics.
    pub(super) fn metrics(&self) -> impl Fn(&mut Text) + Send + Sync + use<> {
        let services = self.services.clone();
        move |text| services.render_metrics(text)
    }

    /// Removes the rules if the network of the pods has been removed. Pods that run on keep them.
    pub(super) fn release_unused(&self) {
        if if_nametoindex(self.interface.as_str()).is_err()
            && let Err(error) = self.services.clear()
        {
            tracing::warn!(%error, "the rules of Services were not removed");
        }
    }
}

/// The addresses of Services at which the node itself listens: the API server and the DNS server.
fn served_here(config: &NodeConfig) -> BTreeSet<SocketAddrV4> {
    let api = SocketAddrV4::new(KUBERNETES_SERVICE, kubernetes_service::PORT);
    let dns = config.dns.server.map(|server| SocketAddrV4::new(server, dns_service::PORT));
    [Some(api), dns].into_iter().flatten().collect()
}

/// Removes the rules of a data directory, if there are any.
pub(crate) fn remove(data: &Path) -> anyhow::Result<()> {
    services::remove(&table_of(data)?).context("removing the rules of Services")
}

fn table_of(data: &Path) -> anyhow::Result<String> {
    Ok(format!("{}-services", cgroup_of(data).context("finding the data directory")?))
}
