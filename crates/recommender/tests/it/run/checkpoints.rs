//! Checkpoints: written when they are others, read for every VPA that is new, deleted with their VPA.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_recommender::Options;
use plumb_testkit::{eventually, object, virtual_clock};
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_api::VerticalPodAutoscalerCheckpoint;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::bed::{Bed, Setup, conditions, recommendations};

/// A day of samples, one an hour.
async fn a_day(bed: &Bed) {
    let mut running = bed.recommender().await;
    running.once().await;
    for hour in 0..30 {
        bed.time.advance(Duration::from_hours(1));
        bed.uses("web-1", "app", 100 + 10 * hour, 400_000_000 + 1_000_000 * hour);
        running.once().await;
    }
}

#[tokio::test]
async fn a_restart_keeps_the_recommendation_and_its_bounds() {
    let bed = Bed::with_web().await;
    a_day(&bed).await;
    let before = bed.get("web").await;
    assert_eq!(bed.checkpoint_names().await, ["web-app"]);
    bed.uses_nothing();
    let mut running = bed.recommender().await;
    running.once().await;
    let after = bed.get("web").await;
    let cpu = |vpa: &plumb_vpa_api::VerticalPodAutoscaler| {
        let of = &recommendations(vpa)[0];
        [&of.target, &of.lower_bound, &of.upper_bound].map(|list| list["cpu"].clone())
    };
    assert_eq!(cpu(&after), cpu(&before));
    assert_eq!(conditions(&after), ["RecommendationProvided=True"]);
}

#[tokio::test]
async fn a_checkpoint_is_written_only_when_it_is_another() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let before = bed.checkpoints().get("web-app").await.unwrap();
    assert_eq!(before.spec.vpa_object_name, "web");
    assert_eq!(before.status.as_ref().unwrap().total_samples_count, 1);
    running.once().await;
    let same = bed.checkpoints().get("web-app").await.unwrap();
    assert_eq!(same.resource_version(), before.resource_version());
    running.minute(&bed).await;
    let after = bed.checkpoints().get("web-app").await.unwrap();
    assert_eq!(after.status.as_ref().unwrap().total_samples_count, 2);
}

#[tokio::test]
async fn with_a_long_history_a_checkpoint_waits_for_more_to_come() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let samples =
        async || bed.checkpoints().get("web-app").await.unwrap().status.unwrap().total_samples_count;
    for _ in 0..10 {
        running.minute(&bed).await;
    }
    assert_eq!(samples().await, 11);
    for _ in 0..24 {
        bed.time.advance(Duration::from_hours(1));
        running.once().await;
    }
    let written = samples().await;
    for minute in 1..=30 {
        running.minute(&bed).await;
        let expected = if minute < 10 { written } else { written + minute - minute % 10 };
        assert_eq!(samples().await, expected, "minute {minute}");
    }
}

#[tokio::test]
async fn a_vpa_that_is_created_later_gets_its_checkpoint() {
    let bed = Bed::with_web().await;
    a_day(&bed).await;
    let target = bed.targets("web").await["app"].clone();
    bed.vpa("other", json!({})).await;
    let gone = bed.get("web").await;
    bed.vpas().delete("web", &DeleteParams::default()).await.unwrap();
    // A recommender that starts without the VPA, and has not counted its pods.
    let mut running = bed.recommender().await;
    bed.uses("web-1", "app", 1, 1);
    running.once().await;
    bed.vpa("web", json!({})).await;
    running.minute(&bed).await;
    let vpa = bed.get("web").await;
    assert_ne!(vpa.metadata.uid, gone.metadata.uid);
    let cpu = |text: &str| text.split('/').next().unwrap().to_owned();
    assert_eq!(cpu(&bed.targets("web").await["app"]), cpu(&target));
    let samples = bed.checkpoints().get("web-app").await.unwrap().status.unwrap().total_samples_count;
    assert!(samples > 30, "{samples}");
}

