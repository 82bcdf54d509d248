//! Cleanup of a terminated pod: everything is removed from the node, then the pod is deleted from the API.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, Preconditions};
use plumb_client::Api;

use super::error::SyncError;
use super::{Requeue, Worker, WorkerState, error_chain, is_finished};
use crate::allocation_manager::Trigger;
use crate::cri_config::identity;
use crate::observe::Outdated;
use crate::pod_files;
use crate::shutdown::EVICTED;

impl Worker {
    /// The kubelet's `SyncTerminatedPod`: removes everything of a deleted pod without running containers, once its
    /// final status is reported.
    pub(super) async fn sync_terminated_pod(&mut self) -> Result<Requeue, SyncError> {
        if self.status_manager.is_open() && !self.deletion.is_done() {
            return Ok(Requeue::After(self.wake(None)));
        }
        self.probed.clear();
        self.node.metrics.remove_probes(&self.uid);
        self.remove_from_disk().await?;
        self.node.allocations.release(&self.uid, Trigger::PodsRemoved).await;
        self.state.clean_up();
        Ok(Requeue::Now)
    }

    /// Removes the containers, volumes and logs of the pod.
    async fn remove_from_disk(&self) -> Result<(), SyncError> {
        let runtime = &self.node.runtime;
        let sandboxes = self.observation.observed.sandbox.iter().map(|sandbox| &sandbox.id);
        for id in self.observation.old_sandboxes.iter().chain(sandboxes) {
            runtime.remove_sandbox(id).await.map_err(SyncError::runtime("removing the sandbox"))?;
        }
        Ok(pod_files::remove(&self.node, &self.uid, vec![self.node.logs(&self.pod)]).await?)
    }

    /// The kubelet removes the containers and volumes of an evicted pod at once: they may be why it was evicted.
    pub(super) async fn release_if_evicted(&mut self) {
        let is_evicted = self.pod.status.as_ref().is_some_and(|status| {
            status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some(EVICTED)
        });
        if is_evicted && !self.is_disk_released {
            Box::pin(self.release_disk()).await;
        }
    }

    /// Removes the containers, volumes and logs of a pod that has ended, and stays in the API. Its status must have the end of all
    /// of its containers: what the runtime does not have any more cannot be reported.
    pub(super) async fn release_disk(&mut self) {
        let has_ended = matches!(self.state, WorkerState::Terminated(_))
            && self.observation.outdated == Outdated::Nothing
            && !self.runs()
            && self.stopping.is_empty()
            && !self.status_manager.is_open();
        if !has_ended || self.is_disk_released || !has_reported_end(&self.pod) {
            return;
        }
        match self.remove_from_disk().await {
            Ok(()) => {
                self.is_disk_released = true;
                self.observation.mark(Outdated::All);
            }
            // Its deletion removes the rest.
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(uid = self.uid, error, "cannot remove the files of a pod that has ended");
            }
        }
    }

    /// Deletes the pod from the API.
    pub(super) async fn delete_from_api(&mut self) -> Result<Requeue, SyncError> {
        let (namespace, name, uid) = identity(&self.pod);
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), namespace);
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(name, &params).await {
            Ok(()) => {}
            // It was deleted already, or another pod has its name.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                self.handle_deleted();
                return Ok(Requeue::Never);
            }
            Err(error) => return Err(SyncError::Delete(Box::new(error))),
        }
        // A finalizer may block the deletion; the watch reports it.
        Ok(Requeue::After(None))
    }
}

/// Whether the status of a pod says of all its containers that have run how they ended.
fn has_reported_end(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let mut containers = lists.into_iter().flatten().flatten();
    let has_ended = |status: &ContainerStatus| {
        let state = status.state.as_ref();
        status.container_id.is_none() || state.is_some_and(|state| state.terminated.is_some())
    };
    is_finished(pod) && containers.all(has_ended)
}
