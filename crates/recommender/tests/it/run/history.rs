//! History from Prometheus at the start: it is counted before anything else, and the VPA says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plumb_recommender::{Options, Storage, VpaKey};
use plumb_testkit::eventually;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::bed::{Bed, Running, Setup, conditions};
use crate::prometheus::fake::{Asked, Fake, Reply};
use crate::prometheus::{error, labels, matrix, points, prometheus, settings, vector};

/// The query for the labels of pods.
const LABELS: &str = "up{job=\"kubernetes-pods\"}";

/// Each hour 300m and 500 MB of the pods.
fn usage(asked: &Asked, pods: &[&str]) -> Reply {
    let value = if asked.field("query").contains("cpu") { "0.3" } else { "5e8" };
    let series = |pod: &&str| json!({ "metric": labels(pod, "app"), "values": points(asked, value) });
    matrix(pods.iter().map(series).collect())
}

/// A pod that is gone, with the labels of the Deployment `web`.
fn gone(name: &str) -> Value {
    json!({ "metric": {
        "kubernetes_namespace": "default", "kubernetes_pod_name": name,
        "pod_label_app": "web", "pod_label_pod-template-hash": "0",
    }, "value": [0, "1"] })
}

fn setup(server: &Fake) -> Setup {
    Setup {
        options: Options { storage: Storage::Prometheus, ..Options::default() },
        history: Some(prometheus(settings(&server.address))),
        ..Setup::default()
    }
}

/// A recommender that has read the history, and recommended once since.
async fn with_history(bed: &Bed, server: &Fake) -> Running {
    let mut running = bed.recommender_with(setup(server)).await;
    running.minute(bed).await;
    running.run.history_read().await;
    running.minute(bed).await;
    running
}

#[tokio::test]
async fn history_is_read_before_present_usage_and_the_vpa_reports_it() {
    let bed = Bed::with_web().await;
    let gate = Arc::new(AtomicU32::new(0));
    let asked_gate = gate.clone();
    let server = Fake::start(move |asked| {
        if asked.field("query") == LABELS {
            return vector(json!([]));
        }
        // Until the test lets it, there is no answer.
        if asked_gate.load(Relaxed) == 0 { Reply::never() } else { usage(asked, &["web-1"]) }
    })
    .await;
    let mut running = bed.recommender_with(setup(&server)).await;
    running.minute(&bed).await;
    let shown = bed.get("web").await;
    assert_eq!(
        conditions(&shown),
        ["FetchingHistory=True", "LowConfidence=True", "RecommendationProvided=False"]
    );
    assert!(bed.targets("web").await.is_empty(), "the present usage of 100m is not counted before the past");
    drop(running);

    gate.store(1, Relaxed);
    let running = with_history(&bed, &server).await;
    let shown = bed.get("web").await;
    assert_eq!(conditions(&shown), ["RecommendationProvided=True"]);
    // 300m lie in the bucket that ends at 305m, and 500 MB in that which ends at 511 MB; 15 % more each.
    assert_eq!(bed.targets("web").await["app"], "350m/587804717");
    assert_eq!(bed.checkpoint_names().await, Vec::<String>::new(), "history is in Prometheus");
    let explained =
        running.state.read(|state| state.explain(&VpaKey::new("default", "web"))).unwrap().unwrap();
    assert_eq!(explained[0].samples, 193 + 1, "eight days, hour by hour, and the present");
}

#[tokio::test]
async fn deleted_pods_count_by_their_labels_in_prometheus() {
    let bed = Bed::with_web().await;
    let server = Fake::start(|asked| match asked.field("query").as_str() {
        LABELS => vector(json!([gone("web-0"), gone("web-1")])),
        _ => usage(asked, &["web-0", "unknown"]),
    })
    .await;
    let running = with_history(&bed, &server).await;
    assert_eq!(bed.targets("web").await["app"], "350m/587804717");
    let pods = running
        .state
        .read(|state| (state.cluster().size().pods, state.cluster().has_pod("default", "web-0")));
    assert_eq!(pods, Some((1, false)), "only the pod that runs is left");
}

#[tokio::test]
async fn an_oom_kill_at_the_start_does_not_keep_history_from_being_counted() {
    let bed = Bed::with_web().await;
    let killed = bed.time.now().to_string();
    let status = json!({ "phase": "Running", "containerStatuses": [{
        "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 1, "state": { "running": {} },
        "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled", "finishedAt": killed } },
    }] });
    bed.pod_status("default", "web-1", status).await;
    let server = Fake::start(|asked| match asked.field("query").as_str() {
        // That there is no such metric is no reason to do without usage.
        LABELS => error(400, "bad_data", "no"),
        _ => usage(asked, &["web-1"]),
    })
    .await;
    let running = with_history(&bed, &server).await;
    let explained =
        running.state.read(|state| state.explain(&VpaKey::new("default", "web"))).unwrap().unwrap();
    assert_eq!(explained[0].samples, 194);
    let memory = explained[0].resources.memory.as_ref().unwrap();
    assert!(memory.histogram.len() >= 2, "peaks of the past, and of the kill: {:?}", memory.histogram);
}

