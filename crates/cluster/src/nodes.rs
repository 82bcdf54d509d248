//! The nodes of a cluster on this machine.

mod aside;
mod cri;
mod dns;
mod environment;
mod machines;
mod pod_network;
mod policies;
mod service_proxy;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use http::Extensions;
use kube::Client;
use plumb_apiserver::authn::{Peer, User};
use plumb_apiserver::pki::{Pki, is_node_client};
use plumb_apiserver::serve::{self, Listener, Shutdown};
use plumb_apiserver::{ApiServer, KubeletClient};
use plumb_node::Agent;
use plumb_node::shutdown::GracePeriods;
use plumb_resize::rules::Rules;

use crate::flags::Up;
use crate::pod_network::PodNetwork;
use crate::signals::Signals;
use crate::usage::Measurements;

pub(crate) use aside::one_on_each_core;
pub(crate) use cri::remove as remove_cri_pods;
pub(crate) use dns::{DnsSettings, render as render_dns};
pub(crate) use environment::{NodeConfig, NodeEnvironment, builtin_config};
pub(crate) use machines::{Machines, RunningMachines, remains};
pub(crate) use service_proxy::remove as remove_service_rules;

/// The default name of the only node of a cluster.
const USUAL_NAME: &str = "plumb";

/// The nodes that run. They end when this is dropped; containers of the built-in runtime run on.
pub(crate) struct Nodes {
    /// How many there are and what runs their containers, in a few words.
    pub(crate) what: String,
    environment: NodeEnvironment,
    shutdown: Option<GracePeriods>,
}

impl Nodes {
    /// Whether their containers continue to run when they end.
    pub(crate) fn run_on(&self) -> bool {
        !self.environment.is_virtual()
    }

    /// Terminates their pods, if they are to be when this process is terminated. A further signal ends that.
    pub(crate) async fn shut_down(&self, signals: &mut Signals) {
        if let Some(periods) = self.shutdown {
            shut_down(&self.environment, periods, signals).await;
        }
    }

    /// Ends them.
    pub(crate) async fn stop(self) {
        self.environment.stop().await;
    }
}

/// The inputs of nodes from their cluster.
pub(crate) struct ClusterContext<'a> {
    /// Where pods find the API: host and port.
    pub(crate) api: (String, u16),
    /// The address on the bridge of this machine's pods at which the cluster says that the API is, if containers run here.
    pub(crate) api_on_bridge: Option<Ipv4Addr>,
    /// The machines of further nodes, if containers run on them: then this process has the first node alone.
    pub(crate) machines: Option<&'a Machines>,
    /// The network of the pods of all nodes, if they have one.
    pub(crate) pod_network: Option<PodNetwork>,
    /// The data directory.
    pub(crate) data: &'a Path,
    /// The address of the nodes.
    pub(crate) address: IpAddr,
    /// The connections of the API server to their agents.
    pub(crate) kubelets: KubeletClient,
    /// The certificates that they present and trust.
    pub(crate) pki: &'a Pki,
    /// The DNS of the cluster.
    pub(crate) dns: &'a DnsSettings,
    /// Receives their measurements.
    pub(crate) measurements: Measurements,
    /// When their servers stop.
    pub(crate) shutdown: Shutdown,
    /// How many file descriptors this process may have.
    pub(crate) descriptors: usize,
}

/// Starts the nodes of a cluster.
pub(crate) async fn start(
    server: &ApiServer,
    args: &Up,
    rules: &Rules,
    context: ClusterContext<'_>,
) -> anyhow::Result<Nodes> {
    let ClusterContext { api_on_bridge, machines, pod_network, .. } = context;
    let here = if machines.is_some() { 1 } else { args.nodes };
    let ClusterContext {
        api, data, address, kubelets, pki, dns, measurements, shutdown, descriptors, ..
    } = context;
    let limits = serve::Limits::of_agent(descriptors, here.into());
    let mut environment = NodeEnvironment::prepare(&args.node, data)?;
    let tls = serve::tls(pki)?;
    let mut agents = Vec::new();
    let mut measured = HashMap::new();
    let usual = args.node.node_name.as_deref().unwrap_or(USUAL_NAME);
    for index in 0..here {
        let name = if args.nodes == 1 { usual.to_owned() } else { format!("{usual}-{index}") };
        // Only the API server has to reach an agent, and it is in this process: other machines do not, whatever address the
        // node has.
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        kubelets.add_local_agent(address, listener.address());
        let listener = listener.supervised(plumb_supervise::process(), "node-server");
        let user = User::new(format!("system:node:{name}"), "", ["system:nodes"]);
        let config = NodeConfig {
            name: name.clone(),
            index,
            addresses: vec![address],
            port: listener.address().port(),
            client: Client::new(server.inside(user), "default"),
            api: api.clone(),
            api_on_bridge,
            node_bridge: machines.map(|machines| machines.bridge().to_owned()),
            pod_network,
            rules: rules.clone(),
            dns: dns.clone(),
        };
        let (agent, usage) = environment.agent(&args.node, config).await?;
        measured.insert(name, usage);
        let dns_server = environment.dns_server();
        let service = environment
            .with_metrics(agent.server(environment.root(), Arc::new(is_api_server)))
            .with_metrics(move |text| render_dns(dns_server.as_ref(), text));
        let serving = serve::serve(listener, tls.clone(), limits, service, shutdown.clone());
        environment.running.spawn(async move {
            serving.await;
        });
        agents.push(agent);
    }
    measurements.put(measured);
    futures_util::future::join_all(agents.iter_mut().map(Agent::register)).await;
    for agent in agents {
        environment.spawn_agent(agent);
    }
    let what = match args.nodes {
        1 => format!("node {usual} {}", environment.runtime_name()),
        n => format!("{n} nodes {}", environment.runtime_name()).replace("nodes runs", "nodes run"),
    };
    Ok(Nodes { what, environment, shutdown: args.node.shutdown_periods() })
}

/// The name of the first of several nodes.
pub(crate) fn first_of_several(args: &Up) -> String {
    format!("{}-0", args.node.node_name.as_deref().unwrap_or(USUAL_NAME))
}

/// Terminates the pods of nodes before the machine shuts down, until it is done or a further signal comes.
pub(crate) async fn shut_down(environment: &NodeEnvironment, periods: GracePeriods, signals: &mut Signals) {
    say!("plumb: shutting down; pods are terminated within {:?}", periods.total);
    tokio::select! {
        () = environment.shut_down(periods) => {}
        _ = signals.next() => say!("plumb: a second signal: pods that still run are left running"),
    }
}

/// Only the API server sends requests to a node; it authorizes them.
pub(crate) fn is_api_server(extensions: &Extensions) -> bool {
    let certificate = extensions.get::<Peer>().and_then(Peer::certificate);
    certificate.is_some_and(|certificate| is_node_client(certificate.user()))
}
