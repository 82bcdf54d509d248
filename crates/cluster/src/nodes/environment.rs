//! The common environment of the nodes of a process: the machine, its journal, its runtime.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_controllers::{dns_service, kubernetes_service};
use plumb_cri::Cri;
use plumb_node::api_proxy::ApiProxy;
use plumb_node::cpus::CpuAllocator;
use plumb_node::cri_config::{SandboxDefaults, usual_resolv_conf};
use plumb_node::env::ApiServerAddress;
use plumb_node::journal::{Journal, open_store};
use plumb_node::metrics::Metrics;
use plumb_node::register::{Machine, NodeHealth, Setup, check_reserved};
use plumb_node::server::Server;
use plumb_node::shutdown::{GracePeriods, NodeShutdown};
use plumb_node::static_pods::check_directory;
use plumb_node::usage::{Usage, UsageConfig};
use plumb_node::{Agent, Clock, StatusLimiter};
use plumb_oci::RegistryConfig;
use plumb_resize::Quantity;
use plumb_resize::admission::NodeFacts;
use plumb_resize::rules::Rules;
use plumb_runtime::builtin::{self, Builtin, shim_of_this_program};
use plumb_runtime::cgroup::{Controller, Layout, Version};
use plumb_runtime::fault::{Fault, FaultKind, Faults, Faulty};
use plumb_runtime::image::Load;
use plumb_runtime::service_nat::{LocalService, ServiceNat};
use plumb_runtime::types::{CpuSet, Protocol};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use plumb_store::Store;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::aside::Aside;
use super::dns::{DnsSettings, NodeDns};
use super::pod_network::{clear_routes, set_network};
use super::service_proxy::ServiceProxy;
use super::{cri, policies};
use crate::data_dir::{JOURNAL, KUBELET, LOCAL_VOLUMES, LOGS, VOLUMES};
use crate::flags::{
    CpuPolicy, EnforceNodeAllocatable, OnNode, RuntimeDelay, RuntimeKind, may_run_containers,
};
use crate::pod_network::PodNetwork;

/// The version of Kubernetes that the agent speaks as.
const AGENT_VERSION: &str = "v1.36.4";

/// The common environment of the nodes of a process.
pub(crate) struct NodeEnvironment {
    kind: RuntimeKind,
    data: PathBuf,
    machine: Arc<Machine>,
    journal: Store,
    damage: Option<String>,
    health: Arc<watch::Sender<NodeHealth>>,
    /// The name of the runtime, in messages.
    runs: String,
    /// Shut down the nodes whose agents run.
    shutdowns: Vec<NodeShutdown>,
    sandbox_defaults: SandboxDefaults,
    pod_manifest_path: Option<PathBuf>,
    cpus: Option<CpuAllocator>,
    metrics: Arc<Metrics>,
    status_limiter: StatusLimiter,
    clock: Clock,
    /// The tasks; they end when this is dropped.
    pub(crate) running: JoinSet<()>,
    /// Where agents of virtual nodes run.
    aside: Option<Aside>,
    /// The runtime of real containers.
    builtin: Option<Builtin>,
    /// How pods of a network that is not ours reach the API server.
    service_nat: Option<Arc<ServiceNat>>,
    /// The DNS server of the pods.
    dns_server: Option<Arc<plumb_dns::Server>>,
    /// What serves the addresses of Services.
    service_proxy: Option<ServiceProxy>,
}

/// The configuration of one node.
pub(crate) struct NodeConfig {
    /// Its name.
    pub(crate) name: String,
    /// Which of several it is.
    pub(crate) index: u16,
    /// The addresses of its server.
    pub(crate) addresses: Vec<IpAddr>,
    /// The port of its server.
    pub(crate) port: u16,
    /// How it reaches the cluster, as itself.
    pub(crate) client: Client,
    /// The address of the API server for its pods: host and port.
    pub(crate) api: (String, u16),
    /// The address on the bridge of its pods at which the cluster says that the API is, if it is on this machine.
    pub(crate) api_on_bridge: Option<Ipv4Addr>,
    /// The bridge that connects the nodes of this machine, if there are several.
    pub(crate) node_bridge: Option<String>,
    /// The network of the pods of all nodes, if they have one.
    pub(crate) pod_network: Option<PodNetwork>,
    /// The rules of resizes.
    pub(crate) rules: Rules,
    /// The DNS of its pods.
    pub(crate) dns: DnsSettings,
}

