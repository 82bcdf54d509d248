//! The nodes of a cluster on this machine.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::Extensions;
use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::{NODE_CLIENT_USER, Pki};
use plumb_apiserver::serve::{self, Listener, Peer, Shutdown};
use plumb_node::cpus::{CpuSet, Cpus};
use plumb_node::journal::{Journal, open_store};
use plumb_node::metrics::Metrics;
use plumb_node::register::{Machine, NodeHealth, Setup, pressures};
use plumb_node::specify::{Place, resolv_conf};
use plumb_node::usage::{Usage, UsageConfig};
use plumb_node::{Agent, Clock};
use plumb_resize::Quantity;
use plumb_resize::admission::NodeFacts;
use plumb_resize::rules::Rules;
use plumb_runtime::builtin::{self, Builtin, shim_of_this_program};
use plumb_runtime::cgroup::{Controller, Layout};
use plumb_runtime::fault::{Asked, Fault, Faults, Faulty, Harm};
use plumb_runtime::image::Load;
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::{CpuPolicy, DieAt, RuntimeDelay, RuntimeKind, Up};
use crate::usage::Measurements;

/// How often the machine is looked at for what it runs short of.
const LOOK_AT_MACHINE: Duration = Duration::from_secs(10);
/// The version of Kubernetes that the agent speaks as.
const AGENT_VERSION: &str = "v1.36.4";

/// The nodes that run. They end when this is dropped; containers of the built-in runtime run on.
pub(crate) struct Nodes {
    /// How many there are and what runs their containers, in a few words.
    pub(crate) what: String,
    _running: JoinSet<()>,
    _aside: Option<Aside>,
}

/// What nodes need of the cluster around them.
pub(crate) struct Around<'a> {
    /// Where the API is.
    pub(crate) api: SocketAddr,
    /// Whose certificates they show, and trust.
    pub(crate) pki: &'a Pki,
    /// Where what they measure is put.
    pub(crate) measurements: Measurements,
    /// When they are to stop answering.
    pub(crate) shutdown: Shutdown,
}

