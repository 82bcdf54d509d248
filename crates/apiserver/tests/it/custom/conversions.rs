//! Conversion webhooks of custom kinds: a real server converts objects, or fails to.

mod admission;
mod lists;
mod migration;

use std::sync::Arc;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::TestApiServer;
use super::super::watches::Events;
use super::super::webhooks::{Does, Webhook, own_address};
use super::{DEFINITIONS, definition, version};

const V1: &str = "/apis/example.com/v1/namespaces/default/plugs";
const V2: &str = "/apis/example.com/v2/namespaces/default/plugs";

const INITIAL: &str = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

/// `spec.size: "3x4"` in v1 is `spec.width: 3, spec.height: 4` in v2; `spec.text` is the same in both.
fn convert(object: &Value, wanted: &str) -> Value {
    let (mut object, from) = (object.clone(), object["apiVersion"].clone());
    object["apiVersion"] = json!(wanted);
    let spec = object["spec"].clone();
    match (from.as_str(), wanted) {
        (Some("example.com/v1"), "example.com/v2") => {
            let size = spec["size"].as_str().unwrap_or("0x0");
            let (width, height) = size.split_once('x').unwrap_or(("0", "0"));
            let number = |text: &str| text.parse::<i64>().unwrap_or_default();
            object["spec"] = json!({ "width": number(width), "height": number(height) });
        }
        (Some("example.com/v2"), "example.com/v1") => {
            object["spec"] = json!({ "size": format!("{}x{}", spec["width"], spec["height"]) });
        }
        _ => {}
    }
    if let Some(text) = spec.get("text") {
        object["spec"]["text"] = text.clone();
    }
    object
}

/// The review with the response of a webhook that does its work.
fn respond(review: &Value, objects: Value) -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": {
            "uid": review["request"]["uid"], "result": { "status": "Success" }, "convertedObjects": objects,
        },
    })
}

fn works(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = review["request"]["objects"].as_array().into_iter().flatten();
    let objects: Vec<Value> = objects.map(|object| convert(object, wanted)).collect();
    respond(review, json!(objects))
}

fn reviews(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Does {
    Does::Reviews(Arc::new(answer))
}

/// A definition with two versions, the second one stored, and a webhook.
fn plugs(client: &Value) -> Value {
    let text = json!({ "type": "object", "properties": {
        "size": { "type": "string" }, "text": { "type": "string" },
    } });
    let numbers = json!({ "type": "object", "properties": {
        "width": { "type": "integer" }, "height": { "type": "integer" }, "text": { "type": "string" },
    } });
    let mut old = version("v1", text);
    old["storage"] = json!(false);
    old["subresources"] = json!({ "status": {} });
    old["selectableFields"] = json!([{ "jsonPath": ".spec.size" }]);
    let mut new = version("v2", numbers);
    new["subresources"] = json!({ "status": {} });
    let mut definition = definition("plugs", "Plug", json!([old, new]));
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": { "clientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"] },
    });
    definition
}

fn plug(name: &str, size: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Plug", "metadata": { "name": name }, "spec": { "size": size } })
}

/// The same in the storage version.
fn wide(name: &str, width: u32) -> Value {
    json!({
        "apiVersion": "example.com/v2", "kind": "Plug", "metadata": { "name": name },
        "spec": { "width": width, "height": 1 },
    })
}

async fn opened(does: Does) -> (TestApiServer, Webhook) {
    let hook = Webhook::start(does).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(DEFINITIONS, &plugs(&hook.client())).await.ok();
    (apiserver, hook)
}

#[tokio::test]
async fn objects_are_read_and_written_in_every_version() {
    let (apiserver, hook) = opened(reviews(works)).await;
    let made = apiserver.post(V1, &plug("a", "3x4")).await.ok();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v1"), &json!({ "size": "3x4" })));
    let other = apiserver.get(&format!("{V2}/a")).await.ok();
    assert_eq!(other["spec"], json!({ "width": 3, "height": 4 }));
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert_eq!(made["metadata"][field], other["metadata"][field], "{field}");
    }
    // A change in one version shows in the other.
    let changed = apiserver.merge(&format!("{V1}/a"), &json!({ "spec": { "size": "5x6" } })).await.ok();
    assert_eq!(changed["spec"], json!({ "size": "5x6" }));
    assert_eq!(changed["metadata"]["generation"], 2);
    let wider = apiserver.merge(&format!("{V2}/a"), &json!({ "spec": { "width": 7 } })).await.ok();
    assert_eq!(wider["spec"], json!({ "width": 7, "height": 6 }));
    assert_eq!(apiserver.get(&format!("{V1}/a")).await.ok()["spec"]["size"], "7x6");
    let kept = apiserver.merge(&format!("{V1}/a"), &json!({ "spec": { "size": "7x6" } })).await.ok();
    assert_eq!(kept["metadata"]["resourceVersion"], wider["metadata"]["resourceVersion"]);
    let gone = apiserver.delete(&format!("{V1}/a"), &Value::Null).await.ok();
    assert_eq!(gone["status"], "Success");
    let first = &hook.seen()[0];
    assert_eq!(first["desiredAPIVersion"], "example.com/v2");
    assert_eq!(first["objects"][0]["spec"], json!({ "size": "3x4" }));
}

