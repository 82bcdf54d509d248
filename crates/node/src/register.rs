//! Registration of the node: its Node object, its status, its lease.
//!
//! ```text
//!   create or adopt the Node ──▶ status when it changes, else every 5 minutes
//!                            └─▶ lease every 10 seconds
//! ```
//!
//! Only the node's own fields are written: labels, taints, conditions and resources of others are left unchanged.

mod conditions;
mod images;
mod lease;
mod machine;
mod object;
mod transitions;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeFeatures, NodeRuntimeHandler, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::Backoff;
use plumb_runtime::Runtime;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::Clock;
use crate::events::{Kind, Recorder};
use crate::eviction::Thresholds;

pub use conditions::NodeHealth;
pub use machine::Machine;
pub(crate) use object::pods_cgroup;
pub use object::{ReservedTooMuch, allocatable, check_reserved, status};

/// How often an unchanged status is written.
const REPORT: Duration = Duration::from_mins(5);

/// The configuration of a Node object.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its name.
    pub name: String,
    /// Its labels, in addition to those that every node has.
    pub labels: BTreeMap<String, String>,
    /// The directory of the volumes of the storage class `local-path`, which the provisioner reads of an annotation.
    pub local_volumes: Option<PathBuf>,
    /// The size of the disk that they are on, in bytes, if it is known.
    pub local_volumes_capacity: Option<u64>,
    /// Its capacity, instead of the machine's: all nodes of one machine share it.
    pub capacity: BTreeMap<String, WireQuantity>,
    /// The reserved part of the capacity, which is not allocatable.
    pub reserved: BTreeMap<String, WireQuantity>,
    /// The hard eviction thresholds: what they keep free of the machine's memory and disk is not allocatable.
    pub eviction_hard: Thresholds,
    /// The maximum number of pods.
    pub max_pods: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The port of the agent's server.
    pub port: u16,
    /// The version of its agent, such as `v1.36.4`.
    pub agent_version: String,
    /// Its runtime's name and version, such as `containerd://2.0.0`.
    pub runtime_version: String,
    /// The taints that it is created with. Those of an existing Node are left alone.
    pub taints: Vec<Taint>,
    /// The features that pods may need of a node (KEP-5328), in alphabetical order.
    pub declared_features: Vec<String>,
    /// The features of its runtime, if they are known.
    pub features: Option<NodeFeatures>,
    /// The handlers of its runtime, if they are known.
    pub runtime_handlers: Option<Vec<NodeRuntimeHandler>>,
}

impl Setup {
    /// A node of this name, with the kubelet's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            local_volumes: None,
            local_volumes_capacity: None,
            capacity: BTreeMap::new(),
            reserved: BTreeMap::new(),
            eviction_hard: Thresholds::default(),
            max_pods: 110,
            addresses: Vec::new(),
            port: 10250,
            agent_version: String::new(),
            runtime_version: String::new(),
            taints: Vec::new(),
            declared_features: Vec::new(),
            features: None,
            runtime_handlers: None,
        }
    }
}

/// A registered node.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The Node object.
    pub node: Node,
    /// The health that its status has.
    said: NodeHealth,
}

/// Registers a node and renews its status and lease.
#[derive(Clone)]
pub struct Registrar {
    client: Client,
    nodes: Api<Node>,
    setup: Arc<Setup>,
    machine: Arc<Machine>,
    clock: Clock,
    /// The runtime whose images the status has.
    runtime: Option<Arc<dyn Runtime>>,
    events: Option<Recorder>,
    /// The attached volumes that pods have, which the status has, too.
    volumes_in_use: Option<watch::Receiver<Vec<String>>>,
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Registrar {
    /// The registrar of this node. The client must have the node's identity.
    pub fn new(client: Client, setup: Setup, machine: Arc<Machine>, clock: Clock) -> Self {
        let (nodes, setup) = (Api::all(client.clone()), Arc::new(setup));
        Self { nodes, client, setup, machine, clock, runtime: None, events: None, volumes_in_use: None }
    }

    /// Reports the images of a runtime, and emits events about the node.
    pub(crate) fn with_images_and_events(mut self, runtime: Arc<dyn Runtime>, events: Recorder) -> Self {
        (self.runtime, self.events) = (Some(runtime), Some(events));
        self
    }

    /// Reports the attached volumes that pods have: a Node that was created anew does not have them.
    pub(crate) fn with_volumes_in_use(mut self, volumes: watch::Receiver<Vec<String>>) -> Self {
        self.volumes_in_use = Some(volumes);
        self
    }

    /// Creates the Node, or adopts the existing one, and writes its status.
    pub async fn register(&self, health: &NodeHealth) -> Result<Registered, kube::Error> {
        let name = &self.setup.name;
        let labels = object::labels(&self.setup);
        let found = match self.nodes.get_opt(name).await? {
            Some(found) => {
                let annotations = object::annotations(&self.setup);
                let has = |own: &Option<BTreeMap<String, String>>, wanted: &BTreeMap<String, String>| {
                    let own = own.as_ref();
                    wanted.iter().all(|(key, value)| own.and_then(|own| own.get(key)) == Some(value))
                };
                if has(&found.metadata.labels, &labels) && has(&found.metadata.annotations, &annotations) {
                    found
                } else {
                    let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
                    self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?
                }
            }
            None => self.create(labels).await?,
        };
        self.emit("Starting", "Starting kubelet.");
        let node = self.report(&found, health).await?;
        Ok(Registered { node, said: health.clone() })
    }

    async fn create(&self, labels: BTreeMap<String, String>) -> Result<Node, kube::Error> {
        let node = object::new(&self.setup, labels);
        match self.nodes.create(&PostParams::default(), &node).await {
            // Another client created it first; it is updated like any other.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.nodes.get(&self.setup.name).await
            }
            made => made,
        }
    }

