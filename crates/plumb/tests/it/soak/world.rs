//! A whole cluster in this process, in which time goes on as soon as everybody waits for it.
//!
//! ```text
//!   API server (store in memory) ◀── lag ──▶ controllers, scheduler, agents of virtual nodes
//!          ▲                                      ✂ each is cut off now and then, and starts anew
//!          └── no lag ── whoever edits, and who witnesses
//! ```
//!
//! All of it is on one thread, and nothing waits for a disk: the clock of Tokio stands still while anything can be done,
//! and jumps to the next moment at which something is due.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_controller::metrics::Metrics;
use plumb_controllers::budgets::{Budgets, stale};
use plumb_controllers::garbage::census::Census;
use plumb_controllers::workload::Workload as _;
use plumb_controllers::{
    Clients, GROUPS, WATCHER, garbage, namespaces, nodes, pod_gc, quota, taints, user_of,
};
use plumb_harness::TestCluster;
use plumb_node::cri_config::SandboxDefaults;
use plumb_node::journal::Journal;
use plumb_node::register::{Machine, NodeHealth, Setup};
use plumb_node::sysctls::UnsafeSysctls;
use plumb_node::{Agent, StatusLimiter};
use plumb_resize::admission::NodeFacts;
use plumb_resize::rules::Rules;
use plumb_runtime::types::{Dns, SandboxFilter};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use plumb_scheduler::{Settings, USER};
use plumb_store::{Options, Store};
use plumb_supervise::Supervisor;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;

use super::super::dice::Dice;
use super::lag::Lag;

/// Which zones nodes are in, one after the other.
pub(super) const ZONES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The label that says so.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A cluster.
pub(super) struct World {
    server: ApiServer,
    store: Store,
    rules: Rules,
    clock: Clock,
    began: Instant,
    lag: Lag,
    controllers: JoinSet<()>,
    scheduler: JoinSet<()>,
    nodes: Vec<Site>,
    machine: Arc<Machine>,
    promises: Store,
    folder: tempfile::TempDir,
}

/// A node: what outlives its agent, and the agent.
struct Site {
    name: String,
    runtime: Arc<dyn Runtime>,
    agent: Option<JoinHandle<()>>,
}

impl Site {
    async fn cut_off(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            not_by_panic(agent.await);
        }
    }
}

async fn cut_off(running: &mut JoinSet<()>) {
    running.abort_all();
    while let Some(ended) = running.join_next().await {
        not_by_panic(ended);
    }
}

/// Whoever ended was cut off, or it panicked, which is a bug that a restart must not hide.
fn not_by_panic(ended: Result<(), JoinError>) {
    assert!(!ended.is_err_and(|error| error.is_panic()), "a part of the cluster panicked");
}