impl NodeEnvironment {
    /// Finds out about the machine, and opens the journal of a data directory.
    pub(crate) fn prepare(args: &OnNode, data_dir: &Path) -> anyhow::Result<Self> {
        args.eviction.check()?;
        let kind = args.runtime.chosen();
        let is_virtual = kind == RuntimeKind::Virtual;
        if !is_virtual && !may_run_containers() {
            bail!(
                "--runtime {} runs containers in cgroups of this machine, which takes {}; --runtime virtual does not",
                if kind == RuntimeKind::Cri { "cri" } else { "builtin" },
                if nix::unistd::geteuid().is_root() { "cgroups that it does not have" } else { "root" }
            );
        }
        let data = std::path::absolute(data_dir).context("finding the data directory")?;
        let machine = Machine::read(Path::new("/")).and_then(|machine| machine.with_disk_of(&data));
        let machine = Arc::new(machine.context("finding out about this machine")?);
        let (journal, damage) = open_store(&data.join(JOURNAL))?;
        if let Some(damage) = &damage {
            tracing::warn!(
                damage,
                "the damaged allocation journal was moved aside; allocations are rebuilt from the pods' statuses and the actual resources"
            );
        }
        if !is_virtual {
            keep_private(&data).context("making the folders of pods")?;
        }
        let health = Arc::new(watch::Sender::new(NodeHealth::default()));
        let running = JoinSet::new();
        let sandbox_defaults = SandboxDefaults {
            log_root: data.join(LOGS),
            cluster_dns: None,
            resolv_conf: resolv_conf(args, is_virtual)?,
            max_pids: args.pod_max_pids.0,
            log_limits: args.log_limits(),
        };
        let cpus = match args.cpu_manager_policy {
            CpuPolicy::None => None,
            CpuPolicy::Static => Some(cpus_of(args, &machine, is_virtual)?),
        };
        let (metrics, status_limiter, clock) =
            (Arc::default(), StatusLimiter::default(), Arc::new(Timestamp::now));
        let aside = is_virtual.then(Aside::start).transpose()?;
        let runs = match kind {
            RuntimeKind::Virtual => "runs virtual pods".to_owned(),
            RuntimeKind::Cri => format!("runs containers by {}", args.cri.container_runtime_endpoint),
            RuntimeKind::Builtin | RuntimeKind::Auto => "runs containers of its own".to_owned(),
        };
        Ok(Self {
            kind,
            data,
            machine,
            journal,
            damage,
            health,
            runs,
            shutdowns: Vec::new(),
            sandbox_defaults,
            pod_manifest_path: pod_manifest_path(args)?,
            cpus,
            metrics,
            status_limiter,
            clock,
            running,
            aside,
            builtin: None,
            service_nat: None,
            dns_server: None,
            service_proxy: None,
        })
    }

    /// The data directory.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// The machine.
    pub(super) fn machine(&self) -> Arc<Machine> {
        self.machine.clone()
    }

    /// The clock.
    pub(super) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Whether pods are virtual.
    pub(crate) fn is_virtual(&self) -> bool {
        self.kind == RuntimeKind::Virtual
    }

    /// The name of the runtime, as a suffix of the node's name.
    pub(crate) fn runtime_name(&self) -> &str {
        &self.runs
    }