#[tokio::test]
async fn a_list_is_converted_by_one_call_and_selected_in_its_own_version() {
    let (apiserver, hook) = opened(reviews(works)).await;
    for (name, width) in [("a", 1), ("b", 2), ("c", 3)] {
        apiserver.post(V2, &wide(name, width)).await.ok();
    }
    assert!(hook.seen().is_empty(), "objects of the storage version need no webhook");
    let list = apiserver.get(V1).await.ok();
    let sizes: Vec<&Value> =
        list["items"].as_array().into_iter().flatten().map(|one| &one["spec"]["size"]).collect();
    assert_eq!(sizes, ["1x1", "2x1", "3x1"]);
    assert_eq!(hook.seen().len(), 1);
    let list = apiserver.get(&format!("{V1}?fieldSelector=spec.size%3D2x1")).await.ok();
    let names: Vec<&Value> =
        list["items"].as_array().into_iter().flatten().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test]
async fn a_list_of_objects_that_are_stored_in_several_versions_is_shown_in_each() {
    let (apiserver, _hook) = opened(reviews(works)).await;
    let path = format!("{DEFINITIONS}/plugs.example.com");
    let mut definition = apiserver.get(&path).await.ok();
    for (version, stored) in [(0, true), (1, false)] {
        definition["spec"]["versions"][version]["storage"] = json!(stored);
    }
    apiserver.put(&path, &definition).await.ok();
    apiserver.post(V1, &plug("a", "1x1")).await.ok();
    let mut definition = apiserver.get(&path).await.ok();
    for (version, stored) in [(0, false), (1, true)] {
        definition["spec"]["versions"][version]["storage"] = json!(stored);
    }
    apiserver.put(&path, &definition).await.ok();
    apiserver.post(V1, &plug("b", "2x1")).await.ok();
    let specs = |list: Value| -> Vec<Value> {
        list["items"].as_array().into_iter().flatten().map(|one| one["spec"].clone()).collect()
    };
    assert_eq!(specs(apiserver.get(V1).await.ok()), [json!({ "size": "1x1" }), json!({ "size": "2x1" })]);
    let wide = [json!({ "width": 1, "height": 1 }), json!({ "width": 2, "height": 1 })];
    assert_eq!(specs(apiserver.get(V2).await.ok()), wide);
}

#[tokio::test]
async fn a_webhook_behind_a_service_converts() {
    let Some(address) = own_address() else { return };
    let hook = Webhook::start(reviews(works)).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let client = hook.behind_service(&apiserver, &address).await;
    apiserver.post(DEFINITIONS, &plugs(&client)).await.ok();
    apiserver.post(V1, &plug("a", "3x4")).await.ok();
    assert_eq!(apiserver.get(&format!("{V2}/a")).await.ok()["spec"], json!({ "width": 3, "height": 4 }));
}

#[tokio::test]
async fn a_dry_run_is_converted_and_stores_nothing() {
    let (apiserver, hook) = opened(reviews(works)).await;
    let tried = apiserver.post(&format!("{V1}?dryRun=All"), &plug("a", "03x4")).await.ok();
    assert_eq!(tried["spec"], json!({ "size": "3x4" }));
    assert_eq!(hook.seen().len(), 2);
    assert_eq!(apiserver.get(&format!("{V1}/a")).await.rejected().0, 404);
}

#[tokio::test]
async fn invalid_responses_of_webhooks_are_reported_as_by_kube_apiserver() {
    let with = |change: fn(&mut Value)| {
        reviews(move |review| {
            let mut answer = works(review);
            change(&mut answer);
            answer
        })
    };
    let table: [(Does, &str); 9] = [
        (
            with(|answer| {
                answer["response"]["result"] = json!({ "status": "Failure", "message": "not today" });
            }),
            "failed: not today",
        ),
        (
            with(|answer| answer["response"]["result"] = json!({ "status": "Failure" })),
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (with(|answer| answer["response"] = Value::Null), "failed: no response provided"),
        (
            with(|answer| answer["apiVersion"] = json!("example.com/v1")),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
             example.com/v1, Kind=ConversionReview",
        ),
        (with(|answer| answer["response"]["convertedObjects"] = json!([])), "returned 0 objects, expected 1"),
        (
            with(|answer| answer["response"]["convertedObjects"][0]["apiVersion"] = json!("example.com/v9")),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received \
             example.com/v9)",
        ),
        (
            with(|answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = json!("b")),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            with(|answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({ "a": 1 });
            }),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (Does::Says(404, "nothing"), "failed: the server could not find the requested resource"),
    ];
    for (does, expected) in table {
        let (apiserver, _hook) = opened(does).await;
        let (code, reason, why) = apiserver.post(V1, &plug("a", "3x4")).await.rejected();
        assert_eq!(why, format!("conversion webhook for example.com/v1, Kind=Plug {expected}"));
        assert_eq!((code, reason.as_str()), (500, ""));
        assert_eq!(
            apiserver.get(&format!("{V2}/a")).await.rejected().0,
            404,
            "nothing is stored: {expected}"
        );
    }
}

