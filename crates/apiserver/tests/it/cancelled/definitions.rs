//! Custom resource definitions whose write was dropped, or whose server crashed.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request};
use http_body_util::StreamBody;
use hyper::body::Frame;
use plumb_apiserver::serve;
use plumb_resize::rules::Rules;
use plumb_store::{Key, Store, Write};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::custom::{DEFINITIONS, definition, version};
use super::super::test_api_server::{TestApiServer, admin};
use super::{DEADLINE, Outcome, TestRequest, as_of, at_every_await, gated, poll_times, stored, until};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const OTHERS: &str = "/apis/example.com/v1/namespaces/default/others";

fn things() -> Value {
    let mut things = definition("things", "Thing", json!([version("v1", json!({ "type": "object" }))]));
    things["spec"]["names"]["shortNames"] = json!(["th"]);
    things
}

/// A definition that waits for the short name of the first.
fn others() -> Value {
    let mut others = definition("others", "Other", json!([version("v1", json!({ "type": "object" }))]));
    others["spec"]["names"]["shortNames"] = json!(["th"]);
    others
}

fn thing(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name } })
}

fn named(name: &str) -> String {
    format!("{DEFINITIONS}/{name}.example.com")
}

/// A definition with objects, and one that waits for its name.
async fn defined(apiserver: &TestApiServer) {
    apiserver.post(DEFINITIONS, &things()).await.ok();
    apiserver.post(DEFINITIONS, &others()).await.ok();
    for name in ["a", "b", "c"] {
        apiserver.post(THINGS, &thing(name)).await.ok();
    }
}

/// The same, being deleted, but for one object that has a finalizer.
async fn terminating(apiserver: &TestApiServer) {
    defined(apiserver).await;
    let mut held = thing("held");
    held["metadata"]["finalizers"] = json!(["example.com/wait"]);
    apiserver.post(THINGS, &held).await.ok();
    apiserver.delete(&named("things"), &Value::Null).await.ok();
}

/// Every definition that is established is served, and no other; and no object is without a definition.
async fn served_as_stored(apiserver: &TestApiServer) {
    for (plural, path) in [("things", THINGS), ("others", OTHERS)] {
        let definition = apiserver.get(&named(plural)).await;
        let established = definition.body.pointer("/status/conditions").is_some_and(|conditions| {
            let mut conditions = conditions.as_array().unwrap().iter();
            conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        });
        assert_eq!(
            apiserver.get(path).await.status.is_success(),
            established,
            "{plural}: {}",
            definition.body
        );
        let objects = stored(apiserver.store()).into_keys();
        let objects = objects.filter(|key| key.starts_with(&format!("example.com/{plural}/"))).count();
        assert!(definition.status.is_success() || objects == 0, "{objects} {plural} have no definition");
    }
}

