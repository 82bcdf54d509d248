//! Empty lists and maps: validation sees them, the store does not.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::TestApiServer;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": spec },
    }})
}

#[tokio::test]
async fn rules_about_required_and_forbidden_lists_apply_to_empty_lists() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let containers = json!([{ "name": "a", "image": "b" }]);
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" });
    let table = [
        (
            DEPLOYMENTS,
            deployment("a", &json!({ "containers": containers, "resources": { "claims": [] } })),
            "spec.template.spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({ "metadata": { "name": "a" }, "spec": {
                "maxReplicas": 2, "scaleTargetRef": target, "behavior": { "scaleDown": { "policies": [] } },
            }}),
            "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy",
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({ "metadata": { "name": "a" }, "spec": { "containers": containers, "overhead": {} } }),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ];
    for (path, body, expected) in table {
        let (_, _, message) = apiserver.post(path, &body).await.rejected();
        assert!(message.ends_with(expected), "{message}");
    }
}

#[tokio::test]
async fn empty_fields_are_not_stored_and_an_update_with_them_changes_nothing() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let container = json!({ "name": "a", "image": "b", "resources": { "requests": {}, "claims": [] } });
    let made =
        apiserver.post(DEPLOYMENTS, &deployment("a", &json!({ "containers": [container] }))).await.ok();
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["resources"], json!({}));
    assert_eq!(apiserver.get(&format!("{DEPLOYMENTS}/a")).await.ok(), made);
    let managed = made["metadata"]["managedFields"][0]["fieldsV1"].to_string();
    assert!(!managed.contains("f:claims") && !managed.contains("f:requests"), "{managed}");

    let mut again = made.clone();
    again["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "limits": {} });
    assert_eq!(apiserver.put(&format!("{DEPLOYMENTS}/a"), &again).await.ok(), made);
}

#[tokio::test]
async fn a_quantity_in_another_notation_is_stored_but_is_no_new_generation() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let asks = |cpu: &str| json!({ "containers": [{ "name": "a", "image": "b", "resources": { "requests": { "cpu": cpu } } }] });
    let made = apiserver.post(DEPLOYMENTS, &deployment("a", &asks("1"))).await.ok();
    let mut again = made.clone();
    again["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("+1");
    let changed = apiserver.put(&format!("{DEPLOYMENTS}/a"), &again).await.ok();
    assert_eq!(changed["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "+1");
    assert_eq!(changed["metadata"]["generation"], 1);
    assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}
