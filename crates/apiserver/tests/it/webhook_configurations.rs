//! Webhook configurations: creation, update and deletion.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, pod};
use super::webhooks::{Does, Webhook, configure, entry, patch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "k": "v" } })
}

fn thing(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name }, "spec": spec,
    })
}

/// An entry for things in all versions.
fn of_things(hook: &Webhook, operations: Value) -> Value {
    let mut entry = entry(hook.client(), operations, "things");
    entry["rules"][0]["apiGroups"] = json!(["example.com"]);
    entry["rules"][0]["apiVersions"] = json!(["*"]);
    entry
}

fn denies() -> Does {
    Does::Answers(|_| json!({ "allowed": false, "status": { "message": "no" } }))
}

/// A webhook that adds a key of data.
fn adds() -> Does {
    Does::Answers(|_| patch(json!([{ "op": "add", "path": "/data/added", "value": "yes" }])))
}

#[tokio::test]
async fn all_configurations_with_a_label_are_listed_and_deleted_at_once() {
    for kind in ["mutating", "validating"] {
        let apiserver = TestApiServer::open(Rules::v1_36());
        let hook = Webhook::start(if kind == "mutating" { adds() } else { denies() }).await;
        let all = format!("{REGISTRATION}/{kind}webhookconfigurations");
        for number in 0..10 {
            let mut webhook = entry(hook.client(), json!(["CREATE"]), "configmaps");
            webhook["name"] = json!(format!("w{number}.example.com"));
            let metadata = json!({ "name": format!("c{number}"), "labels": { "of": "list" } });
            apiserver.post(&all, &json!({ "metadata": metadata, "webhooks": [webhook] })).await.ok();
        }
        let selected = format!("{all}?labelSelector=of%3Dlist");
        assert_eq!(apiserver.get(&selected).await.ok()["items"].as_array().unwrap().len(), 10);
        let made = apiserver.post(MAPS, &map("first")).await;
        match kind {
            "mutating" => assert_eq!(made.ok()["data"]["added"], "yes"),
            _ => assert!(made.rejected().2.ends_with("denied the request: no")),
        }
        apiserver.delete(&selected, &Value::Null).await.ok();
        assert_eq!(apiserver.get(&selected).await.ok()["items"], json!([]));
        let made = apiserver.post(MAPS, &map("second")).await.ok();
        assert_eq!(made["data"], json!({ "k": "v" }), "{kind}");
    }
}

#[tokio::test]
async fn a_changed_configuration_applies_to_the_next_request() {
    for kind in ["mutating", "validating"] {
        let apiserver = TestApiServer::open(Rules::v1_36());
        let hook = Webhook::start(if kind == "mutating" { adds() } else { denies() }).await;
        configure(&apiserver, kind, "c", json!([entry(hook.client(), json!(["CREATE"]), "configmaps")]))
            .await;
        let path = format!("{REGISTRATION}/{kind}webhookconfigurations/c");
        let is_called = async |name: &str| {
            let before = hook.seen().len();
            let _ = apiserver.post(MAPS, &map(name)).await;
            hook.seen().len() > before
        };
        assert!(is_called("a").await, "{kind}");
        let mut whole = apiserver.get(&path).await.ok();
        whole["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
        apiserver.put(&path, &whole).await.ok();
        assert!(!is_called("b").await, "{kind}: updates alone");
        let operations = json!([{
            "op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"],
        }]);
        let media = "application/json-patch+json";
        apiserver.request(http::Method::PATCH, &path, media, operations.to_string()).await.ok();
        assert!(is_called("c").await, "{kind}");
    }
}

#[tokio::test]
async fn no_webhook_is_called_for_configurations_of_webhooks() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let changes = Webhook::start(Does::Answers(|_| {
        patch(json!([{ "op": "add", "path": "/metadata/labels", "value": { "added": "yes" } }]))
    }))
    .await;
    let refuses = Webhook::start(denies()).await;
    for (kind, hook) in [("mutating", &changes), ("validating", &refuses)] {
        let mut webhook = entry(hook.client(), json!(["*"]), "*");
        webhook["rules"][0]["apiGroups"] = json!(["*"]);
        webhook["rules"][0]["apiVersions"] = json!(["*"]);
        configure(&apiserver, kind, "all", json!([webhook])).await;
    }
    for kind in ["mutating", "validating"] {
        let path = format!("{REGISTRATION}/{kind}webhookconfigurations");
        let empty = json!({ "metadata": { "name": "empty" }, "webhooks": [] });
        assert_eq!(apiserver.post(&path, &empty).await.ok()["metadata"].get("labels"), None);
        apiserver
            .merge(&format!("{path}/empty"), &json!({ "metadata": { "annotations": { "a": "b" } } }))
            .await
            .ok();
        apiserver.delete(&format!("{path}/empty"), &Value::Null).await.ok();
    }
    assert_eq!((changes.seen().len(), refuses.seen().len()), (0, 0));
    // All other objects match.
    apiserver.post(MAPS, &map("a")).await.rejected();
    assert_eq!((changes.seen().len(), refuses.seen().len()), (1, 1));
}

