//! Pods are created, deleted and replaced.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use plumb_client::Api;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::cloneset::keys;
use plumb_testkit::{event, until_all, until_gone};
use serde_json::json;

use super::cluster::{Cluster, in_place, label, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_set_creates_pods_that_become_available() {
    let cluster = Cluster::start().await;
    let pods = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let revisions: Api<ControllerRevision> = Api::default_namespaced(cluster.admin.clone());
    let revisions = until_all(revisions, |all| all.len() == 1).await;
    let revision = revisions.keys().next().unwrap();
    for (name, pod) in &pods {
        let id = label(pod, keys::INSTANCE_ID);
        assert_eq!(*name, format!("web-{id}"));
        assert_eq!(label(pod, keys::REVISION), revision);
        let gates = pod.spec.as_ref().unwrap().readiness_gates.as_ref().unwrap();
        assert_eq!(gates[0].condition_type, keys::UPDATE_READY);
    }
    let set = cluster.until_settled(3).await;
    let status = set.status.unwrap();
    assert_eq!(status.update_revision.as_ref(), Some(revision));
    assert_eq!(status.label_selector.as_deref(), Some("app=web"));
    assert_eq!(
        (status.ready_replicas, status.available_replicas, status.expected_updated_replicas),
        (3, 3, 3)
    );
    assert!(status.conditions.is_empty(), "{:?}", status.conditions);
    event(&cluster.admin, "web", "SuccessfulCreate", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_grows_shrinks_and_replaces_pods() {
    let cluster = Cluster::start().await;
    let pods = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.merge(json!({ "spec": { "replicas": 4 } })).await;
    cluster.until_settled(4).await;
    let gone = pods.keys().next().unwrap();
    cluster.pods().delete(gone, &DeleteParams::default()).await.unwrap();
    until_gone::<Pod>(cluster.pods(), gone).await;
    cluster.until_settled(4).await;
    cluster.merge(json!({ "spec": { "replicas": 1 } })).await;
    cluster.until_settled(1).await;
    cluster.until_pods(|pods| pods.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_named_are_deleted_and_replaced_unless_there_are_fewer_replicas() {
    let cluster = Cluster::start().await;
    let pods = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let names: Vec<&String> = pods.keys().collect();
    cluster.merge(json!({ "spec": { "scaleStrategy": { "podsToDelete": [names[0]] } } })).await;
    until_gone::<Pod>(cluster.pods(), names[0]).await;
    cluster.until_settled(3).await;
    // Which of them go is named.
    let more = json!({ "replicas": 2, "scaleStrategy": { "podsToDelete": [names[1]] } });
    cluster.merge(json!({ "spec": more })).await;
    until_gone::<Pod>(cluster.pods(), names[1]).await;
    cluster.until_settled(2).await;
    let left = cluster.until_pods(|pods| pods.len() == 2).await;
    assert!(left.contains_key(names[2]));
    // The names of pods that are gone are removed.
    let named = |set: &CloneSet| set.spec.scale_strategy.clone().unwrap_or_default().pods_to_delete;
    plumb_testkit::until(cluster.sets(), "web", |set: &CloneSet| named(set).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_holds_pods_before_their_deletion() {
    let cluster = Cluster::start().await;
    let mut spec = spec(2, "one", "100m", in_place());
    spec["lifecycle"] = json!({ "preDelete": { "labelsHandler": { "drain": "yes" } } });
    spec["template"]["metadata"]["labels"]["drain"] = json!("yes");
    cluster.settled(2, spec).await;
    cluster.merge(json!({ "spec": { "replicas": 1 } })).await;
    let preparing = |pod: &Pod| label(pod, keys::STATE) == "PreparingDelete";
    let pods = cluster.until_pods(|pods| pods.values().filter(|pod| preparing(pod)).count() == 1).await;
    let (held, _) = pods.iter().find(|(_, pod)| preparing(pod)).unwrap();
    // It is needed again.
    cluster.merge(json!({ "spec": { "replicas": 2 } })).await;
    cluster.until_pods(|pods| pods.values().all(super::cluster::is_normal)).await;
    cluster.merge(json!({ "spec": { "replicas": 1 } })).await;
    let pods = cluster.until_pods(|pods| pods.values().any(preparing)).await;
    let (held, _) = pods.iter().find(|(_, pod)| preparing(pod)).unwrap_or((held, &pods[held]));
    cluster.merge_pod(held, json!({ "metadata": { "labels": { "drain": null } } })).await;
    until_gone::<Pod>(cluster.pods(), held).await;
    cluster.until_settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pod_is_available_once_its_hook_is_complete() {
    let cluster = Cluster::start().await;
    let mut spec = spec(1, "one", "100m", in_place());
    spec["lifecycle"] = json!({ "preNormal": { "labelsHandler": { "warm": "yes" } } });
    cluster.create(spec).await;
    let status = cluster.until_set(|status| status.ready_replicas == 1).await.status.unwrap();
    assert_eq!(status.available_replicas, 0);
    let pods = cluster.until_pods(|pods| pods.len() == 1).await;
    let name = pods.keys().next().unwrap();
    cluster.merge_pod(name, json!({ "metadata": { "labels": { "warm": "yes" } } })).await;
    cluster.until_settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_have_claims_that_go_with_them() {
    let cluster = Cluster::start().await;
    let mut spec = spec(2, "one", "100m", in_place());
    spec["volumeClaimTemplates"] = json!([{
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }]);
    let pods = cluster.settled(2, spec).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.admin.clone());
    let names: Vec<String> =
        pods.values().map(|pod| format!("data-web-{}", label(pod, keys::INSTANCE_ID))).collect();
    until_all(claims.clone(), |all| names.iter().all(|name| all.contains_key(name))).await;
    cluster.merge(json!({ "spec": { "replicas": 1 } })).await;
    until_all(claims, |all| {
        all.values().filter(|claim| claim.metadata.deletion_timestamp.is_none()).count() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_a_controller_are_adopted_and_others_released() {
    let cluster = Cluster::start().await;
    let orphan = json!({
        "metadata": { "name": "orphan", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "image": "one" }] },
    });
    cluster.create_object::<Pod>(cluster.pods(), orphan).await;
    let mut spec = spec(2, "one", "100m", in_place());
    spec["updateStrategy"] = json!({ "type": "OnDelete" });
    cluster.create(spec).await;
    let pods = cluster.until_pods(|pods| {
        pods.len() == 2
            && pods["orphan"].metadata.owner_references.as_ref().is_some_and(|owners| owners.len() == 1)
    });
    let pods = pods.await;
    let other = pods.keys().find(|name| *name != "orphan").unwrap();
    cluster.merge_pod(other, json!({ "metadata": { "labels": { "app": "debug" } } })).await;
    cluster
        .until_pods(|pods| {
            pods.len() == 3 && pods[other].metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_set_has_a_condition_and_others_are_reconciled() {
    let cluster = Cluster::start().await;
    let mut bad = spec(1, "one", "100m", in_place());
    bad["selector"]["matchLabels"]["app"] = json!("other");
    cluster
        .create_object::<CloneSet>(cluster.sets(), json!({ "metadata": { "name": "bad" }, "spec": bad }))
        .await;
    cluster.settled(1, spec(1, "one", "100m", in_place())).await;
    let set = plumb_testkit::until(cluster.sets(), "bad", |set: &CloneSet| set.status.is_some()).await;
    let status = set.status.unwrap();
    let condition = status.condition("FailedUpdate").unwrap();
    assert_eq!(condition.reason.as_deref(), Some("InvalidSpec"));
    assert!(condition.message.as_ref().unwrap().contains("`selector` does not match template `labels`"));
    assert_eq!(status.replicas, 0);
}
