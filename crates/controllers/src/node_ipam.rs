//! Node IPAM: every node gets a network for its pods, `spec.podCIDR`, of the network of the cluster.
//!
//! ```text
//!   Node without podCIDR ──▶ a free network of --cluster-cidr ──▶ spec.podCIDR, spec.podCIDRs
//!   Node with one        ──▶ its network is not allocated
//!   Node deleted         ──▶ its network is free; a node that waits for one gets it
//! ```
//!
//! The Node objects are the only record: the controller has no state across its restart, and a network that an
//! administrator wrote counts like its own. It follows upstream's range allocator, for one IPv4 network.

mod allocator;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::{is_conflict, settled_or_conflict};
use plumb_controller_runtime::{Clock, ObjectRef, Reconciler, Requeue, Store};
use plumb_validation::network::Ipv4Network;
use serde_json::json;

use crate::Clients;
use crate::workload::recorder::Recorder;
use crate::workload::{Informers, Note};
pub use allocator::{Allocator, InvalidRange, Range};

/// The name of this controller.
pub const NAME: &str = "node-ipam-controller";
/// The name of its user, which it shares with the controller of the lifecycle of nodes, as upstream's does.
pub const USER: &str = crate::nodes::NAME;
/// The source of its events.
const RECORDER: &str = "cidrAllocator";

/// A node without a network.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// All networks of the range are allocated.
    #[error("the cluster CIDR has no free network left")]
    Exhausted,
    /// The Node could not be written.
    #[error("writing spec.podCIDR: {0}")]
    Write(#[source] Box<kube::Error>),
}

/// Allocates networks until the future is dropped.
pub fn run(
    informers: &Arc<Informers>,
    clients: Clients,
    range: Range,
    clock: Clock,
) -> Result<BoxFuture<'static, ()>, InvalidRange> {
    let state = Arc::new(Mutex::new(State { allocator: Allocator::new(range)?, waiting: BTreeSet::new() }));
    let reconciler = NodeIpam {
        nodes: informers.nodes.store().clone(),
        api: Api::all(clients.write.clone()),
        state: state.clone(),
        recorder: Recorder::start(clients.write.clone(), RECORDER, &clients.supervisor, &clients.metrics),
        clock: clock.clone(),
    };
    let controller = clients.controller(NAME, reconciler).with_clock(clock);
    // The networks of all nodes are noted before the first one is allocated: a store has synced when its handlers have been
    // called for each object.
    Ok(controller
        .awaits(informers.nodes.store().clone())
        .watches(&informers.nodes, move |change, queue| {
            let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else { return };
            let mut state = state.lock();
            match change.after {
                None => {
                    state.allocator.release(&name);
                    state.waiting.remove(&name);
                    for waiting in std::mem::take(&mut state.waiting) {
                        queue.add(ObjectRef::cluster(waiting));
                    }
                }
                Some(node) => {
                    // One that was recreated has another network than its predecessor, or none.
                    let is_other =
                        change.before.is_some_and(|before| before.metadata.uid != node.metadata.uid);
                    let networks = networks(node);
                    if !networks.is_empty() || is_other {
                        state.allocator.observe(&name, &networks);
                        state.waiting.remove(&name);
                    }
                    if !has_network(node) {
                        queue.add(ObjectRef::cluster(name));
                    }
                }
            }
        })
        .run())
}

struct State {
    allocator: Allocator,
    /// Nodes that no network was free for.
    waiting: BTreeSet<String>,
}

struct NodeIpam {
    nodes: Arc<Store<Node>>,
    api: Api<Node>,
    state: Arc<Mutex<State>>,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for NodeIpam {
    type Key = ObjectRef;
    type Error = IpamError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, IpamError> {
        let Some(node) = self.nodes.get(key).filter(|node| !has_network(node)) else {
            return Ok(Requeue::AwaitChange);
        };
        let network = {
            let mut state = self.state.lock();
            let network = state.allocator.allocate(&key.name);
            if network.is_none() {
                state.waiting.insert(key.name.clone());
            }
            network
        };
        let Some(network) = network else {
            self.record(&node, "CIDRNotAvailable");
            return Err(IpamError::Exhausted);
        };
        let patch = json!({
            "metadata": { "uid": node.metadata.uid },
            "spec": { "podCIDR": network.to_string(), "podCIDRs": [network.to_string()] },
        });
        let written = self.api.patch(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        let failed = written.as_ref().err().is_some_and(|error| !is_conflict(error));
        if failed {
            self.record(&node, "CIDRAssignmentFailed");
        }
        settled_or_conflict(written).map_err(|error| IpamError::Write(Box::new(error)))?;
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, key: &ObjectRef) -> Option<ObjectReference> {
        self.nodes.get(key).map(|node| node.object_ref(&()))
    }
}

impl NodeIpam {
    /// Emits an event in the words of upstream's `RecordNodeStatusChange`.
    fn record(&self, node: &Node, status: &'static str) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let about = ObjectReference {
            kind: Some("Node".to_owned()),
            api_version: Some("v1".to_owned()),
            name: Some(name.to_owned()),
            uid: node.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let message = format!("Node {name} status is now: {status}");
        self.recorder.record(about, Note::normal(status, message), self.clock.now());
    }
}

fn has_network(node: &Node) -> bool {
    node.spec
        .as_ref()
        .is_some_and(|spec| spec.pod_cidrs.as_ref().is_some_and(|networks| !networks.is_empty()))
}

/// The networks of a node. Those that cannot be read, such as IPv6 networks, are not of the range.
fn networks(node: &Node) -> Vec<Ipv4Network> {
    let networks = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
    networks.iter().filter_map(|network| network.parse().ok()).collect()
}
