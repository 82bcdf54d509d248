//! A tenant of a namespace makes the API server work, hold or store without end.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::http::{TENANT, Target};
use crate::it::wire::{Connection, Speech, soon};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const POLICY_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MIB: usize = 1 << 20;

/// An API server, a connection of its administrator, and one of a tenant who may do everything with config maps of a namespace.
async fn start() -> (Target, Connection, Connection) {
    let target = Target::start(&[]);
    let admin = target.cluster.wire().connect(Speech::Http2).await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }]);
    let role = json!({ "metadata": { "name": "maps" }, "rules": rules });
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps" });
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant" }]);
    let binding = json!({ "metadata": { "name": "maps" }, "roleRef": reference, "subjects": subjects });
    for (path, object) in [(ROLES, role), (BINDINGS, binding)] {
        post(&admin, path, &object).await;
    }
    let tenant = target.cluster.wire().with_token(TENANT).connect(Speech::Http2).await;
    (target, admin, tenant)
}

async fn ask(connection: &Connection, method: Method, path: &str, media: &str, body: &str) -> (u16, Value) {
    soon(connection.ask(method, path, media, body.to_owned())).await.unwrap()
}

async fn post(connection: &Connection, path: &str, object: &Value) {
    let (status, answer) = ask(connection, Method::POST, path, JSON, &object.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}

fn map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_whose_lists_a_tenant_does_not_read_leave_those_of_others() {
    const WATCHES: usize = 400;
    let (target, admin, _) = start().await;
    post(&admin, MAPS, &map("large", &json!({ "k": "v".repeat(1_000_000) }))).await;
    let watch = format!("{MAPS}?watch=1");
    let request = || Request::get(&watch).body(Full::default()).unwrap();
    let before = target.memory();
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..2 {
        let tenant = target.cluster.wire().with_token(TENANT).connect(Speech::Http2).await;
        for _ in 0..WATCHES / 2 {
            let response = soon(tenant.send(request())).await.unwrap();
            match response.status().as_u16() {
                200 => held.push(response),
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    // Three quarters of 400 initial lists are of one user; of each connection a few fit into its window.
    assert!(refused > 0 && (300..320).contains(&held.len()), "{} and {refused}", held.len());
    let grown = target.memory().saturating_sub(before);
    // They share the event, which is of 1 MB: 286 MiB were seen when each held its own.
    assert!(grown < 64 * MIB, "it grew by {} MiB", grown / MIB);
    let mut response = soon(admin.send(request())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(soon(response.frame()).await.unwrap().unwrap().is_data());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_does_not_grow_an_object_by_managed_fields_of_ever_new_managers() {
    let (target, _, tenant) = start().await;
    let data: Map<String, Value> =
        (0..2_000).map(|i| (format!("{i:04}{}", "k".repeat(240)), json!("v"))).collect();
    let body = map("bomb", &Value::Object(data)).to_string();
    let mut refusal = None;
    for manager in 0..20 {
        let path = format!("{MAPS}/bomb?fieldManager=manager-{manager}");
        let (status, answer) = ask(&tenant, Method::PATCH, &path, APPLY, &body).await;
        if status >= 300 {
            refusal = Some((status, answer["reason"].clone()));
            break;
        }
    }
    assert_eq!(refusal, Some((413, json!("RequestEntityTooLarge"))));
    // Entries that a client makes up.
    let deep = (0..100).fold(json!({}), |fields, _| json!({ "f:a": fields }));
    let wide: Map<String, Value> = (0..20_000).map(|i| (format!("k:{{\"a\":{i}}}"), json!({}))).collect();
    for (number, fields) in [deep, Value::Object(wide), json!([])].into_iter().enumerate() {
        let mut object = map(&format!("made-up-{number}"), &json!({ "k": "v" }));
        object["metadata"]["managedFields"] = json!([{
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }]);
        let (status, answer) = ask(&tenant, Method::POST, MAPS, JSON, &object.to_string()).await;
        assert!(matches!(status, 201 | 400 | 422), "{number}: {status} {answer}");
    }
    let (status, _) = ask(&tenant, Method::DELETE, &format!("{MAPS}/bomb"), "", "").await;
    assert_eq!(status, 200);
    assert_eq!(target.ask(Speech::Http1).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_an_expensive_policy_denies_do_not_delay_those_of_others() {
    let (target, admin, tenant) = start().await;
    let range = "lists.range(1000)";
    let expensive = format!("{range}.all(x, {range}.all(y, {range}.all(z, x + y + z >= 0)))");
    let constraints = json!({ "resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    }] });
    let validations = json!([{ "expression": expensive }]);
    let spec =
        json!({ "failurePolicy": "Fail", "matchConstraints": constraints, "validations": validations });
    post(&admin, POLICIES, &json!({ "metadata": { "name": "expensive" }, "spec": spec })).await;
    let spec = json!({ "policyName": "expensive", "validationActions": ["Deny"] });
    post(&admin, POLICY_BINDINGS, &json!({ "metadata": { "name": "expensive" }, "spec": spec })).await;
    let mut writes = JoinSet::new();
    for number in 0..4 {
        let (tenant, body) = (tenant.clone(), map(&format!("m{number}"), &json!({})).to_string());
        writes.spawn(async move { ask(&tenant, Method::POST, MAPS, JSON, &body).await });
    }
    // Others get their answers while these are evaluated.
    assert_eq!(target.ask(Speech::Http1).await, 200);
    while let Some(written) = writes.join_next().await {
        let (status, answer) = written.unwrap();
        assert_eq!(status, 422, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("cost limit exceeded"), "{answer}");
    }
    // Nor can a definition bring such a rule.
    let list = |items: Value| json!({ "type": "array", "items": items });
    let lists = list(list(list(json!({ "type": "string" }))));
    let schema = json!({
        "type": "object", "properties": { "lists": lists },
        "x-kubernetes-validations": [{ "rule": "self.lists.all(a, a.all(b, b.all(c, c != '')))" }],
    });
    let version =
        json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    let names = json!({ "plural": "plugs", "singular": "plug", "kind": "Plug", "listKind": "PlugList" });
    let spec = json!({ "group": "x.example", "scope": "Namespaced", "names": names, "versions": [version] });
    let definition = json!({ "metadata": { "name": "plugs.x.example" }, "spec": spec });
    let (status, answer) = ask(&admin, Method::POST, DEFINITIONS, JSON, &definition.to_string()).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("estimated rule cost exceeds budget"), "{answer}");
}
