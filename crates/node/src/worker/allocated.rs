//! The pod with its allocated resources instead of those of its spec.
//!
//! `resourceFieldRef` in variables and files, and the size of an `emptyDir` in memory, are computed from it, as in the
//! kubelet. The files are updated when the allocation changes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::Worker;
use crate::allocated::with_allocation;

/// The interval of retries.
const RETRY: Duration = Duration::from_secs(10);

/// Whether this agent updates the volumes of a running pod.
#[derive(Default)]
pub(super) struct AdoptedVolumes {
    adopted: bool,
    /// It failed; the time of the retry.
    not_before: Option<Instant>,
}

impl AdoptedVolumes {
    /// The time until the retry, if there is one.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        // A pod that has finished meanwhile does not retry, and need not wake up for it.
        self.not_before
            .and_then(|at| at.checked_duration_since(Instant::now()))
            .filter(|wait| !wait.is_zero())
    }
}

impl Worker {
    /// The pod with its allocated resources instead of those of its spec.
    pub(super) fn allocated_pod(&self) -> Arc<Pod> {
        with_allocation(&self.pod, &self.info.desired, &self.entry.allocation.allocated)
    }

    /// Updates the volumes, after the pod or its allocation has changed.
    pub(super) fn refresh_volumes(&self) {
        if let Some(volumes) = &self.node.volumes {
            volumes.refresh(&self.allocated_pod());
        }
    }

    /// Adopts the volumes of a pod that ran already when this agent was started, so that they are updated again.
    pub(super) async fn adopt_volumes(&mut self) {
        let ready = self.observation.observed.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready);
        let wanted = ready && self.state.is_syncing();
        let wait = self.volumes.not_before.is_some_and(|at| at > Instant::now());
        if self.volumes.adopted || !wanted || wait {
            return;
        }
        let Some(volumes) = &self.node.volumes else { return };
        match volumes.prepare(&self.allocated_pod()).await {
            Ok(_) => self.volumes = AdoptedVolumes { adopted: true, not_before: None },
            Err(error) => {
                tracing::warn!(uid = self.uid, %error, "cannot adopt the volumes of a pod, will retry");
                self.volumes.not_before = Some(Instant::now() + RETRY);
            }
        }
    }
}