#[tokio::test]
async fn a_webhook_that_never_answers_or_answers_without_end_fails_the_request_and_no_other() {
    let endless = reviews(|review| {
        let mut answer = works(review);
        answer["response"]["convertedObjects"][0]["spec"]["text"] = json!("x".repeat(9 << 20));
        answer
    });
    for (does, why) in [(endless, "length limit exceeded"), (Does::Hangs, "imeout")] {
        let hangs = matches!(does, Does::Hangs);
        let (apiserver, _hook) = opened(does).await;
        apiserver.post(V2, &wide("stored", 1)).await.ok();
        if hangs {
            // The clock moves on to the timeout as soon as everything waits.
            tokio::time::pause();
        }
        for (code, _, message) in [
            apiserver.post(V1, &plug("a", "3x4")).await.rejected(),
            apiserver.get(&format!("{V1}/stored")).await.rejected(),
            apiserver.get(V1).await.rejected(),
        ] {
            assert_eq!(code, 500, "{message}");
            assert!(message.contains(why), "{message}");
        }
        assert_eq!(apiserver.get(&format!("{V2}/a")).await.rejected().0, 404, "nothing is stored");
        assert_eq!(apiserver.get(&format!("{V2}/stored")).await.ok()["spec"]["width"], 1);
    }
}

#[tokio::test]
async fn a_converted_object_has_the_metadata_of_the_original_but_for_labels_and_annotations() {
    let (apiserver, _hook) = opened(reviews(|review| {
        let mut answer = works(review);
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({ "converted": "yes" });
        metadata["generation"] = json!(77);
        metadata["finalizers"] = json!(["example.com/never"]);
        answer
    }))
    .await;
    let made = apiserver.post(V1, &plug("a", "3x4")).await.ok();
    assert_eq!(made["metadata"]["labels"], json!({ "converted": "yes" }));
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["metadata"]["finalizers"], Value::Null);
}

#[tokio::test]
async fn the_client_config_of_a_conversion_webhook_is_validated() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let why = |client: Value, versions: Value| {
        let mut definition = plugs(&client);
        definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = versions;
        let apiserver = &apiserver;
        async move { apiserver.post(DEFINITIONS, &definition).await.rejected().2 }
    };
    for (client, versions, expected) in [
        (
            json!({}),
            json!(["v1"]),
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!({ "url": "http://example.com" }),
            json!(["v1"]),
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL \
             scheme; desired format: https://host[/path]",
        ),
        (
            json!({ "url": "https://example.com" }),
            json!(["v7"]),
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v7\"]: must include at least one of v1, \
             v1beta1",
        ),
        (
            json!({ "service": { "namespace": "default", "name": "hook", "path": "no" } }),
            json!(["v1"]),
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"no\": must start with a '/'",
        ),
    ] {
        let text = why(client, versions).await;
        assert!(text.ends_with(expected), "{text}");
    }
}

#[tokio::test]
async fn a_watch_reports_objects_in_its_version() {
    let (apiserver, _hook) = opened(reviews(works)).await;
    apiserver.post(V2, &wide("a", 1)).await.ok();
    let mut lines = Events::open(&apiserver, &format!("{V1}?watch=1&{INITIAL}")).await;
    let first = lines.next().await;
    assert_eq!((&first["type"], &first["object"]["spec"]["size"]), (&json!("ADDED"), &json!("1x1")));
    assert_eq!(lines.next().await["type"], "BOOKMARK");
    apiserver.merge(&format!("{V2}/a"), &json!({ "spec": { "width": 9 } })).await.ok();
    let changed = lines.next().await;
    assert_eq!((&changed["type"], &changed["object"]["spec"]["size"]), (&json!("MODIFIED"), &json!("9x1")));
    apiserver.delete(&format!("{V2}/a"), &Value::Null).await.ok();
    let gone = lines.next().await;
    assert_eq!((&gone["type"], &gone["object"]["spec"]["size"]), (&json!("DELETED"), &json!("9x1")));
}