    /// Where the kernel's files are, if a node is the whole machine.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        (!self.is_virtual()).then(|| PathBuf::from("/"))
    }

    /// The async runtime of agents.
    fn agent_runtime(&self) -> Handle {
        self.aside.as_ref().map_or_else(Handle::current, Aside::handle)
    }

    /// Runs an agent.
    pub(crate) fn spawn_agent(&mut self, agent: Agent) {
        self.shutdowns.push(agent.shutdown());
        self.running.spawn_on(agent.run(), &self.agent_runtime());
    }

    /// Terminates the pods of the nodes: graceful node shutdown. Agents are running.
    pub(crate) async fn shut_down(&self, periods: GracePeriods) {
        self.health.send_modify(|health| health.shutting_down = true);
        futures_util::future::join_all(self.shutdowns.iter().map(|node| node.run(periods))).await;
    }

    /// Ends the tasks, and then the threads that they run on: without them the tasks would fail, and log it.
    pub(crate) async fn stop(mut self) {
        self.running.shutdown().await;
        if let Some(runtime) = &self.builtin {
            match runtime.release_unused_network().await {
                // Without the bridge there are no pods to route to.
                Ok(()) => clear_routes(&self.data),
                Err(error) => tracing::warn!(%error, "what is left of the pod network was not removed"),
            }
        }
        if let Some(nat) = &self.service_nat
            && let Err(error) = nat.release_unused()
        {
            tracing::warn!(%error, "the rules by which pods reach the API server were not removed");
        }
        if let Some(proxy) = &self.service_proxy {
            proxy.release_unused();
        }
    }

    /// Adds the metrics of what runs beside the agents to the server of one.
    pub(crate) fn with_metrics(&self, server: Server) -> Server {
        match &self.service_proxy {
            Some(proxy) => server.with_metrics(proxy.metrics()),
            None => server,
        }
    }

    /// The DNS server of the pods, if this process has one.
    pub(crate) fn dns_server(&self) -> Option<Arc<plumb_dns::Server>> {
        self.dns_server.clone()
    }

    /// Serves the DNS of the cluster for the pods of the built-in runtime. Returns whether it does.
    fn serve_dns(&mut self, runtime: &Builtin, config: &NodeConfig) -> bool {
        let Some(address) = config.dns.server else { return false };
        let listening = runtime.add_bridge_address(address).context("making the bridge").and_then(|bridge| {
            let mut dns = self.new_dns(config, bridge.gateway)?;
            if let Some(dns) = &mut dns {
                dns.listen_on_bridge(&bridge.name)?;
            }
            Ok(dns)
        });
        self.start_dns(listening, config)
    }

    /// The same for pods of a container runtime whose network is not ours.
    fn serve_cri_dns(&mut self, config: &NodeConfig) -> bool {
        // Without the rules pods do not reach the server, and the node has warned about that.
        let Some(nat) = self.service_nat.clone() else { return false };
        let listening = self.new_dns(config, nat.address()).and_then(|mut dns| {
            if let Some(dns) = &mut dns {
                dns.listen_at(nat.address())?;
            }
            Ok(dns)
        });
        self.start_dns(listening, config)
    }

    fn new_dns(&self, config: &NodeConfig, gateway: Ipv4Addr) -> anyhow::Result<Option<NodeDns>> {
        NodeDns::new(&config.dns, self.sandbox_defaults.resolv_conf.clone(), gateway)
    }

    fn start_dns(&mut self, listening: anyhow::Result<Option<NodeDns>>, config: &NodeConfig) -> bool {
        match listening {
            Ok(Some(dns)) => {
                let supervisor = plumb_supervise::process();
                let server = dns.start(config.client.clone(), supervisor, &mut self.running);
                self.dns_server = Some(server);
                true
            }
            Ok(None) => false,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "pods get the resolvers of the machine, and no names of Services");
                false
            }
        }
    }

    /// Lets pods reach the API server at the Service `kubernetes` and at the address of their bridge. Returns whether
    /// they do.
    fn route_to_api(&mut self, runtime: &Builtin, api: &(String, u16), published: Option<Ipv4Addr>) -> bool {
        let bound =
            runtime.add_bridge_address(KUBERNETES_SERVICE).context("making the bridge").and_then(|bridge| {
                let service = SocketAddr::from((KUBERNETES_SERVICE, kubernetes_service::PORT));
                let mut addresses = vec![service, SocketAddr::from((bridge.gateway, api.1))];
                if let Some(address) = published.filter(|address| *address != bridge.gateway) {
                    runtime.add_bridge_address(address).context("adding an address to the bridge")?;
                    addresses.push(SocketAddr::from((address, api.1)));
                }
                ApiProxy::bind(Some(&bridge.name), &addresses, api.clone()).context("listening on the bridge")
            });
        self.run_api_proxy(bound)
    }

    /// The same for pods of a container runtime whose network is not ours.
    async fn route_cri_to_api(&mut self, runtime: &Cri, api: &(String, u16), dns: &DnsSettings) -> bool {
        let opened = open_service_nat(&self.data, runtime, api.1, dns).await;
        let bound = opened.and_then(|nat| {
            let endpoint = SocketAddr::from((nat.address(), api.1));
            let bound = ApiProxy::bind(None, &[endpoint], api.clone());
            let bound = bound.with_context(|| format!("listening on {endpoint}"));
            let watched = nat.clone();
            let watching = plumb_supervise::process().keep("service-nat", move || watched.watch());
            self.running.spawn(watching);
            self.service_nat = Some(nat);
            bound
        });
        self.run_api_proxy(bound)
    }

    fn run_api_proxy(&mut self, bound: anyhow::Result<ApiProxy>) -> bool {
        match bound {
            Ok(proxy) => {
                let proxy = Arc::new(proxy);
                let carrying = plumb_supervise::process().keep("api-proxy", move || proxy.clone().run());
                self.running.spawn(carrying);
                true
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "pods with a network of their own do not reach the API server");
                false
            }
        }
    }

    /// The agent of a node, and what measures it.
    pub(crate) async fn agent(
        &mut self,
        args: &OnNode,
        config: NodeConfig,
    ) -> anyhow::Result<(Agent, Usage)> {
        let is_virtual = self.is_virtual();
        let mut service_reachable = is_virtual;
        // Virtual pods resolve no names; what they would get is shown.
        let mut dns_reachable = is_virtual;
        let runtime: Arc<dyn Runtime> = match self.kind {
            RuntimeKind::Virtual => {
                let network =
                    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (u32::from(config.index) << 8));
                Arc::new(Virtual::new(VirtualConfig { now: Timestamp::now(), pod_network: network }))
            }
            RuntimeKind::Cri => {
                let opened = Arc::new(cri::open(&self.data, &args.cri).await?);
                let (watched, health) = (opened.clone(), self.health.clone());
                let watching = move || cri::watch_health(watched.clone(), health.clone());
                self.running.spawn(plumb_supervise::process().keep("container-runtime-health", watching));
                let client = config.client.clone();
                let warning = move || policies::warn_of_policies(client.clone());
                self.running.spawn(plumb_supervise::process().keep("network-policies", warning));
                service_reachable = self.route_cri_to_api(&opened, &config.api, &config.dns).await;
                dns_reachable = self.serve_cri_dns(&config);
                let nat = self.service_nat.clone();
                self.service_proxy =
                    nat.and_then(|nat| ServiceProxy::for_cri(&self.data, args, &config, &nat));
                opened
            }
            RuntimeKind::Builtin | RuntimeKind::Auto => {
                let mut builtin = builtin_config(&self.data, true)?;
                builtin.registry = args.registry.config();
                builtin.masquerade = args.masquerade;
                let network = self.pod_network(args, &config).await?;
                if let Some(network) = &network {
                    set_network(&mut builtin, network);
                }
                let opened = Builtin::open(builtin).await;
                let opened = opened.context("opening the built-in container runtime")?;
                let watched = opened.clone();
                let watching = move || watched.watch_network();
                self.running.spawn(plumb_supervise::process().keep("pod-network", watching));
                self.builtin = Some(opened.clone());
                let policies =
                    policies::prepare(&opened, &config.name, config.dns.server, config.client.clone());
                self.running.spawn(plumb_supervise::process().keep("network-policies", policies));
                service_reachable = self.route_to_api(&opened, &config.api, config.api_on_bridge);
                dns_reachable = self.serve_dns(&opened, &config);
                if let Some(network) = network {
                    let routing = network.run(config.client.clone(), plumb_supervise::process());
                    self.running.spawn(routing);
                }
                self.service_proxy = ServiceProxy::for_builtin(&self.data, args, &config);
                Arc::new(opened)
            }
        };
        self.sandbox_defaults.cluster_dns = Some(config.dns.for_pods(dns_reachable));
        if let Some(proxy) = &self.service_proxy {
            self.running.spawn(proxy.run());
        }
        #[cfg(feature = "test-hooks")]
        let runtime = args.hooks.around(runtime);
        let runtime = match args.runtime_delay {
            Some(delay) => slowed(runtime, delay),
            None => runtime,
        };
        let usage = Usage::new(UsageConfig {
            node: config.name.clone(),
            runtime: runtime.clone(),
            every: args.metric_resolution,
            clock: self.clock.clone(),
            machine: self.root(),
        });
        let measuring = usage.clone();
        let measuring = plumb_supervise::process().keep("node-usage", move || {
            let measuring = measuring.clone();
            async move { measuring.run().await }
        });
        self.running.spawn_on(measuring, &self.agent_runtime());
        let setup = setup(args, &config);
        check_reserved(&setup, &self.machine).map_err(anyhow::Error::msg)?;
        let agent = Agent::new(plumb_node::Config {
            setup,
            machine: self.machine.clone(),
            kernel_files: self.root(),
            health: self.health.subscribe(),
            client: config.client,
            runtime,
            journal: Journal::new(self.journal.clone(), config.name),
            damage: self.damage.take(),
            rules: config.rules,
            facts: NodeFacts::default(),
            cpus: self.cpus.clone(),
            allowed_unsafe_sysctls: args.allowed_unsafe_sysctls.clone(),
            api_server: Some(ApiServerAddress {
                service: if service_reachable {
                    (KUBERNETES_SERVICE.to_string(), kubernetes_service::PORT)
                } else {
                    config.api.clone()
                },
                host: config.api,
            }),
            reachable: !is_virtual,
            oom_group: !is_virtual
                && !args.single_process_oom_kill
                && Layout::detect().is_ok_and(|layout| layout.version() == Version::V2),
            max_restart_period: args.max_container_restart_period,
            enforce_node_allocatable: args.enforce_node_allocatable == EnforceNodeAllocatable::Pods,
            pod_manifest_path: self.pod_manifest_path.clone().filter(|_| config.index == 0),
            volumes: (!is_virtual).then(|| plumb_node::VolumeDirectories {
                root: self.data.join(VOLUMES),
                local: self.data.join(LOCAL_VOLUMES),
                kubelet: self.data.join(KUBELET),
            }),
            image_gc: match self.kind {
                RuntimeKind::Builtin => Some(args.image_gc(Some(self.data.clone()))),
                RuntimeKind::Cri => Some(args.image_gc(None)),
                RuntimeKind::Auto | RuntimeKind::Virtual => None,
            },
            // Virtual pods run no program of an image.
            image_pulls: (!is_virtual)
                .then(|| args.image_pulls(self.data.join(KUBELET).join("image_manager")))
                .transpose()?,
            // Virtual pods use no resources of this machine, so its pressure does not affect them.
            eviction: match self.kind {
                RuntimeKind::Builtin => Some(args.eviction.config(&self.data, Some(self.data.clone()))?),
                RuntimeKind::Cri => Some(args.eviction.config(&self.data, None)?),
                RuntimeKind::Auto | RuntimeKind::Virtual => None,
            },
            sandbox_defaults: self.sandbox_defaults.clone(),
            metrics: self.metrics.clone(),
            status_limiter: self.status_limiter.clone(),
            clock: self.clock.clone(),
            supervisor: plumb_supervise::process().clone(),
        });
        let agent = self.agent_runtime().spawn(agent).await.context("a node agent panicked")??;
        Ok((agent, usage))
    }
}

