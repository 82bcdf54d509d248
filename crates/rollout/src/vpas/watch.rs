//! The VPAs of a cluster, which may have no definition of them.

use futures_util::future::BoxFuture;
use kube::Client;
use plumb_controller_runtime::informer::Synced;
use plumb_controller_runtime::store::Index;
use plumb_controller_runtime::{Informer, ObjectRef};
use plumb_supervise::Supervisor;
use plumb_vpa_api::VerticalPodAutoscaler;

use super::Owners;
use crate::defined::DefinedInformer;
use crate::engine::Selected;

/// The workload that a VPA names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: String,
    pub(crate) object: ObjectRef,
}

impl Target {
    fn of(vpa: &VerticalPodAutoscaler) -> Self {
        let target = &vpa.spec.target_ref;
        let namespace = vpa.metadata.namespace.clone().unwrap_or_default();
        Self { kind: target.kind.clone(), object: ObjectRef::namespaced(namespace, target.name.clone()) }
    }

    fn text(&self) -> String {
        format!("{}/{}", self.kind, self.object)
    }
}

/// Watches VPAs while they are defined. Clones share the watch.
#[derive(Clone)]
pub(crate) struct Vpas {
    objects: DefinedInformer<VerticalPodAutoscaler>,
    by_target: Index<VerticalPodAutoscaler>,
}

impl Default for Vpas {
    fn default() -> Self {
        let objects: Informer<VerticalPodAutoscaler> = Informer::default().with_transform(without_status);
        let by_target = objects.add_index(|vpa: &VerticalPodAutoscaler| Some(Target::of(vpa).text()));
        Self { objects: DefinedInformer::new(objects), by_target }
    }
}

/// The fields of a VPA that a rollout reads: recommendations are the updater's.
fn without_status(vpa: VerticalPodAutoscaler) -> VerticalPodAutoscaler {
    VerticalPodAutoscaler { status: None, ..vpa }
}

impl Vpas {
    /// The VPAs that own resources of the pods of a workload.
    pub(crate) fn owners(&self, workload: &Selected<'_>) -> Owners {
        let (namespace, name) = (workload.metadata.namespace.clone(), workload.metadata.name.clone());
        let object = ObjectRef::namespaced(namespace.unwrap_or_default(), name.unwrap_or_default());
        let target = Target { kind: workload.kind.to_owned(), object };
        Owners::of(&self.by_target.get(&target.text()), workload)
    }

    /// Has a function called with the workload of each VPA that changes, and with the one before the change.
    pub(crate) fn add_handler(&self, handler: impl Fn(Target) + Send + Sync + 'static) {
        self.objects.add_handler(move |change| {
            for vpa in [change.before, change.after].into_iter().flatten() {
                handler(Target::of(vpa));
            }
        });
    }

    /// Watches until it is dropped.
    pub(crate) fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        self.objects.run(client, supervisor)
    }
}

impl Synced for Vpas {
    fn synced(&self) -> BoxFuture<'_, ()> {
        self.objects.synced()
    }
}
