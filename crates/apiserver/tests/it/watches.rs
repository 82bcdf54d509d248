//! Watches: no gap, no duplicate, and only the selected objects.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use plumb_apiserver::Body;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, admin, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A stream of events, read one by one.
pub(super) struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    pub(super) async fn open(apiserver: &TestApiServer, path: &str) -> Self {
        let request = Request::get(path).extension(admin()).body(Empty::<Bytes>::new()).unwrap();
        let response = apiserver.server.handle(request).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), rest: Vec::new() }
    }

    pub(super) async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let frame = within(self.body.frame()).await.expect("the watch goes on").unwrap();
            self.rest.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The next event's type and the name of its object.
    async fn next_event(&mut self) -> (String, String) {
        let event = self.next().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

/// What comes within a time that no machine is too slow for: a test of something that never comes must end.
pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_mins(3), what).await.expect("it comes")
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_reports_the_initial_state_and_then_changes() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let mut events = Events::open(&apiserver, &format!("{PODS}?watch=1")).await;
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    apiserver.merge(&format!("{PODS}/a"), &json!({ "metadata": { "labels": { "x": "y" } } })).await.ok();
    assert_eq!(events.next_event().await, event("MODIFIED", "a"));
    apiserver.delete(&format!("{PODS}/a"), &Value::Null).await.ok();
    let last = events.next().await;
    assert_eq!(last["type"], "DELETED");
    let revision = apiserver.get(PODS).await.ok()["metadata"]["resourceVersion"].clone();
    assert_eq!(last["object"]["metadata"]["resourceVersion"], revision);
}

#[tokio::test]
async fn a_watch_from_the_revision_of_a_list_misses_nothing() {
    let apiserver = TestApiServer::open(Rules::kep());
    let list = apiserver.get(PODS).await.ok();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    apiserver.post(PODS, &pod("b", "1", "1Gi")).await.ok();
    let mut events = Events::open(&apiserver, &format!("{PODS}?watch=1&resourceVersion={revision}")).await;
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    assert_eq!(events.next_event().await, event("ADDED", "b"));
}

#[tokio::test]
async fn a_custom_kind_is_watched_by_a_field_that_another_kind_is_indexed_by() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "type": "object", "properties": { "nodeName": { "type": "string" } } });
    let mut own = definition("things", "Thing", json!([version("v1", spec)]));
    own["spec"]["versions"][0]["selectableFields"] = json!([{ "jsonPath": ".spec.nodeName" }]);
    apiserver.post(DEFINITIONS, &own).await.ok();
    let things = "/apis/example.com/v1/namespaces/default/things";
    let path = format!("{things}?watch=1&fieldSelector=spec.nodeName%3Dn1");
    let mut events = Events::open(&apiserver, &path).await;
    for (name, node) in [("a", "n2"), ("b", "n1")] {
        let thing = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name },
            "spec": { "nodeName": node },
        });
        apiserver.post(things, &thing).await.ok();
    }
    let (_, first) = within(events.next_event()).await;
    assert_eq!(first, "b");
}

#[tokio::test]
async fn an_object_comes_into_a_selection_and_leaves_it() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut events = Events::open(&apiserver, &format!("{PODS}?watch=1&labelSelector=app%3Dweb")).await;
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let label = |value: Value| json!({ "metadata": { "labels": { "app": value } } });
    apiserver.merge(&format!("{PODS}/a"), &label(json!("web"))).await.ok();
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    let left = apiserver.merge(&format!("{PODS}/a"), &label(json!("api"))).await.ok();
    // As upstream: the content that was selected last, at the revision at which it left.
    let event = events.next().await;
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "web");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_node_watches_only_its_own_pods() {
    let apiserver = TestApiServer::open(Rules::kep());
    let path = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1";
    let mut events = Events::open(&apiserver, path).await;
    for (name, node) in [("a", "n2"), ("b", "n1")] {
        apiserver.post(PODS, &pod(name, "1", "1Gi")).await.ok();
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
        apiserver.post(&format!("{PODS}/{name}/binding"), &binding).await.ok();
    }
    assert_eq!(events.next_event().await, event("ADDED", "b"));
}