impl World {
    /// One with so many nodes, all parts of which run.
    pub(super) async fn start(nodes: u16, dice: Dice) -> Self {
        let began = Instant::now();
        let first: Timestamp = "2026-03-01T09:00:30Z".parse().unwrap();
        let clock: Clock = Arc::new(move || first + SignedDuration::try_from(began.elapsed()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        // Whoever resumes a watch does so minutes later, and much has happened by then.
        let store = Store::in_memory(&Options { history: 512 << 20, ..Options::default() });
        let rules = Rules::kep();
        // Virtual pods ask nobody anything, so they need no account: the plugin for it is off.
        let options = plumb_harness::Options {
            rules: rules.clone(),
            clock: clock.clone(),
            store: store.clone(),
            ..Default::default()
        };
        let server = TestCluster::with(options).server().clone();
        let machine = Machine { cpus: 4, memory: 8 << 30, ..Machine::read(Path::new("/")).unwrap() };
        let mut world = Self {
            server,
            store,
            rules,
            clock,
            began,
            lag: Lag::new(dice),
            controllers: JoinSet::new(),
            scheduler: JoinSet::new(),
            nodes: Vec::new(),
            machine: Arc::new(machine),
            promises: Store::in_memory(&Options { history: 64 << 10, ..Options::default() }),
            folder,
        };
        world.start_controllers();
        world.start_scheduler();
        for index in 0..nodes {
            let network = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (u32::from(index) << 8));
            let config = VirtualConfig { now: (world.clock)(), pod_network: network };
            let runtime = Arc::new(Virtual::new(config));
            world.nodes.push(Site { name: format!("node-{index}"), runtime, agent: None });
            world.start_agent(index.into()).await;
        }
        world
    }

    /// The API, without delay and without bounds.
    pub(super) fn admin(&self) -> Client {
        Client::new(self.server.inside(User::new("admin", "", ["system:masters"])), "default")
    }

    /// For how long the world has been there, by its own clock.
    pub(super) fn age(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// How many writes there were.
    pub(super) fn writes(&self) -> u64 {
        self.store.revision()
    }

    /// How many watch.
    pub(super) fn watches(&self) -> usize {
        self.store.stats().watches
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Cuts the controllers off wherever they are, and starts them anew.
    pub(super) async fn restart_controllers(&mut self) {
        cut_off(&mut self.controllers).await;
        self.start_controllers();
    }

    /// The same with the scheduler.
    pub(super) async fn restart_scheduler(&mut self) {
        cut_off(&mut self.scheduler).await;
        self.start_scheduler();
    }

    /// The same with the agent of a node. Its containers run on.
    pub(super) async fn restart_agent(&mut self, index: usize) {
        self.nodes[index].cut_off().await;
        self.start_agent(index).await;
    }

    /// Cuts everybody off for good.
    pub(super) async fn end(mut self) {
        cut_off(&mut self.controllers).await;
        cut_off(&mut self.scheduler).await;
        for site in &mut self.nodes {
            site.cut_off().await;
        }
    }

    /// The uids of the pods that nodes run or have promised anything to: sandboxes, then promises.
    pub(super) async fn held_by_nodes(&self) -> (Vec<String>, Vec<String>) {
        let (mut sandboxes, mut promises) = (Vec::new(), Vec::new());
        for site in &self.nodes {
            let all = site.runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap();
            sandboxes.extend(all.into_iter().map(|sandbox| sandbox.meta.uid));
            let journal = Journal::new(self.promises.clone(), site.name.clone());
            promises.extend(journal.read().unwrap().entries.into_keys());
        }
        (sandboxes, promises)
    }

    fn start_controllers(&mut self) {
        let (server, lag) = (&self.server, &self.lag);
        let wall = self.clock.clone();
        let clock = plumb_controller::Clock::with_wall(move || wall());
        let none: [&str; 0] = [];
        let watcher = || lag.client(server, User::new(WATCHER, "", none));
        let writer = |name: &str| lag.client(server, User::new(user_of(name), "", GROUPS));
        let supervisor = Supervisor::default();
        let clients = |name: &str| Clients {
            watch: watcher(),
            write: writer(name),
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        };
        let running = &mut self.controllers;
        let manager =
            plumb_controllers::workloads(clock.clone(), supervisor.clone(), Metrics::default(), writer);
        let (informers, factory) = (manager.informers(), manager.factory());
        running.spawn(stale::run(informers, clients(Budgets::NAME), clock.clone()));
        running.spawn(nodes::run(informers, clients(nodes::NAME), clock.clone()));
        running.spawn(pod_gc::run(informers, clients(pod_gc::NAME), clock.clone()));
        running.spawn(taints::run(clients(taints::NAME), factory, clock.clone()));
        let measuring = quota::Config { rules: self.rules.clone(), clock: clock.clone() };
        running.spawn(quota::run(clients(quota::NAME), factory, measuring));
        let census: Arc<Census> = Arc::default();
        running.spawn(census.clone().keep(watcher(), supervisor.clone()));
        running.spawn(garbage::run(&census, clients(garbage::NAME)));
        running.spawn(namespaces::run(&census, clients(namespaces::NAME), factory, clock.clone()));
        running.spawn(garbage::events::run(clients(garbage::NAME), clock.clone()));
        // Last: the informers start with it.
        running.spawn(manager.run(watcher()));
    }

    fn start_scheduler(&mut self) {
        let none: [&str; 0] = [];
        self.scheduler.spawn(plumb_scheduler::run(plumb_scheduler::Config {
            supervisor: Supervisor::default(),
            client: self.lag.client(&self.server, User::new(USER, "", none)),
            settings: Settings::new(self.rules.clone()),
            clock: self.clock.clone(),
            metrics: Arc::default(),
        }));
    }

    async fn start_agent(&mut self, index: usize) {
        let site = &mut self.nodes[index];
        let user = User::new(format!("system:node:{}", site.name), "", ["system:nodes"]);
        let mut setup = Setup::new(&site.name);
        setup.labels.insert(ZONE.to_owned(), ZONES[index % ZONES.len()].to_owned());
        for (resource, amount) in [("cpu", "4"), ("memory", "8Gi")] {
            setup.capacity.insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        let agent = Agent::new(plumb_node::Config {
            supervisor: Supervisor::default(),
            setup,
            machine: self.machine.clone(),
            health: watch::channel(NodeHealth::default()).1,
            client: self.lag.client(&self.server, user),
            runtime: site.runtime.clone(),
            journal: Journal::new(self.promises.clone(), site.name.clone()),
            damage: None,
            rules: self.rules.clone(),
            facts: NodeFacts::default(),
            cpus: None,
            allowed_unsafe_sysctls: UnsafeSysctls::default(),
            api_server: None,
            reachable: false,
            volumes: None,
            sandbox_defaults: SandboxDefaults {
                log_root: self.folder.path().join("logs"),
                cluster_dns: None,
                host_dns: Dns::default(),
            },
            metrics: Arc::default(),
            status_limiter: StatusLimiter::default(),
            clock: self.clock.clone(),
        });
        site.agent = Some(tokio::spawn(agent.await.unwrap().run()));
    }
}
