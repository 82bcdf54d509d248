//! The kinds that are looked at, owners before what they own.

use kube::core::{ApiResource, GroupVersionKind};

/// The group of external metrics.
pub(super) const METRICS: &str = "external.metrics.k8s.io";
/// The metric that scenarios set.
pub(super) const QUEUES: &str = "queues";

/// A kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    group: &'static str,
    version: &'static str,
    singular: &'static str,
    /// What its objects are called in a path.
    pub(super) plural: &'static str,
    /// Whether its objects are in namespaces.
    pub(super) namespaced: bool,
}

const fn namespaced(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", singular: kind, plural, namespaced: true }
}

const fn of_cluster(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "", version: "v1", singular: kind, plural, namespaced: false }
}

/// Every kind, owners before what they own.
pub(super) const KINDS: [Kind; 23] = [
    of_cluster("Namespace", "namespaces"),
    of_cluster("Node", "nodes"),
    namespaced("", "ServiceAccount", "serviceaccounts"),
    namespaced("", "ConfigMap", "configmaps"),
    namespaced("", "Secret", "secrets"),
    namespaced("", "ResourceQuota", "resourcequotas"),
    namespaced("", "Service", "services"),
    // A custom resource, which has the paths of an external metric: see `metrics.rs`.
    Kind { version: "v1beta1", ..namespaced(METRICS, "ExternalMetricValue", QUEUES) },
    Kind {
        version: "v2",
        ..namespaced("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    },
    namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    namespaced("batch", "CronJob", "cronjobs"),
    namespaced("apps", "Deployment", "deployments"),
    namespaced("apps", "StatefulSet", "statefulsets"),
    namespaced("apps", "DaemonSet", "daemonsets"),
    namespaced("", "ReplicationController", "replicationcontrollers"),
    namespaced("batch", "Job", "jobs"),
    namespaced("apps", "ReplicaSet", "replicasets"),
    namespaced("apps", "ControllerRevision", "controllerrevisions"),
    namespaced("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    namespaced("", "Pod", "pods"),
    namespaced("", "Endpoints", "endpoints"),
    namespaced("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    namespaced("", "Event", "events"),
];

impl Kind {
    /// The kind of objects that are called so in a path.
    pub(super) fn of_plural(plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// The kind of an object.
    pub(super) fn of_object(kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.singular == kind)
    }

    /// How a client asks for it.
    pub(super) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(self.group, self.version, self.singular),
            self.plural,
        )
    }

    /// Where its objects are.
    pub(super) fn collection(&self, namespace: &str) -> String {
        let Self { group, version, .. } = self;
        let group =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if self.namespaced {
            format!("{group}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{group}/{}", self.plural)
        }
    }
}
