//! What goes wrong with OpenKruise, and must not here. Each test names the defect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::cloneset::keys;
use plumb_rollout::workloads::RECORD_ANNOTATION;
use serde_json::{Value, json};

use super::cluster::{
    Answer, Cluster, Setup, change, cpu, image, in_place, is_normal, label, restarts, spec, uids,
};

fn all(pods: &BTreeMap<String, Pod>, is: impl Fn(&Pod) -> bool) -> bool {
    !pods.is_empty() && pods.values().all(is)
}

fn with_cpu(pods: &BTreeMap<String, Pod>, amount: &str) -> usize {
    pods.values().filter(|pod| cpu(pod) == amount).count()
}

async fn policy(cluster: &Cluster, spec: Value) {
    let mut whole =
        json!({ "targetRef": { "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web" } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let api: Api<RolloutPolicy> = Api::default_namespaced(cluster.admin.clone());
    cluster.create_object(api, json!({ "metadata": { "name": "pace" }, "spec": whole })).await;
}

fn failed(set: &CloneSet) -> String {
    let status = set.status.clone().unwrap_or_default();
    status.condition("FailedUpdate").and_then(|condition| condition.message.clone()).unwrap_or_default()
}

/// A pod that the node defers counts as unavailable with OpenKruise: a revert then finds no pod that may be updated, and
/// the deferred one keeps the new resources for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_revert_completes_while_a_pod_is_deferred() {
    let cluster = Cluster::start().await;
    // One on each node: of those of one node only one grows at a time.
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let deferred = before.keys().next().unwrap();
    cluster.answer(deferred, Answer::Defer).await;
    policy(&cluster, json!({ "maxConcurrent": 3 })).await;
    cluster.merge(change("one", "200m")).await;
    // The others go on, and all of them are available meanwhile.
    let set = cluster.until_set(|status| status.updated_available_replicas == 2).await;
    assert_eq!(set.status.unwrap().available_replicas, 3);
    cluster.merge(change("one", "100m")).await;
    cluster.until_settled(3).await;
    let after = cluster.until_pods(|pods| all(pods, |pod| cpu(pod) == "100m" && is_normal(pod))).await;
    assert_eq!(uids(&before), uids(&after));
    assert!(after.values().all(|pod| restarts(pod) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_deferred_follows_when_it_fits() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let deferred = before.keys().next().unwrap();
    cluster.answer(deferred, Answer::Defer).await;
    policy(&cluster, json!({ "maxConcurrent": 3 })).await;
    cluster.merge(change("one", "200m")).await;
    let set = cluster
        .until_set(|status| status.updated_replicas == 3 && status.updated_available_replicas == 2)
        .await;
    assert_ne!(set.status.as_ref().unwrap().current_revision, set.status.as_ref().unwrap().update_revision);
    cluster.answer(deferred, Answer::Apply).await;
    cluster.until_settled(3).await;
}

/// OpenKruise does not read why a resize does not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_resize_is_infeasible_is_named_and_does_not_stop_the_others() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let stuck = before.keys().next().unwrap();
    cluster.answer(stuck, Answer::Infeasible).await;
    cluster.merge(change("one", "200m")).await;
    let set = cluster.until_set(|status| {
        status.condition("FailedUpdate").is_some() && status.updated_available_replicas == 2
    });
    let message = failed(&set.await);
    assert!(message.contains(stuck) && message.contains("Infeasible"), "{message}");
    // A smaller size goes through.
    cluster.answer(stuck, Answer::Apply).await;
    cluster.merge(change("one", "50m")).await;
    cluster.until_settled(3).await;
}

/// The first error of a write ends OpenKruise's loop, and pods that come later in the order are not tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_the_api_server_refuses_does_not_stop_the_others() {
    let cluster = Cluster::start().await;
    cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let node = json!({ "status": { "allocatable": { "cpu": "150m", "memory": "8Gi", "pods": "110" } } });
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.admin.clone());
    let patch = kube::api::Patch::Merge(node);
    nodes.patch_status("n0", &kube::api::PatchParams::default(), &patch).await.unwrap();
    cluster.merge(change("one", "200m")).await;
    let set = cluster.until_set(|status| {
        status.updated_available_replicas == 2 && status.condition("FailedUpdate").is_some()
    });
    assert!(failed(&set.await).contains("NodeCapacity"));
    cluster.until_pods(|pods| with_cpu(pods, "200m") == 2).await;
    // The revert goes through.
    cluster.merge(change("one", "100m")).await;
    cluster.until_settled(3).await;
    cluster.until_pods(|pods| with_cpu(pods, "100m") == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_hold_a_pod_around_a_resize() {
    let cluster = Cluster::start().await;
    let mut spec = spec(1, "one", "100m", in_place());
    spec["lifecycle"] = json!({ "inPlaceUpdate": { "labelsHandler": { "hook": "on" } } });
    spec["template"]["metadata"]["labels"]["hook"] = json!("on");
    let pods = cluster.settled(1, spec).await;
    let name = pods.keys().next().unwrap();
    let mut changed = super::cluster::template("one", "200m");
    changed["metadata"]["labels"]["hook"] = json!("on");
    cluster.merge(json!({ "spec": { "template": changed } })).await;
    let state =
        |is: &'static str| move |pods: &BTreeMap<String, Pod>| all(pods, |pod| label(pod, keys::STATE) == is);
    let pods = cluster.until_pods(state("PreparingUpdate")).await;
    assert_eq!(cpu(&pods[name]), "100m");
    cluster.merge_pod(name, json!({ "metadata": { "labels": { "hook": null } } })).await;
    let pods = cluster.until_pods(state("Updated")).await;
    assert_eq!((cpu(&pods[name]).as_str(), restarts(&pods[name])), ("200m", 0));
    cluster.merge_pod(name, json!({ "metadata": { "labels": { "hook": "on" } } })).await;
    cluster.until_pods(state("Normal")).await;
    cluster.until_settled(1).await;
}

/// OpenKruise's issue 1156.
#[tokio::test(flavor = "multi_thread")]
async fn a_revert_releases_a_pod_that_a_hook_holds() {
    let cluster = Cluster::start().await;
    let mut spec = spec(1, "one", "100m", in_place());
    spec["lifecycle"] = json!({ "inPlaceUpdate": { "labelsHandler": { "hook": "on" } } });
    spec["template"]["metadata"]["labels"]["hook"] = json!("on");
    cluster.settled(1, spec).await;
    let template = |cpu: &str| {
        let mut template = super::cluster::template("one", cpu);
        template["metadata"]["labels"]["hook"] = json!("on");
        json!({ "spec": { "template": template } })
    };
    cluster.merge(template("200m")).await;
    cluster.until_pods(|pods| all(pods, |pod| label(pod, keys::STATE) == "PreparingUpdate")).await;
    cluster.merge(template("100m")).await;
    cluster.until_settled(1).await;
    cluster.until_pods(|pods| all(pods, |pod| is_normal(pod) && cpu(pod) == "100m")).await;
}

/// OpenKruise resizes first and records afterwards: a crash in between leaves a resized pod of the old revision.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_completes_after_a_crash_between_its_writes() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let intercept = move |uri: &mut http::Uri| {
        if uri.path().ends_with("/resize") && failing.load(Ordering::SeqCst) {
            *uri = "/nowhere".parse().unwrap();
        }
    };
    let mut cluster = Cluster::with(Setup { intercept: Arc::new(intercept), ..Setup::default() }).await;
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.merge(change("one", "200m")).await;
    let pods =
        cluster.until_pods(|pods| pods.values().any(|pod| label(pod, keys::STATE) == "Updating")).await;
    assert_eq!(with_cpu(&pods, "200m"), 0);
    cluster.stop_controller().await;
    fails.store(false, Ordering::SeqCst);
    cluster.start_controller();
    cluster.until_settled(2).await;
    let after = cluster.until_pods(|pods| with_cpu(pods, "200m") == 2).await;
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_up_during_a_rollout_have_the_new_size() {
    let cluster = Cluster::start().await;
    cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.answer("*", Answer::Defer).await;
    cluster.merge(change("one", "200m")).await;
    cluster.until_pods(|pods| pods.values().any(|pod| cpu(pod) == "200m")).await;
    cluster.merge(json!({ "spec": { "replicas": 4 } })).await;
    let pods = cluster.until_pods(|pods| pods.len() == 4).await;
    assert!(with_cpu(&pods, "200m") >= 2);
    cluster.answer("*", Answer::Apply).await;
    cluster.until_settled(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_recreates_pods_that_are_stuck() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let stuck = before.keys().next().unwrap();
    cluster.answer(stuck, Answer::Infeasible).await;
    policy(&cluster, json!({ "onFailure": "RecreatePod" })).await;
    cluster.merge(change("one", "200m")).await;
    plumb_testkit::until_gone::<Pod>(cluster.pods(), stuck).await;
    cluster.until_settled(3).await;
    let after = cluster.until_pods(|pods| pods.len() == 3 && with_cpu(pods, "200m") == 3).await;
    assert_eq!(uids(&before).intersection(&uids(&after)).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_resizes_stuck_pods_back() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let stuck = before.keys().next().unwrap();
    cluster.answer(stuck, Answer::Infeasible).await;
    policy(&cluster, json!({ "onFailure": "RollbackPod" })).await;
    cluster.merge(change("one", "200m")).await;
    let pods = cluster.until_pods(|pods| with_cpu(pods, "200m") == 2 && cpu(&pods[stuck]) == "100m").await;
    assert_eq!(uids(&before), uids(&pods));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_takes_the_whole_set_back() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let stuck = before.keys().next().unwrap();
    cluster.answer(stuck, Answer::Infeasible).await;
    policy(&cluster, json!({ "onFailure": "RollbackAll" })).await;
    cluster.merge(change("one", "200m")).await;
    let restored = |set: &CloneSet| {
        let template = set.template().unwrap();
        let resources = template.spec.unwrap().containers[0].resources.clone().unwrap();
        resources.requests.unwrap()["cpu"].0 == "100m"
    };
    plumb_testkit::until(cluster.sets(), "web", restored).await;
    cluster.until_settled(3).await;
    let pods = cluster.until_pods(|pods| with_cpu(pods, "100m") == 3).await;
    assert_eq!(uids(&before), uids(&pods));
}

/// A template without other resources was restored again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_takes_nothing_back_if_pods_are_stuck_for_another_reason_than_resources() {
    let cluster = Cluster::start().await;
    cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.answer("*", Answer::Silence).await;
    policy(&cluster, json!({ "onFailure": "RollbackAll" })).await;
    cluster.merge(change("two", "100m")).await;
    let begun = cluster.until_pods(|pods| pods.values().any(|pod| image(pod) == "two")).await;
    cluster.clock.advance(Duration::from_mins(10));
    for name in begun.keys() {
        cluster.merge_pod(name, json!({ "metadata": { "annotations": { "test/touched": "true" } } })).await;
    }
    let set = plumb_testkit::until(cluster.sets(), "web", |set: &CloneSet| !failed(set).is_empty()).await;
    let annotations = set.metadata.annotations.clone().unwrap_or_default();
    assert!(!annotations.contains_key(RECORD_ANNOTATION), "{annotations:?}");
    assert_eq!(set.template().unwrap().spec.unwrap().containers[0].image.as_deref(), Some("two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_openkruise_runs_the_controller_does_nothing() {
    let mut cluster = Cluster::without_controller(Setup::default()).await;
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "kruise-mutating-webhook-configuration" },
    });
    let request = http::Request::post(path).header("content-type", "application/json");
    let _: Value =
        cluster.admin.request(request.body(serde_json::to_vec(&body).unwrap()).unwrap()).await.unwrap();
    cluster.start_controller();
    cluster.create(spec(1, "one", "100m", in_place())).await;
    assert!(cluster.sets().get("web").await.unwrap().status.is_none());
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    webhooks.delete("kruise-mutating-webhook-configuration", &DeleteParams::default()).await.unwrap();
    cluster.until_settled(1).await;
}
