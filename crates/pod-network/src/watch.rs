//! The loop: whatever changes, the plan is decided anew and applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Backoff, Reflector, WatchConfig};
use plumb_supervise::Supervisor;
use tokio::time::sleep;

use crate::config::{Config, Mode};
use crate::kernel::{Kernel, KernelError};
use crate::monitor::Monitor;
use crate::peers::Peers;
use crate::plan::{Plan, decide};
use crate::rules;

/// How long changes are gathered that come one after the other: a bridge with many pods that start is many notifications.
const GATHER: Duration = Duration::from_millis(50);

impl Config {
    /// Keeps routes and tunnels to the other nodes, until the future is dropped. They stay then, since pods do. The client has
    /// the identity of the node.
    pub fn run(self, client: Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let config = Arc::new(self);
        let keeping = supervisor.keep("pod-routes", move || keep(config.clone(), client.clone()));
        Box::pin(keeping)
    }
}

async fn keep(config: Arc<Config>, client: Client) {
    let nodes: Api<Node> = Api::all(client);
    let mut events = std::pin::pin!(Reflector::new(nodes, WatchConfig::default()).into_stream());
    // Without notifications the routes follow the nodes, and what other programs change stays so until a node changes.
    let monitor = Monitor::open()
        .inspect_err(|error| tracing::warn!(%error, "changes of this machine's network are not noticed"))
        .ok();
    let mut peers = Peers::default();
    let mut backoff = Backoff::default();
    let mut known = Known::default();
    let mut failed = false;
    loop {
        let notified = async {
            match &monitor {
                Some(monitor) => monitor.changed().await,
                None => std::future::pending().await,
            }
        };
        let is_due = tokio::select! {
            event = events.next() => match event {
                Some(event) => peers.apply(&config.node, event),
                None => return,
            },
            () = notified, if peers.is_complete() => {
                sleep(GATHER).await;
                true
            }
            () = backoff.wait(), if failed => true,
        };
        // Before all nodes are known, routes to those that are not known yet would be removed.
        if !is_due || !peers.is_complete() {
            continue;
        }
        let (applied, after) = known.apply(&config, peers).await;
        peers = after;
        match applied {
            Ok(()) => {
                failed = false;
                backoff.reset();
            }
            Err(error) => {
                if !failed {
                    tracing::warn!(%error, "cannot route to the pods of other nodes, will retry");
                }
                failed = true;
            }
        }
    }
}

/// What was applied before.
#[derive(Default)]
struct Known {
    has_rules: bool,
    /// The nodes that were warned about.
    left_out: BTreeMap<String, &'static str>,
}

impl Known {
    async fn apply(&mut self, config: &Arc<Config>, peers: Peers) -> (Result<(), KernelError>, Peers) {
        let (config, has_rules) = (config.clone(), self.has_rules);
        let applying = tokio::task::spawn_blocking(move || {
            let applied = apply(&config, &peers, has_rules);
            (applied, peers)
        });
        // A panic of the thread is this task's: the supervisor restarts it, with an empty index.
        let (applied, peers) = match applying.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down.
                Err(_) => std::future::pending().await,
            },
        };
        let applied = applied.map(|plan| {
            self.has_rules = !plan.routes.is_empty();
            for (node, why) in &plan.left_out {
                if self.left_out.get(node) != Some(why) {
                    tracing::warn!(node, why, "the pods of a node are not reached");
                }
            }
            self.left_out = plan.left_out;
        });
        (applied, peers)
    }
}

fn apply(config: &Config, peers: &Peers, has_rules: bool) -> Result<Plan, KernelError> {
    let kernel = Kernel::open()?;
    let plan = decide(config, &kernel.links()?, peers);
    if config.mode != Mode::None && !plan.routes.is_empty() {
        // Before the first route: what comes through it is filtered from the beginning.
        rules::ensure(config, !has_rules)?;
    }
    kernel.apply(config, &plan)?;
    if plan.routes.is_empty() {
        rules::remove(&config.names)?;
    }
    Ok(plan)
}
