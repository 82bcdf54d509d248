//! The agent: adopts running pods, watches the pods that are bound to its node, and has a pod worker for each.

mod adopt;
mod classes;
mod describe;
mod health;
mod rebuild;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{self as core, Pod};
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Backoff, ObjectRef, Reflector, WatchConfig, WatchEvent};
use plumb_resize::admission::{CpuManager, NodeFacts};
use plumb_resize::list::BadQuantity;
use plumb_resize::quantity::Quantity;
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, at_admission};
use plumb_runtime::types::{ContainerChange, Event, SandboxFilter, SandboxId};
use plumb_runtime::{Error, Runtime};
use plumb_supervise::Supervisor;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use crate::Clock;
use crate::allocation_manager::{AllocationManager, PendingAdmission};
use crate::allocator::{AdmissionError, Allocator, PodInfo};
use crate::cpus::CpuAllocator;
use crate::cri_config;
use crate::env::{ApiServerAddress, EnvFacts};
use crate::ephemeral_storage;
use crate::events::{Kind, Recorder};
use crate::eviction::{EvictionConfig, EvictionManager};
use crate::image_gc::{self, ImageGcConfig};
use crate::image_pulls::{ImagePulls, ImagePullsConfig};
use crate::journal::{Entry, Journal, JournalError};
use crate::metrics::Metrics;
use crate::node::{Node, Workers};
use crate::objects::Objects;
use crate::predicates::{self, Predicate};
use crate::preemption;
use crate::register::{self, Machine, NodeHealth, Registered, Registrar, Setup};
use crate::server::{Gate, MachineSize, Server, ServerConfig};
use crate::services::Services;
use crate::shutdown::{self, NodeShutdown};
use crate::static_pods::{self, StaticPods};
use crate::status_patch::StatusLimiter;
use crate::sysctls::{self, Allowlist, UnsafeSysctls};
use crate::unsupported;
use crate::usage::MachineCpu;
use crate::volumes::{LocalVolumes, Volumes, VolumesConfig};
use crate::worker::{Message, POD_WORKER, Worker, error_chain, is_finished};

/// The configuration of an agent.
pub struct Config {
    /// The configuration of the Node object.
    pub setup: Setup,
    /// The machine that the node is on.
    pub machine: Arc<Machine>,
    /// The root of the kernel's files, if the node is the whole machine: the idle CPU of others is what no pod requests.
    pub kernel_files: Option<PathBuf>,
    /// The node's health.
    pub health: watch::Receiver<NodeHealth>,
    /// The API client with the node's identity.
    pub client: Client,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The allocation journal.
    pub journal: Journal,
    /// The damage of the journal when it was opened, if any.
    pub damage: Option<String>,
    /// The rules of the dialect.
    pub rules: Rules,
    /// Facts of the node that decide about resizes.
    pub facts: NodeFacts,
    /// The CPUs for exclusive use (static CPU manager policy); none for the policy `none`.
    pub cpus: Option<CpuAllocator>,
    /// The sysctls that pods may set beyond the safe ones.
    pub allowed_unsafe_sysctls: UnsafeSysctls,
    /// Where pods reach the API server.
    pub api_server: Option<ApiServerAddress>,
    /// Whether pod addresses are reachable: not if pods are virtual.
    pub reachable: bool,
    /// Whether the cgroup of all pods is limited to the capacity without the reserved resources
    /// (`--enforce-node-allocatable`).
    pub enforce_node_allocatable: bool,
    /// Whether the kernel kills all processes of a container that runs out of memory, and not only one of them. Cgroup v2
    /// only.
    pub oom_group: bool,
    /// The longest that a container that exits repeatedly waits for its restart (`--max-container-restart-period`).
    pub max_restart_period: Duration,
    /// Where volumes are; none if pods are virtual.
    pub volumes: Option<VolumeDirectories>,
    /// When images are removed; none if never.
    pub image_gc: Option<ImageGcConfig>,
    /// Which pods may use which images; none lets each use all, such as on a virtual node.
    pub image_pulls: Option<ImagePullsConfig>,
    /// When pods are evicted because the node is under pressure, or because of the local storage that they use; none if never.
    pub eviction: Option<EvictionConfig>,
    /// The directory of the manifests of static pods.
    pub pod_manifest_path: Option<PathBuf>,
    /// Logs and DNS of pods.
    pub sandbox_defaults: cri_config::SandboxDefaults,
    /// Metrics; nodes of one process may share them.
    pub metrics: Arc<Metrics>,
    /// Limits concurrent status patches; nodes of one process share it.
    pub status_limiter: StatusLimiter,
    /// The clock.
    pub clock: Clock,
    /// Restarts tasks that fail.
    pub supervisor: Supervisor,
}

