//! Unscheduled pods in a whole cluster with a virtual node: the scheduler binds them, and resizes free and take
//! capacity.

use std::path::Path;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::cluster::Cluster;

/// A cluster with one node of two cores.
pub(crate) fn start(data: &Path, dialect: &str, more: &[&str]) -> Cluster {
    let parts = ["--components", "apiserver,controllers,scheduler,node", "--runtime", "virtual"];
    let capacity = ["--node-cpu", "2", "--node-memory", "2Gi"];
    let rules = ["--resize-dialect", dialect];
    // Whether the account of the namespace is there yet is not what is looked at here.
    let plugins = ["--disable-admission-plugins", "ServiceAccount"];
    Cluster::start_with(data, &[&parts[..], &capacity[..], &rules[..], &plugins[..], more].concat())
}

pub(crate) fn pod(name: &str, cpu: &str, more: Value) -> Pod {
    let amounts = json!({ "cpu": cpu, "memory": "64Mi" });
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [
            { "name": "main", "image": "plumb/load", "resources": { "requests": amounts, "limits": amounts } },
        ] },
    });
    for (key, value) in more.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

/// Waits until a pod is as it should be; none if it is gone.
pub(crate) async fn until(pods: &Api<Pod>, name: &str, holds: impl Fn(Option<&Pod>) -> bool) {
    let one = WatchParams::default().fields(&format!("metadata.name={name}"));
    let watching = async {
        loop {
            let mut events = pods.watch(&one, "0").await.unwrap().boxed();
            // Of what was gone before the watch began it does not tell.
            if holds(pods.get_opt(name).await.unwrap().as_ref()) {
                return;
            }
            while let Some(Ok(event)) = events.next().await {
                let done = match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => holds(Some(&pod)),
                    WatchEvent::Deleted(_) => holds(None),
                    _ => false,
                };
                if done {
                    return;
                }
            }
        }
    };
    if tokio::time::timeout(plumb_testkit::TIMEOUT, watching).await.is_err() {
        let status = pods.get_opt(name).await.unwrap().map(|pod| pod.status);
        panic!("{name} does not become what it should: {status:#?}");
    }
}

pub(crate) fn is_running(pod: Option<&Pod>) -> bool {
    let status = pod.and_then(|pod| pod.status.as_ref());
    status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

/// Whether a condition says something.
pub(crate) fn says(type_: &'static str, words: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| {
            let said = [one.reason.as_deref(), one.message.as_deref()];
            one.type_ == type_ && said.into_iter().flatten().any(|said| said.contains(words))
        })
    }
}

/// Whether this much cpu is actual.
pub(crate) fn has(cpu: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let requests = statuses.and_then(|all| all.first()?.resources.as_ref()?.requests.as_ref());
        requests.and_then(|requests| requests.get("cpu")).is_some_and(|amount| amount.0 == cpu)
    }
}

pub(crate) async fn resize(pods: &Api<Pod>, name: &str, cpu: &str) {
    let amounts = json!({ "cpu": cpu });
    let patch = json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": amounts, "limits": amounts } },
    ] } });
    pods.patch_resize(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrink_makes_a_pending_pod_schedulable_and_a_deferred_resize_counts_for_the_next() {
    for dialect in ["kep", "v1.36"] {
        let folder = tempfile::tempdir().unwrap();
        let cluster = start(&folder.path().join("data"), dialect, &[]);
        let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
        pods.create(&PostParams::default(), &pod("a", "1500m", json!({}))).await.unwrap();
        until(&pods, "a", is_running).await;
        pods.create(&PostParams::default(), &pod("b", "1", json!({}))).await.unwrap();
        until(&pods, "b", says("PodScheduled", "0/1 nodes are available: 1 Insufficient cpu.")).await;
        resize(&pods, "a", "500m").await;
        until(&pods, "b", is_running).await;
        // Half a core is free, but another pod waits for it.
        resize(&pods, "a", "1500m").await;
        until(&pods, "a", says("PodResizePending", "Deferred")).await;
        pods.create(&PostParams::default(), &pod("c", "250m", json!({}))).await.unwrap();
        until(&pods, "c", says("PodScheduled", "1 Insufficient cpu.")).await;
        assert!(cluster.stop().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_gate_others_leave_for_a_deferred_growth() {
    let folder = tempfile::tempdir().unwrap();
    let gate = ["--feature-gates", "InPlacePodVerticalScalingSchedulerPreemption=true"];
    let cluster = start(&folder.path().join("data"), "kep", &gate);
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    let critical = json!({ "priorityClassName": "system-cluster-critical" });
    pods.create(&PostParams::default(), &pod("a", "500m", critical)).await.unwrap();
    pods.create(&PostParams::default(), &pod("b", "1", json!({}))).await.unwrap();
    until(&pods, "a", is_running).await;
    until(&pods, "b", is_running).await;
    resize(&pods, "a", "1500m").await;
    until(&pods, "b", |pod| pod.is_none()).await;
    until(&pods, "a", has("1500m")).await;
    assert!(cluster.stop().success());
}
