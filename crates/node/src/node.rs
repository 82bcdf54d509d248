//! State that all pods of a node share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use parking_lot::Mutex;
use plumb_resize::list::BadQuantity;
use plumb_resize::rules::Rules;
use plumb_runtime::Runtime;
use plumb_runtime::types::LinuxResources;
use plumb_supervise::Supervisor;
use tokio::sync::{Notify, mpsc};

use crate::Clock;
use crate::allocation_manager::AllocationManager;
use crate::allocator::PodInfo;
use crate::cri_config::{SandboxDefaults, identity};
use crate::env::EnvFacts;
use crate::events::Recorder;
use crate::eviction::EvictionManager;
use crate::image_gc::{ImageGcConfig, ImageUse};
use crate::image_pulls::ImagePulls;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::server::Pods;
use crate::services::Services;
use crate::static_pods::StaticPods;
use crate::status_patch::StatusLimiter;
use crate::sysctls::Allowlist;
use crate::usage::MachineCpu;
use crate::volumes::Volumes;
use crate::worker::Message;

/// State that all pods of a node share.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The runtime's name, the prefix of container ids.
    pub(crate) runtime_name: String,
    pub(crate) rules: Rules,
    pub(crate) clock: Clock,
    pub(crate) allocations: Arc<AllocationManager>,
    /// Whether all processes of a container that runs out of memory are killed.
    pub(crate) oom_group: bool,
    /// The longest that a container waits for its restart.
    pub(crate) max_restart_period: Duration,
    /// The resources of the cgroup of all pods.
    pub(crate) pods_cgroup: LinuxResources,
    pub(crate) events: Recorder,
    pub(crate) sandbox_defaults: SandboxDefaults,
    pub(crate) objects: Objects,
    /// None if pods are virtual: no program reads their variables.
    pub(crate) services: Option<Services>,
    /// None if pods are virtual.
    pub(crate) volumes: Option<Volumes>,
    /// The part of the node that the downward API exposes.
    pub(crate) facts: EnvFacts,
    /// Whether pod addresses are reachable.
    pub(crate) reachable: bool,
    /// Which sysctls pods may set.
    pub(crate) sysctls: Allowlist,
    /// The machine's memory, which OOM scores are relative to.
    pub(crate) memory: i64,
    /// The CPUs of the machine; none if the node is not the whole machine.
    pub(crate) machine_cpu: Option<MachineCpu>,
    pub(crate) workers: Workers,
    pub(crate) static_pods: Option<StaticPods>,
    /// None if the node evicts no pods under pressure, such as a virtual one.
    pub(crate) eviction: Option<EvictionManager>,
    /// When images are removed; none if never but under pressure.
    pub(crate) image_gc: Option<ImageGcConfig>,
    /// When images were used last.
    pub(crate) image_use: tokio::sync::Mutex<ImageUse>,
    /// Who may use which image.
    pub(crate) image_pulls: ImagePulls,
    /// Whether the node shuts down, and admits no pod any more.
    pub(crate) shutting_down: AtomicBool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) status_limiter: StatusLimiter,
    pub(crate) supervisor: Supervisor,
}

impl Pods for Node {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.workers.handles.lock().values().map(|handle| handle.pod.clone()).collect()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.workers.find(namespace, name)
    }
}

impl Node {
    /// Admits no pod from now on.
    pub(crate) fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::Release);
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// The info of a pod of this node. A static pod is critical whatever its priority, as for the kubelet.
    pub(crate) fn pod_info(&self, pod: &Pod) -> Result<PodInfo, BadQuantity> {
        let info = PodInfo::of(pod)?;
        let is_static = self.static_pods.as_ref().is_some_and(|static_pods| static_pods.has_manifest_of(pod));
        Ok(PodInfo { critical: info.critical || is_static, ..info })
    }

    /// Where the logs of a pod are.
    pub(crate) fn logs(&self, pod: &Pod) -> PathBuf {
        crate::cri_config::log_folder(&self.sandbox_defaults.log_root, pod)
    }
}

/// The pod workers of a node, by the uid of their pod.
#[derive(Default)]
pub(crate) struct Workers {
    handles: Mutex<HashMap<String, WorkerHandle>>,
    /// Notified when the deletion of a pod is requested, and when a worker is removed.
    deletions: Notify,
}

