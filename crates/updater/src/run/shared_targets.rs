//! Workloads that several VPAs control, each the pods on some nodes: they spend one disruption budget.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use plumb_vpa::target::ControllerRef;

/// A lock for each such workload. A VPA holds it while it is planned for, and until the writes of a plan that spends budget are
/// observed.
#[derive(Default)]
pub(super) struct SharedTargets(Mutex<HashMap<ControllerRef, Weak<tokio::sync::Mutex<()>>>>);

impl SharedTargets {
    /// The lock of a workload. It exists for as long as a VPA has it.
    pub(super) fn of(&self, target: &ControllerRef) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(target).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(target.clone(), Arc::downgrade(&lock));
        lock
    }
}
