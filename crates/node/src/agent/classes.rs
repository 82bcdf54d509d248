//! The CPU weights of the QoS classes' cgroups, as the kubelet sets them: Burstable by the sum of the allocated requests,
//! `BestEffort` the minimum.

use plumb_controller::Backoff;
use plumb_resize::cgroup::{MIN_SHARES, shares};
use plumb_runtime::types::{LinuxResources, QosClass};

use crate::node::Node;

/// Updates the weights when allocations change, one update at a time; of several changes meanwhile only the last counts.
pub(super) async fn run(node: &Node) {
    let mut allocated = node.allocations.burstable_cpu();
    set_cpu_shares(node, QosClass::BestEffort, MIN_SHARES).await;
    loop {
        let sum = *allocated.borrow_and_update();
        if let Some(milli) = sum {
            set_cpu_shares(node, QosClass::Burstable, shares(milli)).await;
        }
        if allocated.changed().await.is_err() {
            return;
        }
    }
}

async fn set_cpu_shares(node: &Node, class: QosClass, shares: u64) {
    let to = LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
    let mut backoff = Backoff::default();
    while let Err(error) = node.runtime.update_class_resources(class, &to).await {
        tracing::warn!(class = class.name(), %error, "cannot set the weight of a QoS class, will retry");
        backoff.wait().await;
    }
}
