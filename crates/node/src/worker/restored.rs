//! A pod that is older in the API than the worker knows it: the cluster was restored from a backup.
//!
//! A list may be older than the response to a status patch that was sent meanwhile, so an older pod in a list proves
//! nothing. A read that starts after the worker knew a newer one does.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_client::Api;
use plumb_controller_runtime::{Backoff, compact};

use super::{Message, Worker, is_newer};
use crate::cri_config::identity;
use crate::observe::Outdated;

impl Worker {
    /// Handles the pod in a list of all pods. If it is older than the known one, it is read again.
    pub(super) fn handle_listed(&mut self, pod: Arc<Pod>) {
        if !is_newer(&self.pod, &pod) {
            self.handle_pod(pod);
            return;
        }
        let (client, sender, known) = (self.node.client.clone(), self.sender.clone(), self.pod.clone());
        tokio::spawn(async move {
            let (namespace, name, _) = identity(&known);
            let api: Api<Pod> = Api::namespaced(client, namespace);
            let mut backoff = Backoff::default();
            let read = loop {
                match api.get_opt(name).await {
                    Ok(read) => break read,
                    Err(_) if sender.is_closed() => return,
                    Err(error) => {
                        tracing::debug!(%error, pod = name, "cannot read a pod, will retry");
                        backoff.wait().await;
                    }
                }
            };
            let same = read.filter(|pod| pod.metadata.uid == known.metadata.uid);
            if let Some(pod) = same.filter(|pod| is_newer(&known, pod)) {
                // The worker may have ended.
                let _ = sender.send(Message::Restored(Box::new(compact(pod))));
            }
        });
    }

    /// Takes over a pod that the API has gone back to, and reports its status anew.
    pub(super) fn handle_restored(&mut self, pod: Pod) {
        tracing::info!(uid = self.uid, pod = self.info.name, "the pod was restored to an earlier state");
        self.request.reopen();
        self.observation.mark(Outdated::All);
        self.update_pod(pod.into());
    }
}
