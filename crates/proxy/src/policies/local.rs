//! The pods of this node that have an address, as the runtime says: earlier than the API, whose status comes later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::selector::Labels;

/// How long a pod waits for its policies, before its first container is refused and tried again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A pod, one of several that had the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod that the runtime has given an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedPod {
    /// Which pod it is.
    pub key: PodKey,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its labels when it was given the address: the API may have others by now.
    pub labels: Labels,
}

/// The kernel does not have the policies of a pod, which must not begin.
#[derive(Debug, thiserror::Error)]
#[error("the network policies of the pod are not applied yet")]
pub struct NotCovered;

/// The pods of this node with addresses. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LocalPods(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pods: Mutex<Pods>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pods {
    running: BTreeMap<PodKey, StartedPod>,
    /// Those that have changed since they were last taken.
    changed: BTreeSet<PodKey>,
    /// Those that have begun: their containers wait no more.
    begun: BTreeSet<PodKey>,
    waiting: Vec<Waiting>,
}

/// A pod that waits for its policies.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) key: PodKey,
    done: oneshot::Sender<()>,
}

impl Waiting {
    /// Lets the pod begin.
    pub(crate) fn begin(self) {
        // It may wait no more.
        let _ = self.done.send(());
    }
}

/// What has changed: pods that run, or `None`, and pods that wait.
#[derive(Debug, Default)]
pub(crate) struct LocalChanges {
    pub(crate) pods: Vec<(PodKey, Option<StartedPod>)>,
    pub(crate) waiting: Vec<Waiting>,
}

impl LocalPods {
    /// Adds a pod that runs already, which a former agent has let begin.
    pub fn adopt(&self, pod: StartedPod) {
        self.0.pods.lock().begun.insert(pod.key.clone());
        self.start(pod);
    }

    /// Adds a pod.
    pub fn start(&self, pod: StartedPod) {
        let mut pods = self.0.pods.lock();
        pods.changed.insert(pod.key.clone());
        pods.running.insert(pod.key.clone(), pod);
        self.0.changed.notify_one();
    }

    /// Removes a pod, whose address another one may have next.
    pub fn stop(&self, key: &PodKey, address: Ipv4Addr) {
        let mut pods = self.0.pods.lock();
        // A pod whose sandbox is replaced has another address by then.
        if pods.running.get(key).is_some_and(|pod| pod.address == address) {
            pods.running.remove(key);
            pods.begun.remove(key);
            pods.changed.insert(key.clone());
            self.0.changed.notify_one();
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.pods.lock().running.is_empty()
    }

    /// Waits until the kernel has the policies of a pod. It returns at once if the pod has begun before.
    pub async fn wait_for_policies(&self, key: &PodKey) -> Result<(), NotCovered> {
        let (done, wait) = oneshot::channel();
        {
            let mut pods = self.0.pods.lock();
            if pods.begun.contains(key) {
                return Ok(());
            }
            pods.waiting.retain(|waiting| !waiting.done.is_closed());
            pods.waiting.push(Waiting { key: key.clone(), done });
            self.0.changed.notify_one();
        }
        match tokio::time::timeout(TIMEOUT, wait).await {
            Ok(Ok(())) => {
                self.0.pods.lock().begun.insert(key.clone());
                Ok(())
            }
            _ => Err(NotCovered),
        }
    }

    /// All of them count as changed: the state that knew them is lost.
    pub(crate) fn touch(&self) {
        let mut pods = self.0.pods.lock();
        let all: Vec<_> = pods.running.keys().cloned().collect();
        pods.changed.extend(all);
        self.0.changed.notify_one();
    }

    /// Waits until something has changed since the last [`take`](Self::take).
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(crate) fn take(&self) -> LocalChanges {
        let mut pods = self.0.pods.lock();
        let changed = std::mem::take(&mut pods.changed);
        LocalChanges {
            pods: changed.into_iter().map(|key| (key.clone(), pods.running.get(&key).cloned())).collect(),
            waiting: std::mem::take(&mut pods.waiting),
        }
    }
}
