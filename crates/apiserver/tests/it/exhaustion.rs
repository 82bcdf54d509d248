//! Objects and configurations that would make the API server work or store without end.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Map, Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::TestApiServer;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const APPLY: &str = "application/apply-patch+yaml";

/// Makes a policy about config maps whose only validation is an expression.
async fn bind(apiserver: &TestApiServer, failure_policy: &str, expression: &str) {
    let name = failure_policy.to_lowercase();
    let policy = json!({ "metadata": { "name": name }, "spec": {
        "failurePolicy": failure_policy,
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }] },
        "validations": [{ "expression": expression }],
    } });
    apiserver.post(POLICIES, &policy).await.ok();
    let binding = json!({ "metadata": { "name": name }, "spec": {
        "policyName": name, "validationActions": ["Deny"],
    } });
    apiserver.post(BINDINGS, &binding).await.ok();
}

#[tokio::test]
async fn an_expression_that_fails_or_costs_too_much_denies_unless_its_policy_ignores_failures() {
    let range = "lists.range(1000)";
    let expensive = format!("{range}.all(x, {range}.all(y, {range}.all(z, x + y + z >= 0)))");
    let cases = [
        (expensive.as_str(), "cost limit exceeded"),
        ("object.data['missing'] == 'x'", "no such key: missing"),
        ("object.metadata.name.matches(object.data['regex'])", "no such key: regex"),
    ];
    for (expression, why) in cases {
        let apiserver = TestApiServer::open(Rules::v1_36());
        let map = json!({ "metadata": { "name": "a" }, "data": { "k": "v" } });
        bind(&apiserver, "Ignore", expression).await;
        apiserver.post(&format!("{MAPS}?dryRun=All"), &map).await.ok();
        bind(&apiserver, "Fail", expression).await;
        let (code, _, message) = apiserver.post(MAPS, &map).await.rejected();
        assert!(message.contains(why), "{expression}: {message}");
        assert_eq!(code, 422, "{message}");
        assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.rejected().0, 404, "nothing is stored");
    }
}

#[tokio::test]
async fn a_definition_whose_rules_may_cost_too_much_is_rejected() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let list = |items: Value| json!({ "type": "array", "items": items });
    let rules = json!([{ "rule": "self.lists.all(a, a.all(b, b.all(c, c != '')))" }]);
    let spec = json!({
        "type": "object",
        "properties": { "lists": list(list(list(json!({ "type": "string" })))) },
        "x-kubernetes-validations": rules,
    });
    let plugs = definition("plugs", "Plug", json!([version("v1", spec)]));
    let (code, _, message) = apiserver.post(DEFINITIONS, &plugs).await.rejected();
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("estimated rule cost exceeds budget by factor of"), "{message}");
}

#[tokio::test]
async fn updates_by_many_managers_leave_few_entries_in_managed_fields() {
    const MANAGERS: usize = 50;
    let apiserver = TestApiServer::open(Rules::v1_36());
    // Fields are tracked from the first apply on.
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "first": "v" },
    });
    let path = format!("{MAPS}/a?fieldManager=first");
    apiserver.request(Method::PATCH, &path, APPLY, map.to_string()).await.ok();
    for i in 0..MANAGERS {
        let path = format!("{MAPS}/a?fieldManager=manager-{i}");
        apiserver.merge(&path, &json!({ "data": { format!("key-{i}"): "v" } })).await.ok();
    }
    let map = apiserver.get(&format!("{MAPS}/a")).await.ok();
    let entries = map["metadata"]["managedFields"].as_array().unwrap();
    assert!(entries.len() <= 12, "{} entries", entries.len());
    assert!(entries.iter().any(|entry| entry["manager"] == "ancient-changes"), "{entries:?}");
    assert_eq!(map["data"].as_object().unwrap().len(), MANAGERS + 1);
}

#[tokio::test]
async fn an_object_does_not_grow_without_end_by_server_side_apply_under_new_names() {
    const MANAGERS: usize = 20;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let data: Map<String, Value> =
        (0..2_000).map(|i| (format!("{i:04}{}", "k".repeat(240)), json!("v"))).collect();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data });
    let map = map.to_string();
    let mut refused = None;
    for i in 0..MANAGERS {
        let path = format!("{MAPS}/a?fieldManager=manager-{i}");
        let response = apiserver.request(Method::PATCH, &path, APPLY, map.clone()).await;
        if !response.status.is_success() {
            refused = Some(response.rejected());
            break;
        }
    }
    let (code, reason, message) = refused.expect("the object becomes too large");
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"), "{message}");
    // It is as it was, and can be made smaller and deleted.
    let stored = apiserver.get(&format!("{MAPS}/a")).await.ok();
    assert_eq!(stored["data"].as_object().unwrap().len(), 2_000);
    let path = format!("{MAPS}/a");
    apiserver.merge(&path, &json!({ "metadata": { "managedFields": [{}] } })).await.ok();
    apiserver.request(Method::PATCH, &format!("{path}?fieldManager=last"), APPLY, map).await.ok();
    apiserver.delete(&path, &Value::Null).await.ok();
}

#[tokio::test]
async fn managed_fields_of_any_form_do_not_break_a_write() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let deep = (0..100).fold(json!({}), |fields, _| json!({ "f:a": fields }));
    let wide: Map<String, Value> = (0..20_000).map(|i| (format!("k:{{\"a\":{i}}}"), json!({}))).collect();
    for (i, fields) in [deep, Value::Object(wide), json!({ "v:[": {} }), json!([])].into_iter().enumerate() {
        let name = format!("m{i}");
        let entry = json!({
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        let map = json!({ "metadata": { "name": name, "managedFields": [entry] }, "data": { "k": "v" } });
        let status = apiserver.post(MAPS, &map).await.status.as_u16();
        assert!(matches!(status, 201 | 400 | 422), "{i}: {status}");
        if status == 201 {
            apiserver.merge(&format!("{MAPS}/{name}"), &json!({ "data": { "k": "w" } })).await.ok();
        }
    }
}