#[tokio::test]
async fn a_watch_by_node_name_reports_pods_without_a_node() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut events = Events::open(&apiserver, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D").await;
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    let binding = json!({ "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "n1" } });
    apiserver.post(&format!("{PODS}/a/binding"), &binding).await.ok();
    assert_eq!(events.next_event().await, event("DELETED", "a"));
}

#[tokio::test]
async fn pods_are_selected_by_the_phase_they_are_in_now() {
    let apiserver = TestApiServer::open(Rules::kep());
    let not_ended =
        "fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed,spec.restartPolicy%3DAlways";
    let mut events = Events::open(&apiserver, &format!("{PODS}?watch=1&{not_ended}")).await;
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    for (phase, event_type, left) in [("Running", "MODIFIED", 1), ("Failed", "DELETED", 0)] {
        apiserver.merge(&format!("{PODS}/a/status"), &json!({ "status": { "phase": phase } })).await.ok();
        assert_eq!(events.next_event().await, event(event_type, "a"));
        let listed = apiserver.get(&format!("{PODS}?{not_ended}")).await.ok();
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(left), "{phase}");
        let listed = apiserver.get(&format!("{PODS}?fieldSelector=status.phase%3D{phase}")).await.ok();
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{phase}");
    }
}

#[tokio::test]
async fn a_watch_with_bookmarks_reports_the_end_of_the_initial_events() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    let mut events = Events::open(&apiserver, &path).await;
    assert_eq!(events.next_event().await, event("ADDED", "a"));
    let bookmark = events.next().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_watch_from_a_revision_that_cannot_be_read_is_ended_by_an_error_event() {
    let (store, apiserver) = TestApiServer::forgetful(64 << 10);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({ "metadata": { "name": "a" }, "data": { "k": "x".repeat(16 << 10) } });
    let first = apiserver.post(maps, &map).await.ok()["metadata"]["resourceVersion"].clone();
    for n in 0..8 {
        apiserver.merge(&format!("{maps}/a"), &json!({ "data": { "n": n.to_string() } })).await.ok();
    }
    let first = first.as_str().unwrap().parse::<u64>().unwrap();
    assert!(store.stats().oldest > first);
    for (revision, code, reason) in [(first, 410, "Expired"), (999_999, 504, "Timeout")] {
        let path = format!("{maps}?watch=1&resourceVersion={revision}");
        let mut events = Events::open(&apiserver, &path).await;
        let event = within(events.next()).await;
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ERROR"), &json!("Status")));
        assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(code), &json!(reason)));
        assert!(within(events.body.frame()).await.is_none(), "the watch is over");
    }
}

#[tokio::test]
async fn a_watch_resumes_at_a_revision_and_all_watches_have_one_order() {
    let apiserver = TestApiServer::open(Rules::kep());
    let maps = "/api/v1/namespaces/default/configmaps";
    let start = apiserver.get(maps).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = |revision: &str| format!("{maps}?watch=1&resourceVersion={revision}");
    let mut first = Events::open(&apiserver, &watch(&start)).await;
    for name in ["a", "b", "c"] {
        apiserver.post(maps, &json!({ "metadata": { "name": name } })).await.ok();
    }
    for n in 0..5 {
        for name in ["c", "a", "b"] {
            let data = json!({ "data": { "n": n.to_string() } });
            apiserver.merge(&format!("{maps}/{name}"), &data).await.ok();
        }
    }
    for name in ["b", "c", "a"] {
        apiserver.delete(&format!("{maps}/{name}"), &Value::Null).await.ok();
    }
    let mut all = Vec::new();
    while all.len() < 3 + 15 + 3 {
        all.push(within(first.next()).await);
    }
    let revision =
        |event: &Value| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let numbers: Vec<u64> = all.iter().map(|event| revision(event).parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // From each event on, another watch shows the same: no gap, no event twice, in the same order.
    for (number, event) in all.iter().enumerate() {
        let mut next = Events::open(&apiserver, &watch(&revision(event))).await;
        for expected in &all[number + 1..] {
            assert_eq!(&within(next.next()).await, expected);
        }
    }
}

#[tokio::test]
async fn watches_with_different_label_selectors_report_their_own_objects() {
    let apiserver = TestApiServer::open(Rules::kep());
    let maps = "/api/v1/namespaces/default/configmaps";
    let open = async |selector: &str| {
        Events::open(&apiserver, &format!("{maps}?watch=1&labelSelector={selector}")).await
    };
    let (mut a, mut b) = (open("w%3Da").await, open("w%3Db").await);
    let mut both = open("w%20in%20(a,b)").await;
    for label in ["a", "b"] {
        apiserver.post(maps, &json!({ "metadata": { "name": label, "labels": { "w": label } } })).await.ok();
        apiserver.merge(&format!("{maps}/{label}"), &json!({ "data": { "k": "v" } })).await.ok();
        apiserver.delete(&format!("{maps}/{label}"), &Value::Null).await.ok();
    }
    let life = ["ADDED", "MODIFIED", "DELETED"];
    for (events, label) in [(&mut a, "a"), (&mut b, "b")] {
        for kind in life {
            assert_eq!(within(events.next_event()).await, event(kind, label));
        }
    }
    for label in ["a", "b"] {
        for kind in life {
            assert_eq!(within(both.next_event()).await, event(kind, label));
        }
    }
}

#[tokio::test]
async fn definitions_of_custom_kinds_are_watched() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut events = Events::open(&apiserver, &format!("{DEFINITIONS}?watch=1")).await;
    for plural in ["ones", "twos"] {
        let own = definition(plural, plural, json!([version("v1", json!({ "type": "object" }))]));
        let path = format!("{DEFINITIONS}/{plural}.example.com");
        apiserver.post(DEFINITIONS, &own).await.ok();
        apiserver.delete(&path, &Value::Null).await.ok();
        let name = format!("{plural}.example.com");
        assert_eq!(within(events.next_event()).await, event("ADDED", &name));
        while within(events.next_event()).await != event("DELETED", &name) {}
    }
}
