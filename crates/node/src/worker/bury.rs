//! The end of a pod: nothing of it is left on the node, then the API forgets it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};

use super::{Turn, Worker};
use crate::allocation_manager::Trigger;
use crate::specify::identity;

impl Worker {
    /// Removes all that is left of a pod that has ended, once the API knows how it did.
    pub(super) async fn bury(&mut self) -> Result<Turn, String> {
        if self.report.is_open() && !self.deleted {
            return Ok(Turn::Wait(self.wake(None)));
        }
        let runtime = &self.node.runtime;
        let sandboxes = self.looked.seen.sandbox.iter().map(|sandbox| &sandbox.id);
        for id in self.looked.old_sandboxes.iter().chain(sandboxes) {
            let removed = runtime.remove_sandbox(id).await;
            removed.map_err(|error| format!("removing the sandbox: {error}"))?;
        }
        self.watched.clear();
        self.clear_files().await?;
        self.node.allocations.release(&self.uid, Trigger::PodsRemoved).await;
        self.buried = true;
        Ok(Turn::Again)
    }

    /// Removes the files of the pod.
    async fn clear_files(&self) -> Result<(), String> {
        if let Some(volumes) = &self.node.volumes {
            let cleared = volumes.clear(&self.uid).await;
            cleared.map_err(|error| format!("removing the volumes: {error}"))?;
        }
        let logs = self.node.logs(&self.pod);
        let removed = tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&logs) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("removing the logs in {}: {error}", logs.display()))
            }
            _ => Ok(()),
        });
        removed.await.map_err(|error| error.to_string())?
    }

    /// Has the API forget a pod of which nothing is left.
    pub(super) async fn let_go(&mut self) -> Result<Turn, String> {
        let (namespace, name, uid) = identity(&self.pod);
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), namespace);
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(name, &params).await {
            Ok(_) => {}
            // It is gone, or another one has its name.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                self.deleted = true;
                return Ok(Turn::Gone);
            }
            Err(error) => return Err(format!("asking the API to forget the pod: {error}")),
        }
        // A finalizer may keep it; the watch says when it is gone.
        Ok(Turn::Wait(None))
    }
}
