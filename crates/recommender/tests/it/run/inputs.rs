//! Which pods, containers, samples and OOM kills count.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use plumb_recommender::{COUNTED_KILLS_ANNOTATION, Discarded};
use plumb_testkit::object;
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::bed::{Bed, Running, Setup, conditions};

fn containers(names: &[&str]) -> Value {
    let container = |name: &&str| json!({ "name": name, "image": "plumb/load" });
    names.iter().map(container).collect()
}

#[tokio::test]
async fn sidecars_count_and_init_containers_that_end_do_not() {
    let bed = Bed::with_web().await;
    let sidecar = json!({ "name": "proxy", "image": "plumb/load", "restartPolicy": "Always" });
    let init = json!({ "name": "setup", "image": "plumb/load" });
    let spec = json!({ "initContainers": [init, sidecar], "containers": containers(&["app"]) });
    bed.pod_with("default", "web-2", "web", spec, "Running").await;
    for container in ["app", "proxy", "setup"] {
        bed.uses("web-2", container, 200, 500_000_000);
    }
    let mut running = bed.recommender().await;
    running.once().await;
    let targets = bed.targets("web").await;
    assert_eq!(targets.keys().collect::<Vec<_>>(), ["app", "proxy"]);
    let discarded = running.state.read(|state| *state.cluster().discarded()).unwrap();
    assert_eq!(discarded.of(Discarded::UnknownContainer), 2);
}

#[tokio::test]
async fn a_pod_that_is_pending_does_not_match() {
    let bed = Bed::new().await;
    bed.deployment("web").await;
    bed.vpa("web", json!({})).await;
    let spec = json!({ "containers": containers(&["app"]) });
    bed.pod_with("default", "web-1", "web", spec, "Pending").await;
    let mut running = bed.recommender().await;
    running.once().await;
    assert_eq!(conditions(&bed.get("web").await), ["NoPodsMatched=True", "RecommendationProvided=False"]);
    bed.pod_status("default", "web-1", json!({ "phase": "Running" })).await;
    running.minute(&bed).await;
    assert!(!conditions(&bed.get("web").await).contains(&"NoPodsMatched=True".to_owned()));
}

fn killed(bed: &Bed, restarts: i32) -> Value {
    json!({ "phase": "Running", "containerStatuses": [killed_container(bed, "app", restarts)] })
}

/// The status of a container that was killed and runs again.
fn killed_container(bed: &Bed, name: &str, restarts: i32) -> Value {
    let finished = bed.time.now() - SignedDuration::from_secs(30);
    json!({
        "name": name, "ready": true, "image": "plumb/load", "imageID": "", "restartCount": restarts,
        "state": { "running": { "startedAt": bed.time.now() } },
        "lastState": { "terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": finished, "startedAt": finished,
        } },
    })
}

#[tokio::test]
async fn an_oom_kill_in_a_pod_that_is_pending_counts() {
    let bed = Bed::new().await;
    bed.deployment("web").await;
    bed.vpa("web", json!({})).await;
    let resources = json!({ "requests": { "memory": "400Mi" } });
    let container = |name: &str| json!({ "name": name, "image": "plumb/load", "resources": resources });
    let mut sidecar = container("proxy");
    sidecar["restartPolicy"] = json!("Always");
    let spec = json!({ "initContainers": [sidecar], "containers": [container("app"), container("log")] });
    bed.pod_with("default", "web-1", "web", spec, "Pending").await;
    let mut running = bed.recommender().await;
    running.once().await;
    assert_eq!(bed.targets("web").await.len(), 0);

    // While the image of another container is pulled, the pod is pending. That its container was killed counts once it starts.
    let status = json!({ "containerStatuses": [killed_container(&bed, "app", 1)] });
    bed.pod_status("default", "web-1", status).await;
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await.len(), 0);
    // A sidecar runs before the pod does.
    let status = json!({ "initContainerStatuses": [killed_container(&bed, "proxy", 1)] });
    bed.pod_status("default", "web-1", status).await;
    running.minute(&bed).await;
    let expected = "-/628694953".to_owned();
    let expected = [("app".to_owned(), expected.clone()), ("proxy".to_owned(), expected)];
    assert_eq!(bed.targets("web").await, expected.clone().into());
    bed.pod_status("default", "web-1", json!({ "phase": "Running" })).await;
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await, expected.into());
}

#[tokio::test]
async fn an_oom_kill_from_before_the_start_raises_memory() {
    let bed = Bed::with_web().await;
    bed.pod_status("default", "web-1", killed(&bed, 1)).await;
    let mut running = bed.recommender().await;
    running.once().await;
    // 400Mi requested and 100Mi more: the bucket of 524288000 ends at 546691261, and 15 % are added.
    let expected = bed.targets("web").await["app"].clone();
    assert_eq!(expected, "126m/628694953");
    // The same kill counts once, whatever else happens to the pod.
    bed.pod_status("default", "web-1", json!({ "conditions": [{ "type": "Ready", "status": "True" }] }))
        .await;
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await["app"].split('/').next_back(), expected.split('/').next_back());
}

#[tokio::test]
async fn the_status_reports_with_the_recommendation_up_to_when_kills_are_counted() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let counted = |vpa: &VerticalPodAutoscaler| vpa.status.as_ref().unwrap().kills_counted_until();
    assert_eq!(counted(&bed.get("web").await), None);
    running.minute(&bed).await;
    bed.pod_status("default", "web-1", killed(&bed, 1)).await;
    running.minute(&bed).await;
    let seconds_ago = |seconds: i64| Some(bed.time.now() - SignedDuration::from_secs(seconds));
    assert_eq!(counted(&bed.get("web").await), seconds_ago(90));
    assert_eq!(bed.targets("web").await["app"].split('/').next_back(), Some("628694953"));
    // A kill that does not change the recommendation is reported, too: the updater waits for it.
    bed.pod_status("default", "web-1", killed(&bed, 2)).await;
    running.minute(&bed).await;
    assert_eq!(counted(&bed.get("web").await), seconds_ago(90));
    // Another process that takes over does not take it back.
    drop(running);
    bed.recommender().await.minute(&bed).await;
    assert_eq!(counted(&bed.get("web").await), seconds_ago(150));
}

