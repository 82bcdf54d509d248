//! Tables of requests and responses that `plumb-conformance` puts to a real kube-apiserver too.

use serde_json::{Value, json};

use super::door::{Answer, Door};

/// One request, and the response to expect.
#[derive(serde::Deserialize)]
struct Step {
    method: String,
    path: String,
    body: Value,
    code: u16,
    message: Option<String>,
    /// The texts of the `Warning` headers, where the table has them.
    warnings: Option<Vec<String>>,
}

/// Steps in a namespace of their own.
#[derive(serde::Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

impl Step {
    fn request(&self, namespace: &str) -> http::Request<Vec<u8>> {
        let (method, media) = match self.method.as_str() {
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            method => (method, "application/json"),
        };
        let body = if self.body.is_null() { String::new() } else { self.body.to_string() };
        http::Request::builder()
            .method(method)
            .uri(self.path.replace("{ns}", namespace))
            .header("content-type", media)
            .body(body.replace("{ns}", namespace).into_bytes())
            .unwrap()
    }

    /// What is wrong with a response.
    fn judge(&self, namespace: &str, answer: &Answer) -> Option<String> {
        let here = |text: &String| text.replace("{ns}", namespace);
        let (code, message) = (answer.status.as_u16(), answer.body["message"].as_str().unwrap_or_default());
        let warned = |wanted: &Vec<String>| {
            let header = |text: &String| format!("299 - \"{}\"", here(text).replace('"', "\\\""));
            let mut given = answer.warnings.clone();
            given.sort();
            given == wanted.iter().map(header).collect::<Vec<_>>()
        };
        let right = code == self.code
            && self.message.as_ref().map(here).is_none_or(|wanted| wanted == message)
            && self.warnings.as_ref().is_none_or(warned);
        (!right).then(|| {
            format!(
                "{} {} {}\n  ours  {code} {message:?} {:?}\n  table {} {:?} {:?}\n",
                self.method,
                self.path,
                self.body,
                answer.warnings,
                self.code,
                self.message.as_ref().map(here),
                self.warnings
            )
        })
    }
}

/// Puts a table to a server.
pub(crate) async fn play(door: &Door, table: &str) {
    let scenarios: Vec<Scenario> = serde_json::from_str(table).unwrap();
    let mut wrong = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        let namespace = format!("s{number}");
        door.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.ok();
        let account = json!({ "metadata": { "name": "default" } });
        door.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await.ok();
        for step in &scenario.steps {
            let (head, body) = step.request(&namespace).into_parts();
            let media = head.headers["content-type"].to_str().unwrap().to_owned();
            let answer = door.ask(head.method, &head.uri.to_string(), &media, body).await;
            wrong.extend(step.judge(&namespace, &answer).map(|why| format!("{}: {why}", scenario.name)));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.concat());
}
