//! A Deployment that is deleted during a hold and leaves its pods, and is created again.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::engine::Phase;
use plumb_rollout::workloads::HELD_ANNOTATION;
use serde_json::json;

use super::cluster::{Cluster, cpu, rolled_out, status};
use super::deployments::{deployment, is, policy, running, sized};

fn is_marked(set: &ReplicaSet) -> bool {
    let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
    let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    annotations.is_some_and(|annotations| annotations.contains_key(HELD_ANNOTATION))
}

/// A Deployment that is held after the first of three pods.
async fn held() -> (Cluster, Vec<String>) {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    (cluster, before)
}

/// What the garbage collector does about an object with the finalizer `orphan`: no other one runs.
async fn orphan(cluster: &Cluster) {
    cluster.api::<Deployment>().delete("web", &DeleteParams::orphan()).await.unwrap();
    let sets = cluster.until_all::<ReplicaSet>(|sets| !sets.is_empty()).await;
    for name in sets.keys() {
        cluster.merge::<ReplicaSet>(name, json!({ "metadata": { "ownerReferences": null } })).await;
    }
    cluster.merge::<Deployment>("web", json!({ "metadata": { "finalizers": null } })).await;
    plumb_testkit::until_gone(&cluster.api::<Deployment>(), "web").await;
}

async fn unmarked(cluster: &Cluster) -> BTreeMap<String, ReplicaSet> {
    cluster.until_all::<ReplicaSet>(|sets| !sets.values().any(is_marked)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_is_orphaned_during_a_hold_and_created_again_recreates_no_pod() {
    let (cluster, before) = held().await;
    orphan(&cluster).await;
    unmarked(&cluster).await;
    cluster.create::<Deployment>(deployment(3, "200m")).await;
    cluster.until("web", rolled_out).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    // No rollout is recorded on the new one: what was not resized follows the next edit.
    assert_eq!(pods.values().filter(|pod| cpu(pod) == "200m").count(), 1);
    cluster.api::<RolloutPolicy>().delete("web", &DeleteParams::default()).await.unwrap();
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| cpu(pod) == "300m"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_was_orphaned_while_no_controller_ran_is_found_by_the_next_one() {
    let (mut cluster, before) = held().await;
    cluster.crash();
    orphan(&cluster).await;
    assert!(cluster.until_all::<ReplicaSet>(|sets| !sets.is_empty()).await.values().any(is_marked));
    cluster.roll_out(true);
    unmarked(&cluster).await;
    cluster.create::<Deployment>(deployment(3, "200m")).await;
    let web = cluster.until("web", rolled_out).await;
    assert_eq!(status(&web), None);
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}
