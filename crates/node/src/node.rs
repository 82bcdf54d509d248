//! What all pods of a node share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use parking_lot::Mutex;
use plumb_resize::rules::Rules;
use plumb_runtime::Runtime;
use plumb_supervise::Supervisor;
use tokio::sync::mpsc;

use crate::Clock;
use crate::allocation_manager::AllocationManager;
use crate::env::EnvFacts;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::publish::Reports;
use crate::server::Pods;
use crate::specify::{Place, identity};
use crate::sysctls::Allowlist;
use crate::volumes::Volumes;
use crate::worker::Message;

/// What all pods of a node share.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The runtime's name, which ids of containers begin with.
    pub(crate) runtime_name: String,
    pub(crate) rules: Rules,
    pub(crate) clock: Clock,
    pub(crate) allocations: AllocationManager,
    pub(crate) events: Recorder,
    pub(crate) place: Place,
    pub(crate) objects: Objects,
    /// None where nothing looks at them.
    pub(crate) volumes: Option<Volumes>,
    /// What containers may know of their node.
    pub(crate) facts: EnvFacts,
    /// Whether the addresses of pods lead anywhere.
    pub(crate) reachable: bool,
    /// Which sysctls pods may set.
    pub(crate) sysctls: Allowlist,
    /// What memory the machine has, which scores of the out-of-memory killer are relative to.
    pub(crate) memory: i64,
    pub(crate) workers: Workers,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reports: Reports,
    pub(crate) supervisor: Supervisor,
}

impl Pods for Node {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.workers.0.lock().values().map(|employed| employed.pod.clone()).collect()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let workers = self.workers.0.lock();
        let mut pods = workers.values().map(|employed| &employed.pod);
        let found = pods.find(|pod| {
            let (of_namespace, of_name, _) = identity(pod);
            (of_namespace, of_name) == (namespace, name)
        });
        found.cloned()
    }
}

impl Node {
    /// Where the logs of a pod are.
    pub(crate) fn logs(&self, pod: &Pod) -> PathBuf {
        crate::specify::log_folder(&self.place.log_root, pod)
    }
}

/// The pods of a node that somebody works for, by uid.
#[derive(Default)]
pub(crate) struct Workers(Mutex<HashMap<String, Employed>>);

struct Employed {
    tell: mpsc::UnboundedSender<Message>,
    pod: Arc<Pod>,
    /// Whether its worker knows that the pod was deleted from the API.
    deleted: bool,
}

impl Workers {
    /// Notes who works for a pod.
    pub(crate) fn employ(&self, uid: &str, pod: Arc<Pod>, tell: mpsc::UnboundedSender<Message>) {
        self.0.lock().insert(uid.to_owned(), Employed { tell, pod, deleted: false });
    }

    /// Tells whoever works for a pod; whether there is anybody.
    pub(crate) fn tell(&self, uid: &str, message: Message) -> bool {
        self.0.lock().get_mut(uid).is_some_and(|employed| {
            employed.deleted |= matches!(message, Message::Deleted);
            employed.tell.send(message).is_ok()
        })
    }

    /// A pod as it is known, and whether the API has it no more; for a worker that takes the place of another.
    pub(crate) fn latest(&self, uid: &str) -> Option<(Arc<Pod>, bool)> {
        self.0.lock().get(uid).map(|employed| (employed.pod.clone(), employed.deleted))
    }

    /// Tells everybody.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for employed in self.0.lock().values() {
            // One that has ended need not know.
            let _ = employed.tell.send(message());
        }
    }

    /// Notes how a pod is now.
    pub(crate) fn show(&self, uid: &str, pod: Arc<Pod>) {
        if let Some(employed) = self.0.lock().get_mut(uid) {
            employed.pod = pod;
        }
    }

    /// Notes that nobody works for a pod any more.
    pub(crate) fn dismiss(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}
