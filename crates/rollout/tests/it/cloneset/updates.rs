//! Pods follow the template: recreated, or in place.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::PostParams;
use plumb_client::Api;
use plumb_rollout::cloneset::keys;
use plumb_testkit::{event, eventually, object, until_all};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;

use super::cluster::{
    Answer, Cluster, Setup, change, cpu, image, in_place, is_normal, label, restarts, spec, template, uids,
};

fn all(pods: &BTreeMap<String, Pod>, is: impl Fn(&Pod) -> bool) -> bool {
    !pods.is_empty() && pods.values().all(is)
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_changed_in_place() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    cluster.merge(change("two", "100m")).await;
    cluster.until_settled(3).await;
    let after = cluster.until_pods(|pods| all(pods, |pod| image(pod) == "two" && is_normal(pod))).await;
    assert_eq!(uids(&before), uids(&after));
    for pod in after.values() {
        assert_eq!(restarts(pod), 1);
        let state: serde_json::Value =
            serde_json::from_str(&pod.metadata.annotations.as_ref().unwrap()[keys::UPDATE_STATE]).unwrap();
        assert_eq!((&state["updateImages"], &state["updateResources"]), (&json!(true), &json!(null)));
        assert_eq!(state["lastContainerStatuses"]["c"]["imageID"], "id-one");
        assert_eq!(state["revision"], label(pod, keys::REVISION));
    }
    let revisions: Api<ControllerRevision> = Api::default_namespaced(cluster.admin.clone());
    until_all(revisions, |all| all.len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_recreated_where_they_cannot_be_updated_in_place() {
    for strategy in [json!({ "type": "ReCreate" }), in_place()] {
        let cluster = Cluster::start().await;
        let before = cluster.settled(2, spec(2, "one", "100m", strategy)).await;
        let mut changed = template("one", "100m");
        changed["spec"]["containers"][0]["args"] = json!(["more"]);
        cluster.merge(json!({ "spec": { "template": changed } })).await;
        cluster.until_settled(2).await;
        let is_new = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].args.is_some();
        let after = cluster.until_pods(|pods| pods.len() == 2 && all(pods, is_new)).await;
        assert!(uids(&before).is_disjoint(&uids(&after)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_place_only_recreates_no_pod_and_reports_why() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(2, spec(2, "one", "100m", json!({ "type": "InPlaceOnly" }))).await;
    let mut changed = template("one", "100m");
    changed["spec"]["containers"][0]["args"] = json!(["more"]);
    cluster.merge(json!({ "spec": { "template": changed } })).await;
    let set = cluster.until_set(|status| status.condition("FailedUpdate").is_some()).await;
    let message = set.status.as_ref().unwrap().condition("FailedUpdate").unwrap().message.clone().unwrap();
    assert!(message.contains("InPlaceOnly") && message.contains("args changed"), "{message}");
    // The way back, or another one, is open.
    cluster.merge(change("two", "200m")).await;
    cluster.until_settled(2).await;
    let after = cluster.until_pods(|pods| all(pods, |pod| image(pod) == "two" && cpu(pod) == "200m")).await;
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_changed_in_place_without_a_restart() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(5, spec(5, "one", "100m", in_place())).await;
    let set = cluster.merge(change("one", "200m")).await;
    let old = set.status.unwrap().update_revision;
    let set = cluster.until_settled(5).await;
    assert_ne!(set.status.unwrap().update_revision, old);
    let after = cluster.until_pods(|pods| all(pods, |pod| cpu(pod) == "200m" && is_normal(pod))).await;
    assert_eq!(uids(&before), uids(&after));
    assert!(after.values().all(|pod| restarts(pod) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_an_event_once_a_pod_is_updated_and_a_warning_once_its_node_cannot() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    let names: Vec<&String> = before.keys().collect();
    cluster.answer(names[0], Answer::Infeasible).await;
    cluster.merge(change("one", "200m")).await;
    let failed = event(&cluster.admin, "web", "FailedUpdatePodInPlace", 1).await;
    let message = failed.message.unwrap();
    assert!(message.contains(names[0]) && message.contains("Infeasible"), "{message}");
    assert_eq!(failed.type_.as_deref(), Some("Warning"));
    let updated = async |count: usize| {
        let is_update = |event: &&Event| event.reason.as_deref() == Some("SuccessfulUpdatePodInPlace");
        let events = until_all(Api::<Event>::default_namespaced(cluster.admin.clone()), |all| {
            all.values().filter(is_update).count() >= count
        });
        let events = events.await;
        let messages = events.values().filter(is_update).map(|event| event.message.clone().unwrap());
        messages.collect::<Vec<_>>()
    };
    cluster.until_set(|status| status.updated_available_replicas == 1).await;
    let messages = updated(1).await;
    assert!(messages.iter().all(|message| message.contains(names[1])), "{messages:?}");
    // Reported once, and not in each reconcile.
    assert_eq!(event(&cluster.admin, "web", "FailedUpdatePodInPlace", 1).await.count.unwrap_or(1), 1);
    cluster.answer(names[0], Answer::Apply).await;
    cluster.until_settled(2).await;
    let messages = updated(2).await;
    assert!(messages.iter().any(|message| message.contains(names[0])), "{messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_feature_gate_resources_recreate_pods() {
    let cluster = Cluster::with(Setup { vertical: false, ..Setup::default() }).await;
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.merge(change("one", "200m")).await;
    cluster.until_settled(2).await;
    let after = cluster.until_pods(|pods| pods.len() == 2 && all(pods, |pod| cpu(pod) == "200m")).await;
    assert!(uids(&before).is_disjoint(&uids(&after)));
    let why = event(&cluster.admin, "web", "InPlaceUpdateNotPossible", 1).await.message.unwrap();
    assert_eq!(
        why,
        "pods are recreated and not updated in place: resources changed, and the feature gate \
         InPlaceWorkloadVerticalScaling is off"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn images_and_resources_change_together_with_one_restart() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    cluster.merge(change("two", "200m")).await;
    cluster.until_settled(3).await;
    let is_done = |pod: &Pod| cpu(pod) == "200m" && image(pod) == "two" && is_normal(pod);
    let after = cluster.until_pods(|pods| all(pods, is_done)).await;
    assert_eq!(uids(&before), uids(&after));
    assert!(after.values().all(|pod| restarts(pod) == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_stays_at_the_old_revision_until_it_is_lowered() {
    let cluster = Cluster::start().await;
    let mut strategy = in_place();
    strategy["partition"] = json!(2);
    cluster.settled(4, spec(4, "one", "100m", strategy)).await;
    let count = |cpu_is: &'static str| {
        move |pods: &BTreeMap<String, Pod>| pods.values().filter(|pod| cpu(pod) == cpu_is).count()
    };
    cluster.merge(change("one", "200m")).await;
    let set = cluster.until_set(|status| status.updated_available_replicas == 2).await;
    assert_eq!(set.status.unwrap().expected_updated_replicas, 2);
    let pods = cluster.until_pods(|pods| count("200m")(pods) == 2).await;
    assert_eq!(count("100m")(&pods), 2);
    // New pods are of the revision that is short.
    cluster.merge(json!({ "spec": { "replicas": 6 } })).await;
    cluster.until_set(|status| status.updated_available_replicas == 4 && status.replicas == 6).await;
    let pods = cluster.until_pods(|pods| pods.len() == 6).await;
    assert_eq!(count("100m")(&pods), 2);
    cluster.merge(json!({ "spec": { "updateStrategy": { "partition": 0 } } })).await;
    cluster.until_settled(6).await;
    cluster.until_pods(|pods| count("200m")(pods) == 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_set_updates_nothing() {
    let cluster = Cluster::start().await;
    let mut strategy = in_place();
    strategy["paused"] = json!(true);
    cluster.settled(2, spec(2, "one", "100m", strategy)).await;
    cluster.merge(change("two", "200m")).await;
    let set = cluster.until_set(|status| status.current_revision != status.update_revision).await;
    assert_eq!(set.status.unwrap().updated_replicas, 0);
    cluster.merge(json!({ "spec": { "updateStrategy": { "paused": false } } })).await;
    cluster.until_settled(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_annotations_are_changed_in_place() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    let mut changed = template("one", "100m");
    changed["metadata"]["labels"]["tier"] = json!("front");
    cluster.merge(json!({ "spec": { "template": changed } })).await;
    cluster.until_settled(2).await;
    let after = cluster.until_pods(|pods| all(pods, |pod| label(pod, "tier") == "front")).await;
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_an_autoscaler_are_not_resized() {
    let mut cluster = Cluster::without_controller(Setup::default()).await;
    let definition = plumb_vpa_api::crds::vertical_pod_autoscaler();
    Api::all(cluster.admin.clone()).create(&PostParams::default(), &definition).await.unwrap();
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(cluster.admin.clone());
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "controlledResources": ["cpu"] }] },
        },
    }));
    eventually(async || vpas.create(&PostParams::default(), &vpa).await.is_ok()).await;
    cluster.start_controller();
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    let mut changed = template("one", "200m");
    changed["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("128Mi");
    cluster.merge(json!({ "spec": { "template": changed } })).await;
    cluster.until_settled(2).await;
    let memory = |pod: &Pod| {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        resources.requests.unwrap()["memory"].0.clone()
    };
    let after = cluster.until_pods(|pods| all(pods, |pod| memory(pod) == "128Mi" && is_normal(pod))).await;
    assert_eq!(uids(&before), uids(&after));
    assert!(after.values().all(|pod| cpu(pod) == "100m"), "the autoscaler owns the cpu");
}