/// Starts the nodes of a cluster.
pub(crate) async fn start(
    server: &ApiServer,
    args: &Up,
    rules: &Rules,
    around: Around<'_>,
) -> anyhow::Result<Nodes> {
    let kind = args.runtime.chosen();
    let is_virtual = kind == RuntimeKind::Virtual;
    let data = std::path::absolute(&args.data_dir).context("finding the data directory")?;
    let machine = Machine::read(Path::new("/")).and_then(|machine| machine.with_disk_of(&data));
    let machine = Arc::new(machine.context("finding out about this machine")?);
    let (store, mut damage) = open_store(&data.join("journal"))?;
    if let Some(damage) = &damage {
        tracing::warn!(damage, "the journal of promises was put aside, and is made anew from what runs");
    }
    let Around { api, pki, measurements, shutdown } = around;
    let tls = serve::tls(pki)?;
    let metrics: Arc<Metrics> = Arc::default();
    let clock: Clock = Arc::new(Timestamp::now);
    let mut running = JoinSet::new();
    let aside = is_virtual.then(Aside::start).transpose()?;
    let hands = aside.as_ref().map_or_else(Handle::current, |aside| aside.handle());
    // Virtual pods take nothing of this machine, so what it runs short of is nothing to them.
    let now = if is_virtual { NodeHealth::default() } else { look_at_machine(&data) };
    let (tell_health, health) = watch::channel(now);
    if !is_virtual {
        running.spawn(watch_machine(data.clone(), tell_health));
    }
    let place = Place {
        log_root: data.join("logs"),
        cluster_dns: None,
        machine_dns: resolv_conf(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
    };
    let cpus = match args.cpu_manager_policy {
        CpuPolicy::None => None,
        CpuPolicy::Static => Some(cpus_of(args, &machine, is_virtual)?),
    };
    let mut agents = Vec::new();
    let mut measured = HashMap::new();
    for index in 0..args.nodes {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let setup = Setup { port: listener.address().port(), ..setup(args, index) };
        let runtime: Arc<dyn Runtime> = match kind {
            RuntimeKind::Virtual => {
                let pod_network =
                    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (u32::from(index) << 8));
                Arc::new(Virtual::new(VirtualConfig { now: Timestamp::now(), pod_network }))
            }
            _ => Arc::new(open_builtin(&data).await?),
        };
        let runtime = match args.die_at {
            Some(at) => dying(runtime, at),
            None => runtime,
        };
        let runtime = match args.runtime_delay {
            Some(delay) => slowed(runtime, delay),
            None => runtime,
        };
        let name = setup.name.clone();
        let usage = Usage::new(UsageConfig {
            node: name.clone(),
            runtime: runtime.clone(),
            every: args.metric_resolution,
            clock: clock.clone(),
            machine: (!is_virtual).then(|| PathBuf::from("/")),
        });
        measured.insert(name.clone(), usage.clone());
        running.spawn_on(async move { usage.keep().await }, &hands);
        let user = User::new(format!("system:node:{name}"), "", ["system:nodes"]);
        let agent = Agent::new(plumb_node::Config {
            setup,
            machine: machine.clone(),
            health: health.clone(),
            client: Client::new(server.inside(user), "default"),
            runtime,
            journal: Journal::new(store.clone(), name),
            damage: damage.take(),
            rules: rules.clone(),
            facts: NodeFacts::default(),
            cpus: cpus.clone(),
            api_server: Some((api.ip().to_string(), api.port())),
            reachable: !is_virtual,
            volumes: (!is_virtual).then(|| data.join("volumes")),
            place: place.clone(),
            metrics: metrics.clone(),
            clock: clock.clone(),
        });
        let agent = hands.spawn(agent).await.context("an agent ended badly")??;
        let service = agent.server((!is_virtual).then(|| PathBuf::from("/")), Arc::new(is_api_server));
        let serving =
            serve::serve(listener, tls.clone(), serve::Limits::default(), service, shutdown.clone());
        running.spawn(async move {
            serving.await;
        });
        agents.push(agent);
    }
    measurements.put(measured);
    futures_util::future::join_all(agents.iter_mut().map(Agent::register)).await;
    for agent in agents {
        running.spawn_on(agent.run(), &hands);
    }
    let what = match (args.nodes, is_virtual) {
        (1, false) => format!("node {} runs containers of its own", args.node_name),
        (1, true) => format!("node {} runs virtual pods", args.node_name),
        (n, _) => format!("{n} nodes run virtual pods"),
    };
    Ok(Nodes { what, _running: running, _aside: aside })
}

/// Threads for the agents of virtual nodes. There may be thousands, all busy at once, and what they do is nobody's
/// running program: they give way to the API and to those who decide, as agents on machines of their own would not be
/// in the way at all.
struct Aside(Option<tokio::runtime::Runtime>);

impl Aside {
    /// How much they give way: a tenth of what others get, where there are others.
    const NICE: i32 = 10;

    fn start() -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().thread_name("virtual-nodes").on_thread_start(|| {
            // On Linux it is this thread's alone. If it is refused they do not give way, that is all.
            let _ = rustix::process::nice(Self::NICE);
        });
        Ok(Self(Some(builder.build().context("starting the threads of virtual nodes")?)))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // To wait for its threads is not allowed where other tasks run.
            runtime.shutdown_background();
        }
    }
}

/// Only the API server asks a node; who may ask for what is decided there.
fn is_api_server(extensions: &Extensions) -> bool {
    let certificate = extensions.get::<Peer>().and_then(Peer::certificate);
    certificate.is_some_and(|certificate| certificate.user().name() == NODE_CLIENT_USER)
}

