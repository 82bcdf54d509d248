//! Webhooks and policies whose rules name another version than the request: `matchPolicy: Equivalent`.

use serde_json::{Value, json};

use super::{Does, TestApiServer, V1, V2, Webhook, opened, plug, reviews, wide, works};
use crate::it::webhooks::{configure, entry, patch};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// The entry of a webhook for plugs of a version.
fn of_plugs(hook: &Webhook, version: &str, policy: &str) -> Value {
    let mut entry = entry(hook.client(), json!(["CREATE", "UPDATE", "DELETE"]), "plugs");
    entry["rules"][0]["apiGroups"] = json!(["example.com"]);
    entry["rules"][0]["apiVersions"] = json!([version]);
    entry["matchPolicy"] = json!(policy);
    entry
}

async fn allows() -> Webhook {
    Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await
}

#[tokio::test]
async fn a_webhook_gets_old_and_new_object_in_the_version_that_its_rule_names() {
    let (apiserver, converter) = opened(reviews(works)).await;
    let (first, second, never) = (allows().await, allows().await, allows().await);
    for (name, webhook) in [
        ("first", of_plugs(&first, "v1", "Equivalent")),
        ("never", of_plugs(&never, "v1", "Exact")),
        ("second", of_plugs(&second, "v1", "Equivalent")),
    ] {
        configure(&apiserver, "validating", name, json!([webhook])).await;
    }
    apiserver.post(V2, &wide("a", 3)).await.ok();
    assert_eq!(converter.seen().len(), 1, "two webhooks get what was converted once");
    apiserver.merge(&format!("{V2}/a"), &json!({ "spec": { "width": 4 } })).await.ok();
    apiserver.delete(&format!("{V2}/a"), &Value::Null).await.ok();
    assert!(never.seen().is_empty(), "the requests are in v2");
    let of = |version: &str| json!({ "group": "example.com", "version": version, "kind": "Plug" });
    for hook in [&first, &second] {
        let seen = hook.seen();
        for request in &seen {
            assert_eq!((&request["kind"], &request["requestKind"]), (&of("v1"), &of("v2")));
            let versions = (&request["resource"]["version"], &request["requestResource"]["version"]);
            assert_eq!(versions, (&json!("v1"), &json!("v2")));
        }
        let sizes = |field: &str| -> Vec<Value> {
            seen.iter().map(|request| request[field]["spec"]["size"].clone()).collect()
        };
        assert_eq!(sizes("object"), [json!("3x1"), json!("4x1"), Value::Null]);
        assert_eq!(sizes("oldObject"), [Value::Null, json!("3x1"), json!("4x1")]);
        assert_eq!(seen[1]["object"]["apiVersion"], "example.com/v1");
        assert_eq!(seen[1]["oldObject"]["apiVersion"], "example.com/v1");
    }
}

#[tokio::test]
async fn the_patch_of_a_webhook_is_converted_back() {
    let (apiserver, _converter) = opened(reviews(works)).await;
    let hook = Webhook::start(Does::Answers(|_| {
        patch(json!([{ "op": "replace", "path": "/spec/size", "value": "7x8" }]))
    }))
    .await;
    configure(&apiserver, "mutating", "m", json!([of_plugs(&hook, "v1", "Equivalent")])).await;
    let made = apiserver.post(V2, &wide("a", 3)).await.ok();
    assert_eq!(made["apiVersion"], "example.com/v2");
    assert_eq!(made["spec"], json!({ "width": 7, "height": 8 }));
    // A request in the version of the rule needs no conversion for the webhook.
    let made = apiserver.post(V1, &plug("b", "1x1")).await.ok();
    assert_eq!(made["spec"], json!({ "size": "7x8" }));
    assert_eq!(apiserver.get(&format!("{V2}/b")).await.ok()["spec"], json!({ "width": 7, "height": 8 }));
}

#[tokio::test]
async fn a_condition_reads_the_version_that_the_rule_names() {
    let (apiserver, _converter) = opened(reviews(works)).await;
    let hook = allows().await;
    let mut webhook = of_plugs(&hook, "v1", "Equivalent");
    webhook["matchConditions"] = json!([{ "name": "wide", "expression": "object.spec.size == '5x1'" }]);
    configure(&apiserver, "validating", "v", json!([webhook])).await;
    for (name, width) in [("a", 4), ("b", 5)] {
        apiserver.post(V2, &wide(name, width)).await.ok();
    }
    let names: Vec<Value> = hook.seen().iter().map(|request| request["name"].clone()).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test]
async fn a_write_that_cannot_be_converted_for_a_webhook_is_refused_whatever_its_failure_policy_is() {
    let (apiserver, _converter) = opened(Does::Says(404, "nothing")).await;
    let hook = allows().await;
    let mut webhook = of_plugs(&hook, "v1", "Equivalent");
    webhook["failurePolicy"] = json!("Ignore");
    configure(&apiserver, "mutating", "m", json!([webhook])).await;
    let (code, reason, why) = apiserver.post(V2, &wide("a", 3)).await.rejected();
    assert_eq!((code, reason.as_str()), (500, "InternalError"));
    let failed = "conversion webhook for example.com/v2, Kind=Plug failed: the server could not find the requested \
                  resource";
    assert_eq!(why, format!("Internal error occurred: {failed}"));
    assert!(hook.seen().is_empty());
}

fn policy(name: &str, spec: &Value) -> Value {
    let mut policy = json!({ "metadata": { "name": name }, "spec": {
        "matchConstraints": { "matchPolicy": "Equivalent", "resourceRules": [{
            "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["plugs"],
        }] },
    } });
    for (field, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][field] = value.clone();
    }
    policy
}

async fn bind(apiserver: &TestApiServer, kind: &str, name: &str, spec: &Value, mut binding: Value) {
    apiserver.post(&format!("{POLICIES}/{kind}admissionpolicies"), &policy(name, spec)).await.ok();
    binding["policyName"] = json!(name);
    let binding = json!({ "metadata": { "name": name }, "spec": binding });
    apiserver.post(&format!("{POLICIES}/{kind}admissionpolicybindings"), &binding).await.ok();
}

#[tokio::test]
async fn policies_read_and_change_objects_in_the_version_that_they_name() {
    let (apiserver, _converter) = opened(reviews(works)).await;
    let size = json!({ "validations": [{ "expression": "object.spec.size != '5x1'" }] });
    bind(&apiserver, "validating", "size", &size, json!({ "validationActions": ["Deny"] })).await;
    // The first mutation changes what the second reads.
    let grow = |from: &str, to: &str| {
        let expression = format!(
            "object.spec.size == '{from}' ? [JSONPatch{{op: 'replace', path: '/spec/size', value: '{to}'}}] : []"
        );
        json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } })
    };
    let mutations = json!({
        "reinvocationPolicy": "Never", "failurePolicy": "Fail",
        "mutations": [grow("6x1", "7x1"), grow("7x1", "8x2")],
    });
    bind(&apiserver, "mutating", "grow", &mutations, json!({})).await;
    let (code, _, why) = apiserver.post(V2, &wide("a", 5)).await.rejected();
    assert_eq!(code, 422, "{why}");
    assert!(why.ends_with("denied request: failed expression: object.spec.size != '5x1'"), "{why}");
    let made = apiserver.post(V2, &wide("b", 6)).await.ok();
    assert_eq!(made["spec"], json!({ "width": 8, "height": 2 }));
    assert_eq!(apiserver.post(V2, &wide("c", 4)).await.ok()["spec"]["width"], 4);
}
