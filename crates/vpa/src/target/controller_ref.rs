//! Controllers by namespace, kind and name.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_controller_runtime::controller_of;
use plumb_vpa_api::CrossVersionObjectReference;

/// A controller of a namespace. Two references to one object are equal, whichever version they name: a pod belongs to a VPA's
/// target if the topmost controller of the one is that of the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerRef {
    /// The namespace.
    pub namespace: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

impl ControllerRef {
    /// A controller by the `apiVersion` that a reference to it has. A well-known kind has its group also where the reference has
    /// none, or the one that it was in long ago.
    pub fn new(namespace: &str, api_version: &str, kind: &str, name: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let group = match WellKnown::of_kind(kind) {
            Some(known) if group.is_empty() || group == "extensions" => known.group(),
            _ => group,
        };
        Self {
            namespace: namespace.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    /// What the targetRef of a VPA in a namespace names.
    pub fn of_target(namespace: &str, target_ref: &CrossVersionObjectReference) -> Self {
        let api_version = target_ref.api_version.as_deref().unwrap_or_default();
        Self::new(namespace, api_version, &target_ref.kind, &target_ref.name)
    }

    /// The controller of an object, as its owner references have it.
    pub fn controller_of(object: &ObjectMeta) -> Option<Self> {
        let owner = controller_of(object)?;
        let namespace = object.namespace.as_deref().unwrap_or_default();
        Some(Self::new(namespace, &owner.api_version, &owner.kind, &owner.name))
    }

    /// Which of the well-known kinds it is of, if it is.
    pub fn well_known(&self) -> Option<WellKnown> {
        WellKnown::of_kind(&self.kind).filter(|known| known.group() == self.group)
    }
}

impl fmt::Display for ControllerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, kind, name, .. } = self;
        write!(f, "{kind} {namespace}/{name}")
    }
}

/// The kinds that are read by themselves rather than through `/scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WellKnown {
    /// `apps/v1`.
    Deployment,
    /// `apps/v1`.
    ReplicaSet,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`.
    DaemonSet,
    /// `v1`.
    ReplicationController,
    /// `batch/v1`.
    Job,
    /// `batch/v1`.
    CronJob,
}

impl WellKnown {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
    ];

    fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.kind() == kind)
    }

    /// The name of the kind.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    /// The API group; empty for the core group. The version is `v1` for all.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::ReplicationController => "",
            Self::Job | Self::CronJob => "batch",
        }
    }

    /// The name of the resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::ReplicationController => "replicationcontrollers",
            Self::Job => "jobs",
            Self::CronJob => "cronjobs",
        }
    }
}
