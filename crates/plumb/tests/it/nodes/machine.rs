//! A cluster with real containers, and what the kernel says of them.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use plumb_conformance::{Figure, Group};
use plumb_resize::cgroup::WeightScale;
use plumb_testkit::TIMEOUT;
use serde_json::{Value, json};

use crate::it::cluster::Cluster;
use crate::it::conformance::{clear, no_containers};

/// A data directory whose containers are on this machine.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// One, if containers can be run here; else it is said why not.
    pub(crate) fn here() -> Option<Self> {
        if let Some(why) = no_containers() {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("no real containers: {why}"));
            return None;
        }
        Some(Self { folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts a cluster on it.
    pub(crate) fn start(&self, flags: &[&str]) -> Cluster {
        let usual = ["--components", "apiserver,controllers,node", "--runtime", "builtin"];
        let capacity = ["--node-cpu", "64", "--node-memory", "64Gi", "--max-pods", "1000"];
        Cluster::start_with(&self.data(), &[&usual[..], &capacity[..], flags].concat())
    }

    /// Removes what is left on the machine.
    pub(crate) fn clear(self) {
        clear(&self.data());
    }
}

/// The pods of a cluster.
pub(crate) async fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client().await, "default")
}

/// A pod of `plumb/load` containers.
pub(crate) fn pod(name: &str, containers: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": "plumb",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": containers,
        },
    }))
    .unwrap()
}

pub(crate) fn load(name: &str, args: &[&str], resources: Value) -> Value {
    json!({ "name": name, "image": "plumb/load", "args": args, "resources": resources })
}

/// Requests equal to limits.
pub(crate) fn equal(cpu: &str, memory: &str) -> Value {
    let list = json!({ "cpu": cpu, "memory": memory });
    json!({ "requests": list, "limits": list })
}

pub(crate) async fn create(pods: &Api<Pod>, pod: &Pod) -> Pod {
    pods.create(&PostParams::default(), pod).await.unwrap()
}

pub(crate) async fn resize(pods: &Api<Pod>, name: &str, containers: Value) {
    ask_for_resize(pods, name, containers).await.unwrap();
}

/// The same, of a server that may be gone before it answers.
pub(crate) async fn ask_for_resize(pods: &Api<Pod>, name: &str, containers: Value) -> kube::Result<Pod> {
    let patch = Patch::Strategic(json!({ "spec": { "containers": containers } }));
    pods.patch_resize(name, &PatchParams::default(), &patch).await
}

/// Waits until a pod is as it must become.
pub(crate) async fn until(pods: &Api<Pod>, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
    let fields = format!("metadata.name={name}");
    let mut last = None;
    let wait = async {
        let list = pods.list(&ListParams::default().fields(&fields)).await.unwrap();
        let version = list.metadata.resource_version.clone().unwrap();
        last = list.items.into_iter().next();
        let mut events = pods.watch(&WatchParams::default().fields(&fields), &version).await.unwrap().boxed();
        loop {
            if let Some(pod) = last.as_ref().filter(|pod| holds(pod)) {
                return pod.clone();
            }
            if let Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = events.next().await.unwrap() {
                last = Some(pod);
            }
        }
    };
    let found = tokio::time::timeout(TIMEOUT, wait).await.ok();
    found.unwrap_or_else(|| panic!("{name} is not {what}: {:#?}", last.and_then(|pod| pod.status)))
}

/// Whether every container runs with what the spec asks for, and no resize is under way.
pub(crate) fn is_settled(pod: &Pod) -> bool {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return false };
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    let same = spec.containers.iter().all(|container| {
        let found = statuses.iter().find(|status| status.name == container.name);
        found.is_some_and(|found| found.ready && found.resources == container.resources)
    });
    same && status.observed_generation == pod.metadata.generation
        && condition(pod, "PodResizePending").is_none()
        && condition(pod, "PodResizeInProgress").is_none()
}

/// The message of a condition, if it holds.
pub(crate) fn condition(pod: &Pod, type_: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")?;
    Some(found.message.clone().unwrap_or_default())
}

/// The groups of a pod: its own, below which its containers' are.
pub(crate) struct Groups(Group);

impl Groups {
    pub(crate) fn of(pod: &Pod) -> Self {
        let name = format!("pod{}", pod.metadata.uid.as_deref().unwrap());
        Self(Group::find(&name).unwrap_or_else(|| panic!("{name} has no group")))
    }

    /// The ids of the containers that have groups.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.0.children()
    }

    /// A figure of the pod (of no container), or of a container.
    pub(crate) fn number(&self, container: &str, figure: Figure) -> Option<i64> {
        self.0.child(container).number(figure).ok()
    }

    /// The CPUs that a container may use.
    pub(crate) fn cpus(&self, container: &str) -> String {
        self.0.child(container).cpus().unwrap()
    }

    /// Whether the group of a class, which is beside the one that the pod is in, or around it, weighs this request.
    pub(crate) fn class_weighs(&self, class: &str, milli: i64) -> bool {
        let class = self.0.beside(class);
        class.is_some_and(|class| class.has_request(milli, WeightScale::Linear).is_ok())
    }

    /// The first process of a container.
    pub(crate) fn pid(&self, container: &str) -> Option<i64> {
        self.0.child(container).first_process().map(i64::from)
    }
}

/// The id of a pod's container, as its group is called.
pub(crate) fn id(pod: &Pod, name: &str) -> String {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    let status = statuses.iter().find(|status| status.name == name).unwrap();
    status.container_id.as_deref().unwrap().split_once("://").unwrap().1.to_owned()
}

/// Waits until something holds that there is no event for.
pub(crate) async fn soon(what: &str, holds: impl FnMut() -> bool) {
    assert!(is_soon(holds).await, "not {what}");
}

/// Whether it comes to hold in time.
pub(crate) async fn is_soon(mut holds: impl FnMut() -> bool) -> bool {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.is_ok()
}