struct WorkerHandle {
    sender: mpsc::UnboundedSender<Message>,
    pod: Arc<Pod>,
    /// Whether the worker was notified that the pod was deleted from the API.
    deleted: bool,
    /// Whether it was notified that the deletion of the pod was requested.
    deletion_requested: bool,
}

impl Workers {
    /// Adds the worker of a pod.
    pub(crate) fn insert(&self, uid: &str, pod: Arc<Pod>, sender: mpsc::UnboundedSender<Message>) {
        self.handles
            .lock()
            .insert(uid.to_owned(), WorkerHandle { sender, pod, deleted: false, deletion_requested: false });
    }

    /// The pod of this name. While a deleted pod terminates, another one of its name may exist in the API: that is the one.
    fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let workers = self.handles.lock();
        let same_name = workers.values().filter(|handle| {
            let (of_namespace, of_name, _) = identity(&handle.pod);
            (of_namespace, of_name) == (namespace, name)
        });
        let found = same_name.max_by_key(|handle| {
            let created = handle.pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (!handle.deleted, created, handle.pod.metadata.uid.as_ref())
        });
        found.map(|handle| handle.pod.clone())
    }

    /// Sends a message to the worker of a pod; false if there is none.
    pub(crate) fn send(&self, uid: &str, message: Message) -> bool {
        self.handles.lock().get_mut(uid).is_some_and(|handle| {
            handle.deleted |= matches!(message, Message::Deleted);
            if message.requests_deletion() {
                handle.deletion_requested = true;
                self.deletions.notify_waiters();
            }
            handle.sender.send(message).is_ok()
        })
    }

    /// Waits until the deletion of a pod is requested. Also for a pod that waits for admission, and whose worker does not read its
    /// messages yet.
    pub(crate) async fn deletion(&self, uid: &str) {
        loop {
            let notified = self.deletions.notified();
            tokio::pin!(notified);
            // Before the state is read, so that no change in between is missed.
            notified.as_mut().enable();
            if self.handles.lock().get(uid).is_none_or(|handle| handle.deletion_requested) {
                return;
            }
            notified.await;
        }
    }

    /// The last state of a pod, and whether it was deleted from the API; for a worker that replaces another.
    pub(crate) fn latest(&self, uid: &str) -> Option<(Arc<Pod>, bool)> {
        self.handles.lock().get(uid).map(|handle| (handle.pod.clone(), handle.deleted))
    }

    /// Sends a message to all workers.
    pub(crate) fn send_all(&self, message: impl Fn() -> Message) {
        for handle in self.handles.lock().values() {
            // The worker may have ended.
            let _ = handle.sender.send(message());
        }
    }

    /// The pods that have workers and were not deleted from the API.
    pub(crate) fn existing(&self) -> Vec<Arc<Pod>> {
        let workers = self.handles.lock();
        workers.values().filter(|handle| !handle.deleted).map(|handle| handle.pod.clone()).collect()
    }

    /// Updates the last state of a pod.
    pub(crate) fn update_pod(&self, uid: &str, pod: Arc<Pod>) {
        if let Some(handle) = self.handles.lock().get_mut(uid) {
            handle.pod = pod;
        }
    }

    /// Removes the worker of a pod.
    pub(crate) fn remove(&self, uid: &str) {
        self.handles.lock().remove(uid);
        self.deletions.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_pods_with_one_name_the_one_that_exists_in_the_api_is_found() {
        let workers = Workers::default();
        let pod = |uid: &str, created: &str| -> Arc<Pod> {
            let metadata = json!({ "namespace": "n", "name": "a", "uid": uid, "creationTimestamp": created });
            Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
        };
        let (sender, _inbox) = mpsc::unbounded_channel();
        // The clock of the API server was set back in between.
        let (deleted, exists) = (pod("1", "2026-01-02T00:00:00Z"), pod("2", "2026-01-01T00:00:00Z"));
        workers.insert("1", deleted.clone(), sender.clone());
        workers.insert("2", exists.clone(), sender);
        assert_eq!(workers.find("n", "a"), Some(deleted));
        workers.send("1", Message::Deleted);
        assert_eq!(workers.find("n", "a"), Some(exists));
        assert_eq!(workers.find("n", "b"), None);
    }
}
