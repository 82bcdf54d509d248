//! What is written to the status of VPAs, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_recommender::Options;
use plumb_testkit::object;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_api::ConditionType;
use serde_json::json;

use super::bed::{Bed, Setup, conditions, message, recommendations, targets};

#[tokio::test]
async fn a_vpa_gets_the_recommendation_that_the_arithmetic_gives() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let vpa = bed.get("web").await;
    // One sample of 100m and 1e8 bytes: V1 of the golden vectors.
    assert_eq!(
        serde_json::to_value(recommendations(&vpa)).unwrap(),
        json!([{
            "containerName": "app",
            "target": { "cpu": "126m", "memory": "250Mi" },
            "lowerBound": { "cpu": "25m", "memory": "250Mi" },
            "upperBound": { "cpu": "100G", "memory": "97656250000Ki" },
            "uncappedTarget": { "cpu": "126m", "memory": "250Mi" },
        }])
    );
    assert_eq!(conditions(&vpa), ["LowConfidence=True", "RecommendationProvided=True"]);
    let status = vpa.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, vpa.metadata.generation);
}

#[tokio::test]
async fn a_container_without_a_sample_gets_no_recommendation() {
    let bed = Bed::with_web().await;
    bed.uses_nothing();
    let mut running = bed.recommender().await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(recommendations(&vpa), []);
    assert_eq!(conditions(&vpa), ["LowConfidence=True", "RecommendationProvided=False"]);
    assert_eq!(
        message(&vpa, &ConditionType::RecommendationProvided),
        "No usage has been measured yet for: app"
    );
    let container = |name: &str| json!({ "name": name, "image": "plumb/load" });
    let spec = json!({ "containers": [container("app"), container("log")] });
    bed.pod_with("default", "web-2", "web", spec, "Running").await;
    bed.uses("web-2", "app", 100, 400_000_000);
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await.keys().collect::<Vec<_>>(), ["app"]);
    bed.uses("web-2", "log", 100, 400_000_000);
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await.keys().collect::<Vec<_>>(), ["app", "log"]);
}

#[tokio::test]
async fn a_status_that_is_as_it_should_be_is_not_written() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let before = bed.get("web").await;
    // No time has passed, so no sample counts.
    running.once().await;
    running.once().await;
    assert_eq!(bed.get("web").await.resource_version(), before.resource_version());
}

#[tokio::test]
async fn confidence_comes_with_a_day_of_samples() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    for _ in 0..25 {
        bed.time.advance(Duration::from_hours(1));
        running.run.once().await;
    }
    assert_eq!(conditions(&bed.get("web").await), ["RecommendationProvided=True"]);
}

#[tokio::test]
async fn the_observed_generation_follows_the_spec() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let policy = json!({ "containerPolicies": [{ "containerName": "app", "maxAllowed": { "cpu": "50m" } }] });
    let edited = bed.edit("web", json!({ "spec": { "resourcePolicy": policy } })).await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(vpa.status.as_ref().unwrap().observed_generation, edited.metadata.generation);
    assert_eq!(targets(&vpa)["app"], "50m/250Mi");
}

#[tokio::test]
async fn all_conditions_are_really_set() {
    let bed = Bed::new().await;
    bed.vpa("web", json!({ "updatePolicy": { "updateMode": "Auto" } })).await;
    let mut running = bed.recommender().await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(
        conditions(&vpa),
        [
            "ConfigDeprecated=True",
            "ConfigUnsupported=True",
            "NoPodsMatched=True",
            "RecommendationProvided=False"
        ]
    );
    assert_eq!(
        message(&vpa, &ConditionType::ConfigUnsupported),
        "Cannot read targetRef. Reason: Deployment default/web does not exist"
    );
    bed.deployment("web").await;
    bed.pod("web-1", "web").await;
    bed.edit("web", json!({ "spec": { "updatePolicy": { "updateMode": "Off" } } })).await;
    running.minute(&bed).await;
    assert_eq!(conditions(&bed.get("web").await), ["LowConfidence=True", "RecommendationProvided=True"]);
}

