//! The recorder, on an API that a test answers for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use plumb_controller_runtime::events::{EventRecorder, EventStyle, NewEvent, RecorderConfig};
use plumb_controller_runtime::metrics::{EventOutcome, Metrics};
use plumb_supervise::Supervisor;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::pod;

/// The responses of the API server, by the number of the request.
type Answer = fn(u32) -> Option<(u16, &'static str)>;

/// An API that has events, and hands every request to the test.
#[derive(Clone)]
struct Api {
    answer: Answer,
    hold: Option<Arc<Notify>>,
    requests: mpsc::UnboundedSender<(String, Value)>,
    state: Arc<parking_lot::Mutex<(u32, HashMap<String, Value>)>>,
}

impl Api {
    /// An API server that responds with an error where the test has one.
    fn new(answer: Answer) -> (Self, mpsc::UnboundedReceiver<(String, Value)>) {
        let (requests, received) = mpsc::unbounded_channel();
        (Self { answer, hold: None, requests, state: Arc::default() }, received)
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.respond(request).await) }
        });
        Client::new(service, "default")
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        drop(self.requests.send((format!("{method} {path}"), body.clone())));
        if let Some(hold) = &self.hold {
            hold.notified().await;
        }
        let mut state = self.state.lock();
        let (number, objects) = &mut *state;
        *number += 1;
        let (code, value) = if let Some((code, reason)) = (self.answer)(*number) {
            let causes = json!([{ "reason": reason, "message": "", "field": "" }]);
            let status =
                json!({ "code": code, "reason": reason, "details": { "causes": causes }, "message": "m" });
            (code, json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure" }).merged(&status))
        } else if method == "POST" {
            objects.insert(format!("{path}/{}", body["metadata"]["name"].as_str().unwrap()), body.clone());
            (201, body)
        } else if let Some(object) = objects.get_mut(path) {
            *object = object.merged(&body);
            (200, object.clone())
        } else {
            (
                404,
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound" }),
            )
        };
        Response::builder().status(code).body(Body::from(value.to_string().into_bytes())).unwrap()
    }
}

trait Merged {
    fn merged(&self, other: &Value) -> Value;
}

impl Merged for Value {
    fn merged(&self, other: &Value) -> Value {
        let mut all = self.clone();
        for (key, value) in other.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    }
}