/// Where the volumes of a node are.
#[derive(Clone, Debug)]
pub struct VolumeDirectories {
    /// The directory of the volumes of all pods.
    pub root: PathBuf,
    /// The directory of the volumes of the storage class `local-path`, which outlive pods.
    pub local: PathBuf,
    /// The directory that CSI drivers know as that of the kubelet: `plugins_registry`, `plugins` and `pods` are in it.
    pub kubelet: PathBuf,
}

/// The name of the agent's task, in health checks and metrics.
const TASK: &str = "node-agent";
/// The reason of the event about a worker that panicked.
const PANICKED: &str = "ReconcilePanicked";

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime did not respond.
    #[error("ask the container runtime")]
    Runtime(#[from] Error),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The node's capacity or its reserved resources are invalid.
    #[error("work out what the node has to give")]
    Amount(#[from] BadQuantity),
}

/// An agent.
pub struct Agent {
    node: Arc<Node>,
    registrar: Registrar,
    /// What `/metrics/cadvisor` and `/configz` have.
    size: MachineSize,
    configuration: Value,
    registered: Option<Registered>,
    health: watch::Receiver<NodeHealth>,
    /// The journal's entries, until their pods are listed.
    entries: BTreeMap<String, Entry>,
    /// The damage of the journal.
    damage: Vec<String>,
    /// The uids of the pods, by namespace and name.
    uids: HashMap<ObjectRef, String>,
    /// The uid of the pod of each sandbox.
    sandboxes: HashMap<SandboxId, String>,
    workers: JoinSet<()>,
    /// Whether all pods have been listed once.
    listed: bool,
}

impl Agent {
    /// Creates an agent; it changes nothing yet.
    pub async fn new(config: Config) -> Result<Self, StartError> {
        let Config { mut setup, machine, client, runtime, journal, rules, clock, .. } = config;
        let version = runtime.version().await?;
        setup.runtime_version = format!("{}://{}", version.runtime_name, version.runtime_version);
        describe::features(&mut setup, &rules, &version.runtime_name);
        setup.local_volumes = config.volumes.as_ref().map(|directories| directories.local.clone());
        setup.local_volumes_capacity =
            setup.local_volumes.clone().and_then(|directory| LocalVolumes::new(directory).capacity());
        let allocatable = register::allocatable(&setup, &machine);
        let amounts = plumb_resize::list::declared(Some(&allocatable))?.amounts();
        let ephemeral_storage = allocatable.get(ephemeral_storage::NAME);
        let ephemeral_storage = ephemeral_storage.and_then(|amount| amount.0.parse::<Quantity>().ok());
        let max_pods = usize::try_from(setup.max_pods).unwrap_or(usize::MAX);
        let facts = EnvFacts {
            pod_ips: Vec::new(),
            host_ips: setup.addresses.clone(),
            allocatable: allocatable.clone(),
            api_server: config.api_server,
        };
        let size = MachineSize { cpus: machine.cpus, memory: machine.memory };
        let configuration = describe::configuration(describe::Settings {
            setup: &setup,
            sandboxes: &config.sandbox_defaults,
            image_gc: config.image_gc.as_ref(),
            image_pulls: config.image_pulls.as_ref(),
            eviction: config.eviction.as_ref(),
            enforce_node_allocatable: config.enforce_node_allocatable,
            static_cpu_manager: config.cpus.is_some(),
            max_restart_period: config.max_restart_period,
        });
        let found = journal.read()?;
        let objects = Objects::new(client.clone()).supervised(&config.supervisor);
        let cpu_manager = if config.cpus.is_some() { CpuManager::Static } else { CpuManager::None };
        let facts_of_rules = NodeFacts { cpu_manager, ..config.facts };
        let allocator = Allocator::new(amounts, max_pods, facts_of_rules, rules.clone())
            .with_cpus(config.cpus)
            .with_ephemeral_storage(ephemeral_storage.map(Quantity::saturating_units));
        let memory = i64::try_from(machine.memory).unwrap_or(i64::MAX);
        let pods_cgroup = if config.enforce_node_allocatable {
            register::pods_cgroup(&setup, &machine)
        } else {
            classes::unlimited()
        };
        let eviction = config.eviction.map(|eviction| {
            // A configured capacity is no part of the machine, and nothing of it is kept free.
            let is_configured = setup.capacity.contains_key("memory");
            let limit = pods_cgroup.memory_limit.filter(|limit| *limit < memory && !is_configured);
            EvictionManager::new(eviction, limit)
        });
        if let Some(eviction) = &eviction {
            eviction.begin(&*runtime, clock()).await;
        }
        let node = Node {
            pods_cgroup,
            eviction,
            image_gc: config.image_gc,
            image_use: tokio::sync::Mutex::default(),
            image_pulls: ImagePulls::new(config.image_pulls, clock.clone()),
            oom_group: config.oom_group,
            max_restart_period: config.max_restart_period,
            allocations: Arc::new(AllocationManager::new(
                allocator,
                journal,
                clock.clone(),
                config.supervisor.clone(),
            )),
            events: Recorder::start(
                client.clone(),
                &setup.name,
                clock.clone(),
                &config.supervisor,
                &config.metrics,
            ),
            name: setup.name.clone(),
            runtime,
            runtime_name: version.runtime_name,
            rules,
            clock: clock.clone(),
            sandbox_defaults: config.sandbox_defaults,
            services: config.volumes.is_some().then(Services::default),
            volumes: config.volumes.map(|VolumeDirectories { root, local, kubelet }| {
                let (node, objects) = (setup.name.clone(), objects.clone());
                let config = VolumesConfig { node, root, local, kubelet, objects, allocatable };
                Volumes::new(config, client.clone())
            }),
            objects,
            facts,
            reachable: config.reachable,
            metrics: config.metrics,
            status_limiter: config.status_limiter,
            client: client.clone(),
            sysctls: Allowlist::new(&machine.kernel_version, config.allowed_unsafe_sysctls),
            memory,
            machine_cpu: config.kernel_files.map(|root| MachineCpu { root, cpus: machine.cpus }),
            workers: Workers::default(),
            static_pods: config.pod_manifest_path.map(StaticPods::new),
            shutting_down: AtomicBool::new(false),
            supervisor: config.supervisor,
        };
        let mut registrar = Registrar::new(client, setup, machine, clock);
        if let Some(volumes) = &node.volumes {
            registrar = registrar.with_volumes_in_use(volumes.volumes_in_use());
            // Not of virtual nodes: there may be thousands, and they have no images.
            registrar = registrar.with_images_and_events(node.runtime.clone(), node.events.clone());
        }
        let damage = config.damage.into_iter().chain(found.damage).collect();
        Ok(Self {
            registrar,
            size,
            configuration,
            registered: None,
            health: config.health,
            node: Arc::new(node),
            entries: found.entries,
            damage,
            uids: HashMap::new(),
            sandboxes: HashMap::new(),
            workers: JoinSet::new(),
            listed: false,
        })
    }

    /// Registers the node; retries until it succeeds.
    pub fn register(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.try_register())
    }

    async fn try_register(&mut self) {
        let mut backoff = Backoff::default();
        while self.registered.is_none() {
            let now = self.current_health();
            match Box::pin(self.registrar.register(&now)).await {
                Ok(registered) => self.registered = Some(registered),
                Err(error) => {
                    tracing::warn!(%error, "the node is not in the cluster yet, will try again");
                    backoff.wait().await;
                }
            }
        }
    }

    /// The node's HTTP server. `machine` is the root of the kernel's files, if the node is the whole machine; `gate`
    /// authorizes requests.
    pub fn server(&self, machine: Option<PathBuf>, gate: Gate) -> Server {
        Server::new(ServerConfig {
            node: self.node.name.clone(),
            pods: self.node.clone(),
            runtime: self.node.runtime.clone(),
            addresses: self.node.facts.host_ips.clone(),
            reachable: self.node.reachable,
            metrics: self.node.metrics.clone(),
            clock: self.node.clock.clone(),
            machine,
            size: self.size,
            configuration: self.configuration.clone(),
            volumes: self.node.volumes.clone(),
            gate,
        })
    }

    /// Starts the shutdown of the node, while the agent runs.
    pub fn shutdown(&self) -> NodeShutdown {
        NodeShutdown(self.node.clone())
    }

    /// Runs until the future is dropped. Containers keep running. Pod workers outlive a restart of this task.
    pub fn run(self) -> BoxFuture<'static, ()> {
        // Boxed, so that it is compiled here and not with each crate that awaits it.
        Box::pin(self.supervised())
    }

    async fn supervised(self) {
        let supervisor = self.node.supervisor.clone();
        let agent = Arc::new(Mutex::new(self));
        let working = move || {
            let agent = agent.clone();
            async move {
                let mut agent = agent.lock().await;
                Box::pin(agent.work()).await;
            }
        };
        supervisor.keep(TASK, working).await;
    }

    async fn work(&mut self) {
        self.node.image_pulls.recover(&*self.node.runtime).await;
        self.register().await;
        let (sender, mut pod_events) = mpsc::channel(256);
        let on_this_node = WatchConfig::default().fields(format!("spec.nodeName={}", self.node.name));
        let pods: Api<Pod> = Api::all(self.node.client.clone());
        let (health, following_health) = self.follow_health();
        let (registrar, health_of_images) = (self.registrar.clone(), health.clone());
        let registered = self.registered.take();
        let registered = async move {
            if let Some(registered) = registered {
                registrar.run(registered, health).await;
            }
        };
        let reflecting = Reflector::new(pods, on_this_node).run(sender);
        let node = self.node.clone();
        let classes = classes::run(&node);
        let image_gc = image_gc::run(&node, health_of_images);
        let eviction = EvictionManager::run(&node);
        if let Some(static_pods) = &self.node.static_pods {
            // Before pods are admitted: static pods are critical.
            static_pods.read(&self.node.name);
        }
        let runs_static = self.node.clone();
        let static_pods = async move {
            if let Some(static_pods) = &runs_static.static_pods {
                static_pods.run(&runs_static).await;
            }
        };
        let volumes = self.node.volumes.as_ref().map(|volumes| volumes.run(&self.node.supervisor));
        let volumes = async move {
            if let Some(volumes) = volumes {
                volumes.await;
            }
        };
        let services = self.watch_services();
        let mut events = self.node.runtime.events();
        // Events that came between the end of the last run and this one were lost.
        self.sandboxes.clear();
        self.node.workers.send_all(|| Message::RuntimeEvent);
        let work = async {
            loop {
                tokio::select! {
                    event = pod_events.recv() => match event {
                        Some(WatchEvent::Restarted(pods)) => {
                            self.handle_list(pods).await;
                            self.reconcile_static_pods();
                        }
                        Some(WatchEvent::Applied(pod)) => self.handle_pod(Arc::new(*pod)),
                        Some(WatchEvent::Deleted(pod)) => self.handle_deleted(&pod),
                        None => return,
                    },
                    event = events.next() => match event {
                        Some(event) => self.handle_runtime_event(event).await,
                        None => return,
                    },
                    // Joined only to free the memory of workers that have ended.
                    Some(_) = self.workers.join_next() => {}
                }
            }
        };
        let pressure = async { tokio::join!(following_health, eviction) };
        tokio::join!(
            reflecting,
            work,
            registered,
            classes,
            image_gc,
            static_pods,
            volumes,
            services,
            pressure
        );
    }

    /// Watches the Services that containers get variables of.
    fn watch_services(&self) -> impl Future<Output = ()> + use<> {
        let watching = self.node.services.clone().map(|services| {
            let client = self.node.client.clone();
            self.node.supervisor.keep("node-services", move || {
                let (services, client) = (services.clone(), client.clone());
                async move { services.run(client).await }
            })
        });
        async move {
            if let Some(watching) = watching {
                watching.await;
            }
        }
    }

    /// Handles a pod that is new or changed.
    fn handle_pod(&mut self, pod: Arc<Pod>) {
        self.handle_pod_as(pod, Message::Pod);
    }

    fn handle_pod_as(&mut self, pod: Arc<Pod>, message: fn(Arc<Pod>) -> Message) {
        self.handle_pod_with(pod, message, Start::default());
    }

    fn handle_pod_with(&mut self, pod: Arc<Pod>, message: fn(Arc<Pod>) -> Message, start: Start) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let before = self.uids.insert(ObjectRef::of(&*pod), uid.clone());
        if let Some(other) = before.filter(|other| *other != uid) {
            // Another pod had the name, and its deletion was missed.
            self.node.workers.send(&other, Message::Deleted);
        }
        let is_mirror = static_pods::is_mirror(&pod);
        if !self.node.workers.send(&uid, message(pod.clone())) {
            self.start_worker(uid, pod, start);
        }
        if is_mirror {
            self.reconcile_static_pods();
        }
    }

    fn reconcile_static_pods(&self) {
        if let Some(static_pods) = &self.node.static_pods {
            static_pods.pods_changed();
        }
    }

    fn handle_deleted(&mut self, pod: &ObjectRef) {
        if let Some(uid) = self.uids.remove(pod) {
            self.node.workers.send(&uid, Message::Deleted);
        }
        self.reconcile_static_pods();
    }

    /// Starts the worker of a pod.
    fn start_worker(&mut self, uid: String, pod: Arc<Pod>, start: Start) {
        // Unbounded: one slow worker must not block the agent and the workers of other pods. The number of messages
        // is bounded by their causes: events of this one pod and its containers, and one message per task that its
        // worker has started.
        let (sender, inbox) = mpsc::unbounded_channel();
        self.node.workers.insert(&uid, pod, sender.clone());
        self.node.allocations.subscribe(&uid, sender.clone());
        let node = self.node.clone();
        self.workers.spawn(run_worker(node, sender, inbox, uid, start));
    }

    /// Handles an event of the runtime.
    async fn handle_runtime_event(&mut self, event: Event) {
        let (sandbox, message) = match event {
            Event::Container { id, sandbox, change, .. } => match change {
                ContainerChange::OutOfMemory => (sandbox, Message::OutOfMemory(id)),
                ContainerChange::Stopped => (sandbox, Message::RuntimeEvent),
                // The workers themselves cause these.
                ContainerChange::Created | ContainerChange::Started | ContainerChange::Deleted => return,
            },
            Event::MemoryPressure { sandbox, container, pressure, .. } => {
                (sandbox, Message::MemoryPressure(Box::new((container, pressure))))
            }
            Event::LimitRestored { sandbox, .. } => (sandbox, Message::LimitRestored),
            Event::UpdateFinished { sandbox, .. } => (sandbox, Message::UpdateFinished),
            Event::Missed(_) => {
                self.sandboxes.clear();
                self.node.workers.send_all(|| Message::RuntimeEvent);
                return;
            }
        };
        if !self.sandboxes.contains_key(&sandbox) && !self.list_sandboxes().await {
            // The runtime reports a change once: all pods are observed rather than none.
            self.node.workers.send_all(|| Message::RuntimeEvent);
            return;
        }
        if let Some(uid) = self.sandboxes.get(&sandbox) {
            self.node.workers.send(uid, message);
        }
    }

    /// Lists the sandboxes and their pods. False if that failed.
    async fn list_sandboxes(&mut self) -> bool {
        match self.node.runtime.list_sandboxes(&SandboxFilter::default()).await {
            Ok(list) => {
                self.sandboxes = list.into_iter().map(|sandbox| (sandbox.id, sandbox.meta.uid)).collect();
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list sandboxes");
                false
            }
        }
    }
}

