//! What the controllers cost a cluster that has nothing for them to do.

use k8s_openapi::api::apps::v1::Deployment;
use plumb_rollout::engine::Phase;
use plumb_rollout::{Config, Rollout};
use plumb_testkit::eventually;
use serde_json::json;
use tokio::task::JoinSet;

use super::deployments::{is, running, sized};

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_not_watched_before_there_is_a_rollout() {
    let (cluster, before) = running(2, 2).await;
    let (watch, paths) = cluster.noting();
    let requests = |kind: &str| paths.lock().unwrap().iter().filter(|path| path.ends_with(kind)).count();
    let mut rollout = JoinSet::new();
    rollout.spawn(Rollout::new(Config { watch, ..cluster.config(true) }).run());
    // A list and a watch of each.
    let kinds = ["/deployments", "/statefulsets", "/daemonsets", "/clonesets", "/rolloutpolicies"];
    eventually(async || kinds.iter().all(|kind| requests(kind) >= 2)).await;
    cluster.merge::<Deployment>("web", json!({ "metadata": { "labels": { "tier": "front" } } })).await;
    assert_eq!((requests("/pods"), requests("/replicasets")), (0, 0));
    // The first rollout starts what it needs.
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    assert!(requests("/pods") > 0);
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}