#[tokio::test]
async fn conditions_that_do_not_compile_are_refused_and_those_that_do_are_changed() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for kind in ["mutating", "validating"] {
        let path = format!("{REGISTRATION}/{kind}webhookconfigurations");
        let with = |name: &str, expression: &str| {
            let mut webhook = entry(json!({ "url": "https://127.0.0.1:1/" }), json!(["CREATE"]), "secrets");
            webhook["matchConditions"] = json!([{ "name": "mine", "expression": expression }]);
            json!({ "metadata": { "name": name }, "webhooks": [webhook] })
        };
        let (code, _, message) =
            apiserver.post(&path, &with("wrong", "... [] bad expression")).await.rejected();
        assert_eq!(code, 422);
        assert!(message.contains("webhooks[0].matchConditions[0].expression: Invalid value"), "{message}");
        let right = "object.metadata.name == 'mine'";
        let made = apiserver.post(&path, &with("right", right)).await.ok();
        assert_eq!(made["webhooks"][0]["matchConditions"][0]["expression"], right);
        let mut whole = made;
        let other = "object.metadata.namespace != 'kube-system'";
        whole["webhooks"][0]["matchConditions"] = json!([{ "name": "other", "expression": other }]);
        apiserver.put(&format!("{path}/right"), &whole).await.ok();
        let read = apiserver.get(&format!("{path}/right")).await.ok();
        assert_eq!(read["webhooks"][0]["matchConditions"], json!([{ "name": "other", "expression": other }]));
    }
}

#[tokio::test]
async fn custom_objects_and_their_definitions_can_be_denied() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    apiserver
        .post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec.clone())])))
        .await
        .ok();
    apiserver.post(THINGS, &thing("there", json!({ "a": "b" }))).await.ok();
    let hook = Webhook::start(denies()).await;
    configure(
        &apiserver,
        "validating",
        "v",
        json!([of_things(&hook, json!(["CREATE", "UPDATE", "DELETE"]))]),
    )
    .await;
    let mut of_definitions = entry(hook.client(), json!(["CREATE"]), "customresourcedefinitions");
    of_definitions["rules"][0]["apiGroups"] = json!(["apiextensions.k8s.io"]);
    configure(&apiserver, "validating", "d", json!([of_definitions])).await;
    let there = format!("{THINGS}/there");
    let others = definition("others", "Other", json!([version("v1", spec)]));
    let attempts = [
        apiserver.post(THINGS, &thing("new", json!({}))).await,
        apiserver.merge(&there, &json!({ "spec": { "a": "c" } })).await,
        apiserver.delete(&there, &Value::Null).await,
        apiserver.post(DEFINITIONS, &others).await,
    ];
    for attempt in attempts {
        let message = attempt.rejected().2;
        assert_eq!(message, "admission webhook \"x.example.com\" denied the request: no");
    }
    assert_eq!(apiserver.get(&there).await.ok()["spec"]["a"], "b");
    assert_eq!(apiserver.get("/apis/example.com/v1/others").await.status, 404);
    let seen: Vec<Value> = hook.seen().iter().map(|request| request["operation"].clone()).collect();
    assert_eq!(seen, ["CREATE", "UPDATE", "DELETE", "CREATE"]);
}

#[tokio::test]
async fn fields_that_webhooks_add_to_custom_resources_are_pruned_by_their_schema() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let fields = json!({ "a": { "type": "string" }, "first": { "type": "string" } });
    let spec = json!({ "type": "object", "properties": fields });
    apiserver
        .post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec.clone())])))
        .await
        .ok();
    let first = Webhook::start(Does::Answers(|_| {
        patch(json!([{ "op": "add", "path": "/spec/first", "value": "yes" }]))
    }))
    .await;
    let second = Webhook::start(Does::Answers(|request| {
        assert_eq!(request["object"]["spec"]["first"], "yes", "one after the other");
        patch(json!([{ "op": "add", "path": "/spec/second", "value": "yes" }]))
    }))
    .await;
    for (name, hook) in [("m1", &first), ("m2", &second)] {
        configure(&apiserver, "mutating", name, json!([of_things(hook, json!(["CREATE", "UPDATE"]))])).await;
    }
    let made = apiserver.post(THINGS, &thing("one", json!({ "a": "b" }))).await.ok();
    assert_eq!(made["spec"], json!({ "a": "b", "first": "yes" }));

    // Another version is stored from now on.
    let mut old = version("v1", spec.clone());
    old["storage"] = json!(false);
    let versions = json!({ "spec": { "versions": [old, version("v2", spec)] } });
    apiserver.merge(&format!("{DEFINITIONS}/things.example.com"), &versions).await.ok();
    let patched = apiserver.merge(&format!("{THINGS}/one"), &json!({ "spec": { "a": "c" } })).await.ok();
    assert_eq!(patched["spec"], json!({ "a": "c", "first": "yes" }));
}

#[tokio::test]
async fn defaults_are_applied_to_what_a_webhook_adds_to_a_pod() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let hook = Webhook::start(Does::Answers(|_| {
        let init = json!({ "name": "added", "image": "busybox" });
        patch(json!([{ "op": "add", "path": "/spec/initContainers", "value": [init] }]))
    }))
    .await;
    configure(&apiserver, "mutating", "m", json!([entry(hook.client(), json!(["CREATE"]), "pods")])).await;
    let made = apiserver.post("/api/v1/namespaces/default/pods", &pod("web", "1m", "1Mi")).await.ok();
    let init = &made["spec"]["initContainers"][0];
    assert_eq!((&init["name"], &init["imagePullPolicy"]), (&json!("added"), &json!("Always")));
    assert_eq!(init["terminationMessagePath"], "/dev/termination-log");
}