#[tokio::test]
async fn a_vpa_of_another_recommender_or_namespace_is_not_touched() {
    let bed = Bed::with_web().await;
    bed.vpa("named", json!({ "recommenders": [{ "name": "other" }] })).await;
    bed.vpa("ours", json!({ "recommenders": [{ "name": "default" }] })).await;
    bed.namespace("team").await;
    bed.vpa_in("team", "web", json!({})).await;
    let ignored = Namespaces::Except(["team".to_owned()].into());
    let options = Options { namespaces: ignored, ..Options::default() };
    let mut running = bed.recommender_with(Setup { options, ..Setup::default() }).await;
    running.once().await;
    assert!(bed.get("web").await.status.is_some());
    assert!(bed.get("ours").await.status.is_some());
    assert_eq!(bed.get("named").await.status, None);
    let team: kube::Api<plumb_vpa_api::VerticalPodAutoscaler> =
        kube::Api::namespaced(bed.client.clone(), "team");
    assert_eq!(team.get("web").await.unwrap().status, None);

    let options = Options { name: "other".to_owned(), ..Options::default() };
    let mut other = bed.recommender_with(Setup { options, ..Setup::default() }).await;
    other.once().await;
    assert!(bed.get("named").await.status.is_some());

    let options = Options { namespaces: Namespaces::Only("team".to_owned()), ..Options::default() };
    let mut other = bed.recommender_with(Setup { options, ..Setup::default() }).await;
    other.once().await;
    assert!(team.get("web").await.unwrap().status.is_some());
    // A VPA that chooses another recommender is not written any more.
    bed.edit("ours", json!({ "spec": { "recommenders": [{ "name": "third" }] } })).await;
    let before = bed.get("ours").await;
    running.minute(&bed).await;
    assert_eq!(bed.get("ours").await.resource_version(), before.resource_version());
}

#[tokio::test]
async fn a_status_that_another_recommender_replaces_is_put_back_once() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let ours = bed.get("web").await;
    let replace = async || {
        // As upstream writes it: only the conditions that it knows.
        let patch = json!([{ "op": "add", "path": "/status", "value": {
            "conditions": [{ "type": "RecommendationProvided", "status": "True" },
                { "type": "Custom", "status": "True" }],
        } }]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        bed.vpas().patch_status("web", &PatchParams::default(), &patch).await.unwrap();
    };
    replace().await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(conditions(&vpa), ["Custom=True", "LowConfidence=True", "RecommendationProvided=True"]);
    assert_eq!(recommendations(&vpa), recommendations(&ours));
    let since = |vpa: &plumb_vpa_api::VerticalPodAutoscaler| {
        let condition = vpa.status.as_ref().unwrap().condition(&ConditionType::LowConfidence).unwrap();
        condition.last_transition_time.clone()
    };
    assert_eq!(since(&vpa), since(&ours));
    // The second time there is another writer that does not give in.
    replace().await;
    running.once().await;
    running.once().await;
    assert_eq!(recommendations(&bed.get("web").await), []);
    // What is new is written.
    bed.uses("web-1", "app", 900, 900_000_000);
    running.minute(&bed).await;
    assert_ne!(recommendations(&bed.get("web").await), []);
}

#[tokio::test]
async fn a_conflict_is_resolved_in_the_next_run() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    // The informer does not see the edit before the run: the write meets another version.
    bed.uses("web-1", "app", 900, 900_000_000);
    bed.time.advance(Duration::from_mins(1));
    bed.edit("web", json!({ "metadata": { "labels": { "a": "b" } } })).await;
    running.run.once().await;
    running.minute(&bed).await;
    assert_eq!(targets(&bed.get("web").await)["app"].split('/').count(), 2);
    assert_eq!(bed.get("web").await.labels()["a"], "b");
}

