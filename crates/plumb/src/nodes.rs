//! The nodes of a cluster on this machine.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_node::env::EnvFacts;
use plumb_node::journal::{Journal, open_store};
use plumb_node::specify::Place;
use plumb_node::{Agent, Clock};
use plumb_resize::admission::NodeFacts;
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;
use plumb_runtime::builtin::{self, Builtin, shim_of_this_program};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::image::Load;
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use tokio::task::JoinSet;

use crate::cli::{RuntimeKind, Up};

/// The nodes that run. They end when this is dropped; containers of the built-in runtime run on.
pub(crate) struct Nodes {
    /// Which runtime they have.
    pub(crate) runtime: &'static str,
    _running: JoinSet<()>,
}

/// Starts the nodes.
pub(crate) async fn start(server: &ApiServer, args: &Up, rules: &Rules) -> anyhow::Result<Nodes> {
    let kind = match args.runtime {
        RuntimeKind::Auto if may_run_containers() => RuntimeKind::Builtin,
        RuntimeKind::Auto => RuntimeKind::Virtual,
        chosen => chosen,
    };
    let data = std::path::absolute(&args.data_dir).context("finding the data directory")?;
    let (store, mut damage) = open_store(&data.join("journal"))?;
    let clock: Clock = Arc::new(Timestamp::now);
    let mut running = JoinSet::new();
    for index in 0..args.nodes {
        let name =
            if args.nodes == 1 { args.node_name.clone() } else { format!("{}-{index}", args.node_name) };
        let runtime: Arc<dyn Runtime> = match kind {
            RuntimeKind::Virtual => Arc::new(Virtual::new(VirtualConfig {
                now: Timestamp::now(),
                pod_network: Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (u32::from(index) << 8)),
            })),
            _ => Arc::new(open_builtin(&data).await?),
        };
        let user = User::new(format!("system:node:{name}"), "", ["system:nodes"]);
        let agent = Agent::new(plumb_node::Config {
            client: Client::new(server.inside(user), "default"),
            journal: Journal::new(store.clone(), name.clone()),
            damage: damage.take(),
            runtime,
            rules: rules.clone(),
            allocatable: Amounts::new(4000, 8 << 30),
            max_pods: 110,
            facts: NodeFacts::default(),
            memory: 8 << 30,
            known: EnvFacts { host_ips: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], ..EnvFacts::default() },
            volumes: data.join("volumes"),
            place: Place {
                log_root: data.join("logs"),
                cluster_dns: None,
                machine_dns: plumb_runtime::types::Dns::default(),
            },
            clock: clock.clone(),
            name,
        });
        running.spawn(agent.await?.run());
    }
    let runtime = if kind == RuntimeKind::Virtual { "virtual" } else { "builtin" };
    Ok(Nodes { runtime, _running: running })
}

/// Whether this user may create cgroups, and what else containers need.
fn may_run_containers() -> bool {
    nix::unistd::geteuid().is_root() && Layout::detect().is_ok()
}

async fn open_builtin(data: &Path) -> anyhow::Result<Builtin> {
    let config = builtin::Config {
        data_dir: data.to_owned(),
        cgroups: Layout::detect().context("finding the cgroups of this machine")?,
        shim: shim_of_this_program().context("finding the program of shims")?,
        pod_network: None,
        load: Some(Load::of_this_program().context("making the image plumb/load")?),
    };
    Builtin::open(config).await.context("opening the built-in container runtime")
}
