//! The table of policies that our API server is tested with, put to a real kube-apiserver. With `PLUMB_UPDATE=1` the
//! table is written anew from its responses.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use super::kube_apiserver::{Response, ask, create_namespace, start};

const TABLE: &str = "../apiserver/tests/it/policies.json";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
/// How long kube-apiserver may take to act on a policy or a definition that was written.
const DEADLINE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The text of a `Warning` header.
fn warning_text(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap_or(header);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Waits until a request is answered as expected.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, waited).await.is_ok(), "{what} took too long");
}

/// Waits until kube-apiserver acts on all policies and bindings that were written: on one more of each, which the same
/// informers deliver after the others.
async fn synchronize(client: &Client, number: &mut usize) {
    *number += 1;
    let name = format!("synchronized-{number}");
    let refused = format!("{name}-refused");
    let constraints = |name: &str| {
        json!({ "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            "resourceNames": [name],
        }] })
    };
    let object = |spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let mutation = json!({
        "patchType": "JSONPatch",
        "jsonPatch": { "expression": "[JSONPatch{op: 'add', path: '/data/mutated', value: 'yes'}]" },
    });
    let validating =
        json!({ "matchConstraints": constraints(&refused), "validations": [{ "expression": "false" }] });
    let mutating = json!({
        "matchConstraints": constraints(&name), "reinvocationPolicy": "Never", "mutations": [mutation],
    });
    let writes = [
        (POLICIES, object(validating)),
        (BINDINGS, object(json!({ "policyName": name, "validationActions": ["Deny"] }))),
        (MUTATING, object(mutating)),
        (MUTATING_BINDINGS, object(json!({ "policyName": name }))),
    ];
    for (path, body) in &writes {
        let created = ask(client, "POST", path, body).await;
        assert_eq!(created.code, 201, "{}", created.body);
    }
    let map = |name: &str| json!({ "metadata": { "name": name }, "data": { "a": "b" } });
    let (maps, validated, mutated) =
        ("/api/v1/namespaces/default/configmaps?dryRun=All", map(&refused), map(&name));
    until("a policy", async || {
        ask(client, "POST", maps, &validated).await.code == 422
            && ask(client, "POST", maps, &mutated).await.body["data"]["mutated"] == "yes"
    })
    .await;
    for path in [POLICIES, BINDINGS, MUTATING, MUTATING_BINDINGS] {
        ask(client, "DELETE", &format!("{path}/{name}"), &Value::Null).await;
    }
}

/// The response, once kube-apiserver has discovered the definitions of the namespace's group.
async fn respond(client: &Client, method: &str, path: &str, body: &Value, namespace: &str) -> Response {
    let undiscovered = format!("referenced by paramKind: '{namespace}.");
    let responded = async {
        loop {
            let response = ask(client, method, path, body).await;
            if !response.body["message"].as_str().unwrap_or_default().contains(&undiscovered) {
                break response;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(2 * DEADLINE, responded).await.expect("a definition that is discovered")
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn kube_apiserver_has_the_messages_of_the_table_of_policies() {
    let file = crate::file(TABLE);
    let text = std::fs::read_to_string(&file).expect("the table");
    let mut scenarios: Vec<Value> = serde_json::from_str(&text).expect("scenarios");
    let (cluster, client) = start().await;
    let (mut wrong, mut synchronized) = (Vec::new(), 0);
    for (number, scenario) in scenarios.iter_mut().enumerate() {
        let namespace = format!("policy-{number}");
        create_namespace(&client, &namespace).await;
        let (name, mut stale) = (scenario["name"].clone(), false);
        for step in scenario["steps"].as_array_mut().expect("steps") {
            let text = |field: &str| step[field].as_str().unwrap_or_default().replace("{ns}", &namespace);
            let (method, path) = (text("method"), text("path"));
            let body: Value =
                serde_json::from_str(&step["body"].to_string().replace("{ns}", &namespace)).expect("JSON");
            let about_policies = path.contains("admissionpolic");
            if stale && !about_policies {
                synchronize(&client, &mut synchronized).await;
                stale = false;
            }
            if path.contains(".example.com/") {
                let list = path.clone();
                until("a definition", async || ask(&client, "GET", &list, &Value::Null).await.code == 200)
                    .await;
            }
            let Response { code, body: answer, warnings } =
                respond(&client, &method, &path, &body, &namespace).await;
            stale |= about_policies && code < 300;
            let back = |text: &str| text.replace(&namespace, "{ns}");
            let message = answer["message"].as_str().filter(|_| code >= 400).map(back);
            let mut warnings: Vec<String> = warnings.iter().map(|header| warning_text(header)).collect();
            // The order of policies is that of a map in Go.
            warnings.sort();
            let warnings: Vec<String> = warnings.iter().map(|warning| back(warning)).collect();
            let now = json!({ "code": code, "message": message, "warnings": warnings });
            let before = json!({
                "code": step["code"], "message": step["message"], "warnings": step["warnings"],
            });
            if now != before {
                wrong.push(format!("{name}: {method} {path} {body}\n  now    {now}\n  before {before}\n"));
                for field in ["code", "message", "warnings"] {
                    step[field] = now[field].clone();
                }
            }
        }
        if stale {
            synchronize(&client, &mut synchronized).await;
        }
    }
    cluster.stop().await.expect("it is gone");
    if crate::is_updating() {
        let text = serde_json::to_string_pretty(&scenarios).expect("JSON");
        std::fs::write(&file, text + "\n").expect("the table is written");
        return;
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.concat());
}