/// How the worker of a pod starts.
#[derive(Default)]
struct Start {
    /// The journal entry of a pod that was admitted before.
    entry: Option<Box<Entry>>,
    /// The predicate that such a pod failed when this agent was started.
    failed: Option<Predicate>,
    /// Held until a pod of the first list is admitted.
    admission: Option<PendingAdmission>,
}

/// Runs the worker of a pod until the pod is removed. One that panics is replaced after a backoff: the new one gets the
/// allocation from the allocator and the running containers from the runtime, and has the same inbox.
async fn run_worker(
    node: Arc<Node>,
    sender: mpsc::UnboundedSender<Message>,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    uid: String,
    mut start: Start,
) {
    let mut backoff = Backoff::default();
    loop {
        // Moved into the worker: a copy here would be the version that the worker started with, for as long as the pod lives.
        let Some((pod, _)) = node.workers.latest(&uid) else { return };
        let work = async {
            let new = new_worker(node.clone(), sender.clone(), uid.clone(), pod, &mut start);
            // Boxed: a task's size is that of its largest state, and there are many idle tasks.
            let worker = Box::pin(new).await.map(Box::new);
            start.admission = None;
            if let Some(worker) = worker {
                worker.run(&mut inbox).await;
            }
        };
        let Err(panic) = node.supervisor.guard(POD_WORKER, work).await else { return };
        let Some((pod, deleted)) = node.workers.latest(&uid) else { return };
        let message = format!("The pod worker panicked and will retry: {}", panic.message);
        node.events.pod(&pod, Kind::Warning, PANICKED, message);
        backoff.wait().await;
        start.entry = node.allocations.entry(&uid).map(Box::new);
        if deleted {
            // The message was received by the worker that panicked.
            let _ = sender.send(Message::Deleted);
        }
    }
}

