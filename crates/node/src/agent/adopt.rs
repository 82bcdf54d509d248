//! Adopting the pods of the agent before this one.
//!
//! Pods with an allocation are admitted first, with that allocation, so that no new pod gets their capacity. An
//! allocation that was lost is rebuilt from the actual resources in the runtime, with an event. Sandboxes, volumes and
//! logs of pods that do not exist any more are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_controller::{Backoff, ObjectRef};
use plumb_resize::plan::inherited;
use plumb_resize::pod::PodResources;
use plumb_resize::resource::Requirements;
use plumb_runtime::types::{Sandbox, SandboxFilter};

use super::Agent;
use crate::allocator::PodInfo;
use crate::events::Kind;
use crate::journal::Entry;
use crate::lifecycle::ObservedPod;
use crate::observe::{Written, observe};
use crate::pod_files;
use crate::worker::{Message, error_chain, is_finished};

/// A pod's resources by its status, for what is in no cgroup (memory requests, containers that do not run): the spec may
/// request more than was ever allocated. What is missing in the status is taken from the spec.
fn last_reported(pod: &Pod, desired: &PodResources) -> PodResources {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return desired.clone() };
    let requests = PodResources::allocated_requests(spec, status).unwrap_or_default();
    let actual = PodResources::actual(spec, status).unwrap_or_default();
    let containers = desired.containers.iter().enumerate().map(|(position, desired)| Requirements {
        requests: requests.get(position).copied().flatten().unwrap_or(desired.requests),
        limits: actual.get(position).copied().flatten().map_or(desired.limits, |actual| actual.limits),
    });
    let (requests, actual) = PodResources::pod_level(status).unwrap_or_default();
    let level = desired.pod.map(|desired| Requirements {
        requests: requests.unwrap_or(desired.requests),
        limits: actual.map_or(desired.limits, |actual| actual.limits),
    });
    PodResources { containers: containers.collect(), pod: level }
}

impl Agent {
    /// Handles a list of all pods; known pods that are not in it were deleted.
    pub(super) async fn handle_list(&mut self, pods: Vec<Pod>) {
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
        let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        let places: BTreeMap<_, _> =
            pods.iter().map(|pod| (ObjectRef::of(&**pod), pod.metadata.uid.clone())).collect();
        for (at, uid) in &self.places {
            if !uids.contains(uid.as_str()) || !places.contains_key(at) {
                self.node.workers.send(uid, Message::Deleted);
            }
        }
        self.places.retain(|at, _| places.contains_key(at));
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
        let (known, new): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            !is_finished(pod) && (self.entries.contains_key(uid) || sandboxes.contains_key(uid))
        });
        let mut back = Vec::new();
        for pod in known {
            back.extend(self.readmit(pod).await);
        }
        let uids: BTreeSet<String> = back.iter().map(|(uid, ..)| uid.clone()).collect();
        let over: BTreeSet<String> =
            new.iter().filter_map(|pod| pod.metadata.uid.clone()).filter(|uid| !uids.contains(uid)).collect();
        // Only after all of them have their allocation back.
        for (uid, pod, entry) in back {
            self.places.insert(ObjectRef::of(&*pod), uid.clone());
            self.start_worker(uid, pod, Some(entry));
        }
        for pod in new {
            self.handle_pod(pod);
        }
        for uid in sandboxes.keys() {
            files.entry(uid.clone()).or_default();
        }
        for (uid, logs) in files {
            if !uids.contains(&uid) && !over.contains(&uid) {
                let left = sandboxes.remove(&uid).unwrap_or_default();
                self.end_orphan(uid, left, logs);
            }
        }
        for uid in std::mem::take(&mut self.entries).into_keys().filter(|uid| !uids.contains(uid)) {
            self.node.allocations.release(&uid, crate::allocation_manager::Trigger::PodsRemoved).await;
        }
        self.node.allocations.all_pods_known();
        self.listed = true;
    }

    /// The sandboxes of the runtime by the uids of their pods. Retried until the runtime responds: it is needed to know
    /// what runs.
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

    /// Admits a pod again.
    async fn readmit(&mut self, pod: Arc<Pod>) -> Option<(String, Arc<Pod>, Entry)> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let info = match PodInfo::of(&pod) {
            Ok(info) => info,
            Err(error) => {
                tracing::error!(uid, %error, "invalid resources in a pod's spec");
                return None;
            }
        };
        let parts = info.shape.containers.len();
        let kept =
            self.entries.get(&uid).filter(|entry| entry.allocation.allocated.containers.len() == parts);
        let entry = match kept {
            Some(entry) => entry.clone(),
            None => self.rebuild(&pod, &uid, &info).await,
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
        Some((uid, pod, entry))
    }

    /// Rebuilds an allocation from the actual resources, with an event.
    async fn rebuild(&self, pod: &Pod, uid: &str, info: &PodInfo) -> Entry {
        let reported = last_reported(pod, &info.desired);
        let effective: Vec<_> = inherited(&reported).collect();
        let cgroup = info.shape.cgroup(&reported);
        let (written, before) = (Written::default(), ObservedPod::default());
        let observation =
            observe(&*self.node.runtime, uid, &info.shape, &before, &written, &effective, cgroup).await;
        let allocated = match observation {
            Ok(observation) => {
                let cgroups = observation.cgroups(cgroup);
                cgroups.resources(&info.shape, &reported)
            }
            Err(error) => {
                tracing::error!(uid, %error, "cannot read the actual resources; using those of the pod's status");
                reported
            }
        };
        let why = match self.damage.as_slice() {
            [] => "it was not in the journal".to_owned(),
            damage => damage.join("; "),
        };
        let message = format!(
            "The node's record of this pod's allocation was lost ({why}); it was rebuilt from the actual resources"
        );
        tracing::warn!(uid, why, "rebuilt an allocation from the actual resources");
        self.node.events.pod(pod, Kind::Warning, "AllocationRebuilt", message);
        Entry::new(info, allocated)
    }

    /// Removes the sandboxes and the files of a pod that does not exist any more.
    fn end_orphan(&mut self, uid: String, sandboxes: Vec<Sandbox>, logs: Vec<PathBuf>) {
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
                tracing::warn!(uid, error, "cannot remove the files of a pod, will retry");
                backoff.wait().await;
            }
        });
    }
}
