//! Adopting the pods of the agent before this one.
//!
//! Pods with an allocation are admitted first, with that allocation, so that no new pod gets their capacity; then those
//! whose allocation was lost and has to be rebuilt. As in the kubelet, a pod that fails an admission predicate by now is
//! ended: its node's labels or taints may have changed. Sandboxes, volumes and logs of pods that do not exist any more are
//! removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::{Backoff, ObjectRef};
use plumb_runtime::types::{Sandbox, SandboxFilter};

use super::{Agent, Start, read_node};
use crate::journal::Entry;
use crate::lifecycle::containers;
use crate::pod_files;
use crate::predicates;
use crate::worker::{Message, error_chain, is_finished};

impl Agent {
    /// Handles a list of all pods; known pods that are not in it were deleted.
    pub(super) async fn handle_list(&mut self, pods: Vec<Pod>) {
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
        let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        let listed: BTreeMap<_, _> =
            pods.iter().map(|pod| (ObjectRef::of(&**pod), pod.metadata.uid.clone())).collect();
        for (at, uid) in &self.uids {
            if !uids.contains(uid.as_str()) || !listed.contains_key(at) {
                self.node.workers.send(uid, Message::Deleted);
            }
        }
        self.uids.retain(|at, _| listed.contains_key(at));
        if self.listed {
            for pod in pods {
                self.handle_pod_as(pod, Message::Listed);
            }
            return;
        }
        let mut sandboxes = self.sandboxes().await;
        // Before any pod is started, so that none of its files is among them.
        let mut files = pod_files::on_disk(&self.node).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list the files of pods; those of pods that do not exist any more stay");
            BTreeMap::new()
        });
        let (known, mut new): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            !is_finished(pod) && (self.entries.contains_key(uid) || sandboxes.contains_key(uid))
        });
        let (journalled, lost): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|pod| self.journalled(pod).is_some());
        let mut back = Vec::new();
        for pod in journalled.into_iter().chain(lost) {
            match self.readmit(&pod).await {
                Some((uid, entry)) => back.push((uid, pod, entry)),
                None => new.push(pod),
            }
        }
        let uids: BTreeSet<String> = back.iter().map(|(uid, ..)| uid.clone()).collect();
        let over: BTreeSet<String> =
            new.iter().filter_map(|pod| pod.metadata.uid.clone()).filter(|uid| !uids.contains(uid)).collect();
        let node = if back.is_empty() { None } else { read_node(&self.node).await };
        for uid in std::mem::take(&mut self.entries).into_keys().filter(|uid| !uids.contains(uid)) {
            self.node.allocations.release(&uid, crate::allocation_manager::Trigger::PodsRemoved).await;
        }
        let allocations = self.node.allocations.clone();
        let new: Vec<_> = new.into_iter().map(|pod| (pod, allocations.expect_admission())).collect();
        // Only after all of them have their allocation back, and no resize is decided before new pods are admitted.
        for (uid, pod, entry) in back {
            self.uids.insert(ObjectRef::of(&*pod), uid.clone());
            let failed = node.as_ref().and_then(|node| predicates::check(&pod, node));
            self.start_worker(uid, pod, Start { entry: Some(Box::new(entry)), failed, admission: None });
        }
        for (pod, admission) in new {
            let start = Start { admission: Some(admission), ..Start::default() };
            self.handle_pod_with(pod, Message::Pod, start);
        }
        for uid in sandboxes.keys() {
            files.entry(uid.clone()).or_default();
        }
        for (uid, logs) in files {
            if !uids.contains(&uid) && !over.contains(&uid) {
                let left = sandboxes.remove(&uid).unwrap_or_default();
                self.cleanup_orphan(uid, left, logs);
            }
        }
        self.node.allocations.all_pods_known();
        self.listed = true;
    }

    /// The sandboxes of the runtime by the uids of their pods. Retried until the runtime responds: the agent has to
    /// know which pods run.
    async fn sandboxes(&self) -> BTreeMap<String, Vec<Sandbox>> {
        let mut backoff = Backoff::default();
        loop {
            match self.node.runtime.list_sandboxes(&SandboxFilter::default()).await {
                Ok(list) => {
                    let mut of: BTreeMap<String, Vec<Sandbox>> = BTreeMap::new();
                    for sandbox in list {
                        of.entry(sandbox.meta.uid.clone()).or_default().push(sandbox);
                    }
                    return of;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot list sandboxes, will retry");
                    backoff.wait().await;
                }
            }
        }
    }

    /// The entry of a pod in the journal, unless it is of another pod.
    fn journalled(&self, pod: &Pod) -> Option<&Entry> {
        let containers = pod.spec.as_ref().map_or(0, |spec| containers(spec).count());
        let entry = self.entries.get(pod.metadata.uid.as_deref()?)?;
        (entry.allocation.allocated.containers.len() == containers).then_some(entry)
    }

    /// Admits a pod again. None if its spec is invalid, or if its allocation was lost and it has to be admitted like a new
    /// pod.
    async fn readmit(&self, pod: &Pod) -> Option<(String, Entry)> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        // A new worker reports an invalid spec.
        let info = self.node.pod_info(pod).ok()?;
        let kept = self.journalled(pod);
        let entry = match kept {
            Some(entry) => entry.clone(),
            None => self.rebuild(pod, &uid, &info).await?,
        };
        let entry = self.node.allocations.readmit(&uid, info, entry);
        if kept != Some(&entry)
            && let Err(error) = self.node.allocations.write(&uid).await
        {
            tracing::error!(
                uid,
                error = error_chain(&error),
                "cannot write a rebuilt allocation to the journal"
            );
        }
        Some((uid, entry))
    }

    /// Removes the sandboxes and the files of a pod that does not exist any more.
    fn cleanup_orphan(&mut self, uid: String, sandboxes: Vec<Sandbox>, logs: Vec<PathBuf>) {
        let node = self.node.clone();
        self.workers.spawn(async move {
            for sandbox in sandboxes {
                tracing::info!(uid, sandbox = %sandbox.id, "removing the sandbox of a pod that does not exist any more");
                let mut backoff = Backoff::default();
                while let Err(error) = node.runtime.remove_sandbox(&sandbox.id).await {
                    tracing::warn!(uid, %error, "cannot remove the sandbox, will retry");
                    backoff.wait().await;
                }
            }
            tracing::info!(uid, "removing the files of a pod that does not exist any more");
            let mut backoff = Backoff::default();
            while let Err(error) = pod_files::remove(&node, &uid, logs.clone()).await {
                let error = error_chain(&error);
                tracing::warn!(uid, error, "cannot remove the files of a pod, will retry");
                backoff.wait().await;
            }
        });
    }
}
