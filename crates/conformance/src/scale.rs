//! Actions on a workload that a VPA scales, and their expected results.
//!
//! A workload is named after the case (or after what a step names), and so is its VPA. The VPA names a recommender that does
//! not exist: the case sets the recommendation.

use crate::case::{Amounts, Container};

/// Resources by container.
pub type Resources = &'static [(&'static str, Amounts)];

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// `apps/v1`.
    Deployment,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`. It has one pod: the pods of cases run on one node.
    DaemonSet,
    /// `apps.kruise.io/v1beta1`, with the update policy `InPlaceIfPossible`.
    CloneSet,
}

impl WorkloadKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CloneSet => "CloneSet",
        }
    }

    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::CloneSet => "clonesets",
        }
    }

    /// Group and version.
    pub(crate) const fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::CloneSet => ("apps.kruise.io", "v1beta1"),
            _ => ("apps", "v1"),
        }
    }

    /// The path of all workloads of the kind in a namespace.
    pub(crate) fn path(self, namespace: &str) -> String {
        let (group, version) = self.api();
        format!("/apis/{group}/{version}/namespaces/{namespace}/{}", self.plural())
    }
}

/// A workload and its pods.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Whether its annotation opts in to in-place rollouts.
    pub in_place: bool,
    /// How many.
    pub replicas: i32,
    /// Their containers.
    pub containers: &'static [Container],
    /// Their sidecars: init containers that are always restarted.
    pub sidecars: &'static [Container],
    /// Arguments of each container, where the image is `plumb/load`.
    pub args: &'static [&'static str],
    /// When their containers are ready.
    pub readiness: Readiness,
    /// Whether they have an init container that does not end.
    pub initializing: bool,
}

impl Workload {
    /// Pods of a Deployment that are ready when they run.
    pub const fn new(replicas: i32, containers: &'static [Container]) -> Self {
        Self {
            kind: WorkloadKind::Deployment,
            in_place: false,
            replicas,
            containers,
            sidecars: &[],
            args: &[],
            readiness: Readiness::Running,
            initializing: false,
        }
    }

    /// The same of another kind.
    #[must_use]
    pub const fn of(self, kind: WorkloadKind) -> Self {
        Self { kind, ..self }
    }

    /// The same that opts in to in-place rollouts.
    #[must_use]
    pub const fn in_place(self) -> Self {
        Self { in_place: true, ..self }
    }

    /// The same with sidecars.
    #[must_use]
    pub const fn sidecars(self, sidecars: &'static [Container]) -> Self {
        Self { sidecars, ..self }
    }

    /// The same with containers that are ready otherwise.
    #[must_use]
    pub const fn ready(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// The same with an init container that does not end, so that the pods stay Pending.
    #[must_use]
    pub const fn initializing(self) -> Self {
        Self { initializing: true, ..self }
    }

    /// The same with arguments.
    #[must_use]
    pub const fn args(self, args: &'static [&'static str]) -> Self {
        Self { args, ..self }
    }
}

/// When a container is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// When it runs: it has no probe.
    Running,
    /// By a readiness probe with this `initialDelaySeconds`.
    Readiness(i32),
    /// By a startup probe with this `initialDelaySeconds`.
    Startup(i32),
}

/// An action on a workload or its VPA.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// The workload is created. Its pods are watched from now on.
    Deploy(Workload),
    /// The VPA is created with this `spec`, as JSON. `targetRef` and `recommenders` are filled in.
    CreateVpa(&'static str),
    /// The VPA's `spec` is changed by this merge patch.
    PatchVpa(&'static str),
    /// The VPA is deleted.
    DeleteVpa,
    /// This is recommended: container, CPU, memory. An empty amount is none. The bounds are the target.
    Recommend(&'static [(&'static str, &'static str, &'static str)]),
    /// All pods are deleted, so that the workload makes new ones.
    DeletePods,
    /// The autoscaler observes everything that has happened up to here: a VPA that is changed after it has had its effect.
    Observe,
}

impl Scale {
    /// Whether an autoscaler has to run.
    pub(crate) const fn needs_autoscaler(&self) -> bool {
        !matches!(self, Self::Deploy(_) | Self::DeletePods)
    }
}

/// An expected result.
#[derive(Clone, Copy, Debug)]
pub enum Scaled {
    /// Each live pod was created with these resources.
    Created(Resources),
    /// Each pod runs with these resources, and nothing is left to do.
    Applied {
        /// The resources.
        to: Resources,
        /// Which pods these are.
        pods: Pods,
        /// How often containers were restarted; those not named: never.
        restarts: &'static [(&'static str, i32)],
    },
    /// Each pod has these desired resources, and its node reports the resize as deferred or infeasible.
    Pending {
        /// The resources.
        to: Resources,
        /// The reason of `PodResizePending`.
        reason: &'static str,
    },
    /// Each pod has these desired resources, and its node cannot actuate them.
    Failing {
        /// The resources.
        to: Resources,
    },
    /// Each pod has these desired resources, its node actuates them, and the VPA reports this about its pods. Only a
    /// slowed runtime shows this.
    InProgress {
        /// The resources.
        to: Resources,
        /// A part of the message of the VPA's condition `PodsUpdated`.
        says: &'static str,
    },
    /// The pods are Pending on their nodes: they have an init container that does not end.
    Initializing,
    /// So many of the pods that there were are left, and others have been created.
    Evicted {
        /// How many are left.
        left: usize,
    },
    /// The VPA's condition `PodsUpdated` has a message with this in it.
    Says(&'static str),
    /// Each live pod has had these resources in its spec, one after the other, and no others. No pod was replaced.
    Specs(&'static [Resources]),
    /// What the pods have recorded as infeasible for the container `main`: CPU and memory; none if nothing.
    Infeasible(Option<(&'static str, &'static str)>),
    /// How many attempts of the updater to resize pods have failed up to now: the API server refused them, or the node found
    /// them infeasible.
    FailedAttempts(u64),
    /// Each pod got its CPU back this many seconds after it was ready, and not before, and runs with these resources.
    Unboosted {
        /// The resources.
        to: Resources,
        /// `durationSeconds`.
        after: i64,
    },
    /// No pod is marked as boosted.
    NotBoosted,
    /// Each pod has an event of this reason.
    PodEvent(&'static str),
}

impl Scaled {
    /// The same pods run with these resources, without a restart.
    pub const fn applied(to: Resources) -> Self {
        Self::Applied { to, pods: Pods::Same, restarts: &[] }
    }

    /// Other pods run with these resources in their stead.
    pub const fn recreated(to: Resources) -> Self {
        Self::Applied { to, pods: Pods::Replaced, restarts: &[] }
    }
}

/// Which pods a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Those that it had.
    Same,
    /// Others instead of those that it had.
    Replaced,
}
