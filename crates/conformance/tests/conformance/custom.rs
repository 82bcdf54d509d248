//! kube-apiserver still returns the responses that test our custom resources.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use plumb_testbed::{Cluster, Config, Parts};
use serde_json::{Value, json};

use super::kube_apiserver::send;

const CASES: &str = include_str!("../../../apiserver/tests/it/custom/cases.json");
const ANSWERS: &str = include_str!("../../../apiserver/tests/it/custom/answers.json");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How often and how long to wait for controllers.
const TRIES: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

async fn ask(client: &Client, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let media = if media.is_empty() { "application/json" } else { media };
    let request = Request::builder()
        .method(method.parse::<Method>().unwrap())
        .uri(path)
        .header("content-type", media)
        .body(text.into_bytes())
        .unwrap();
    let response = send(client, request).await;
    (response.code, response.body)
}

/// The parts of a message, in any order: upstream lists them as they come out of Go's maps.
fn parts(message: &Value) -> BTreeSet<String> {
    let text = message.as_str().unwrap_or_default();
    let (about, rest) = text.split_once(" is invalid: ").unwrap_or(("", text));
    rest.split(", ").chain([about]).map(|part| part.replace(['[', ']'], "")).collect()
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn kube_apiserver_answers_about_custom_kinds_as_it_did() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let answers: Value = serde_json::from_str(ANSWERS).unwrap();
    let cluster = Cluster::start(Config::of(Parts::ApiServer)).await.expect("it starts");
    let client = cluster.client().await.expect("a client");
    let mut wrong = Vec::new();
    let mut compare = |name: &str, (code, body): (u16, Value)| {
        let before = &answers[name];
        let refused = code >= 400 && parts(&body["message"]) != parts(&before["message"]);
        if before["code"] != code || refused {
            wrong.push(format!("{name}: {code} {}\n  before: {before}", body["message"]));
        }
    };
    for case in cases["refusals"].as_array().unwrap() {
        let answer = ask(&client, "POST", DEFINITIONS, "", &case["body"]).await;
        if answer.0 == 201 {
            let path = format!("{DEFINITIONS}/{}", case["body"]["metadata"]["name"].as_str().unwrap());
            ask(&client, "DELETE", &path, "", &Value::Null).await;
            for _ in 0..TRIES {
                if ask(&client, "GET", &path, "", &Value::Null).await.0 == 404 {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        compare(case["name"].as_str().unwrap(), answer);
    }
    ask(&client, "POST", DEFINITIONS, "", &cases["definition"]).await;
    let objects = "/apis/example.com/v1/namespaces/default/widgets";
    for _ in 0..TRIES {
        if ask(&client, "GET", objects, "", &json!(null)).await.0 == 200 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    for case in cases["objects"].as_array().unwrap() {
        let text = |field: &str| case[field].as_str().unwrap();
        let answer = ask(&client, text("method"), text("path"), text("media"), &case["body"]).await;
        compare(text("name"), answer);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.stop().await.expect("it is gone");
}
