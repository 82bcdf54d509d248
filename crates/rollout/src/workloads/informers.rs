//! The informers of the controller, and functions that read several of them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use plumb_controller_runtime::{Informer, InformerFactory, ObjectRef};

use super::RECORD_ANNOTATION;
use super::kind::WorkloadKind;
use super::object::Workload;
use super::record::WorkloadRecord;
use super::tracker::Key;
use crate::advanced_sets::AdvancedSets;
use crate::api::RolloutPolicy;
use crate::vpas::Vpas;

/// The informers of the controller.
#[derive(Clone)]
pub(super) struct Informers {
    pub(super) deployments: Informer<Deployment>,
    pub(super) replica_sets: Informer<ReplicaSet>,
    pub(super) stateful_sets: Informer<StatefulSet>,
    pub(super) daemon_sets: Informer<DaemonSet>,
    pub(super) revisions: Informer<ControllerRevision>,
    pub(super) pods: Informer<Pod>,
    pub(super) policies: Informer<RolloutPolicy>,
    pub(super) quotas: Informer<ResourceQuota>,
    pub(super) vpas: Vpas,
    pub(super) advanced: AdvancedSets,
}

impl Informers {
    pub(super) fn new(factory: &InformerFactory, vpas: &Vpas, advanced: &AdvancedSets) -> Self {
        Self {
            deployments: factory.informer(),
            replica_sets: factory.informer(),
            stateful_sets: factory.informer(),
            daemon_sets: factory.informer(),
            revisions: factory.informer(),
            pods: factory.informer(),
            policies: factory.informer(),
            quotas: factory.informer(),
            vpas: vpas.clone(),
            advanced: advanced.clone(),
        }
    }

    /// How many workloads are held.
    pub(super) fn held(&self) -> usize {
        fn of<K: Resource>(objects: Vec<Arc<K>>) -> usize {
            objects.iter().filter(|object| WorkloadRecord::is_held(object.meta())).count()
        }
        of(self.deployments.all())
            + of(self.stateful_sets.all())
            + of(self.daemon_sets.all())
            + of(self.advanced.stateful_sets.all())
            + of(self.advanced.daemon_sets.all())
    }

    pub(super) fn workload(&self, key: &Key) -> Option<Workload> {
        match key.kind {
            WorkloadKind::Deployment => self.deployments.get(&key.object).map(Workload::Deployment),
            WorkloadKind::StatefulSet => self.stateful_sets.get(&key.object).map(Workload::StatefulSet),
            WorkloadKind::DaemonSet => self.daemon_sets.get(&key.object).map(Workload::DaemonSet),
            WorkloadKind::AdvancedStatefulSet => {
                self.advanced.stateful_sets.get(&key.object).map(Workload::AdvancedStatefulSet)
            }
            WorkloadKind::AdvancedDaemonSet => {
                self.advanced.daemon_sets.get(&key.object).map(Workload::AdvancedDaemonSet)
            }
        }
    }

    /// The workloads of a namespace that have a record.
    pub(super) fn with_records(&self, namespace: &str) -> Vec<Key> {
        fn of<K: Resource>(kind: WorkloadKind, objects: Vec<Arc<K>>) -> impl Iterator<Item = Key> {
            let recorded = |object: &Arc<K>| is_recorded(object.meta());
            objects
                .into_iter()
                .filter(recorded)
                .map(move |object| Key { kind, object: ObjectRef::of(&*object) })
        }
        of(WorkloadKind::Deployment, self.deployments.in_namespace(namespace))
            .chain(of(WorkloadKind::StatefulSet, self.stateful_sets.in_namespace(namespace)))
            .chain(of(WorkloadKind::DaemonSet, self.daemon_sets.in_namespace(namespace)))
            .chain(of(WorkloadKind::AdvancedStatefulSet, self.advanced.stateful_sets.in_namespace(namespace)))
            .chain(of(WorkloadKind::AdvancedDaemonSet, self.advanced.daemon_sets.in_namespace(namespace)))
            .collect()
    }
}

/// Whether a workload has a record.
pub(super) fn is_recorded(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(RECORD_ANNOTATION))
}