#[tokio::test]
async fn reading_history_is_retried() {
    let bed = Bed::with_web().await;
    let refusals = Arc::new(AtomicU32::new(0));
    let counted = refusals.clone();
    let server = Fake::start(move |asked| match asked.field("query").as_str() {
        LABELS => vector(json!([])),
        _ if counted.fetch_add(1, Relaxed) < 3 => error(401, "unauthorized", "who are you"),
        _ => usage(asked, &["web-1"]),
    })
    .await;
    let _running = with_history(&bed, &server).await;
    assert_eq!(bed.targets("web").await["app"], "350m/587804717");
    assert!(refusals.load(Relaxed) > 3);
}

#[tokio::test]
async fn a_pod_that_starts_while_history_is_read_stays() {
    let bed = Bed::with_web().await;
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    let server = Fake::start(move |asked| match asked.field("query").as_str() {
        LABELS => vector(json!([gone("web-2"), gone("web-3")])),
        _ => usage(asked, &["web-2", "web-3"]).after(&closed),
    })
    .await;
    let mut running = bed.recommender_with(setup(&server)).await;
    running.minute(&bed).await;
    // The labels are read once there is a query for usage.
    eventually(async || server.asked().iter().any(|asked| asked.field("query") != LABELS)).await;
    let container = |name: &str| json!({ "name": name, "image": "plumb/load" });
    let spec = json!({ "containers": [container("app"), container("log")] });
    bed.pod_with("default", "web-2", "web", spec, "Running").await;
    running.minute(&bed).await;
    gate.close();
    running.run.history_read().await;
    running.minute(&bed).await;
    let has = |name| running.state.read(|state| state.cluster().has_active_pod("default", name)).unwrap();
    assert_eq!([has("web-1"), has("web-2"), has("web-3")], [true, true, false]);
    assert_eq!(running.state.read(|state| state.cluster().size().pods), Some(2));
    // Its containers are those of the pod, not those that Prometheus knows.
    bed.uses("web-2", "log", 100, 100_000_000);
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await.keys().collect::<Vec<_>>(), ["app", "log"]);
}

#[tokio::test]
async fn a_pod_that_starts_after_a_part_of_its_history_was_read_stays() {
    let bed = Bed::with_web().await;
    let gate = Arc::new(Semaphore::new(0));
    let (closed, queries) = (gate.clone(), AtomicU32::new(0));
    let server = Fake::start(move |asked| match asked.field("query").as_str() {
        LABELS => vector(json!([gone("web-2"), gone("web-3")])),
        _ if queries.fetch_add(1, Relaxed) == 0 => usage(asked, &["web-2", "web-3"]),
        _ => usage(asked, &["web-2", "web-3"]).after(&closed),
    })
    .await;
    let mut running = bed.recommender_with(setup(&server)).await;
    running.minute(&bed).await;
    let state = running.state.clone();
    let is_known = || state.read(|state| state.cluster().has_pod("default", "web-2")) == Some(true);
    eventually(async || is_known()).await;
    let container = json!({ "name": "app", "image": "plumb/load" });
    bed.pod_with("default", "web-2", "web", json!({ "containers": [container] }), "Running").await;
    running.minute(&bed).await;
    gate.close();
    running.run.history_read().await;
    running.minute(&bed).await;
    let has = |name| state.read(|state| state.cluster().has_active_pod("default", name)).unwrap();
    assert_eq!([has("web-1"), has("web-2"), has("web-3")], [true, true, false]);
}

#[tokio::test]
async fn a_failed_attempt_leaves_no_deleted_pods() {
    let bed = Bed::with_web().await;
    let queries = Arc::new(AtomicU32::new(0));
    let counted = queries.clone();
    let server = Fake::start(move |asked| match asked.field("query").as_str() {
        LABELS => vector(json!([gone("web-0")])),
        // The first day is read, the second is not.
        _ if counted.fetch_add(1, Relaxed) == 1 => error(401, "unauthorized", "who are you"),
        _ => usage(asked, &["web-0"]),
    })
    .await;
    let running = with_history(&bed, &server).await;
    let labels = server.asked().iter().filter(|asked| asked.field("query") == LABELS).count();
    assert_eq!(labels, 2, "two attempts");
    assert_eq!(running.state.read(|state| state.cluster().size().pods), Some(1));
}