/// The worker of a pod; none if the pod is invalid.
async fn new_worker(
    node: Arc<Node>,
    sender: mpsc::UnboundedSender<Message>,
    uid: String,
    pod: Arc<Pod>,
    start: &mut Start,
) -> Option<Worker> {
    let info = match node.pod_info(&pod) {
        Ok(info) => info,
        Err(error) => {
            // The API server's validation prevents this.
            tracing::error!(uid, %error, "invalid resources in a pod's spec");
            node.workers.remove(&uid);
            return None;
        }
    };
    let desired = |info: &PodInfo| Allocation::new(info.desired.clone(), info.generation);
    let as_desired = |info: &PodInfo| Entry::new(info, desired(info));
    let over = is_finished(&pod) || pod.metadata.deletion_timestamp.is_some();
    let under_pressure = || {
        let manager = node.eviction.as_ref().filter(|_| start.entry.is_none())?;
        manager.rejection(&pod, &info).map(|message| (shutdown::EVICTED, message))
    };
    let forbidden_sysctl = || {
        let forbidden = node.sysctls.admit(pod.spec.as_ref()?).err()?;
        Some((sysctls::FORBIDDEN, forbidden.to_string()))
    };
    let unsupported = || unsupported::check(&pod).map(|found| (found.reason(), found.to_string()));
    let predicate = || {
        let error = AdmissionError::Predicate(start.failed?);
        Some((error.reason(), error.to_string()))
    };
    let shutting_down = || {
        let is_new = start.entry.is_none() && node.is_shutting_down();
        is_new.then(|| (shutdown::NOT_ADMITTED, shutdown::NOT_ADMITTED_MESSAGE.to_owned()))
    };
    let rejected = if over {
        None
    } else {
        shutting_down()
            .or_else(under_pressure)
            .or_else(forbidden_sysctl)
            .or_else(unsupported)
            .or_else(predicate)
    };
    let forbidden = rejected.map(|(reason, message)| {
        let status = format!("Pod was rejected: {message}");
        node.events.pod(&pod, Kind::Warning, reason, message);
        (reason.to_owned(), status)
    });
    if let Some(entry) = start.entry.take() {
        let worker = Worker::new(node, sender, pod, info, *entry);
        // Like the kubelet, the agent checks running pods again when it starts: they may violate a predicate now that
        // they satisfied when they were admitted.
        return Some(match forbidden {
            Some((reason, message)) => worker.fail_with(reason, message),
            None => worker,
        });
    }
    // The kubelet checks this before it checks whether the pod fits.
    if let Some((reason, message)) = forbidden {
        let entry = as_desired(&info);
        return Some(Worker::new(node, sender, pod, info, entry).rejected(reason, message));
    }
    if over {
        let entry = as_desired(&info);
        return Some(Worker::new(node, sender, pod, info, entry));
    }
    let allocation = if node.rules.resize { at_admission(&pod, &info.desired) } else { desired(&info) };
    let failed = read_node(&node).await.and_then(|node| predicates::check(&pod, &node));
    let mut backoff = Backoff::default();
    let mut preemption = None;
    let admitted = loop {
        match node.allocations.admit(&uid, info.clone(), allocation.clone(), failed).await {
            Ok(Err(rejected)) if rejected.is_shortage() && preemption.is_none() => {
                let begun = node.allocations.begin_preemption(&uid, &info, &allocation, failed);
                let Some((victims, begun)) = begun.filter(|(victims, _)| !victims.is_empty()) else {
                    break Err(rejected);
                };
                preemption = Some(begun);
                // Others of the first list may wait for it, the victims among them.
                start.admission = None;
                preemption::preempt(&node, &uid, &victims).await;
            }
            Ok(admitted) => break admitted,
            Err(error) => {
                tracing::error!(
                    error = error_chain(&error),
                    "cannot write an allocation to the journal, will retry"
                );
                backoff.wait().await;
            }
        }
    };
    // It is admitted or rejected.
    drop(preemption);
    if start.admission.take().is_some() {
        // So that a pod that has grown already starts with that, if it fits.
        node.allocations.all_admitted().await;
    }
    match admitted {
        Ok(entry) => Some(Worker::new(node, sender, pod, info, entry)),
        Err(rejected) => {
            let (reason, message) = (rejected.reason().to_owned(), format!("Pod was rejected: {rejected}"));
            node.events.pod(&pod, Kind::Warning, rejected.reason(), rejected.to_string());
            let entry = as_desired(&info);
            Some(Worker::new(node, sender, pod, info, entry).rejected(reason, message))
        }
    }
}

/// The Node that pods are checked against. It is read from the API server, not from a cache: a pod may have been bound
/// because of a label that was just added. None while it does not exist: it was deleted, and is created again with its next
/// status.
async fn read_node(node: &Node) -> Option<core::Node> {
    let nodes: Api<core::Node> = Api::all(node.client.clone());
    let mut backoff = Backoff::default();
    loop {
        match nodes.get_opt(&node.name).await {
            Ok(object) => return object,
            Err(error) => {
                tracing::warn!(%error, "cannot read the node to admit pods, will retry");
                backoff.wait().await;
            }
        }
    }
}
