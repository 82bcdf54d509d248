//! The agent: takes up what runs, follows the pods that are bound to its node, and has a worker for each.

mod adopt;
mod classes;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use plumb_controller::{Backoff, ObjectRef, Reflector, WatchConfig, WatchEvent};
use plumb_resize::admission::{CpuManager, NodeFacts};
use plumb_resize::list::BadQuantity;
use plumb_resize::rules::Rules;
use plumb_runtime::types::{ContainerChange, Event, SandboxFilter, SandboxId};
use plumb_runtime::{Error, Runtime};
use plumb_supervise::Supervisor;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use crate::Clock;
use crate::allocation_manager::AllocationManager;
use crate::allocator::{Allocator, PodInfo};
use crate::cpus::CpuAllocator;
use crate::env::{ApiServerAddress, EnvFacts};
use crate::events::{Kind, Recorder};
use crate::journal::{Entry, Journal, JournalError};
use crate::metrics::Metrics;
use crate::node::{Node, Workers};
use crate::objects::Objects;
use crate::publish::Reports;
use crate::register::{self, Machine, NodeHealth, Registered, Registrar, Setup};
use crate::server::{Gate, Server, ServerConfig};
use crate::specify;
use crate::sysctls::{self, Allowlist, UnsafeSysctls};
use crate::unsupported;
use crate::volumes::{Volumes, VolumesConfig};
use crate::worker::{Message, POD_WORKER, Worker, error_chain, is_over};

/// What an agent is made of.
pub struct Config {
    /// What the node says of itself.
    pub setup: Setup,
    /// The machine it is on.
    pub machine: Arc<Machine>,
    /// How the node is.
    pub health: watch::Receiver<NodeHealth>,
    /// How the cluster is reached, as the node's own user.
    pub client: Client,
    /// What runs pods.
    pub runtime: Arc<dyn Runtime>,
    /// Where promises are kept.
    pub journal: Journal,
    /// What was wrong with the journal when it was opened, if anything was.
    pub damage: Option<String>,
    /// Which rules bind.
    pub rules: Rules,
    /// What the node is like.
    pub facts: NodeFacts,
    /// The cpus to give to pods that want some for themselves; none leaves all of that to the kernel.
    pub cpus: Option<CpuAllocator>,
    /// The sysctls that pods may set beyond the safe ones.
    pub allowed_unsafe_sysctls: UnsafeSysctls,
    /// Where pods reach the API server.
    pub api_server: Option<ApiServerAddress>,
    /// Whether the addresses of pods lead anywhere: not where pods are virtual.
    pub reachable: bool,
    /// Where volumes are made; none where nothing looks at them, since pods are virtual.
    pub volumes: Option<PathBuf>,
    /// Where pods' logs are, and how they look up names.
    pub place: specify::Place,
    /// What is counted; nodes of one process may share it.
    pub metrics: Arc<Metrics>,
    /// How pods' statuses reach the API; nodes of one process share it.
    pub reports: Reports,
    /// What time it is.
    pub clock: Clock,
    /// Restarts what fails, and counts it.
    pub supervisor: Supervisor,
}

