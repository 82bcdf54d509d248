//! What the pods of a class weigh together: as the kubelet has it, the Burstable ones what they are promised, the
//! `BestEffort` ones next to nothing.

use plumb_controller::Backoff;
use plumb_resize::cgroup::{MIN_SHARES, shares};
use plumb_runtime::types::{LinuxResources, QosClass};

use crate::node::Node;

/// Keeps the weights of the classes at what is promised, one change after the other; of several that come meanwhile
/// only the last counts.
pub(super) async fn keep(node: &Node) {
    let mut promised = node.allocations.burstable_cpu();
    weigh(node, QosClass::BestEffort, MIN_SHARES).await;
    loop {
        let sum = *promised.borrow_and_update();
        if let Some(milli) = sum {
            weigh(node, QosClass::Burstable, shares(milli)).await;
        }
        if promised.changed().await.is_err() {
            return;
        }
    }
}

async fn weigh(node: &Node, class: QosClass, shares: u64) {
    let to = LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
    let mut backoff = Backoff::default();
    while let Err(error) = node.runtime.update_class_resources(class, &to).await {
        tracing::warn!(class = class.name(), %error, "the weight of a class is not set, will try again");
        backoff.wait().await;
    }
}
