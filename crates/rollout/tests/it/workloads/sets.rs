use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::engine::{Phase, RolloutStatus};
use serde_json::{Value, json};

use super::cluster::{Cluster, actual_cpu, cpu, status};
use super::deployments::policy;

fn spec(cpu: &str) -> Value {
    json!({
        "selector": { "matchLabels": { "app": "db" } },
        "template": {
            "metadata": { "labels": { "app": "db" } },
            "spec": { "containers": [{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }] },
        },
    })
}

pub(super) fn sized(cpu: &str) -> Value {
    json!({ "spec": { "template": spec(cpu)["template"] } })
}

fn metadata() -> Value {
    json!({ "name": "db", "annotations": { "rollout.plumb.dev/in-place": "true" } })
}

pub(super) fn new_stateful_set(replicas: i32) -> Value {
    let mut set = json!({ "metadata": metadata(), "spec": spec("100m") });
    set["spec"]["replicas"] = json!(replicas);
    set["spec"]["serviceName"] = json!("db");
    set
}

/// A DaemonSet with labels of its own.
pub(super) fn new_daemon_set(name: &str) -> Value {
    let mut set = json!({ "metadata": metadata(), "spec": spec("100m") });
    set["metadata"]["name"] = json!(name);
    set["spec"]["selector"]["matchLabels"]["app"] = json!(name);
    set["spec"]["template"]["metadata"]["labels"]["app"] = json!(name);
    set
}

pub(super) fn is_ready(replicas: i32) -> impl Fn(&StatefulSet) -> bool {
    move |set| {
        let status = set.status.clone().unwrap_or_default();
        status.ready_replicas == Some(replicas)
            && status.updated_replicas == Some(replicas)
            && status.observed_generation == set.metadata.generation
    }
}

pub(super) fn runs_on(nodes: i32) -> impl Fn(&DaemonSet) -> bool {
    move |set| {
        let status = set.status.clone().unwrap_or_default();
        status.number_ready == nodes
            && status.updated_number_scheduled == Some(nodes)
            && status.observed_generation == set.metadata.generation
    }
}

/// Whether a rollout is complete and the StatefulSet is released.
pub(super) fn is_complete(replicas: i32) -> impl Fn(&StatefulSet) -> bool {
    move |set| {
        let strategy = set.spec.as_ref().unwrap().update_strategy.as_ref().unwrap();
        let state = set.status.as_ref().unwrap();
        strategy.rolling_update.as_ref().and_then(|rolling| rolling.partition) == Some(0)
            && status(set).is_some_and(|status| status.phase == Phase::Complete)
            && state.current_revision == state.update_revision
            && is_ready(replicas)(set)
    }
}