#[tokio::test]
async fn a_definition_is_served_if_it_is_stored() {
    let create = TestRequest::new(Method::POST, DEFINITIONS, things());
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        served_as_stored(apiserver).await;
        assert_eq!(apiserver.get(THINGS).await.status.is_success(), outcome != Outcome::Undone);
    };
    let outcomes = at_every_await(&create, async |_: &TestApiServer| {}, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn a_definition_is_served_as_it_was_changed_if_that_is_stored() {
    let mut versions = things()["spec"]["versions"].clone();
    let mut second = version("v2", json!({ "type": "object" }));
    second["storage"] = json!(false);
    versions.as_array_mut().unwrap().push(second);
    let change =
        TestRequest::new(Method::PATCH, named("things"), json!({ "spec": { "versions": versions } }));
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        served_as_stored(apiserver).await;
        let second = apiserver.get("/apis/example.com/v2/namespaces/default/things").await;
        assert_eq!(second.status.is_success(), outcome != Outcome::Undone);
    };
    let outcomes = at_every_await(&change, defined, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn a_definition_is_deleted_with_its_objects_or_not_at_all() {
    let delete = TestRequest::new(Method::DELETE, named("things"), Value::Null);
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        served_as_stored(apiserver).await;
        assert_eq!(apiserver.get(&named("things")).await.status == 404, outcome != Outcome::Undone);
    };
    let outcomes = at_every_await(&delete, defined, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn several_definitions_are_deleted_together_or_not_at_all() {
    let delete = TestRequest::new(Method::DELETE, DEFINITIONS, Value::Null);
    let check = async |apiserver: &TestApiServer, _: Outcome| served_as_stored(apiserver).await;
    let outcomes = at_every_await(&delete, defined, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn a_definition_is_deleted_with_the_last_of_its_objects() {
    let release = TestRequest::new(
        Method::PATCH,
        format!("{THINGS}/held"),
        json!({ "metadata": { "finalizers": null } }),
    );
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        served_as_stored(apiserver).await;
        assert_eq!(apiserver.get(&named("things")).await.status == 404, outcome != Outcome::Undone);
    };
    let outcomes = at_every_await(&release, terminating, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

/// A server over what is stored, with its controllers, until what is stored is as expected.
async fn recovers(store: Store, what: &str, expected: &std::collections::BTreeMap<String, Value>) {
    let apiserver = TestApiServer::over(store, Rules::kep());
    let (trigger, shutdown) = serve::shutdown();
    let server = apiserver.server.clone();
    let controllers =
        tokio::spawn(async move { server.run_controllers(Duration::from_mins(3), shutdown).await });
    until(apiserver.store(), what, async || stored(apiserver.store()) == *expected).await;
    trigger.pull();
    tokio::time::timeout(DEADLINE, controllers).await.unwrap().unwrap();
    served_as_stored(&apiserver).await;
}

#[tokio::test]
async fn the_next_start_completes_what_a_crash_interrupted() {
    for (prepare, path, write) in [
        (false, named("things"), TestRequest::new(Method::DELETE, named("things"), Value::Null)),
        (true, named("things"), {
            let released = json!({ "metadata": { "finalizers": null } });
            TestRequest::new(Method::PATCH, format!("{THINGS}/held"), released)
        }),
    ] {
        let (apiserver, gate) = gated();
        if prepare {
            terminating(&apiserver).await;
        } else {
            defined(&apiserver).await;
        }
        let before = apiserver.store().revision();
        write.cancelled_after(&apiserver, &gate, usize::MAX).await.unwrap();
        assert_eq!(apiserver.get(&path).await.status, 404);
        let after = stored(apiserver.store());
        let last = apiserver.store().revision();
        assert!(last > before + 1, "it takes several writes");
        for crash in before + 1..=last {
            let what = format!("recovery from a crash at {} of {}", crash - before, last - before);
            recovers(as_of(apiserver.store(), crash).await, &what, &after).await;
        }
    }
}

#[tokio::test]
async fn a_definition_that_was_stored_without_being_established_is_served_after_the_next_start() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    let after = stored(apiserver.store());
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions/things.example.com").unwrap();
    let object = apiserver.store().get(&key).unwrap();
    let mut definition: Value = serde_json::from_slice(&object.value).unwrap();
    definition["status"]["conditions"] = json!([]);
    definition["status"]["acceptedNames"] = json!({});
    let store = as_of(apiserver.store(), apiserver.store().revision()).await;
    store.write(Write::put(key, definition.to_string())).await.unwrap();
    recovers(store, "the definition is established", &after).await;
}

#[tokio::test]
async fn the_controller_finalizes_a_definition_whose_last_object_is_deleted_by_a_request_that_does_not_reconcile()
 {
    let apiserver = TestApiServer::open(Rules::kep());
    let (trigger, shutdown) = serve::shutdown();
    let server = apiserver.server.clone();
    let controllers =
        tokio::spawn(async move { server.run_controllers(Duration::from_mins(3), shutdown).await });
    terminating(&apiserver).await;
    // As a request would that found the kind before it was terminating.
    let held = Key::new("example.com/things/default/held").unwrap();
    apiserver.store().write(Write::delete(held)).await.unwrap();
    let established = json!({ "type": "Established", "status": "True" });
    until(apiserver.store(), "the definition is deleted and its name given to the other", async || {
        let conditions = apiserver.get(&named("others")).await.ok()["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().unwrap().iter();
        apiserver.get(&named("things")).await.status == 404
            && conditions
                .any(|own| own["type"] == established["type"] && own["status"] == established["status"])
    })
    .await;
    // It ends after the pass in which it wrote this.
    trigger.pull();
    tokio::time::timeout(DEADLINE, controllers).await.unwrap().unwrap();
    served_as_stored(&apiserver).await;
}

#[tokio::test]
async fn no_object_is_created_of_a_definition_that_was_deleted_while_the_request_was_under_way() {
    for comes_back in [false, true] {
        let (apiserver, gate) = gated();
        apiserver.post(DEFINITIONS, &things()).await.ok();
        let (send, body) = oneshot::channel::<Bytes>();
        let body = stream::once(async { body.await.map(Frame::data) });
        let request = Request::post(THINGS)
            .header("content-type", "application/json")
            .extension(admin())
            .body(StreamBody::new(body))
            .unwrap();
        // The kind is found, and the body is waited for.
        let mut request = pin!(apiserver.server.handle(request));
        assert!(poll_times(request.as_mut(), &gate, 1).await.is_none());
        gate.open();
        apiserver.delete(&named("things"), &Value::Null).await.ok();
        if comes_back {
            apiserver.post(DEFINITIONS, &things()).await.ok();
        }
        send.send(thing("late").to_string().into()).unwrap();
        assert_eq!(request.await.status(), 404);
        served_as_stored(&apiserver).await;
        assert_eq!(apiserver.get(&format!("{THINGS}/late")).await.status, 404);
    }
}
