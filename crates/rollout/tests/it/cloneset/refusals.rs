//! What the API server refuses: quotas, and dry runs that it does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams};
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::api::cloneset::{CloneSet, CloneSetStatus};
use plumb_rollout::engine::Settings;
use plumb_testkit::{event, until_gone};
use serde_json::{Value, json};

use super::cluster::{Answer, Cluster, Setup, change, cpu, image, in_place, spec, template, uids};
use super::model::{Model, Template};

/// Sets what a quota allows, and what is used of it as the API server counts it: no controller of quotas runs.
async fn set_quota(cluster: &Cluster, hard: Value, used: Value) {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.admin.clone());
    let patch = Patch::Merge(json!({ "spec": { "hard": hard } }));
    if quotas.patch("team", &PatchParams::default(), &patch).await.is_err() {
        let quota = json!({ "metadata": { "name": "team" }, "spec": { "hard": hard } });
        cluster.create_object(quotas.clone(), quota).await;
    }
    let patch = Patch::Merge(json!({ "status": { "hard": hard, "used": used } }));
    quotas.patch_status("team", &PatchParams::default(), &patch).await.unwrap();
}

fn with_memory(memory: &str) -> Value {
    let mut template = template("one", "100m");
    template["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!(memory);
    json!({ "spec": { "template": template } })
}

fn reason(status: &CloneSetStatus, type_: &str) -> String {
    status.condition(type_).and_then(|condition| condition.reason.clone()).unwrap_or_default()
}

fn message(set: &CloneSet, type_: &str) -> String {
    let status = set.status.as_ref().unwrap();
    status.condition(type_).and_then(|condition| condition.message.clone()).unwrap_or_default()
}

async fn touch(cluster: &Cluster, text: &str) {
    cluster.merge(json!({ "metadata": { "annotations": { "test/touched": text } } })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_replacement_would_exceed_a_quota_is_not_deleted() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(1, spec(1, "one", "100m", json!({ "type": "ReCreate" }))).await;
    set_quota(&cluster, json!({ "memory": "10Gi" }), json!({ "memory": "64Mi" })).await;
    cluster.merge(with_memory("64Gi")).await;
    let set = cluster.until_set(|status| reason(status, "FailedUpdate") == "QuotaExceeded").await;
    let why = message(&set, "FailedUpdate");
    assert!(why.contains("exceeded quota: team") && why.contains("64Gi"), "{why}");
    event(&cluster.admin, "web", "QuotaExceeded", 1).await;
    let pods = cluster.until_pods(|_| true).await;
    assert_eq!(uids(&pods), uids(&before));
    assert!(pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none()));
    // A pod that is lost is replaced by one of the template of before.
    let lost = before.keys().next().unwrap();
    cluster.pods().delete(lost, &DeleteParams::default()).await.unwrap();
    until_gone(cluster.pods(), lost).await;
    let pods = cluster.until_pods(|pods| pods.len() == 1).await;
    let requests =
        pods.values().next().unwrap().spec.clone().unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(requests.requests.unwrap()["memory"].0, "64Mi");
    cluster.merge(with_memory("128Mi")).await;
    let set = cluster.until_settled(1).await;
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_pod_whose_replacement_would_exceed_a_quota_is_not_deleted() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(1, spec(1, "one", "100m", in_place())).await;
    let api: Api<RolloutPolicy> = Api::default_namespaced(cluster.admin.clone());
    let target = json!({ "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web" });
    let policy = json!({ "targetRef": target, "onFailure": "RecreatePod" });
    cluster.create_object(api, json!({ "metadata": { "name": "web" }, "spec": policy })).await;
    set_quota(&cluster, json!({ "requests.cpu": "200m" }), json!({ "requests.cpu": "100m" })).await;
    cluster.merge(change("one", "300m")).await;
    cluster.until_set(|status| reason(status, "FailedUpdate") == "QuotaExceeded").await;
    let pods = cluster.until_pods(|_| true).await;
    assert_eq!(uids(&pods), uids(&before));
    assert!(pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none()));
    set_quota(&cluster, json!({ "requests.cpu": "1" }), json!({ "requests.cpu": "100m" })).await;
    cluster.until_settled(1).await;
    assert!(cluster.until_pods(|_| true).await.values().all(|pod| cpu(pod) == "300m"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_failed_and_is_not_needed_any_more_stops_no_update() {
    let cluster = Cluster::start().await;
    cluster.settled(3, spec(3, "one", "100m", json!({ "type": "ReCreate" }))).await;
    set_quota(&cluster, json!({ "pods": "3" }), json!({ "pods": "3" })).await;
    cluster.merge(json!({ "spec": { "replicas": 4 } })).await;
    cluster.until_set(|status| status.condition("FailedScale").is_some()).await;
    cluster.merge(json!({ "spec": { "replicas": 3 } })).await;
    cluster.until_set(|status| status.condition("FailedScale").is_none()).await;
    set_quota(&cluster, json!({ "pods": "9" }), json!({ "pods": "3" })).await;
    cluster.merge(change("two", "100m")).await;
    cluster.until_settled(3).await;
    assert!(cluster.until_pods(|pods| pods.len() == 3).await.values().all(|pod| image(pod) == "two"));
}

#[test]
fn pods_are_replaced_though_a_quota_refuses_the_pod_that_surges() {
    let strategy = json!({ "type": "ReCreate", "maxUnavailable": 1, "maxSurge": 1 });
    let first =
        Template { cpu: 100, memory: 64, image: 0, label: 0, args: 0, restarts: false, invalid: false };
    let mut model = Model::new(2, &strategy, Settings::default(), first);
    let updated = |model: &Model| model.pods.values().filter(|pod| model.follows(pod)).count();
    // One pod of the new size fits, in the place of one of the old size.
    model.quota = 192;
    model.edit(Template { memory: 128, ..first });
    model.settle();
    assert_eq!((model.pods.len(), updated(&model)), (2, 1));
    let status = model.status();
    assert!(["FailedScale", "FailedUpdate"].iter().any(|type_| status.condition(type_).is_some()));
    model.quota = 256;
    model.settle();
    assert_eq!((model.pods.len(), updated(&model)), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_without_an_answer_is_reported() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let intercept = move |uri: &mut http::Uri| {
        if uri.query().is_some_and(|query| query.contains("dryRun")) && failing.load(Ordering::SeqCst) {
            *uri = "/nowhere".parse().unwrap();
        }
    };
    let cluster = Cluster::with(Setup { intercept: Arc::new(intercept), ..Setup::default() }).await;
    let before = cluster.settled(2, spec(2, "one", "100m", in_place())).await;
    cluster.answer("*", Answer::Apply).await;
    cluster.merge(change("one", "200m")).await;
    let set = cluster.until_set(|status| reason(status, "FailedUpdate") == "DryRunFailed").await;
    let why = message(&set, "FailedUpdate");
    assert!(why.contains("does not answer whether it would create pods"), "{why}");
    event(&cluster.admin, "web", "DryRunFailed", 1).await;
    assert!(cluster.until_pods(|_| true).await.values().all(|pod| cpu(pod) == "100m"));
    fails.store(false, Ordering::SeqCst);
    touch(&cluster, "again").await;
    let set = cluster.until_settled(2).await;
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "");
    assert_eq!(uids(&cluster.until_pods(|_| true).await), uids(&before));
}
