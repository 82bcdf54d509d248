//! The scenarios of server-side apply that test our API server, sent to the real Kubernetes again.

use std::time::Duration;

use http::Request;
use kube::Client;
use plumb_apischema::patch;
use plumb_testbed::{Cluster, Config, Parts};
use serde_json::{Value, json};

use super::kube_apiserver::{create_namespace, send};

/// The responses of kube-apiserver when the scenarios were recorded, for built-in kinds and custom resources;
/// `PLUMB_UPDATE=1` records them anew.
const SCENARIOS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../apiserver/tests/it/apply/kubernetes.jsonl"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../apiserver/tests/it/apply/custom.jsonl"),
];
/// How often and how long to wait for a kind to be served.
const TRIES: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

async fn ask(client: &Client, method: &str, uri: &str, step: &Value, body: String) -> (u16, Value) {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("accept", "application/json")
        .header("user-agent", text("agent"))
        .header("content-type", text("media"))
        .body(body.into_bytes())
        .expect("a request");
    let response = send(client, request).await;
    (response.code, response.body)
}

/// A response without what is new in each run.
fn compared(mut answer: Value, last: &mut String, in_order: bool) -> Value {
    if let Some(causes) = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(ToString::to_string);
    }
    let is_status = answer["kind"] == "Status";
    let Some(metadata) = answer["metadata"].as_object_mut().filter(|_| !is_status) else { return answer };
    for field in ["uid", "creationTimestamp"] {
        metadata.remove(field);
    }
    if let Some(revision) = metadata.remove("resourceVersion") {
        let revision = revision.as_str().unwrap_or_default();
        metadata.insert("moved".to_owned(), json!(revision != last));
        revision.clone_into(last);
    }
    if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in managers.iter_mut().filter(|entry| !entry["time"].is_boolean()) {
            entry["time"] = json!(entry.get("time").is_some());
        }
        if !in_order {
            managers.sort_by_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource", "time"]
                    .map(|field| entry[field].to_string())
            });
        }
    }
    answer
}

/// Waits until a kind is served in every version that its definition names.
async fn served(client: &Client, step: &Value) {
    let spec = &step["body"]["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for version in spec["versions"].as_array().expect("versions") {
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let uri = format!("/apis/{group}/{}/namespaces/ssa/{plural}", text(&version["name"]));
        for _ in 0..TRIES {
            if ask(client, "GET", &uri, step, String::new()).await.0 == 200 {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Replays a scenario; returns the responses that differ from it, and puts them into it.
async fn replay(client: &Client, scenario: &mut Value) -> Vec<String> {
    let (name, in_order) =
        (scenario["name"].as_str().unwrap_or_default().to_owned(), scenario["slow"] == true);
    let (mut now, mut then, mut wrong) = (String::new(), String::new(), Vec::new());
    for (place, step) in scenario["steps"].as_array_mut().expect("steps").iter_mut().enumerate() {
        if in_order {
            // Timestamps have a resolution of a second.
            tokio::time::sleep(Duration::from_millis(1050)).await;
        }
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let body = match (step.get("change"), &step["body"]) {
            (Some(change), _) => {
                let (_, current) = ask(client, "GET", &text("path"), step, String::new()).await;
                patch::merge(current, change.clone()).to_string()
            }
            (None, Value::Null) => String::new(),
            (None, Value::String(text)) => text.clone(),
            (None, body) => body.to_string(),
        };
        let uri = [text("path"), text("query")].join("?").trim_end_matches('?').to_owned();
        let (code, answer) = ask(client, &text("method"), &uri, step, body).await;
        let defines = text("path").ends_with("/customresourcedefinitions");
        if defines {
            served(client, step).await;
        }
        let answer = json!({ "code": code, "body": compared(answer, &mut now, in_order) });
        let mut known = step["answer"].clone();
        known["body"] = compared(known["body"].take(), &mut then, in_order);
        // Other tests check the conditions of definitions over time.
        if answer != known && !(defines && answer["code"] == known["code"]) {
            wrong.push(format!("{name}, step {place}:\n  {answer}\n  {known}"));
            step["answer"] = answer;
        }
    }
    wrong
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn kube_apiserver_answers_an_apply_as_it_is_written_down() {
    let config = Config::of(Parts::ApiServer);
    let cluster = Cluster::start(config).await.expect("it starts");
    let client = cluster.client().await.expect("a client");
    create_namespace(&client, "ssa").await;
    let mut wrong = Vec::new();
    for place in SCENARIOS {
        let written = std::fs::read_to_string(place).expect("the scenarios");
        let mut anew = String::new();
        for line in written.lines() {
            let mut scenario: Value = serde_json::from_str(line).expect("a scenario");
            wrong.extend(replay(&client, &mut scenario).await);
            anew.push_str(&scenario.to_string());
            anew.push('\n');
        }
        if std::env::var_os("PLUMB_UPDATE").is_some() && !wrong.is_empty() {
            std::fs::write(place, anew).expect("written");
            wrong.clear();
        }
    }
    cluster.stop().await.expect("it is gone");
    assert!(wrong.is_empty(), "{} answers are others now:\n{}", wrong.len(), wrong.join("\n"));
}
