//! The messages that a worker receives.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::resource::Resource;
use plumb_runtime::types::{ContainerId, MemoryPressure};
use tokio::sync::oneshot;

use super::growth::{CpuMeasurement, GrowthOutcome};
use super::image::Pulled;
use crate::allocation_manager::Trigger;
use crate::allocator::AllocationResult;
use crate::probe::ProbeReport;
use crate::shutdown::Termination;

/// A message to a worker. Each inbox preallocates some, so they are small.
#[derive(Debug)]
pub(crate) enum Message {
    /// The pod in the API.
    Pod(Arc<Pod>),
    /// The pod in a list of all pods.
    Listed(Arc<Pod>),
    /// The pod as it was read because the list had an older one than this worker knows.
    Restored(Box<Pod>),
    /// The pod was deleted from the API.
    Deleted,
    /// One of its containers changed its state.
    RuntimeEvent,
    /// A process in one of its containers was OOM killed; the container may still run.
    OutOfMemory(ContainerId),
    /// A container is near its memory limit, or is held at it.
    MemoryPressure(Box<(ContainerId, MemoryPressure)>),
    /// The throttling of a container was measured, unless that failed.
    ThrottlingMeasured(Box<(ContainerId, Option<CpuMeasurement>)>),
    /// A higher limit was requested for a container.
    GrowthRequested(Box<(ContainerId, Resource, GrowthOutcome)>),
    /// The runtime restored a lowered limit.
    LimitRestored,
    /// The runtime has responded to an update of a container's resources that was applied before.
    UpdateFinished,
    /// A deferred resize has a new result.
    Allocation(Box<AllocationResult>, Trigger),
    /// The allocation manager could not decide on a resize: the worker requests it again.
    Retry,
    /// A container was stopped.
    Stopped(ContainerId),
    /// An image was pulled, or the pull failed.
    Pulled(Box<Pulled>),
    /// A post-start hook has completed, or failed with this error.
    PostStartHook(Box<(ContainerId, Option<String>)>),
    /// A report of a container's probes.
    Probed(Box<ProbeReport>),
    /// The node terminates the pod.
    Terminate(Box<Termination>),
    /// The node is low on disk: a pod that has ended gives up its containers, volumes and logs. Notified when that is done.
    ReleaseDisk(oneshot::Sender<()>),
}

impl Message {
    /// Whether it says that the pod is to be deleted, or was.
    pub(crate) fn requests_deletion(&self) -> bool {
        match self {
            Self::Deleted => true,
            Self::Pod(pod) | Self::Listed(pod) => pod.metadata.deletion_timestamp.is_some(),
            _ => false,
        }
    }
}

impl From<ProbeReport> for Message {
    fn from(report: ProbeReport) -> Self {
        Self::Probed(Box::new(report))
    }
}
