//! Tables of requests and responses that `plumb-conformance` puts to a real kube-apiserver too.

use plumb_conformance::scenario::{Scenario, Step};
use serde_json::json;

use super::test_api_server::{ApiResponse, TestApiServer};

/// What is wrong with a response.
fn judge(step: &Step, namespace: &str, answer: &ApiResponse) -> Option<String> {
    let here = |text: &String| text.replace("{ns}", namespace);
    let (code, message) = (answer.status.as_u16(), answer.body["message"].as_str().unwrap_or_default());
    let warned = |wanted: &Vec<String>| {
        let header = |text: &String| format!("299 - \"{}\"", here(text).replace('"', "\\\""));
        // kube-apiserver does not warn about what has no effect in Plumb.
        let of_kube = answer.warnings.iter().filter(|warning| !warning.contains(": no effect in Plumb: "));
        let mut given: Vec<String> = of_kube.cloned().collect();
        given.sort();
        given == wanted.iter().map(header).collect::<Vec<_>>()
    };
    let right = code == step.code
        && step.message.as_ref().map(here).is_none_or(|wanted| wanted == message)
        && step.warnings.as_ref().is_none_or(warned);
    (!right).then(|| {
        format!(
            "{} {} {}\n  ours  {code} {message:?} {:?}\n  table {} {:?} {:?}\n",
            step.method,
            step.path,
            step.body,
            answer.warnings,
            step.code,
            step.message.as_ref().map(here),
            step.warnings
        )
    })
}

/// Puts a table to a server.
pub(crate) async fn play(apiserver: &TestApiServer, table: &str) {
    let scenarios: Vec<Scenario> = serde_json::from_str(table).unwrap();
    let mut wrong = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        let namespace = format!("s{number}");
        apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.ok();
        let account = json!({ "metadata": { "name": "default" } });
        apiserver.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await.ok();
        for step in &scenario.steps {
            let (head, body) = step.request(&namespace).unwrap().into_parts();
            let media = head.headers["content-type"].to_str().unwrap().to_owned();
            let answer = apiserver.request(head.method, &head.uri.to_string(), &media, body).await;
            wrong.extend(judge(step, &namespace, &answer).map(|why| format!("{}: {why}", scenario.name)));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.concat());
}
