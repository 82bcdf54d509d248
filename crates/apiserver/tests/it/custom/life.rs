//! Creation, update and deletion of definitions.

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use plumb_resize::rules::Rules;
use plumb_store::{Key, Write};
use serde_json::{Value, json};

use super::super::cancelled::gated;
use super::super::test_api_server::{TestApiServer, admin};
use super::super::webhooks::{Does, Webhook, configure, entry};
use super::{DEFINITIONS, definition, version};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

fn things() -> Value {
    let spec = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let mut definition = definition("things", "Thing", json!([version("v1", spec)]));
    definition["spec"]["names"]["shortNames"] = json!(["th"]);
    definition
}

fn thing(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name }, "spec": { "a": "b" } })
}

#[tokio::test]
async fn a_custom_kind_is_served_to_the_next_request() {
    let apiserver = TestApiServer::open(Rules::kep());
    assert_eq!(apiserver.get(THINGS).await.status.as_u16(), 404);
    let made = apiserver.post(DEFINITIONS, &things()).await.ok();
    assert_eq!(made["status"]["conditions"][1]["type"], "Established");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    apiserver.post(THINGS, &thing("one")).await.ok();
    let listed = apiserver.get(THINGS).await.ok();
    assert_eq!((&listed["kind"], &listed["items"][0]["kind"]), (&json!("ThingList"), &json!("Thing")));
    let resources = apiserver.get("/apis/example.com/v1").await.ok();
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
    assert!(apiserver.get("/apis").await.ok()["groups"].to_string().contains("example.com"));
    let index = apiserver.get("/openapi/v3").await.ok();
    assert!(index["paths"]["apis/example.com/v1"]["serverRelativeURL"].is_string());
    let document = apiserver.get("/openapi/v3/apis/example.com/v1").await.ok();
    let schema = &document["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(schema["properties"]["spec"]["properties"]["a"]["type"], "string");
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Thing");
}

/// Stores a change of the definition of things, as a request does that has yet to reconcile it.
async fn store_only(apiserver: &TestApiServer, change: impl Fn(&mut Value)) {
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions/things.example.com").unwrap();
    let stored = apiserver.store().get(&key).unwrap();
    let mut definition: Value = serde_json::from_slice(&stored.value).unwrap();
    change(&mut definition);
    apiserver.store().write(Write::put(key, definition.to_string())).await.unwrap();
}

#[tokio::test]
async fn a_definition_that_a_watch_has_shown_is_in_discovery() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    // What a watch shows is what is stored: from here on a client may know of it.
    store_only(&apiserver, |definition| {
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    })
    .await;
    let group = apiserver.get("/apis/example.com").await.ok();
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    store_only(&apiserver, |definition| {
        definition["spec"]["versions"].as_array_mut().unwrap()[1]["served"] = json!(false);
    })
    .await;
    assert_eq!(apiserver.get("/apis/example.com/v2").await.status.as_u16(), 404);
    assert_eq!(apiserver.get("/apis/example.com/v2/things").await.status.as_u16(), 404);
    store_only(&apiserver, |definition| {
        definition["spec"]["versions"].as_array_mut().unwrap()[1]["served"] = json!(true);
    })
    .await;
    apiserver.get("/apis/example.com/v2/things").await.ok();
    let document = apiserver.get("/openapi/v3").await.ok();
    assert!(document["paths"]["apis/example.com/v2"].is_object());
}

#[tokio::test]
async fn a_definition_is_deleted_after_its_objects_and_can_be_created_again() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    apiserver.post(THINGS, &thing("free")).await.ok();
    let mut held = thing("held");
    held["metadata"]["finalizers"] = json!(["example.com/wait"]);
    apiserver.post(THINGS, &held).await.ok();

    let own = format!("{DEFINITIONS}/things.example.com");
    apiserver.delete(&own, &Value::Null).await.ok();
    let waiting = apiserver.get(&own).await.ok();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let terminating = waiting["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&terminating["type"], &terminating["status"]), (&json!("Terminating"), &json!("True")));
    assert_eq!(apiserver.get(&format!("{THINGS}/free")).await.status.as_u16(), 404);
    let (code, reason, message) = apiserver.post(THINGS, &thing("late")).await.rejected();
    assert_eq!((code, reason.as_str()), (405, "MethodNotAllowed"));
    assert!(message.starts_with("create not allowed while custom resource definition is terminating"));

    apiserver.merge(&format!("{THINGS}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(apiserver.get(&own).await.status.as_u16(), 404);
    assert_eq!(apiserver.get(THINGS).await.status.as_u16(), 404);

    let mut other = things();
    other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({ "b": { "type": "integer", "default": 4 } });
    apiserver.post(DEFINITIONS, &other).await.ok();
    assert!(apiserver.get(THINGS).await.ok()["items"].as_array().unwrap().is_empty());
    assert_eq!(apiserver.post(THINGS, &thing("new")).await.ok()["spec"], json!({ "b": 4 }));
}

#[tokio::test]
async fn finalizers_in_the_spec_of_a_custom_resource_do_not_delay_its_deletion() {
    let apiserver = TestApiServer::open(Rules::kep());
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let spec = json!({ "type": "object", "properties": { "finalizers": list } });
    apiserver.post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec)]))).await.ok();
    let path = format!("{THINGS}/a");
    let mut object = thing("a");
    object["spec"] = json!({ "finalizers": ["kubernetes"] });

    apiserver.post(THINGS, &object).await.ok();
    apiserver.delete(&path, &Value::Null).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 404);

    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    apiserver.post(THINGS, &object).await.ok();
    apiserver.delete(&path, &Value::Null).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 200);
    apiserver.merge(&path, &json!({ "metadata": { "finalizers": null } })).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_watch_ends_with_the_definition() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    let request = Request::get(format!("{THINGS}?watch=1")).extension(admin()).body(Full::default()).unwrap();
    let mut stream = apiserver.server.handle(request).await.into_body().into_data_stream();
    apiserver.post(THINGS, &thing("one")).await.ok();
    let event: Value = serde_json::from_slice(&stream.next().await.unwrap().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["a"]), (&json!("ADDED"), &json!("b")));
    apiserver.delete(&format!("{DEFINITIONS}/things.example.com"), &Value::Null).await.ok();
    while let Some(line) = stream.next().await {
        let event: Value = serde_json::from_slice(&line.unwrap()).unwrap();
        assert_eq!(event["type"], "DELETED");
    }
}

