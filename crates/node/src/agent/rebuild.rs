//! Rebuilding an allocation whose record was lost: from the pod's status, checked against the cgroups and the node's
//! capacity.
//!
//! The status has the resources that the node last reported. Cgroups that have the desired resources instead prove
//! that those were allocated since; other differences are resizes in progress, which continue.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::plan::inherited;
use plumb_resize::pod::PodResources;
use plumb_resize::status::{Allocation, PENDING, condition, recovered};
use plumb_runtime::Error;

use super::Agent;
use crate::allocator::PodInfo;
use crate::events::Kind;
use crate::journal::Entry;
use crate::lifecycle::ObservedPod;
use crate::observe::{ActuatedResources, observe};

/// The resources of a pod in the runtime.
struct Actual {
    resources: PodResources,
    /// Whether any of its containers runs.
    runs: bool,
}

impl Agent {
    /// Rebuilds the entry of a pod, with an event. None if no container of the pod runs and it does not fit: it is
    /// admitted like a new one.
    pub(super) async fn rebuild(&self, pod: &Pod, uid: &str, info: &PodInfo) -> Option<Entry> {
        let mut allocation = recovered(pod, &info.desired);
        let mut runs = false;
        match self.actual(uid, info, &allocation.allocated).await {
            Ok(actual) => {
                runs = actual.runs;
                if actual.resources != allocation.allocated && self.is_actual(uid, info).await {
                    allocation = Allocation::new(info.desired.clone(), info.generation);
                }
                if !self.node.allocations.fits(uid, info, &allocation.allocated) {
                    // Never more than it has and than it desires.
                    allocation.allocated =
                        allocation.allocated.smaller(&actual.resources).smaller(&info.desired);
                }
            }
            Err(error) => {
                tracing::error!(uid, %error, "cannot read the actual resources; using those of the pod's status");
            }
        }
        if !runs && !self.node.allocations.fits(uid, info, &allocation.allocated) {
            return None;
        }
        let why = match self.damage.as_slice() {
            [] => "it was not in the journal".to_owned(),
            damage => damage.join("; "),
        };
        let message = format!(
            "The node's record of this pod's allocation was lost ({why}); it was rebuilt from the pod's status and the \
             actual resources"
        );
        tracing::warn!(uid, why, "rebuilt an allocation from the pod's status and the actual resources");
        self.node.events.pod(pod, Kind::Warning, "AllocationRebuilt", message);
        let pending = pod.status.as_ref().and_then(|status| condition(status, PENDING));
        let since = pending.and_then(|pending| pending.last_transition_time.as_ref());
        Some(Entry {
            since: since.filter(|_| allocation.pending.is_some()).map(|time| time.0.as_millisecond()),
            ..Entry::new(info, allocation)
        })
    }

    /// Whether the cgroups of a pod have its desired resources.
    async fn is_actual(&self, uid: &str, info: &PodInfo) -> bool {
        let actual = self.actual(uid, info, &info.desired).await;
        actual.is_ok_and(|actual| actual.runs && actual.resources == info.desired)
    }

    /// The actual resources of a pod. Where a cgroup agrees with these resources, they are the actual ones.
    async fn actual(&self, uid: &str, info: &PodInfo, resources: &PodResources) -> Result<Actual, Error> {
        let effective: Vec<_> = inherited(resources).collect();
        let cgroup = info.shape.cgroup(resources);
        let (actuated, before) = (ActuatedResources::default(), ObservedPod::default());
        let observation =
            observe(&*self.node.runtime, uid, (&info.shape, &[]), &before, &actuated, &effective, cgroup)
                .await?;
        let cgroups = observation.cgroups(cgroup);
        let runs = cgroups.containers.iter().any(Option::is_some);
        Ok(Actual { resources: cgroups.resources(&info.shape, resources), runs })
    }
}