#[tokio::test]
async fn while_checkpoints_cannot_be_read_none_is_written_and_the_recommendation_stays() {
    let bed = Bed::with_web().await;
    a_day(&bed).await;
    let (before, checkpoint) = (bed.get("web").await, bed.checkpoints().get("web-app").await.unwrap());
    let broken = Arc::new(AtomicBool::new(true));
    let fails = broken.clone();
    let intercept = move |uri: &mut http::Uri| {
        if fails.load(Ordering::SeqCst) && uri.path().contains("verticalpodautoscalercheckpoints") {
            *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
        }
    };
    let setup = Setup { intercept: Arc::new(intercept), ..Setup::default() };
    let mut running = bed.recommender_with(setup).await;
    running.minute(&bed).await;
    let vpa = bed.get("web").await;
    assert_eq!(recommendations(&vpa), recommendations(&before));
    assert!(conditions(&vpa).contains(&"FetchingHistory=True".to_owned()));
    broken.store(false, Ordering::SeqCst);
    let same = bed.checkpoints().get("web-app").await.unwrap();
    assert_eq!(same.resource_version(), checkpoint.resource_version());
    running.minute(&bed).await;
    assert_eq!(conditions(&bed.get("web").await), ["RecommendationProvided=True"]);
    let samples = bed.checkpoints().get("web-app").await.unwrap().status.unwrap().total_samples_count;
    assert!(samples > 30, "{samples}");
}

async fn replace_status(bed: &Bed, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    bed.checkpoints().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_of_another_version_is_left_alone_and_a_corrupt_one_is_replaced() {
    for (status, is_replaced) in [
        (json!({ "version": "v4" }), false),
        (json!({ "version": "v3", "totalSamplesCount": -5 }), true),
        (json!({ "version": "v3", "cpuHistogram": { "bucketWeights": { "9999": 1, "x": "y" } } }), true),
        (json!({ "version": "v3", "lastSampleStart": "2200-01-01T00:00:00Z" }), false),
    ] {
        let bed = Bed::with_web().await;
        {
            let mut running = bed.recommender().await;
            running.once().await;
        }
        replace_status(&bed, "web-app", status.clone()).await;
        let before = bed.checkpoints().get("web-app").await.unwrap();
        let mut running = bed.recommender().await;
        running.minute(&bed).await;
        running.minute(&bed).await;
        let after = bed.checkpoints().get("web-app").await.unwrap();
        let replaced = after.resource_version() != before.resource_version();
        assert_eq!(replaced, is_replaced, "{status}");
        // What is measured since is recommended all the same.
        assert_eq!(bed.targets("web").await["app"], "126m/250Mi");
    }
}

/// Creates the checkpoint of the container `app` of a VPA.
async fn checkpoint(bed: &Bed, namespace: &str, vpa: &str) {
    let checkpoint: VerticalPodAutoscalerCheckpoint = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": { "name": format!("{vpa}-app") },
        "spec": { "vpaObjectName": vpa, "containerName": "app" },
    }));
    let api: kube::Api<VerticalPodAutoscalerCheckpoint> =
        kube::Api::namespaced(bed.client.clone(), namespace);
    api.create(&PostParams::default(), &checkpoint).await.unwrap();
}

#[tokio::test]
async fn checkpoints_are_deleted_with_their_vpa_and_no_others() {
    let bed = Bed::with_web().await;
    bed.namespace("team").await;
    bed.vpa("other", json!({ "recommenders": [{ "name": "other" }] })).await;
    bed.vpa("stays", json!({})).await;
    checkpoint(&bed, "default", "other").await;
    checkpoint(&bed, "default", "gone").await;
    checkpoint(&bed, "team", "gone").await;
    let ignored = Namespaces::Except(["team".to_owned()].into());
    let options = Options { namespaces: ignored, ..Options::default() };
    let mut running = bed.recommender_with(Setup { options, ..Setup::default() }).await;
    running.once().await;
    assert_eq!(bed.checkpoint_names().await, ["gone-app", "other-app", "web-app"]);
    bed.time.advance(Duration::from_mins(11));
    running.once().await;
    assert_eq!(bed.checkpoint_names().await, ["other-app", "web-app"]);
    running.delete_vpa(&bed, "web").await;
    bed.time.advance(Duration::from_mins(11));
    running.once().await;
    assert_eq!(bed.checkpoint_names().await, ["other-app"]);
    let team: kube::Api<VerticalPodAutoscalerCheckpoint> = kube::Api::namespaced(bed.client.clone(), "team");
    assert!(team.get_opt("gone-app").await.unwrap().is_some());
}

