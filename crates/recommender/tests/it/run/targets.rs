//! Targets that change, go and cannot be read: history is never lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::DeleteParams;
use plumb_vpa_api::ConditionType;
use serde_json::json;

use super::bed::{Bed, Setup, conditions, message};

/// Runs again and again until it holds.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_read_for_a_while_changes_nothing() {
    let bed = Bed::with_web().await;
    let broken = Arc::new(AtomicBool::new(false));
    let fails = broken.clone();
    let intercept = move |uri: &mut http::Uri| {
        if fails.load(Ordering::SeqCst) && uri.path().contains("deployments") {
            *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
        }
    };
    let setup = Setup { intercept: Arc::new(intercept), ..Setup::default() };
    let mut running = bed.recommender_with(setup).await;
    running.once().await;
    let target = bed.targets("web").await;
    broken.store(true, Ordering::SeqCst);
    // Longer than what was read before is used for.
    for _ in 0..10 {
        bed.time.advance(Duration::from_mins(15));
        running.once().await;
    }
    let vpa = bed.get("web").await;
    assert_eq!(conditions(&vpa), ["LowConfidence=True", "RecommendationProvided=True"]);
    assert_eq!(bed.targets("web").await, target);
    let samples = bed.checkpoints().get("web-app").await.unwrap().status.unwrap().total_samples_count;
    assert_eq!(samples, 11);
}

#[tokio::test]
async fn a_target_that_was_never_read_is_reported_and_its_pods_are_not_reported_as_missing() {
    let bed = Bed::with_web().await;
    let intercept = |uri: &mut http::Uri| {
        if uri.path().contains("deployments") {
            *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
        }
    };
    let setup = Setup { intercept: Arc::new(intercept), ..Setup::default() };
    let mut running = bed.recommender_with(setup).await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(conditions(&vpa), ["ConfigUnsupported=True", "RecommendationProvided=False"]);
    let message = message(&vpa, &ConditionType::ConfigUnsupported);
    assert!(
        message.starts_with("Cannot read targetRef. Reason: cannot read Deployment default/web"),
        "{message}"
    );
}

#[tokio::test]
async fn a_target_that_is_deleted_and_created_again_keeps_its_history() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    bed.uses("web-1", "app", 900, 100_000_000);
    running.minute(&bed).await;
    let target = bed.targets("web").await;
    bed.deployments().delete("web", &DeleteParams::default()).await.unwrap();
    // The watch of Deployments reports it some time, long before what was read expires.
    let is_gone = async || {
        running.once().await;
        conditions(&bed.get("web").await).contains(&"ConfigUnsupported=True".to_owned())
    };
    tokio::time::timeout(plumb_testkit::TIMEOUT, until(is_gone)).await.unwrap();
    let vpa = bed.get("web").await;
    assert_eq!(
        message(&vpa, &ConditionType::ConfigUnsupported),
        "Cannot read targetRef. Reason: Deployment default/web does not exist"
    );
    assert_eq!(bed.targets("web").await, target);
    bed.deployment("web").await;
    bed.time.advance(Duration::from_mins(1));
    running.once().await;
    assert_eq!(conditions(&bed.get("web").await), ["LowConfidence=True", "RecommendationProvided=True"]);
}

#[tokio::test]
async fn a_vpa_that_is_pointed_elsewhere_starts_anew_and_remembers_when_it_is_pointed_back() {
    let bed = Bed::with_web().await;
    bed.deployment("api").await;
    bed.pod("api-1", "api").await;
    let mut running = bed.recommender().await;
    bed.uses("web-1", "app", 900, 100_000_000);
    running.once().await;
    let web = bed.targets("web").await["app"].clone();
    let point_to = async |name: &str| {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
        bed.edit("web", json!({ "spec": { "targetRef": target } })).await;
    };
    point_to("api").await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"], "126m/250Mi");
    // To nothing: no pods match, and no usage of any.
    point_to("absent").await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(
        conditions(&vpa),
        ["ConfigUnsupported=True", "NoPodsMatched=True", "RecommendationProvided=False"]
    );
    point_to("web").await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"], web);
}
