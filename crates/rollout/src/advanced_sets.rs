//! The Advanced `StatefulSets` and Advanced `DaemonSets` of a cluster, which has them only if OpenKruise is installed.

use futures_util::future::{BoxFuture, FutureExt as _, join};
use kube::Client;
use plumb_controller_runtime::Informer;
use plumb_controller_runtime::informer::Synced;
use plumb_supervise::Supervisor;

use crate::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use crate::defined::DefinedInformer;

/// Watches both kinds while they are defined. Clones share the watches.
#[derive(Clone)]
pub(crate) struct AdvancedSets {
    pub(crate) stateful_sets: DefinedInformer<AdvancedStatefulSet>,
    pub(crate) daemon_sets: DefinedInformer<AdvancedDaemonSet>,
}

impl Default for AdvancedSets {
    fn default() -> Self {
        Self {
            stateful_sets: DefinedInformer::new(Informer::default()),
            daemon_sets: DefinedInformer::new(Informer::default()),
        }
    }
}

impl AdvancedSets {
    /// Watches until it is dropped.
    pub(crate) fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let stateful_sets = self.stateful_sets.run(client, supervisor);
        join(stateful_sets, self.daemon_sets.run(client, supervisor)).map(drop).boxed()
    }
}

impl Synced for AdvancedSets {
    fn synced(&self) -> BoxFuture<'_, ()> {
        join(self.stateful_sets.synced(), self.daemon_sets.synced()).map(drop).boxed()
    }
}
