//! The kinds that are looked at, owners before what they own.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    group: &'static str,
    singular: &'static str,
    /// What its objects are called in a path.
    pub(super) plural: &'static str,
    /// Whether its objects are in namespaces.
    pub(super) namespaced: bool,
}

const fn namespaced(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, singular: kind, plural, namespaced: true }
}

const fn of_cluster(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "", singular: kind, plural, namespaced: false }
}

/// Every kind, owners before what they own.
pub(super) const KINDS: [Kind; 21] = [
    of_cluster("Namespace", "namespaces"),
    of_cluster("Node", "nodes"),
    namespaced("", "ServiceAccount", "serviceaccounts"),
    namespaced("", "ConfigMap", "configmaps"),
    namespaced("", "Secret", "secrets"),
    namespaced("", "ResourceQuota", "resourcequotas"),
    namespaced("", "Service", "services"),
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
            &GroupVersionKind::gvk(self.group, "v1", self.singular),
            self.plural,
        )
    }

    /// Where its objects are.
    pub(super) fn collection(&self, namespace: &str) -> String {
        let group =
            if self.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", self.group) };
        if self.namespaced {
            format!("{group}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{group}/{}", self.plural)
        }
    }
}
