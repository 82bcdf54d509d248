//! Cleanup of a terminated pod: everything is removed from the node, then the pod is deleted from the API.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use plumb_client::Api;

use super::error::SyncError;
use super::{Requeue, Worker};
use crate::allocation_manager::Trigger;
use crate::cri_config::identity;
use crate::pod_files;

impl Worker {
    /// The kubelet's `SyncTerminatedPod`: removes everything of a deleted pod without running containers, once its
    /// final status is reported.
    pub(super) async fn sync_terminated_pod(&mut self) -> Result<Requeue, SyncError> {
        if self.status_manager.is_open() && !self.deletion.is_done() {
            return Ok(Requeue::After(self.wake(None)));
        }
        let runtime = &self.node.runtime;
        let sandboxes = self.observation.observed.sandbox.iter().map(|sandbox| &sandbox.id);
        for id in self.observation.old_sandboxes.iter().chain(sandboxes) {
            runtime.remove_sandbox(id).await.map_err(SyncError::runtime("removing the sandbox"))?;
        }
        self.probed.clear();
        self.node.metrics.remove_probes(&self.uid);
        pod_files::remove(&self.node, &self.uid, vec![self.node.logs(&self.pod)]).await?;
        self.node.allocations.release(&self.uid, Trigger::PodsRemoved).await;
        self.state.clean_up();
        Ok(Requeue::Now)
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
