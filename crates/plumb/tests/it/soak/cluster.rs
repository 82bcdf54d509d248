//! A whole cluster in this process with virtual time.
//!
//! ```text
//!   API server (store in memory) ◀── lag ──▶ controllers, scheduler, agents of virtual nodes
//!          ▲                                      ✂ each is killed and restarted now and then
//!          └── no lag ── editor, observer
//! ```
//!
//! Everything runs on one thread without a disk: Tokio's paused clock advances only when no task can make progress, and then
//! jumps to the next timer.

use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use plumb_apiserver::authn::User;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controllers::budgets::{Budgets, stale};
use plumb_controllers::garbage::graph_builder::{self, GraphBuilder};
use plumb_controllers::workload::Workload as _;
use plumb_controllers::{
    Clients, GROUPS, WATCHER, garbage, namespaces, nodes, pod_gc, quota, taints, user_of,
};
use plumb_resize::rules::Rules;
use plumb_runtime::types::SandboxFilter;
use plumb_runtime::{Virtual, VirtualConfig};
use plumb_scheduler::{Settings, USER};
use plumb_store::{Options, Store};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, TestNode, virtual_clock};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::dice::Dice;
use super::lag::Lag;

/// The zones of the nodes, in turn.
pub(super) const ZONES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The label of the zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A cluster.
pub(super) struct Cluster {
    api: TestCluster,
    rules: Rules,
    clock: Clock,
    began: Instant,
    lag: Lag,
    controllers: JoinSet<()>,
    scheduler: JoinSet<()>,
    nodes: Vec<TestNode>,
}

async fn kill(running: &mut JoinSet<()>) {
    running.abort_all();
    while let Some(ended) = running.join_next().await {
        // A component that panicked is a bug that a restart must not hide.
        assert!(!ended.is_err_and(|error| error.is_panic()), "a component panicked");
    }
}

impl Cluster {
    /// Starts a cluster with so many nodes.
    pub(super) async fn start(nodes: u16, dice: Dice) -> Self {
        let began = Instant::now();
        let clock = virtual_clock("2026-03-01T09:00:30Z".parse().unwrap());
        let rules = Rules::kep();
        // Virtual pods send no requests, so they need no service account: the plugin is off.
        let options = plumb_testkit::Options {
            rules: rules.clone(),
            clock: wall(&clock),
            // A restarted component resumes its watches minutes later, after many events.
            store: Store::in_memory(&Options { history: 512 << 20, ..Options::default() }),
            ..Default::default()
        };
        let mut cluster = Self {
            api: TestCluster::with(options),
            rules,
            clock,
            began,
            lag: Lag::new(dice),
            controllers: JoinSet::new(),
            scheduler: JoinSet::new(),
            nodes: Vec::new(),
        };
        cluster.start_controllers();
        cluster.start_scheduler();
        let allocations = Store::in_memory(&Options { history: 64 << 10, ..Options::default() });
        for index in 0..nodes {
            let network = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (u32::from(index) << 8));
            let runtime = Virtual::new(VirtualConfig { now: cluster.now(), pod_network: network });
            cluster.nodes.push(TestNode::new(
                format!("node-{index}"),
                Arc::new(runtime),
                allocations.clone(),
            ));
            cluster.start_agent(index.into()).await;
        }
        cluster
    }

    /// A client of the API server without latency, with all permissions.
    pub(super) fn admin(&self) -> Client {
        self.api.admin()
    }

    /// The virtual time since the start.
    pub(super) fn age(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The number of writes.
    pub(super) fn writes(&self) -> u64 {
        self.api.store().revision()
    }

    /// The number of watches.
    pub(super) fn watches(&self) -> usize {
        self.api.store().stats().watches
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Kills the controllers and starts them again.
    pub(super) async fn restart_controllers(&mut self) {
        kill(&mut self.controllers).await;
        self.start_controllers();
    }

    /// The same with the scheduler.
    pub(super) async fn restart_scheduler(&mut self) {
        kill(&mut self.scheduler).await;
        self.start_scheduler();
    }

    /// The same with the agent of a node. Its containers run on.
    pub(super) async fn restart_agent(&mut self, index: usize) {
        self.nodes[index].kill_agent().await;
        self.start_agent(index).await;
    }

    /// Kills all components.
    pub(super) async fn end(mut self) {
        kill(&mut self.controllers).await;
        kill(&mut self.scheduler).await;
        for node in &mut self.nodes {
            node.kill_agent().await;
        }
    }

    /// The uids of the pods that nodes run or have admitted: of their sandboxes, then of their allocations.
    pub(super) async fn pods_on_nodes(&self) -> (Vec<String>, Vec<String>) {
        let (mut sandboxes, mut allocations) = (Vec::new(), Vec::new());
        for node in &self.nodes {
            let all = node.runtime().list_sandboxes(&SandboxFilter::default()).await.unwrap();
            sandboxes.extend(all.into_iter().map(|sandbox| sandbox.meta.uid));
            allocations.extend(node.journal().read().unwrap().entries.into_keys());
        }
        (sandboxes, allocations)
    }

    fn start_controllers(&mut self) {
        let (server, lag, clock) = (self.api.server(), &self.lag, &self.clock);
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
        let graph_builder: Arc<GraphBuilder> = Arc::default();
        running.spawn(graph_builder::run(&graph_builder, clients(garbage::NAME)));
        running.spawn(garbage::run(&graph_builder, clients(garbage::NAME)));
        running.spawn(namespaces::run(&graph_builder, clients(namespaces::NAME), factory, clock.clone()));
        running.spawn(garbage::events::run(clients(garbage::NAME), clock.clone()));
        // Last: the informers start with it.
        running.spawn(manager.run(watcher()));
    }

    fn start_scheduler(&mut self) {
        let none: [&str; 0] = [];
        self.scheduler.spawn(plumb_scheduler::run(plumb_scheduler::Config {
            supervisor: Supervisor::default(),
            client: self.lag.client(self.api.server(), User::new(USER, "", none)),
            settings: Settings::new(self.rules.clone()),
            clock: wall(&self.clock),
            metrics: Arc::default(),
        }));
    }

    async fn start_agent(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let user = User::new(format!("system:node:{}", node.name()), "", ["system:nodes"]);
        let mut config = node.config(self.lag.client(self.api.server(), user), self.rules.clone());
        config.setup.labels.insert(ZONE.to_owned(), ZONES[index % ZONES.len()].to_owned());
        for (resource, amount) in [("cpu", "4"), ("memory", "8Gi")] {
            config.setup.capacity.insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        config.clock = wall(&self.clock);
        node.start_agent(config).await;
    }
}

/// The wall clock, for components that use Tokio's clock for timers.
fn wall(clock: &Clock) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let clock = clock.clone();
    Arc::new(move || clock.now())
}