#[tokio::test]
async fn a_definition_with_a_conflicting_name_is_accepted_once_the_name_is_free() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    let spec = json!({ "type": "object" });
    let mut second = definition("others", "Other", json!([version("v1", spec)]));
    second["spec"]["names"]["shortNames"] = json!(["th"]);
    let made = apiserver.post(DEFINITIONS, &second).await.ok();
    let condition = |object: &Value, place: usize| object["status"]["conditions"][place].clone();
    assert_eq!(condition(&made, 0)["reason"], "ShortNamesConflict");
    assert_eq!(condition(&made, 0)["message"], "\"th\" is already in use");
    assert_eq!(condition(&made, 1)["reason"], "NotAccepted");
    assert_eq!(apiserver.get("/apis/example.com/v1/others").await.status.as_u16(), 404);
    apiserver.delete(&format!("{DEFINITIONS}/things.example.com"), &Value::Null).await.ok();
    let now = apiserver.get(&format!("{DEFINITIONS}/others.example.com")).await.ok();
    assert_eq!(
        (&condition(&now, 0)["reason"], &condition(&now, 1)["status"]),
        (&json!("NoConflicts"), &json!("True"))
    );
    apiserver.get("/apis/example.com/v1/others").await.ok();
}

#[tokio::test]
async fn an_object_is_shown_in_every_version_that_is_served() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = |field: &str| {
        json!({ "type": "object", "properties": { "a": {"type": "string"}, field: {
            "type": "string", "default": field,
        }}})
    };
    let mut old = version("v1beta1", spec("old"));
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    let both = definition("things", "Thing", json!([old, version("v1", spec("new"))]));
    apiserver.post(DEFINITIONS, &both).await.ok();
    let beta = "/apis/example.com/v1beta1/namespaces/default/things";
    let mut first = thing("one");
    first["apiVersion"] = json!("example.com/v1beta1");
    let made = apiserver.post(beta, &first).await;
    assert_eq!(
        made.warnings,
        ["299 - \"example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing\""]
    );
    let made = made.ok();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v1beta1"), &json!({"a": "b", "old": "old"}))
    );
    let stable = apiserver.get(&format!("{THINGS}/one")).await.ok();
    assert_eq!(
        (&stable["apiVersion"], &stable["spec"]),
        (&json!("example.com/v1"), &json!({"a": "b", "new": "new"}))
    );
    let listed = apiserver.get(beta).await.ok();
    assert_eq!(listed["items"][0]["apiVersion"], "example.com/v1beta1");
    let group = apiserver.get("/apis/example.com").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let patched = apiserver
        .request(
            Method::PATCH,
            &format!("{beta}/one"),
            "application/merge-patch+json",
            r#"{"spec":{"a":"c"}}"#,
        )
        .await
        .ok();
    assert_eq!(patched["apiVersion"], "example.com/v1beta1");
    assert_eq!(apiserver.get(&format!("{THINGS}/one")).await.ok()["spec"]["a"], "c");
}

#[tokio::test]
async fn custom_resources_can_be_applied_and_conflicts_are_reported() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    let apply = |manager: &str, value: &str| {
        let mut body = thing("one");
        body["spec"]["a"] = json!(value);
        let path = format!("{THINGS}/one?fieldManager={manager}");
        let apiserver = &apiserver;
        async move {
            apiserver.request(Method::PATCH, &path, "application/apply-patch+yaml", body.to_string()).await
        }
    };
    let made = apply("first", "b").await.ok();
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "first");
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:a"], json!({}));
    let (code, reason, message) = apply("second", "c").await.rejected();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(message.contains("conflict with \"first\": .spec.a"), "{message}");
}