#[tokio::test]
async fn without_vpas_no_requests_are_sent_to_the_api_server() {
    let bed = Bed::new().await;
    let requests: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let seen = requests.clone();
    let setup = Setup {
        intercept: Arc::new(move |uri| seen.lock().unwrap().push(uri.path().to_owned())),
        ..Setup::default()
    };
    let (recommender, informers, mut running) = bed.prepare(setup);
    running.spawn(recommender.run());
    informers.vpas.wait_for_sync().await;
    let state = recommender.state();
    assert!(state.read(|_| ()).is_none());
    let asked: Vec<String> = requests.lock().unwrap().clone();
    assert!(asked.iter().all(|path| path.ends_with("/verticalpodautoscalers")), "{asked:?}");
    // The first VPA starts it.
    bed.deployment("web").await;
    bed.pod("web-1", "web").await;
    bed.vpa("web", json!({})).await;
    let provided = |vpa: &plumb_vpa_api::VerticalPodAutoscaler| !recommendations(vpa).is_empty();
    plumb_testkit::until(&bed.vpas(), "web", provided).await;
}

#[tokio::test]
async fn the_first_pod_that_matches_waits_for_no_interval() {
    let bed = Bed::new().await;
    // One VPA has a target that does not exist yet.
    bed.deployment("web").await;
    let spec = json!({ "containers": [{ "name": "app", "image": "plumb/load" }] });
    bed.pod_with("default", "web-1", "web", spec, "Pending").await;
    for vpa in ["web", "late"] {
        bed.vpa(vpa, json!({})).await;
    }
    let options = Options { interval: Duration::from_hours(1), ..Options::default() };
    let (recommender, _informers, mut running) = bed.prepare(Setup { options, ..Setup::default() });
    running.spawn(recommender.run());
    let matches = |expected: bool| {
        move |vpa: &plumb_vpa_api::VerticalPodAutoscaler| {
            let conditions = conditions(vpa);
            !conditions.is_empty() && conditions.contains(&"NoPodsMatched=True".to_owned()) != expected
        }
    };
    for vpa in ["web", "late"] {
        plumb_testkit::until(&bed.vpas(), vpa, matches(false)).await;
    }
    bed.pod_status("default", "web-1", json!({ "phase": "Running" })).await;
    plumb_testkit::until(&bed.vpas(), "web", matches(true)).await;

    bed.deployment("late").await;
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "late-5d8f", "uid": "1", "controller": true }]);
    let metadata = json!({ "name": "late-5d8f-1", "labels": { "app": "late" }, "ownerReferences": owner });
    let spec = json!({ "containers": [{ "name": "app", "image": "plumb/load" }] });
    let pod = object(json!({ "metadata": metadata, "spec": spec }));
    bed.pods().create(&PostParams::default(), &pod).await.unwrap();
    bed.pod_status("default", "late-5d8f-1", json!({ "phase": "Running" })).await;
    plumb_testkit::until(&bed.vpas(), "late", matches(true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_another_client_writes_at_the_same_time_waits_for_no_interval() {
    let bed = Bed::with_web().await;
    let (vpas, first) = (bed.vpas(), Arc::new(AtomicBool::new(true)));
    // Another client's write comes between what the recommender read and its own write.
    let intercept = move |uri: &mut http::Uri| {
        if uri.path().ends_with("/web/status") && first.swap(false, Ordering::Relaxed) {
            let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
            let params = PatchParams::default();
            let edit = vpas.patch("web", &params, &label);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(edit)).unwrap();
        }
    };
    let options = Options { interval: Duration::from_hours(1), ..Options::default() };
    let setup = Setup { options, intercept: Arc::new(intercept), ..Setup::default() };
    let (recommender, _informers, mut running) = bed.prepare(setup);
    running.spawn(recommender.run());
    let provided = |vpa: &plumb_vpa_api::VerticalPodAutoscaler| !recommendations(vpa).is_empty();
    let vpa = plumb_testkit::until(&bed.vpas(), "web", provided).await;
    assert_eq!(vpa.labels()["a"], "b");
}