#[tokio::test]
async fn an_oom_kill_before_the_first_cpu_sample_raises_memory_and_leaves_the_cpu_alone() {
    let bed = Bed::with_web().await;
    bed.uses_nothing();
    bed.pod_status("default", "web-1", killed(&bed, 1)).await;
    let mut running = bed.recommender().await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"], "-/628694953");
    assert!(conditions(&bed.get("web").await).contains(&"RecommendationProvided=True".to_owned()));
    bed.uses("web-1", "app", 100, 100_000_000);
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await["app"], "126m/628694953");
}

#[tokio::test]
async fn a_kill_that_a_pod_still_shows_after_a_restart_counts_once() {
    let duplicates =
        |running: &Running| running.state.read(|state| state.cluster().discarded().of(Discarded::Duplicate));
    for (hours, is_in_checkpoint) in [(2, true), (0, false)] {
        let bed = Bed::with_web().await;
        {
            let mut running = bed.recommender().await;
            running.once().await;
            bed.time.advance(Duration::from_hours(23));
            bed.pod_status("default", "web-1", killed(&bed, 1)).await;
            running.once().await;
            // The memory window of the kill is over, or it is not.
            bed.time.advance(Duration::from_hours(hours));
            running.once().await;
            running.minute(&bed).await;
        }
        let checkpoint = bed.checkpoints().get("web-app").await.unwrap();
        let memory = checkpoint.status.as_ref().unwrap().memory_histogram.total_weight;
        let names_kills = checkpoint.annotations().contains_key(COUNTED_KILLS_ANNOTATION);
        assert_eq!((memory > 0.0, names_kills), (is_in_checkpoint, is_in_checkpoint));
        bed.uses_nothing();
        let mut running = bed.recommender().await;
        running.minute(&bed).await;
        assert_eq!(duplicates(&running), Some(u64::from(is_in_checkpoint)));
        assert_eq!(bed.targets("web").await["app"].split('/').next_back(), Some("628694953"));
        // Another kill is another, and the annotation goes with the kill.
        bed.pod_status("default", "web-1", killed(&bed, 2)).await;
        running.minute(&bed).await;
        assert_eq!(duplicates(&running), Some(u64::from(is_in_checkpoint)));
        bed.time.advance(Duration::from_hours(49));
        running.once().await;
        running.run.once().await;
        let checkpoint = bed.checkpoints().get("web-app").await.unwrap();
        assert_eq!(checkpoint.annotations().len(), 0);
    }
}

#[tokio::test]
async fn an_oom_kill_of_a_pod_that_is_deleted_at_once_counts() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender().await;
    running.once().await;
    assert!(bed.targets("web").await["app"].ends_with("/250Mi"));
    bed.pod_status("default", "web-1", killed(&bed, 1)).await;
    running.delete_pod(&bed, "web-1").await;
    running.minute(&bed).await;
    assert!(!bed.targets("web").await["app"].ends_with("/250Mi"));
    let vpa = bed.get("web").await;
    // The history stays though the pods are gone.
    assert!(conditions(&vpa).contains(&"NoPodsMatched=True".to_owned()));
    assert!(conditions(&vpa).contains(&"RecommendationProvided=True".to_owned()));
}

#[tokio::test]
async fn an_eviction_for_memory_counts_like_a_kill() {
    let bed = Bed::with_web().await;
    let event: Event = object(json!({
        "metadata": {
            "name": "web-1.evicted", "namespace": "default",
            "annotations": {
                "offending_containers": "app", "offending_containers_usage": "600Mi",
                "starved_resource": "memory",
            },
        },
        "reason": "Evicted", "type": "Warning",
        "involvedObject": { "kind": "Pod", "namespace": "default", "name": "web-1" },
    }));
    let created = Api::<Event>::default_namespaced(bed.client.clone())
        .create(&PostParams::default(), &event)
        .await
        .unwrap();
    // The API server's clock is another: the event must not be in the future.
    let created = created.metadata.creation_timestamp.unwrap().0;
    let ahead = created.as_second() - bed.time.now().as_second();
    bed.time.advance(Duration::from_secs(u64::try_from(ahead.max(0)).unwrap()));
    let mut running = bed.recommender().await;
    let mut raised = false;
    // The events are listed while the recommender runs already.
    let deadline = tokio::time::Instant::now() + plumb_testkit::TIMEOUT;
    while !raised && tokio::time::Instant::now() < deadline {
        running.once().await;
        raised = !bed.targets("web").await["app"].ends_with("/250Mi");
        tokio::task::yield_now().await;
    }
    assert!(raised);
}

#[tokio::test]
async fn when_usage_cannot_be_read_the_recommendation_stays() {
    let bed = Bed::with_web().await;
    let mut running = bed.recommender_with(Setup::default()).await;
    running.once().await;
    let before = bed.targets("web").await;
    let real = plumb_recommender::input::live_usage::MetricsApi::new(
        bed.client.clone(),
        &plumb_vpa::namespaces::Namespaces::All,
    );
    // The API server of this test measures nothing.
    let answer = plumb_recommender::input::live_usage::LiveUsage::read(&real, bed.time.now()).await;
    assert!(answer.is_err());
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await, before);
}