    /// Writes the node's own part of the status. Transition times of unchanged conditions stay.
    async fn report(&self, known: &Node, health: &NodeHealth) -> Result<Node, kube::Error> {
        let mut status = status(&self.setup, &self.machine, known.status.as_ref(), health, (self.clock)());
        if let Some(runtime) = &self.runtime {
            // The images in the status stay if the runtime does not answer.
            status.images = runtime.list_images().await.ok().map(images::images);
        }
        let in_use = self.volumes_in_use.as_ref().map(|volumes| volumes.borrow().clone());
        status.volumes_in_use = in_use.filter(|volumes| !volumes.is_empty());
        let changed = transitions::transitions(known.status.as_ref(), &status);
        let patch = Patch::Strategic(json!({ "status": status }));
        let reported = self.nodes.patch_status(&self.setup.name, &PatchParams::default(), &patch).await?;
        for reason in changed {
            self.emit(reason, &format!("Node {} status is now: {reason}", self.setup.name));
        }
        Ok(reported)
    }

    fn emit(&self, reason: &'static str, message: &str) {
        if let Some(events) = &self.events {
            events.node(&self.setup.name, Kind::Normal, reason, message);
        }
    }

    /// The same; if the Node was deleted, it is created again.
    async fn report_or_return(&self, known: &Node, health: &NodeHealth) -> Result<Node, kube::Error> {
        match self.report(known, health).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.register(health).await.map(|registered| registered.node)
            }
            reported => reported,
        }
    }

    /// Renews status and lease, until the future is dropped.
    pub async fn run(&self, registered: Registered, health: watch::Receiver<NodeHealth>) {
        let (uid_sender, uid) = watch::channel(registered.node.metadata.uid.clone().unwrap_or_default());
        let lease = lease::keep(self.client.clone(), &self.setup.name, uid, &self.clock);
        tokio::join!(self.keep_status(registered, health, uid_sender), lease);
    }

    /// Writes the status when it changes, and periodically.
    async fn keep_status(
        &self,
        registered: Registered,
        mut health: watch::Receiver<NodeHealth>,
        uid_sender: watch::Sender<String>,
    ) {
        let Registered { node: mut known, mut said } = registered;
        // Changes since the registration count, too.
        health.mark_changed();
        let mut backoff = Backoff::default();
        let mut failed = false;
        let mut next = Instant::now() + spread(&self.setup.name, REPORT);
        loop {
            let changed = async {
                if health.changed().await.is_err() {
                    // The sender is dropped; the last health stays.
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
            // Boxed: a thousand nodes wait here, and few are active.
            match Box::pin(self.report_or_return(&known, &said)).await {
                Ok(node) => {
                    uid_sender.send_if_modified(|uid| {
                        let new = node.metadata.uid.clone().unwrap_or_default();
                        std::mem::replace(uid, new) != *uid
                    });
                    (known, failed) = (node, false);
                    backoff.reset();
                    next = Instant::now() + REPORT;
                }
                Err(error) => {
                    tracing::warn!(%error, node = self.setup.name, "cannot write the node's status, will retry");
                    failed = true;
                }
            }
        }
    }
}

/// A fraction of a duration, by name, so that a thousand nodes do not send requests at once.
pub(crate) fn spread(name: &str, within: Duration) -> Duration {
    within / 1000 * (crc32c::crc32c(name.as_bytes()) % 1000)
}