/// Makes the rules by which the pods of a container runtime reach the API server, those that run already among them.
async fn open_service_nat(
    data: &Path,
    runtime: &Cri,
    port: u16,
    dns: &DnsSettings,
) -> anyhow::Result<Arc<ServiceNat>> {
    let pods = runtime.pod_addresses().await.context("asking for the addresses of pods")?;
    let kubernetes = SocketAddrV4::new(KUBERNETES_SERVICE, kubernetes_service::PORT);
    let mut services = vec![LocalService { address: kubernetes, protocol: Protocol::Tcp, port }];
    services.extend(dns.server.into_iter().flat_map(|server| {
        let address = SocketAddrV4::new(server, dns_service::PORT);
        [Protocol::Udp, Protocol::Tcp].map(|protocol| LocalService {
            address,
            protocol,
            port: dns_service::PORT,
        })
    }));
    let nat = Arc::new(ServiceNat::open(data, services, pods)?);
    runtime.let_pods_reach(nat.clone());
    Ok(nat)
}

/// The registration of a node.
pub(super) fn setup(args: &OnNode, config: &NodeConfig) -> Setup {
    let mut setup = Setup { port: config.port, ..Setup::new(&config.name) };
    let capacity = [("cpu", &args.node_cpu), ("memory", &args.node_memory)];
    let given = capacity.into_iter().filter_map(|(resource, amount)| Some((resource, (*amount)?)));
    setup.capacity = given.map(|(resource, amount)| (resource.to_owned(), amount.into())).collect();
    let reserved = args.reserved().into_iter();
    setup.reserved = reserved.map(|(resource, amount)| (resource, amount.into())).collect();
    if let Some(cpus) = &args.reserved_cpus {
        let count = Quantity::from_units(i64::try_from(cpus.len()).unwrap_or(i64::MAX));
        setup.reserved.insert("cpu".to_owned(), count.into());
    }
    setup.eviction_hard.clone_from(&args.eviction.eviction_hard);
    setup.labels.clone_from(&args.node_labels.0);
    setup.taints.clone_from(&args.register_with_taints.0);
    setup.max_pods = args.max_pods;
    setup.addresses.clone_from(&config.addresses);
    AGENT_VERSION.clone_into(&mut setup.agent_version);
    setup
}