/// The definition of things with another schema: another field, with a default.
fn other_things() -> Value {
    let spec = json!({ "type": "object", "properties": { "b": { "type": "string", "default": "new" } } });
    definition("things", "Thing", json!([version("v1", spec)]))
}

#[tokio::test]
async fn an_object_that_was_accepted_just_before_a_schema_is_served_is_shown_under_it() {
    let (store, gate) = gated::store();
    let apiserver = TestApiServer::over(store, Rules::kep());
    let made = apiserver.post(DEFINITIONS, &things()).await.ok();
    let mut other = other_things();
    other["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    let path = format!("{DEFINITIONS}/things.example.com");
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions/things.example.com").unwrap();
    let before = apiserver.store().get(&key).unwrap().mod_revision;
    gate.close();
    // The new schema is accepted first, and the object under the old one, since neither can be read yet.
    let object = async {
        while apiserver.store().get_uncommitted(&key).unwrap().mod_revision == before {
            tokio::task::yield_now().await;
        }
        let opened = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            gate.open();
        };
        let one = thing("one");
        tokio::join!(apiserver.post(THINGS, &one), opened).0
    };
    let (changed, made) = tokio::join!(apiserver.put(&path, &other), object);
    changed.ok();
    assert_eq!(made.ok()["spec"], json!({ "a": "b" }));
    assert_eq!(apiserver.get(&format!("{THINGS}/one")).await.ok()["spec"], json!({ "b": "new" }));
    assert_eq!(apiserver.get(THINGS).await.ok()["items"][0]["spec"], json!({ "b": "new" }));
}

#[tokio::test]
async fn an_object_of_a_request_that_outlasts_its_schema_is_shown_under_the_new_one() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    // While its webhook is called, the schema changes.
    let (store, server) = (apiserver.store().clone(), apiserver.server.clone());
    let (runtime, key) = (
        tokio::runtime::Handle::current(),
        Key::new("apiextensions.k8s.io/customresourcedefinitions/things.example.com").unwrap(),
    );
    let hook = Webhook::start(Does::Runs(Arc::new(move |_| {
        let stored = store.get(&key).unwrap();
        let mut definition: Value = serde_json::from_slice(&stored.value).unwrap();
        definition["spec"]["versions"] = other_things()["spec"]["versions"].clone();
        store.write(Write::put(key.clone(), definition.to_string())).wait().unwrap();
        let request =
            Request::get("/apis/example.com").extension(admin()).body(Full::<bytes::Bytes>::default());
        let request = server.handle(request.unwrap());
        let response = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(request)).join().unwrap());
        assert_eq!(response.status(), 200);
        json!({ "allowed": true })
    })))
    .await;
    let mut webhook = entry(hook.client(), json!(["CREATE"]), "things");
    webhook["rules"][0]["apiGroups"] = json!(["example.com"]);
    configure(&apiserver, "validating", "v", json!([webhook])).await;
    apiserver.post(THINGS, &thing("one")).await.ok();
    assert_eq!(apiserver.get(&format!("{THINGS}/one")).await.ok()["spec"], json!({ "b": "new" }));
    assert_eq!(apiserver.get(THINGS).await.ok()["items"][0]["spec"], json!({ "b": "new" }));
}

#[tokio::test]
async fn whole_numbers_above_the_largest_signed_one_are_floating_point_numbers() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "type": "object", "properties": {
        "n": { "type": "integer" }, "f": { "type": "number" },
    } });
    apiserver.post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec)]))).await.ok();
    // Whether it is taken for an integer.
    let table = [
        ("9223372036854775807", true),
        ("-9223372036854775808", true),
        ("900719925474099.0", true),
        ("9223372036854775808", false),
        ("18446744073709551615", false),
        ("1e21", false),
    ];
    for (n, (given, is_integer)) in table.into_iter().enumerate() {
        let thing = |field: &str| {
            let head =
                format!(r#""apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"{field}{n}"}}"#);
            format!(r#"{{{head},"spec":{{"{field}":{given}}}}}"#)
        };
        let made = apiserver.request(Method::POST, THINGS, "application/json", thing("n")).await;
        if is_integer {
            made.ok();
        } else {
            let (code, _, message) = made.rejected();
            assert_eq!(code, 422, "{given}");
            assert!(message.ends_with(r#"spec.n in body must be of type integer: "number""#), "{message}");
        }
        let made = apiserver.request(Method::POST, THINGS, "application/json", thing("f")).await.ok();
        let stored: f64 = given.parse().unwrap();
        assert_eq!(made["spec"]["f"].as_f64(), Some(stored), "{given}");
        // The same again changes nothing, unless a whole number is written as another kind of number.
        let mut same: Value = made.clone();
        same["spec"]["f"] = serde_json::from_str(given.trim_end_matches(".0")).unwrap();
        let again = apiserver.put(&format!("{THINGS}/f{n}"), &same).await.ok();
        assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "{given}");
        let read = apiserver.get(&format!("{THINGS}/f{n}")).await.ok();
        assert_eq!(read["spec"]["f"].as_f64(), Some(stored), "{given}");
    }
}
