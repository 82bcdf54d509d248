//! The node in the cluster: its Node, its status, its lease.
//!
//! ```text
//!   make or take up the Node ──▶ status when it changes, else every 5 minutes
//!                            └─▶ lease every 10 seconds
//! ```
//!
//! Only what is the node's own is written: labels, taints, conditions and resources of others stay as they are.

mod conditions;
mod lease;
mod machine;
mod object;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_controller::Backoff;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::Clock;

pub use conditions::{NodeHealth, pressures};
pub use machine::Machine;
pub(crate) use machine::memory_figure;
pub use object::{allocatable, status};

/// How often the status is written though it says the same.
const REPORT: Duration = Duration::from_mins(5);

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its name.
    pub name: String,
    /// Its labels, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// What it has, in the place of what the machine has: all nodes of one machine share it.
    pub capacity: BTreeMap<String, WireQuantity>,
    /// What of that is not for pods.
    pub reserved: BTreeMap<String, WireQuantity>,
    /// How many pods it takes.
    pub max_pods: u32,
    /// Its addresses, the first one where its agent is asked.
    pub addresses: Vec<IpAddr>,
    /// The port there.
    pub port: u16,
    /// The version of its agent, such as `v1.36.4`.
    pub agent_version: String,
    /// Its runtime's name and version, such as `containerd://2.0.0`.
    pub runtime_version: String,
}

impl Setup {
    /// A node of this name, with the kubelet's usual figures.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            capacity: BTreeMap::new(),
            reserved: BTreeMap::new(),
            max_pods: 110,
            addresses: Vec::new(),
            port: 10250,
            agent_version: String::new(),
            runtime_version: String::new(),
        }
    }
}

/// A node that is in the cluster.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The Node as it is.
    pub node: Node,
    /// What it says.
    said: NodeHealth,
}

/// Keeps a node in the cluster.
#[derive(Clone)]
pub struct Registrar {
    client: Client,
    nodes: Api<Node>,
    setup: Arc<Setup>,
    machine: Arc<Machine>,
    clock: Clock,
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Registrar {
    /// One for this node. The client must be the node's own.
    pub fn new(client: Client, setup: Setup, machine: Arc<Machine>, clock: Clock) -> Self {
        Self { nodes: Api::all(client.clone()), client, setup: Arc::new(setup), machine, clock }
    }

    /// Makes the Node, or takes up the one that is there, and says how it is.
    pub async fn register(&self, health: &NodeHealth) -> Result<Registered, kube::Error> {
        let name = &self.setup.name;
        let labels = object::labels(&self.setup);
        let found = match self.nodes.get_opt(name).await? {
            Some(found) => {
                let own = found.metadata.labels.clone().unwrap_or_default();
                if labels.iter().all(|(label, value)| own.get(label) == Some(value)) {
                    found
                } else {
                    let patch = json!({ "metadata": { "labels": labels } });
                    self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?
                }
            }
            None => self.create(labels).await?,
        };
        let node = self.report(&found, health).await?;
        Ok(Registered { node, said: health.clone() })
    }

    async fn create(&self, labels: BTreeMap<String, String>) -> Result<Node, kube::Error> {
        let node = object::new(&self.setup, labels);
        match self.nodes.create(&PostParams::default(), &node).await {
            // Somebody was faster; it is taken up like any other.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.nodes.get(&self.setup.name).await
            }
            made => made,
        }
    }

    /// Says how the node is, as far as it is the node's to say. Times of what has not changed stay.
    async fn report(&self, known: &Node, health: &NodeHealth) -> Result<Node, kube::Error> {
        let status = status(&self.setup, &self.machine, known.status.as_ref(), health, (self.clock)());
        let patch = Patch::Strategic(json!({ "status": status }));
        self.nodes.patch_status(&self.setup.name, &PatchParams::default(), &patch).await
    }

    /// The same, unless somebody removed the Node: then it is made again, for here we are.
    async fn report_or_return(&self, known: &Node, health: &NodeHealth) -> Result<Node, kube::Error> {
        match self.report(known, health).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.register(health).await.map(|registered| registered.node)
            }
            reported => reported,
        }
    }

    /// Keeps status and lease as they should be, until the future is dropped.
    pub async fn keep(&self, registered: Registered, health: watch::Receiver<NodeHealth>) {
        let (tell_uid, uid) = watch::channel(registered.node.metadata.uid.clone().unwrap_or_default());
        let lease = lease::keep(self.client.clone(), &self.setup.name, uid, &self.clock);
        tokio::join!(self.keep_status(registered, health, tell_uid), lease);
    }

    /// Says how the node is when that changes, and every now and then.
    async fn keep_status(
        &self,
        registered: Registered,
        mut health: watch::Receiver<NodeHealth>,
        tell_uid: watch::Sender<String>,
    ) {
        let Registered { node: mut known, mut said } = registered;
        // What was told since it was registered is news too.
        health.mark_changed();
        let mut backoff = Backoff::default();
        let mut failed = false;
        let mut next = Instant::now() + spread(&self.setup.name, REPORT);
        loop {
            let changed = async {
                if health.changed().await.is_err() {
                    // Nobody tells any more; what was told stands.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = sleep_until(next), if !failed => {}
                () = backoff.wait(), if failed => {}
                () = changed => if !failed && *health.borrow() == said {
                    continue;
                },
            }
            said = health.borrow_and_update().clone();
            // Boxed: a thousand nodes wait here, and few speak.
            match Box::pin(self.report_or_return(&known, &said)).await {
                Ok(node) => {
                    tell_uid.send_if_modified(|uid| {
                        let new = node.metadata.uid.clone().unwrap_or_default();
                        std::mem::replace(uid, new) != *uid
                    });
                    (known, failed) = (node, false);
                    backoff.reset();
                    next = Instant::now() + REPORT;
                }
                Err(error) => {
                    tracing::warn!(%error, node = self.setup.name, "the node's status could not be told yet");
                    failed = true;
                }
            }
        }
    }
}

/// A part of a time, by name: so that a thousand nodes don't all speak at once.
pub(crate) fn spread(name: &str, within: Duration) -> Duration {
    within / 1000 * (crc32c::crc32c(name.as_bytes()) % 1000)
}
