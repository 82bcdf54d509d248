//! The cgroups of all pods and of the QoS classes, as the kubelet sets them.
//!
//! | cgroup | resources |
//! |---|---|
//! | of all pods | CPU weight, memory and tasks of the node without what is reserved: node allocatable |
//! | Burstable | CPU weight by the sum of the allocated requests |
//! | `BestEffort` | the minimum CPU weight |

use plumb_controller_runtime::Backoff;
use plumb_resize::cgroup::{MIN_SHARES, shares};
use plumb_runtime::types::{LinuxResources, QosClass};

use crate::node::Node;

/// The shares of a cgroup for which none were set.
const DEFAULT_SHARES: u64 = 1024;

/// The resources of the cgroup of all pods where node allocatable is not enforced: an agent before this one may have.
pub(super) fn unlimited() -> LinuxResources {
    LinuxResources {
        cpu_shares: Some(DEFAULT_SHARES),
        memory_limit: Some(-1),
        pids_limit: Some(-1),
        ..LinuxResources::default()
    }
}

/// Updates the weights when allocations change, one update at a time; of several changes meanwhile only the last counts.
pub(super) async fn run(node: &Node) {
    tokio::join!(set_weights(node), limit_pods(node));
}

/// Limits all pods together. The memory limit comes last and alone: the runtime refuses one that is below what pods use, where
/// the kernel would kill them. It is then retried, as by the kubelet.
async fn limit_pods(node: &Node) {
    let LinuxResources { memory_limit, .. } = node.pods_cgroup;
    let others = LinuxResources { memory_limit: None, ..node.pods_cgroup.clone() };
    set(node, QosClass::Guaranteed, &others, "cannot set the CPU weight of all pods, will retry").await;
    let memory = LinuxResources { memory_limit, ..LinuxResources::default() };
    let message = "the memory of all pods is not limited to what is allocatable, will retry";
    set(node, QosClass::Guaranteed, &memory, message).await;
}

async fn set_weights(node: &Node) {
    let message = "cannot set the weight of a QoS class, will retry";
    let weight = |shares| LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
    let mut allocated = node.allocations.burstable_cpu();
    set(node, QosClass::BestEffort, &weight(MIN_SHARES), message).await;
    loop {
        let sum = *allocated.borrow_and_update();
        if let Some(milli) = sum {
            set(node, QosClass::Burstable, &weight(shares(milli)), message).await;
        }
        if allocated.changed().await.is_err() {
            return;
        }
    }
}

async fn set(node: &Node, class: QosClass, to: &LinuxResources, message: &str) {
    let mut backoff = Backoff::default();
    while let Err(error) = node.runtime.update_class_resources(class, to).await {
        tracing::warn!(class = class.name(), %error, "{message}");
        backoff.wait().await;
    }
}
