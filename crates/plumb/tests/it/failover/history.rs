//! What the spec of every pod has requested, one after the other.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};
use plumb_controller_runtime::{Reflector, WatchConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The cpu that a pod requests.
pub(super) fn requested(pod: &Pod) -> String {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| requests.get("cpu")).map(|cpu| cpu.0.clone()).unwrap_or_default()
}

/// A pod: its workload, and its cpu from the first to the last.
#[derive(Clone, Default)]
struct PodHistory {
    app: String,
    cpu: Vec<String>,
}

/// The history of every pod of the namespace `default`, by uid. It is followed until this is dropped.
pub(super) struct History {
    pods: watch::Receiver<BTreeMap<String, PodHistory>>,
    _following: JoinSet<()>,
}

impl History {
    pub(super) fn follow(client: &Client) -> Self {
        let (sender, pods) = watch::channel(BTreeMap::new());
        let api = Api::<Pod>::default_namespaced(client.clone());
        let mut following = JoinSet::new();
        following.spawn(async move {
            let reflector = Reflector::new(api, WatchConfig::default());
            let mut events = std::pin::pin!(reflector.into_stream());
            while let Some(event) = events.next().await {
                for pod in event.into_objects() {
                    sender.send_modify(|pods| note(pods, &pod));
                }
            }
        });
        Self { pods, _following: following }
    }

    /// Waits until so many pods of a workload have been resized to this cpu.
    pub(super) async fn until_resized(&self, app: &str, cpu: &str, count: usize) {
        let has = |pod: &&PodHistory| pod.app == app && pod.cpu.last().is_some_and(|last| last == cpu);
        let mut pods = self.pods.clone();
        pods.wait_for(|pods| pods.values().filter(has).count() >= count).await.unwrap();
    }

    /// The cpu of every pod, by uid.
    pub(super) fn of_all(&self) -> BTreeMap<String, Vec<String>> {
        self.pods.borrow().iter().map(|(uid, pod)| (uid.clone(), pod.cpu.clone())).collect()
    }
}

fn note(pods: &mut BTreeMap<String, PodHistory>, pod: &Pod) {
    let history = pods.entry(pod.uid().unwrap_or_default()).or_default();
    history.app = pod.labels().get("app").cloned().unwrap_or_default();
    let cpu = requested(pod);
    if history.cpu.last() != Some(&cpu) {
        history.cpu.push(cpu);
    }
}
