//! The metrics and their names.

use std::time::Duration;

use plumb_controller_runtime::metrics::{EventOutcome, Metrics, ReconcileResult};
use plumb_metrics::Text;

fn rendered(metrics: &Metrics) -> String {
    let mut text = Text::default();
    metrics.render(&mut text);
    text.finish()
}

#[track_caller]
fn assert_shows(metrics: &Metrics, lines: &[&str]) {
    let text = rendered(metrics);
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\nin\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_queue_counts_under_the_names_of_client_go() {
    let metrics = Metrics::default();
    let queue = metrics.work_queue("job");
    queue.added(1);
    queue.added(2);
    queue.retried();
    let slow = queue.started(Duration::from_millis(20), 1);
    tokio::time::advance(Duration::from_secs(3)).await;
    let quick = queue.started(Duration::from_secs(4), 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_shows(
        &metrics,
        &[
            "workqueue_depth{name=\"job\"} 0",
            "workqueue_adds_total{name=\"job\"} 2",
            "workqueue_retries_total{name=\"job\"} 1",
            "workqueue_queue_duration_seconds_bucket{name=\"job\",le=\"0.00000001\"} 0",
            "workqueue_queue_duration_seconds_bucket{name=\"job\",le=\"0.1\"} 1",
            "workqueue_queue_duration_seconds_sum{name=\"job\"} 4.02",
            "workqueue_work_duration_seconds_count{name=\"job\"} 0",
            "workqueue_unfinished_work_seconds{name=\"job\"} 7",
            "workqueue_longest_running_processor_seconds{name=\"job\"} 5",
        ],
    );
    drop((slow, quick));
    assert_shows(
        &metrics,
        &[
            "workqueue_work_duration_seconds_sum{name=\"job\"} 7",
            "workqueue_work_duration_seconds_count{name=\"job\"} 2",
            "workqueue_unfinished_work_seconds{name=\"job\"} 0",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_counts_under_the_names_of_controller_runtime() {
    let metrics = Metrics::default();
    let controller = metrics.controller("job");
    controller.set_max_concurrent_reconciles(4);
    for result in [
        ReconcileResult::Success,
        ReconcileResult::Requeue,
        ReconcileResult::RequeueAfter,
        ReconcileResult::Error,
        ReconcileResult::TerminalError,
        ReconcileResult::Panic,
    ] {
        let reconciling = controller.reconciling();
        tokio::time::advance(Duration::from_millis(7)).await;
        reconciling.finish(result);
    }
    drop(controller.reconciling());
    let _running = controller.reconciling();
    assert_shows(
        &metrics,
        &[
            "controller_runtime_reconcile_total{controller=\"job\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"job\",result=\"requeue\"} 1",
            "controller_runtime_reconcile_total{controller=\"job\",result=\"requeue_after\"} 1",
            "controller_runtime_reconcile_total{controller=\"job\",result=\"error\"} 3",
            "controller_runtime_reconcile_errors_total{controller=\"job\"} 3",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"job\"} 1",
            "controller_runtime_reconcile_panics_total{controller=\"job\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"job\",le=\"0.005\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"job\",le=\"0.01\"} 6",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"job\",le=\"60\"} 6",
            "controller_runtime_max_concurrent_reconciles{controller=\"job\"} 4",
            "controller_runtime_active_workers{controller=\"job\"} 1",
        ],
    );
}

#[test]
fn metrics_of_reflectors_elections_and_recorders_have_their_names() {
    let metrics = Metrics::default();
    let pods = metrics.reflector("pods");
    pods.listing();
    pods.listed(Duration::from_millis(40), 12);
    pods.watching();
    pods.watched(Duration::from_millis(40), 0);
    pods.watching();
    pods.watched(Duration::from_millis(40), 3);
    pods.set_last_resource_version("77");
    metrics.reflector("nodes").set_last_resource_version("not a number");
    metrics.leader("updater").set_leader(true);
    metrics.leader("recommender").set_leader(true);
    metrics.leader("recommender").set_leader(false);
    metrics.events("kubelet").observe(EventOutcome::Created);
    metrics.events("kubelet").observe(EventOutcome::Dropped);
    assert_shows(
        &metrics,
        &[
            "reflector_lists_total{name=\"pods\"} 1",
            "reflector_list_duration_seconds_sum{name=\"pods\"} 0.04",
            "reflector_items_per_list_sum{name=\"pods\"} 12",
            "reflector_watches_total{name=\"pods\"} 2",
            "reflector_watches_total{name=\"nodes\"} 0",
            "reflector_short_watches_total{name=\"pods\"} 1",
            "reflector_items_per_watch_sum{name=\"pods\"} 3",
            "reflector_last_resource_version{name=\"pods\"} 77",
            "reflector_last_resource_version{name=\"nodes\"} 0",
            "leader_election_master_status{name=\"recommender\"} 0",
            "leader_election_master_status{name=\"updater\"} 1",
            "plumb_event_recorder_events_total{component=\"kubelet\",result=\"created\"} 1",
            "plumb_event_recorder_events_total{component=\"kubelet\",result=\"dropped\"} 1",
            "plumb_event_recorder_events_total{component=\"kubelet\",result=\"failed\"} 0",
        ],
    );
}

#[tokio::test]
async fn a_client_counts_its_requests_by_code_and_method() {
    let metrics = Metrics::default();
    let service = tower::service_fn(async |request: http::Request<kube::client::Body>| {
        if request.uri().path().ends_with("broken") {
            return Err("connection refused");
        }
        let is_get = request.method() == http::Method::GET;
        let status =
            serde_json::json!({ "status": "Failure", "code": 404, "message": "", "reason": "NotFound" });
        let body = kube::client::Body::from(status.to_string().into_bytes());
        Ok(http::Response::builder().status(if is_get { 404 } else { 200 }).body(body).unwrap())
    });
    let client = kube::Client::new(metrics.rest_client("in-process").count(service), "default");
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client);
    assert!(pods.get("a").await.is_err());
    assert!(pods.get("b").await.is_err());
    assert!(pods.get("broken").await.is_err());
    assert_shows(
        &metrics,
        &[
            "rest_client_requests_total{code=\"404\",method=\"GET\",host=\"in-process\"} 2",
            "rest_client_requests_total{code=\"<error>\",method=\"GET\",host=\"in-process\"} 1",
            "rest_client_request_duration_seconds_count{host=\"in-process\",verb=\"GET\"} 3",
        ],
    );
}

#[test]
fn a_registry_without_parts_renders_nothing_and_clones_share_what_was_counted() {
    let metrics = Metrics::default();
    assert_eq!(rendered(&metrics), "");
    metrics.clone().leader("a").set_leader(true);
    assert!(metrics.leader("a").is_leader());
}