fn config(api: &Api, metrics: &Metrics) -> RecorderConfig {
    RecorderConfig {
        metrics: metrics.clone(),
        ..RecorderConfig::new(api.client(), "deployment-controller", &Supervisor::default())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// Waits, in virtual time, until this many events have the outcome.
async fn until(metrics: &Metrics, component: &str, outcome: EventOutcome, count: u64) {
    let metrics = metrics.events(component);
    let counted = async {
        while metrics.count(outcome) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), counted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_fields_that_client_go_writes_and_a_repeated_one_is_patched() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let config = RecorderConfig {
        component: "kubelet".into(),
        instance: Some("node-1".into()),
        ..config(&api, &metrics)
    };
    let recorder = EventRecorder::start(config);
    recorder.record(pod("p"), NewEvent::warning("BackOff", "back-off"), at(100));
    let (request, event) = requests.recv().await.unwrap();
    assert_eq!(request, "POST /api/v1/namespaces/n/events");
    let name = format!("p.{:x}", at(100).as_nanosecond());
    assert_eq!(
        event,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": name, "namespace": "n" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "p", "uid": "uid of p", "resourceVersion": "7",
            },
            "type": "Warning", "reason": "BackOff", "message": "back-off", "count": 1,
            "firstTimestamp": "1970-01-01T00:01:40Z", "lastTimestamp": "1970-01-01T00:01:40Z",
            "source": { "component": "kubelet", "host": "node-1" },
            "reportingComponent": "kubelet", "reportingInstance": "node-1",
        })
    );
    recorder.record(pod("p"), NewEvent::warning("BackOff", "back-off"), at(101));
    let (request, patch) = requests.recv().await.unwrap();
    assert_eq!(request, format!("PATCH /api/v1/namespaces/n/events/{name}"));
    assert_eq!(patch, json!({ "count": 2, "lastTimestamp": "1970-01-01T00:01:41Z", "message": "back-off" }));
    until(&metrics, "kubelet", EventOutcome::Patched, 1).await;
    assert_eq!(metrics.events("kubelet").count(EventOutcome::Created), 1);
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_writes_series() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let recorder = EventRecorder::start(RecorderConfig {
        component: "default-scheduler".into(),
        instance: Some("default-scheduler".into()),
        style: EventStyle::Series,
        ..config(&api, &metrics)
    });
    let event =
        || NewEvent::normal("Preempted", "x".repeat(2000)).with_action("Preempting").with_related(pod("q"));
    recorder.record(pod("p"), event(), at(100));
    let (_, created) = requests.recv().await.unwrap();
    let message = format!("{} ...", "x".repeat(1020));
    for (field, value) in [
        ("eventTime", json!("1970-01-01T00:01:40.000000Z")),
        ("action", json!("Preempting")),
        ("reportingComponent", json!("default-scheduler")),
        ("reportingInstance", json!("default-scheduler")),
        ("message", json!(message)),
        ("source", json!(null)),
        ("count", json!(null)),
        ("series", json!(null)),
    ] {
        assert_eq!(created.get(field).unwrap_or(&Value::Null), &value, "{field}");
    }
    assert_eq!(created["related"]["name"], "q");
    recorder.record(pod("p"), event(), at(102));
    let (_, patch) = requests.recv().await.unwrap();
    let series = json!({ "count": 2, "lastObservedTime": "1970-01-01T00:01:42.000000Z" });
    assert_eq!(patch, json!({ "message": message, "series": series }));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_expired_is_created_anew_with_its_count() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let recorder = EventRecorder::start(config(&api, &metrics));
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    requests.recv().await.unwrap();
    until(&metrics, "deployment-controller", EventOutcome::Created, 1).await;
    api.state.lock().1.clear();
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(4000));
    assert!(requests.recv().await.unwrap().0.starts_with("PATCH"));
    let (request, event) = requests.recv().await.unwrap();
    assert!(request.starts_with("POST"), "{request}");
    assert_eq!((&event["count"], &event["firstTimestamp"]), (&json!(2), &json!("1970-01-01T00:00:00Z")));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_an_overloaded_api_server_rejects_is_retried_up_to_12_times() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|number| (number <= 14).then_some((503, "ServiceUnavailable")));
    let recorder = EventRecorder::start(config(&api, &metrics));
    let started = Instant::now();
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Failed, 1).await;
    let mut tries = 0;
    while requests.try_recv().is_ok() {
        tries += 1;
    }
    assert_eq!(tries, 12);
    assert!((25..60).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    recorder.record(pod("p"), NewEvent::normal("R", "b"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Created, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_not_retried_and_a_terminating_namespace_gets_no_more_events() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|number| match number {
        1 => Some((422, "Invalid")),
        2 => Some((403, "NamespaceTerminating")),
        _ => None,
    });
    let recorder = EventRecorder::start(config(&api, &metrics));
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Failed, 1).await;
    recorder.record(pod("p"), NewEvent::normal("R", "b"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Failed, 2).await;
    recorder.record(pod("p"), NewEvent::normal("R", "c"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Filtered, 1).await;
    recorder.record(pod("q"), NewEvent::normal("R", "d"), at(0));
    until(&metrics, "deployment-controller", EventOutcome::Created, 1).await;
    let messages = std::iter::from_fn(|| requests.try_recv().ok()).map(|(_, body)| body["message"].clone());
    assert_eq!(messages.collect::<Vec<_>>(), ["a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_events_and_what_is_too_much_is_dropped_and_counted() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let hold = Arc::new(Notify::new());
    let api = Api { hold: Some(hold.clone()), ..api };
    let recorder = EventRecorder::start(RecorderConfig { queue: 5, ..config(&api, &metrics) });
    for number in 0..16 {
        recorder.record(pod(&number.to_string()), NewEvent::normal("R", "a"), at(0));
        requests.recv().await.unwrap();
    }
    for number in 100..108 {
        recorder.record(pod(&number.to_string()), NewEvent::normal("R", "a"), at(0));
    }
    assert_eq!(metrics.events("deployment-controller").count(EventOutcome::Dropped), 3);
    // Events in the queue are written when the recorder is dropped.
    drop(recorder);
    let release = async {
        loop {
            hold.notify_waiters();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = until(&metrics, "deployment-controller", EventOutcome::Created, 21) => {}
        () = release => {}
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_event_never_overtake_each_other_and_those_in_between_are_one() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let hold = Arc::new(Notify::new());
    let api = Api { hold: Some(hold.clone()), ..api };
    let recorder = EventRecorder::start(config(&api, &metrics));
    for _ in 0..5 {
        recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    }
    recorder.record(pod("q"), NewEvent::normal("R", "a"), at(0));
    assert!(requests.recv().await.unwrap().0.starts_with("POST"));
    assert_eq!(requests.recv().await.unwrap().1["involvedObject"]["name"], "q", "others are not held up");
    assert!(requests.try_recv().is_err(), "it has to exist first");
    hold.notify_waiters();
    let (request, patch) = requests.recv().await.unwrap();
    assert!(request.starts_with("PATCH"), "{request}");
    assert_eq!(patch["count"], 5);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_recorder_continues_with_its_cache() {
    let metrics = Metrics::default();
    let (api, mut requests) = Api::new(|_| None);
    let supervisor = Supervisor::default();
    let recorder =
        EventRecorder::start(RecorderConfig { supervisor: supervisor.clone(), ..config(&api, &metrics) });
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    requests.recv().await.unwrap();
    assert!(supervisor.abort("event-recorder/deployment-controller"));
    recorder.record(pod("p"), NewEvent::normal("R", "a"), at(0));
    let (request, patch) = requests.recv().await.unwrap();
    assert!(request.starts_with("PATCH"), "{request}");
    assert_eq!(
        (&patch["count"], supervisor.restarts("event-recorder/deployment-controller")),
        (&json!(2), 1)
    );
}
