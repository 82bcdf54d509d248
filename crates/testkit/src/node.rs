//! A node: what outlives its agent, and the agent.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use plumb_node::cri_config::SandboxDefaults;
use plumb_node::journal::Journal;
use plumb_node::lifecycle::MAX_RESTART_PERIOD;
use plumb_node::register::{Machine, NodeHealth, Setup};
use plumb_node::sysctls::UnsafeSysctls;
use plumb_node::{Agent, Config, StatusLimiter};
use plumb_resize::admission::NodeFacts;
use plumb_resize::rules::Rules;
use plumb_runtime::Runtime;
use plumb_store::Store;
use plumb_supervise::Supervisor;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A node: its runtime and its allocation journal, and an agent that can be killed at any await point and started again.
pub struct TestNode {
    name: String,
    runtime: Arc<dyn Runtime>,
    journal: Store,
    directory: TempDir,
    agent: Option<JoinHandle<()>>,
}

impl TestNode {
    /// A node without an agent. Several nodes may share the store of their allocation journals.
    ///
    /// # Panics
    /// If no temporary directory can be made.
    pub fn new(name: impl Into<String>, runtime: Arc<dyn Runtime>, journal: Store) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { name: name.into(), runtime, journal, directory, agent: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its container runtime.
    pub fn runtime(&self) -> &dyn Runtime {
        &*self.runtime
    }

    /// Its allocation journal.
    pub fn journal(&self) -> Journal {
        Journal::new(self.journal.clone(), self.name.clone())
    }

    /// The configuration of an agent for this node, on a machine with 2 CPUs and 1 GiB of memory: for tests to change.
    ///
    /// # Panics
    /// If the machine cannot be described.
    pub fn config(&self, client: Client, rules: Rules) -> Config {
        let machine = Machine::read(Path::new("/")).expect("a description of the machine");
        Config {
            setup: Setup::new(&self.name),
            machine: Arc::new(Machine { cpus: 2, memory: 1 << 30, ..machine }),
            kernel_files: None,
            health: watch::channel(NodeHealth::default()).1,
            client,
            runtime: self.runtime.clone(),
            journal: self.journal(),
            damage: None,
            rules,
            facts: NodeFacts::default(),
            cpus: None,
            allowed_unsafe_sysctls: UnsafeSysctls::default(),
            api_server: None,
            reachable: false,
            enforce_node_allocatable: true,
            oom_group: false,
            max_restart_period: MAX_RESTART_PERIOD,
            volumes: None,
            pod_manifest_path: None,
            supervisor: Supervisor::default(),
            image_gc: None,
            image_pulls: None,
            eviction: None,
            sandbox_defaults: SandboxDefaults {
                log_root: self.directory.path().join("logs"),
                cluster_dns: None,
                resolv_conf: None,
                ..SandboxDefaults::default()
            },
            metrics: Arc::default(),
            status_limiter: StatusLimiter::default(),
            clock: Arc::new(Timestamp::now),
        }
    }

    /// Starts an agent, which adopts the pods of the one before.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_agent(&mut self, config: Config) {
        let agent = Agent::new(config).await.expect("an agent");
        self.agent = Some(tokio::spawn(agent.run()));
    }

    /// Kills the agent wherever it is. The containers of its pods run on.
    ///
    /// # Panics
    /// If the agent has panicked, which a restart must not hide.
    pub async fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            let ended = agent.await;
            assert!(!ended.is_err_and(|error| error.is_panic()), "the agent of {} panicked", self.name);
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(agent) = &self.agent {
            agent.abort();
        }
    }
}
