//! The pod as its containers are told about it: with what is allocated, not with what its spec asks for.
//!
//! `resourceFieldRef` in variables and files, and the size of an `emptyDir` in memory, come from the pod that is made
//! here, as the kubelet takes them from the pod with its allocation. The files follow when the allocation changes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::Worker;
use crate::allocated::with_allocation;

/// How long it is waited until it is tried again to keep volumes up to date.
const RETRY: Duration = Duration::from_secs(10);

/// Whether the volumes of a pod that runs are kept up to date.
#[derive(Default)]
pub(super) struct FollowedVolumes {
    are: bool,
    /// It failed; before when it is not tried again.
    not_before: Option<Instant>,
}

impl FollowedVolumes {
    /// In how long it is to be tried again, if it is.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        // A pod that has ended in between does not try again, and need not wake up for it.
        self.not_before
            .and_then(|at| at.checked_duration_since(Instant::now()))
            .filter(|wait| !wait.is_zero())
    }
}

impl Worker {
    /// The pod with what is allocated in the place of what its spec asks for.
    pub(super) fn allocated_pod(&self) -> Arc<Pod> {
        with_allocation(&self.pod, &self.info.desired, &self.entry.allocation.allocated)
    }

    /// Has the volumes that show something of the pod follow it, after it or its allocation has changed.
    pub(super) fn refresh_volumes(&self) {
        if let Some(volumes) = &self.node.volumes {
            volumes.refresh(&self.allocated_pod());
        }
    }

    /// Takes up the volumes of a pod that runs already when this agent is started, so that they go on following.
    pub(super) async fn follow_volumes(&mut self) {
        let ready = self.looked.seen.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready);
        let wanted = ready && !self.over && self.because.is_none() && self.ends.is_none();
        let wait = self.volumes.not_before.is_some_and(|at| at > Instant::now());
        if self.volumes.are || !wanted || wait {
            return;
        }
        let Some(volumes) = &self.node.volumes else { return };
        match volumes.prepare(&self.allocated_pod()).await {
            Ok(_) => self.volumes = FollowedVolumes { are: true, not_before: None },
            Err(error) => {
                tracing::warn!(uid = self.uid, %error, "volumes are not kept up to date yet, will try again");
                self.volumes.not_before = Some(Instant::now() + RETRY);
            }
        }
    }
}
