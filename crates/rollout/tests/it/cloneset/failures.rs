//! What follows when pods cannot be resized.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::api::cloneset::{CloneSet, CloneSetStatus};
use plumb_rollout::cloneset::keys;
use plumb_rollout::cloneset::status::rollout;
use plumb_rollout::engine::{Phase, RECORD_ANNOTATION};
use plumb_rollout::workloads::CONDITION;
use plumb_testkit::{until, until_gone};
use serde_json::json;

use super::cluster::{Answer, Cluster, change, cpu, image, in_place, is_normal, label, spec, uids};

async fn on_failure(cluster: &Cluster, on_failure: &str) {
    let target = json!({ "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web" });
    let policy = json!({ "targetRef": target, "onFailure": on_failure });
    let api: Api<RolloutPolicy> = Api::default_namespaced(cluster.admin.clone());
    cluster.create_object(api, json!({ "metadata": { "name": "web" }, "spec": policy })).await;
}

fn reason(status: &CloneSetStatus, type_: &str) -> String {
    status.condition(type_).and_then(|condition| condition.reason.clone()).unwrap_or_default()
}

fn all(pods: &BTreeMap<String, Pod>, is: impl Fn(&Pod) -> bool) -> bool {
    !pods.is_empty() && pods.values().all(is)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_its_new_image_is_available_though_its_node_cannot_resize_it() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    cluster.answer("*", Answer::Infeasible).await;
    cluster.merge(change("two", "200m")).await;
    let set = cluster
        .until_set(|status| {
            status.available_replicas == 3
                && status.updated_replicas == 3
                && !reason(status, "FailedUpdate").is_empty()
        })
        .await;
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "PodsStuck");
    let pods = cluster.until_pods(|pods| all(pods, |pod| image(pod) == "two")).await;
    assert_eq!(uids(&pods), uids(&before));
    cluster.answer("*", Answer::Apply).await;
    cluster.merge(change("two", "150m")).await;
    cluster.until_settled(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_were_resized_back_are_tried_again_once_the_template_was_another_one() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    on_failure(&cluster, "RollbackPod").await;
    cluster.answer("*", Answer::Infeasible).await;
    cluster.merge(change("one", "200m")).await;
    let rolled_back = |status: &CloneSetStatus| {
        rollout(status).is_some_and(|rollout| rollout.pods.rolled_back == 3) && status.updated_replicas == 0
    };
    let set = cluster.until_set(rolled_back).await;
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "RolledBack");
    // All pods follow the former template.
    cluster.merge(change("one", "100m")).await;
    let set = cluster
        .until_set(|status| status.updated_replicas == 3 && reason(status, "FailedUpdate").is_empty())
        .await;
    let status = set.status.unwrap();
    assert_eq!(status.current_revision, status.update_revision);
    assert!(rollout(&status).is_none_or(|rollout| rollout.phase == Phase::Complete), "{status:?}");
    let has_record =
        |pod: &Pod| pod.metadata.annotations.iter().flatten().any(|(key, _)| key == RECORD_ANNOTATION);
    cluster.until_pods(|pods| all(pods, |pod| !has_record(pod))).await;
    cluster.answer("*", Answer::Apply).await;
    cluster.merge(change("one", "200m")).await;
    cluster.until_settled(3).await;
    let after = cluster.until_pods(|pods| all(pods, |pod| cpu(pod) == "200m" && is_normal(pod))).await;
    assert_eq!(uids(&after), uids(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_failed_is_recreated_with_all_others() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    on_failure(&cluster, "RecreateAll").await;
    let stuck = before.keys().next().unwrap();
    cluster.answer(stuck, Answer::Infeasible).await;
    cluster.merge(change("one", "200m")).await;
    until_gone::<Pod>(cluster.pods(), stuck).await;
    let set = cluster.until_settled(3).await;
    let update = set.status.unwrap().update_revision.unwrap();
    let after = cluster
        .until_pods(|pods| {
            pods.len() == 3 && all(pods, |pod| cpu(pod) == "200m" && label(pod, keys::REVISION) == update)
        })
        .await;
    assert!(!after.contains_key(stuck));
    let is_complete =
        |set: &CloneSet| set.status.iter().any(|status| reason(status, CONDITION) == "Complete");
    let set = until(cluster.sets(), "web", is_complete).await;
    let rollout = rollout(set.status.as_ref().unwrap()).unwrap();
    assert_eq!((rollout.pods.total, rollout.pods.done), (3, 3));
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "");
}