/// A cluster with a StatefulSet.
pub(super) async fn stateful_set(replicas: i32) -> Cluster {
    let cluster = Cluster::start(3).await;
    cluster.create::<StatefulSet>(new_stateful_set(replicas)).await;
    cluster.until("db", is_ready(replicas)).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_stateful_set_are_resized_and_its_partition_is_restored() {
    let mut cluster = stateful_set(3).await;
    let before = cluster.pods().await;
    cluster.roll_out(true);
    for cpu in ["200m", "100m"] {
        cluster.edit::<StatefulSet>("db", sized(cpu)).await;
        let set = cluster.until("db", is_complete(3)).await;
        let revision = set.status.unwrap().update_revision.unwrap();
        let pods = cluster.pods().await;
        for (name, pod) in &pods {
            assert_eq!(pod.metadata.uid, before[name].metadata.uid, "{name} was recreated");
            assert_eq!(pod.metadata.labels.as_ref().unwrap()["controller-revision-hash"], revision);
            assert_eq!(actual_cpu(pod).as_deref(), Some(cpu));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_stateful_set_that_is_drained_during_a_hold_comes_back_with_the_new_size() {
    let mut cluster = stateful_set(2).await;
    let before = cluster.pods().await;
    let mut paused = policy(json!({ "paused": true }));
    paused["spec"]["targetRef"] = json!({ "kind": "StatefulSet", "name": "db" });
    cluster.create::<RolloutPolicy>(paused).await;
    cluster.roll_out(true);
    cluster.edit::<StatefulSet>("db", sized("200m")).await;
    let is_paused = |set: &StatefulSet| status(set).is_some_and(|status| status.phase == Phase::Paused);
    cluster.until("db", is_paused).await;
    cluster.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    let is_new = |pods: &BTreeMap<String, Pod>| {
        pods.get("db-0").is_some_and(|pod| pod.metadata.uid != before["db-0"].metadata.uid)
    };
    let pods = cluster.until_all(is_new).await;
    assert_eq!((cpu(&pods["db-0"]), cpu(&pods["db-1"])), ("200m".into(), "100m".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_daemon_set_are_resized_at_a_pace_and_its_strategy_is_restored() {
    let mut cluster = Cluster::start(4).await;
    cluster.create::<DaemonSet>(new_daemon_set("db")).await;
    cluster.until("db", runs_on(4)).await;
    let before = cluster.pods().await;
    cluster.roll_out(true);
    for cpu in ["200m", "100m"] {
        cluster.edit::<DaemonSet>("db", sized(cpu)).await;
        cluster
            .until("db", |set: &DaemonSet| {
                let strategy = set.spec.as_ref().unwrap().update_strategy.as_ref().unwrap();
                strategy.type_.as_deref() == Some("RollingUpdate")
                    && status(set).is_some_and(|status| status.phase == Phase::Complete)
                    && runs_on(4)(set)
            })
            .await;
        for (name, pod) in &cluster.pods().await {
            assert_eq!(pod.metadata.uid, before[name].metadata.uid, "{name} was recreated");
            assert_eq!(actual_cpu(pod).as_deref(), Some(cpu));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_is_released_though_a_pod_runs_on_a_node_that_should_run_none() {
    let mut cluster = Cluster::start(3).await;
    cluster.create::<DaemonSet>(new_daemon_set("db")).await;
    cluster.until("db", runs_on(3)).await;
    // The pod that is there stays, and does not count among those that are scheduled.
    let tainted = json!({ "spec": { "taints": [{ "key": "example.com/batch", "effect": "NoSchedule" }] } });
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(tainted)).await.unwrap();
    let is_astray =
        |set: &DaemonSet| set.status.as_ref().is_some_and(|status| status.number_misscheduled == 1);
    cluster.until("db", is_astray).await;
    cluster.roll_out(true);
    cluster.edit::<DaemonSet>("db", sized("200m")).await;
    let is_released = |set: &DaemonSet| {
        let strategy = set.spec.as_ref().unwrap().update_strategy.as_ref().unwrap();
        strategy.type_.as_deref() == Some("RollingUpdate")
            && status(set).is_some_and(|status| status.phase == Phase::Complete)
    };
    cluster.until("db", is_released).await;
    let pods = cluster.pods().await;
    assert!(pods.len() == 3 && pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m")));
}

/// A policy with a canary of one pod.
async fn create_canary(cluster: &Cluster, kind: &str) {
    let mut canary = policy(json!({ "canary": [{ "pods": 1 }] }));
    canary["spec"]["targetRef"] = json!({ "kind": kind, "name": "db" });
    cluster.create::<RolloutPolicy>(canary).await;
}

fn is_in(phase: Phase, status: Option<RolloutStatus>) -> bool {
    status.is_some_and(|status| status.phase == phase)
}

fn with_cpu(pods: &BTreeMap<String, Pod>, size: &str) -> usize {
    pods.values().filter(|pod| actual_cpu(pod).as_deref() == Some(size)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_template_takes_the_canary_of_a_stateful_set_back() {
    let mut cluster = stateful_set(3).await;
    create_canary(&cluster, "StatefulSet").await;
    cluster.roll_out(true);
    cluster.edit::<StatefulSet>("db", sized("200m")).await;
    cluster.until("db", |set: &StatefulSet| is_in(Phase::Paused, status(set))).await;
    assert_eq!(with_cpu(&cluster.pods().await, "200m"), 1);
    cluster.edit::<StatefulSet>("db", sized("100m")).await;
    cluster.until("db", is_complete(3)).await;
    assert_eq!(with_cpu(&cluster.pods().await, "100m"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_template_takes_the_canary_of_a_daemon_set_back() {
    let mut cluster = Cluster::start(3).await;
    cluster.create::<DaemonSet>(new_daemon_set("db")).await;
    cluster.until("db", runs_on(3)).await;
    create_canary(&cluster, "DaemonSet").await;
    cluster.roll_out(true);
    cluster.edit::<DaemonSet>("db", sized("200m")).await;
    cluster.until("db", |set: &DaemonSet| is_in(Phase::Paused, status(set))).await;
    assert_eq!(with_cpu(&cluster.pods().await, "200m"), 1);
    cluster.edit::<DaemonSet>("db", sized("100m")).await;
    cluster.until("db", |set: &DaemonSet| is_in(Phase::Complete, status(set))).await;
    assert_eq!(with_cpu(&cluster.pods().await, "100m"), 3);
}