/// What a node says of itself.
fn setup(args: &Up, index: u16) -> Setup {
    let name = &args.node_name;
    let name = if args.nodes == 1 { name.clone() } else { format!("{name}-{index}") };
    let mut setup = Setup::new(name);
    let capacity = [("cpu", &args.node_cpu), ("memory", &args.node_memory)];
    let given = capacity.into_iter().filter_map(|(resource, amount)| Some((resource, (*amount)?)));
    setup.capacity = given.map(|(resource, amount)| (resource.to_owned(), amount.into())).collect();
    let reserved = args.system_reserved.0.iter();
    setup.reserved = reserved.map(|(resource, amount)| (resource.clone(), (*amount).into())).collect();
    if let Some(cpus) = &args.reserved_cpus {
        let count = Quantity::from_units(i64::try_from(cpus.len()).unwrap_or(i64::MAX));
        setup.reserved.insert("cpu".to_owned(), count.into());
    }
    setup.max_pods = args.max_pods;
    setup.addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    AGENT_VERSION.clone_into(&mut setup.agent_version);
    setup
}

/// The cpus that a node gives to pods that want some for themselves: those of the machine, or as many as a node of
/// virtual pods says it has.
fn cpus_of(args: &Up, machine: &Machine, is_virtual: bool) -> anyhow::Result<Cpus> {
    let all: CpuSet = if is_virtual {
        let count = args.node_cpu.map(|cpu| cpu.saturating_milli() / 1000);
        (0..count.and_then(|count| u32::try_from(count).ok()).unwrap_or(machine.cpus)).collect()
    } else {
        if !Layout::detect().is_ok_and(|layout| layout.has(Controller::Cpuset)) {
            bail!(
                "--cpu-manager-policy static needs the cgroup controller cpuset, which this machine has not"
            );
        }
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        online
            .context("finding the cpus of this machine")?
            .parse()
            .context("finding the cpus of this machine")?
    };
    let reserved = match &args.reserved_cpus {
        Some(cpus) if !cpus.without(&all).is_empty() => {
            bail!("--reserved-cpus {cpus}: the node has the cpus {all}");
        }
        Some(cpus) => cpus.clone(),
        None => {
            let count = args.system_reserved.cpu().saturating_milli().unsigned_abs().div_ceil(1000);
            all.first(usize::try_from(count).unwrap_or(usize::MAX))
        }
    };
    Ok(Cpus::new(all, reserved))
}

fn look_at_machine(data: &Path) -> NodeHealth {
    pressures(Path::new("/"), data).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot find out what this machine runs short of");
        NodeHealth::default()
    })
}

/// Says what the machine runs short of, whenever that changes.
async fn watch_machine(data: PathBuf, tell: watch::Sender<NodeHealth>) {
    loop {
        tokio::time::sleep(LOOK_AT_MACHINE).await;
        let now = look_at_machine(&data);
        tell.send_if_modified(|health| std::mem::replace(health, now) != *health);
    }
}

/// Whether this user may create cgroups, and what else containers need.
pub(crate) fn may_run_containers() -> bool {
    nix::unistd::geteuid().is_root() && Layout::detect().is_ok()
}

/// A runtime at whose nth call this process dies, without a chance to tidy up.
fn dying(runtime: Arc<dyn Runtime>, DieAt { call, nth }: DieAt) -> Arc<dyn Runtime> {
    let faults = Faults::default();
    let seen = AtomicU64::new(0);
    let die = move |_: &Asked| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            // If it fails there is nobody left to tell; the test notices that we live.
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
        false
    };
    faults.add(Fault::new(Harm::Delay(Duration::ZERO)).on(call).when(die));
    Arc::new(Faulty::new(runtime, faults))
}

/// A runtime that takes its time over some calls.
fn slowed(runtime: Arc<dyn Runtime>, RuntimeDelay { call, time }: RuntimeDelay) -> Arc<dyn Runtime> {
    let faults = Faults::default();
    faults.add(Fault::new(Harm::Delay(time)).on(call));
    Arc::new(Faulty::new(runtime, faults))
}

async fn open_builtin(data: &Path) -> anyhow::Result<Builtin> {
    let config = builtin::Config {
        data_dir: data.to_owned(),
        cgroups: Layout::detect().context("finding the cgroups of this machine")?,
        shim: shim_of_this_program().context("finding the program of shims")?,
        pod_network: None,
        load: Some(Load::of_this_program().context("making the image plumb/load")?),
        settles: builtin::SETTLES,
    };
    Builtin::open(config).await.context("opening the built-in container runtime")
}