/// Where the manifests of static pods are.
fn pod_manifest_path(args: &OnNode) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = &args.pod_manifest_path else { return Ok(None) };
    let path = std::path::absolute(path).context("finding the path of --pod-manifest-path")?;
    check_directory(&path).with_context(|| format!("--pod-manifest-path {}", path.display()))?;
    Ok(Some(path))
}

/// The file with the resolver configuration of pods. Virtual pods resolve no names.
fn resolv_conf(args: &OnNode, is_virtual: bool) -> anyhow::Result<Option<PathBuf>> {
    let file = match &args.resolv_conf {
        _ if is_virtual => return Ok(None),
        Some(file) if file.as_os_str().is_empty() => return Ok(None),
        Some(file) => std::path::absolute(file).context("finding the file of --resolv-conf")?,
        None => return Ok(Some(usual_resolv_conf(Path::new("/")))),
    };
    if !file.is_file() {
        bail!("--resolv-conf {}: there is no such file", file.display());
    }
    Ok(Some(file))
}

/// The CPUs that a node allocates exclusively: those of the machine, or as many as a node of virtual pods is
/// configured with.
fn cpus_of(args: &OnNode, machine: &Machine, is_virtual: bool) -> anyhow::Result<CpuAllocator> {
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
        Some(cpus) if !cpus.difference(&all).is_empty() => {
            bail!("--reserved-cpus {cpus}: the node has the cpus {all}");
        }
        Some(cpus) => cpus.clone(),
        None => {
            let count = args.reserved_cpu().saturating_milli().unsigned_abs().div_ceil(1000);
            all.take(usize::try_from(count).unwrap_or(usize::MAX))
        }
    };
    Ok(CpuAllocator::new(all, reserved))
}