#[tokio::test]
async fn a_vpa_that_is_deleted_and_created_again_has_its_history() {
    let bed = Bed::with_web().await;
    bed.vpa("stays", json!({})).await;
    let mut running = bed.recommender().await;
    running.once().await;
    bed.uses("web-1", "app", 900, 100_000_000);
    running.minute(&bed).await;
    let target = bed.targets("web").await["app"].clone();
    running.delete_vpa(&bed, "web").await;
    running.once().await;
    bed.vpa("web", json!({})).await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"], target);
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_read_is_written_again_once_its_owner_deletes_it() {
    let bed = Bed::with_web().await;
    {
        let mut running = bed.recommender().await;
        running.once().await;
    }
    replace_status(&bed, "web-app", json!({ "version": "v4" })).await;
    let mut running = bed.recommender().await;
    running.minute(&bed).await;
    bed.checkpoints().delete("web-app", &DeleteParams::default()).await.unwrap();
    running.minute(&bed).await;
    assert_eq!(bed.checkpoint_names().await, Vec::<String>::new(), "that it is gone is found out later");
    bed.time.advance(Duration::from_mins(11));
    running.once().await;
    running.minute(&bed).await;
    let written = bed.checkpoints().get("web-app").await.unwrap().status.unwrap();
    assert_eq!(written.version.as_deref(), Some("v3"));
}

#[tokio::test]
async fn a_vpa_that_is_created_again_after_its_checkpoints_were_deleted_has_them_written_again() {
    let bed = Bed::with_web().await;
    bed.vpa("stays", json!({})).await;
    let mut running = bed.recommender().await;
    running.once().await;
    bed.uses_nothing();
    running.delete_vpa(&bed, "web").await;
    bed.time.advance(Duration::from_mins(11));
    running.once().await;
    assert_eq!(bed.checkpoint_names().await, Vec::<String>::new());
    bed.vpa("web", json!({})).await;
    bed.time.advance(Duration::from_mins(11));
    running.once().await;
    running.minute(&bed).await;
    assert_eq!(bed.checkpoint_names().await, ["web-app"]);
}

/// A recommender that runs by itself and collects checkpoints every ten seconds, in virtual time.
fn run_collecting(bed: &Bed) -> JoinSet<()> {
    let setup = Setup {
        options: Options {
            interval: Duration::from_secs(1),
            checkpoints_gc_interval: Duration::from_secs(10),
            ..Options::default()
        },
        clock: Some(virtual_clock("2026-01-01T00:00:00Z".parse().unwrap())),
        ..Setup::default()
    };
    let (recommender, _, mut running) = bed.prepare(setup);
    running.spawn(recommender.run());
    running
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_deleted_with_the_last_vpa() {
    let bed = Bed::with_web().await;
    let _running = run_collecting(&bed);
    eventually(async || bed.checkpoint_names().await == ["web-app"]).await;
    bed.vpas().delete("web", &DeleteParams::default()).await.unwrap();
    eventually(async || bed.checkpoint_names().await.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_vpa_of_another_recommender_does_not_delay_the_deletion_of_checkpoints() {
    let bed = Bed::new().await;
    bed.vpa("other", json!({ "recommenders": [{ "name": "other" }] })).await;
    let _running = run_collecting(&bed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    checkpoint(&bed, "default", "gone").await;
    // It is edited a second before checkpoints are collected, which they are after ten seconds all the same.
    tokio::time::sleep(Duration::from_secs(8)).await;
    bed.edit("other", json!({ "metadata": { "annotations": { "edited": "true" } } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bed.checkpoint_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_deleted_in_a_cluster_without_vpas() {
    let bed = Bed::new().await;
    checkpoint(&bed, "default", "gone").await;
    let _running = run_collecting(&bed);
    eventually(async || bed.checkpoint_names().await.is_empty()).await;
}
