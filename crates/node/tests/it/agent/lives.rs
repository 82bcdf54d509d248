//! The lives of pods.

use plumb_resize::rules::{Dialect, Gates, Rules};
use serde_json::json;

use crate::it::site::{Site, equal, one, status};

fn kep() -> Rules {
    Rules::new(Dialect::Kep, Gates::default())
}

#[tokio::test]
async fn a_pod_that_is_deleted_leaves_nothing() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    assert_eq!(site.sandboxes().await, 1);
    site.delete("a").await;
    site.gone("a").await;
    assert_eq!(site.sandboxes().await, 0);
}

#[tokio::test]
async fn a_pod_that_does_not_fit_is_turned_away_in_the_kubelets_words() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("1500m", "64Mi"))).await;
    site.settled("a").await;
    site.pod("b", one(equal("600m", "64Mi"))).await;
    let pod = site
        .until("b", "turned away", |pod| {
            pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed"))
        })
        .await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(
        status.message.as_deref(),
        Some(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        )
    );
    // It has no containers, and is promised nothing.
    assert_eq!(status.container_statuses, None);
    site.delete("b").await;
    site.gone("b").await;
}

#[tokio::test]
async fn a_pod_whose_containers_end_is_over_as_its_policy_says() {
    let site = Site::start(kep()).await;
    for (policy, code, phase) in
        [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")]
    {
        let name = format!("{}-{code}", policy.to_lowercase());
        let mut containers = one(equal("100m", "64Mi"));
        containers[0]["args"] = json!(["--duration", "100ms", "--exit-code", code.to_string()]);
        site.pod_of(&name, json!({ "restartPolicy": policy, "containers": containers })).await;
        let is_over = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase))
        };
        let pod = site.until(&name, phase, is_over).await;
        let ended = status(&pod).state.unwrap().terminated.unwrap();
        assert_eq!(ended.exit_code, code);
        assert!(!status(&pod).ready);
    }
    // What they held is free again.
    site.pod("large", one(equal("2", "64Mi"))).await;
    site.settled("large").await;
}

#[tokio::test]
async fn a_container_that_keeps_ending_is_left_alone_for_a_while() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["args"] = json!(["--duration", "10ms", "--exit-code", "1"]);
    site.pod("a", containers).await;
    let reason = |pod: &k8s_openapi::api::core::v1::Pod| {
        status(pod).state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason)
    };
    let pod = site.until("a", "left alone", |pod| reason(pod).as_deref() == Some("CrashLoopBackOff")).await;
    assert_eq!(status(&pod).restart_count, 1, "the first restart comes at once");
    assert!(
        site.event("a", "BackOff")
            .await
            .starts_with("Back-off restarting failed container c in pod a_default(")
    );
}

#[tokio::test]
async fn init_containers_run_in_turn_and_sidecars_stay() {
    let site = Site::start(kep()).await;
    let load =
        |name: &str, args: serde_json::Value| json!({ "name": name, "image": "plumb/load", "args": args });
    let mut side = load("side", json!([]));
    side["restartPolicy"] = json!("Always");
    site.pod_of(
        "a",
        json!({
            "initContainers": [load("first", json!(["--duration", "50ms"])), side],
            "containers": [load("c", json!([]))],
        }),
    )
    .await;
    let pod = site.settled("a").await;
    let inits = pod.status.unwrap().init_container_statuses.unwrap();
    assert_eq!(inits[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 0);
    assert!(inits[1].state.as_ref().unwrap().running.is_some() && inits[1].ready);
}

#[tokio::test]
async fn another_image_restarts_that_container_alone() {
    let site = Site::start(kep()).await;
    let container = |name: &str| json!({ "name": name, "image": "plumb/load" });
    site.pod("a", json!([container("c"), container("other")])).await;
    site.settled("a").await;
    let patch = json!({ "spec": { "containers": [{ "name": "c", "image": "plumb/load:latest" }] } });
    let params = kube::api::PatchParams::default();
    site.pods().patch("a", &params, &kube::api::Patch::Strategic(patch)).await.unwrap();
    let pod = site.until("a", "restarted", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
    let other =
        pod.status.unwrap().container_statuses.unwrap().into_iter().find(|s| s.name == "other").unwrap();
    assert_eq!((other.restart_count, other.ready), (0, true));
}

#[tokio::test]
async fn a_pod_that_takes_too_long_is_failed() {
    let site = Site::start(kep()).await;
    site.pod_of("a", json!({ "activeDeadlineSeconds": 1, "containers": one(equal("100m", "64Mi")) })).await;
    let pod = site
        .until("a", "failed", |pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed")))
        .await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}