/// Protects the secrets and logs of pods, and the volumes of CSI drivers, from other users of this machine: their files have
/// the modes that their containers need. Containers see them through mounts, and pass none of these directories.
fn keep_private(data: &Path) -> std::io::Result<()> {
    for folder in [VOLUMES, LOGS, KUBELET].map(|name| data.join(name)) {
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A runtime that takes its time over some calls.
fn slowed(runtime: Arc<dyn Runtime>, RuntimeDelay { call, time }: RuntimeDelay) -> Arc<dyn Runtime> {
    let faults = Faults::default();
    faults.add(Fault::new(FaultKind::Delay(time)).on(call));
    Arc::new(Faulty::new(runtime, faults))
}

/// The built-in runtime of a data directory, with the image `plumb/load` or without.
pub(crate) fn builtin_config(data: &Path, with_load: bool) -> anyhow::Result<builtin::Config> {
    let load = with_load.then(|| Load::of_this_program().context("making the image plumb/load"));
    Ok(builtin::Config {
        data_dir: data.to_owned(),
        cgroups: Layout::detect().context("finding the cgroups of this machine")?,
        shim: shim_of_this_program().context("finding the program of shims")?,
        pod_network: None,
        cluster_network: None,
        mtu: None,
        masquerade: false,
        load: load.transpose()?,
        guard_window: builtin::GUARD_WINDOW,
        registry: RegistryConfig::default(),
    })
}