/// The name of the agent's task, in health checks and metrics.
const TASK: &str = "node-agent";
/// The reason of the event that says that a worker panicked.
const PANICKED: &str = "ReconcilePanicked";

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime did not answer.
    #[error("ask the container runtime")]
    Runtime(#[from] Error),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What the node is to have, or to keep for itself, is no amount.
    #[error("work out what the node has to give")]
    Amount(#[from] BadQuantity),
}

/// An agent that has taken up what runs, and is about to follow the API.
pub struct Agent {
    node: Arc<Node>,
    registrar: Registrar,
    registered: Option<Registered>,
    health: watch::Receiver<NodeHealth>,
    /// What the journal held, until its pod is seen.
    entries: BTreeMap<String, Entry>,
    /// What was wrong with the journal.
    damage: Vec<String>,
    /// The uids of the pods, by where they are.
    places: HashMap<ObjectRef, String>,
    /// Which pod a sandbox is for.
    sandboxes: HashMap<SandboxId, String>,
    workers: JoinSet<()>,
    /// Whether all pods have been seen once.
    listed: bool,
}

impl Agent {
    /// Makes an agent; nothing is touched yet.
    pub async fn new(config: Config) -> Result<Self, StartError> {
        let Config { mut setup, machine, client, runtime, journal, rules, clock, .. } = config;
        let version = runtime.version().await?;
        setup.runtime_version = format!("{}://{}", version.runtime_name, version.runtime_version);
        let allocatable = register::allocatable(&setup, &machine);
        let room = plumb_resize::list::declared(Some(&allocatable))?.amounts();
        let max_pods = usize::try_from(setup.max_pods).unwrap_or(usize::MAX);
        let facts = EnvFacts {
            pod_ips: Vec::new(),
            host_ips: setup.addresses.clone(),
            allocatable: allocatable.clone(),
            api_server: config.api_server,
        };
        let found = journal.read()?;
        let objects = Objects::new(client.clone()).supervised(&config.supervisor);
        let cpu_manager = if config.cpus.is_some() { CpuManager::Static } else { CpuManager::None };
        let facts_of_rules = NodeFacts { cpu_manager, ..config.facts };
        let allocator = Allocator::new(room, max_pods, facts_of_rules, rules.clone()).with_cpus(config.cpus);
        let node = Node {
            allocations: AllocationManager::new(allocator, journal, clock.clone()),
            events: Recorder::start(client.clone(), &setup.name, clock.clone(), &config.supervisor),
            name: setup.name.clone(),
            runtime,
            runtime_name: version.runtime_name,
            rules,
            clock: clock.clone(),
            place: config.place,
            volumes: config.volumes.map(|root| {
                let config = VolumesConfig { root, objects: objects.clone(), allocatable };
                Volumes::new(config, client.clone())
            }),
            objects,
            facts,
            reachable: config.reachable,
            metrics: config.metrics,
            reports: config.reports,
            client: client.clone(),
            sysctls: Allowlist::new(&machine.kernel_version, config.allowed_unsafe_sysctls),
            memory: i64::try_from(machine.memory).unwrap_or(i64::MAX),
            workers: Workers::default(),
            supervisor: config.supervisor,
        };
        let damage = config.damage.into_iter().chain(found.damage).collect();
        Ok(Self {
            registrar: Registrar::new(client, setup, machine, clock),
            registered: None,
            health: config.health,
            node: Arc::new(node),
            entries: found.entries,
            damage,
            places: HashMap::new(),
            sandboxes: HashMap::new(),
            workers: JoinSet::new(),
            listed: false,
        })
    }

    /// Has the node in the cluster, however long that takes.
    pub async fn register(&mut self) {
        let mut backoff = Backoff::default();
        while self.registered.is_none() {
            let now = self.health.borrow().clone();
            match Box::pin(self.registrar.register(&now)).await {
                Ok(registered) => self.registered = Some(registered),
                Err(error) => {
                    tracing::warn!(%error, "the node is not in the cluster yet, will try again");
                    backoff.wait().await;
                }
            }
        }
    }

    /// What the node answers when it is asked. `machine` is where the kernel's files are, if the node is the whole
    /// machine; `gate` says who may ask.
    pub fn server(&self, machine: Option<PathBuf>, gate: Gate) -> Server {
        Server::new(ServerConfig {
            node: self.node.name.clone(),
            pods: self.node.clone(),
            runtime: self.node.runtime.clone(),
            metrics: self.node.metrics.clone(),
            clock: self.node.clock.clone(),
            machine,
            gate,
        })
    }

    /// Works until the future is dropped. Containers run on. Workers of pods outlive a restart.
    pub async fn run(self) {
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
        self.register().await;
        let (sender, mut pod_events) = mpsc::channel(256);
        let on_this_node = WatchConfig::default().fields(format!("spec.nodeName={}", self.node.name));
        let pods: Api<Pod> = Api::all(self.node.client.clone());
        let (registrar, health) = (self.registrar.clone(), self.health.clone());
        let registered = self.registered.take();
        let registered = async move {
            if let Some(registered) = registered {
                registrar.keep(registered, health).await;
            }
        };
        let reflecting = Reflector::new(pods, on_this_node).run(sender);
        let node = self.node.clone();
        let classes = classes::keep(&node);
        let mut events = self.node.runtime.events();
        // Events that came between the end of the last run and this one were lost.
        self.sandboxes.clear();
        self.node.workers.tell_all(|| Message::Happened);
        let work = async {
            loop {
                tokio::select! {
                    event = pod_events.recv() => match event {
                        Some(WatchEvent::Restarted(pods)) => self.take_all(pods).await,
                        Some(WatchEvent::Applied(pod)) => self.take(Arc::new(*pod)),
                        Some(WatchEvent::Deleted(pod)) => self.gone(&pod),
                        None => return,
                    },
                    event = events.next() => match event {
                        Some(event) => self.happened(event).await,
                        None => return,
                    },
                    // Only so that what has ended is let go of.
                    Some(_) = self.workers.join_next() => {}
                }
            }
        };
        tokio::join!(reflecting, work, registered, classes);
    }

    /// Takes a pod that is new or changed.
    fn take(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let before = self.places.insert(ObjectRef::of(&*pod), uid.clone());
        if let Some(other) = before.filter(|other| *other != uid) {
            // Another pod had the name; that it is gone was missed.
            self.node.workers.tell(&other, Message::Deleted);
        }
        if !self.node.workers.tell(&uid, Message::Pod(pod.clone())) {
            self.employ(uid, pod, None);
        }
    }

    fn gone(&mut self, pod: &ObjectRef) {
        if let Some(uid) = self.places.remove(pod) {
            self.node.workers.tell(&uid, Message::Deleted);
        }
    }

    /// Has somebody work for a pod: one that was promised something before, or one that is new.
    fn employ(&mut self, uid: String, pod: Arc<Pod>, entry: Option<Entry>) {
        let (tell, inbox) = mpsc::unbounded_channel();
        self.node.workers.employ(&uid, pod.clone(), tell.clone());
        self.node.allocations.subscribe(&uid, tell.clone());
        let node = self.node.clone();
        self.workers.spawn(keep_worker(node, tell, inbox, uid, pod, entry));
    }

    /// Takes what happened in the runtime.
    async fn happened(&mut self, event: Event) {
        let (sandbox, message) = match event {
            Event::Container { id, sandbox, change, .. } => match change {
                ContainerChange::OutOfMemory => (sandbox, Message::OutOfMemory(id)),
                ContainerChange::Stopped => (sandbox, Message::Happened),
                // What the workers themselves do.
                ContainerChange::Created | ContainerChange::Started | ContainerChange::Deleted => return,
            },
            Event::LimitRestored { sandbox, .. } => (sandbox, Message::LimitRestored),
            Event::Missed(_) => {
                self.sandboxes.clear();
                self.node.workers.tell_all(|| Message::Happened);
                return;
            }
        };
        if !self.sandboxes.contains_key(&sandbox) {
            self.learn_sandboxes().await;
        }
        if let Some(uid) = self.sandboxes.get(&sandbox) {
            self.node.workers.tell(uid, message);
        }
    }

    /// Learns which pods the sandboxes are for.
    async fn learn_sandboxes(&mut self) {
        match self.node.runtime.list_sandboxes(&SandboxFilter::default()).await {
            Ok(list) => {
                self.sandboxes = list.into_iter().map(|sandbox| (sandbox.id, sandbox.meta.uid)).collect();
            }
            Err(error) => tracing::warn!(%error, "cannot list sandboxes"),
        }
    }
}

/// Has a worker work for a pod until nothing is left of the pod. One that panics is followed by another, after a wait that
/// grows: it has what is allocated from the allocator and what runs from the runtime, and the inbox is the same.
async fn keep_worker(
    node: Arc<Node>,
    tell: mpsc::UnboundedSender<Message>,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    uid: String,
    mut pod: Arc<Pod>,
    mut entry: Option<Entry>,
) {
    let mut backoff = Backoff::default();
    loop {
        let work = async {
            let hired = hire(node.clone(), tell.clone(), uid.clone(), pod.clone(), entry.take());
            // In boxes: a task has room for everything that it ever holds, and there are many that wait.
            if let Some(worker) = Box::pin(hired).await.map(Box::new) {
                worker.run(&mut inbox).await;
            }
        };
        let Err(panic) = node.supervisor.guard(POD_WORKER, work).await else { return };
        let Some((latest, deleted)) = node.workers.latest(&uid) else { return };
        pod = latest;
        let message = format!("The pod worker panicked and will retry: {}", panic.message);
        node.events.pod(&pod, Kind::Warning, PANICKED, message);
        backoff.wait().await;
        entry = node.allocations.entry(&uid);
        if deleted {
            // The worker that took this message is no more. This one is there as long as the inbox.
            let _ = tell.send(Message::Deleted);
        }
    }
}

/// Whoever is to work for a pod, unless it cannot be worked for.
async fn hire(
    node: Arc<Node>,
    tell: mpsc::UnboundedSender<Message>,
    uid: String,
    pod: Arc<Pod>,
    entry: Option<Entry>,
) -> Option<Worker> {
    let info = match PodInfo::of(&pod) {
        Ok(info) => info,
        Err(error) => {
            // The API server has seen to it that this does not happen.
            tracing::error!(uid, %error, "a pod cannot be read");
            node.workers.dismiss(&uid);
            return None;
        }
    };
    let promised = |info: &PodInfo| Entry::new(info, info.desired.clone());
    let over = is_over(&pod) || pod.metadata.deletion_timestamp.is_some();
    let forbidden_sysctl = || {
        let forbidden = node.sysctls.admit(pod.spec.as_ref()?).err()?;
        Some((sysctls::FORBIDDEN, forbidden.to_string()))
    };
    let unsupported = || unsupported::check(&pod).map(|found| (found.reason(), found.to_string()));
    let rejected = if over { None } else { forbidden_sysctl().or_else(unsupported) };
    let forbidden = rejected.map(|(reason, message)| {
        let told = format!("Pod was rejected: {message}");
        node.events.pod(&pod, Kind::Warning, reason, message);
        (reason.to_owned(), told)
    });
    if let Some(entry) = entry {
        let worker = Worker::new(node, tell, pod, info, entry);
        // Like the kubelet, the agent checks pods that run already again when it starts: what was allowed when they were
        // admitted may not be any more.
        return Some(match forbidden {
            Some((reason, message)) => worker.must_end(reason, message),
            None => worker,
        });
    }
    // The kubelet asks this before it asks whether the pod fits.
    if let Some((reason, message)) = forbidden {
        let entry = promised(&info);
        return Some(Worker::new(node, tell, pod, info, entry).rejected(reason, message));
    }
    if over {
        let entry = promised(&info);
        return Some(Worker::new(node, tell, pod, info, entry));
    }
    let mut backoff = Backoff::default();
    let admitted = loop {
        match node.allocations.admit(&uid, info.clone()).await {
            Ok(admitted) => break admitted,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "a promise cannot be kept, will try again");
                backoff.wait().await;
            }
        }
    };
    match admitted {
        Ok(entry) => Some(Worker::new(node, tell, pod, info, entry)),
        Err(rejected) => {
            let (reason, message) = (rejected.reason().to_owned(), format!("Pod was rejected: {rejected}"));
            node.events.pod(&pod, Kind::Warning, rejected.reason(), rejected.to_string());
            let entry = promised(&info);
            Some(Worker::new(node, tell, pod, info, entry).rejected(reason, message))
        }
    }
}
