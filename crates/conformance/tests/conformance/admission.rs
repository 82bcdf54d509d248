//! The table of admission that our API server is tested with, run against a real kube-apiserver.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plumb_testbed::{Cluster, Config, Parts};
use serde::Deserialize;
use serde_json::{Value, json};

/// One request, and the answer to expect.
#[derive(Deserialize)]
struct Step {
    method: String,
    path: String,
    body: Value,
    code: u16,
    message: Option<String>,
}

/// Steps in a namespace of their own.
#[derive(Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

/// How long the informers of kube-apiserver's admission may lag behind a write.
const INFORMER_DEADLINE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const SCENARIOS: &str = include_str!("../../../apiserver/tests/it/admission.json");

async fn ask(client: &Client, method: &str, uri: &str, body: &Value) -> (u16, Value) {
    let (method, media) = match method {
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        method => (method, "application/json"),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(Body::from(body.into_bytes())).expect("a request");
    let (head, body) = client.send(request).await.expect("an answer").into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
}

impl Step {
    /// Sends the request; what is wrong with the answer, if anything is.
    async fn check(&self, client: &Client, namespace: &str) -> Option<String> {
        let here = |text: &str| text.replace("{ns}", namespace);
        let body: Value = serde_json::from_str(&here(&self.body.to_string())).expect("JSON");
        let path = here(&self.path);
        let message = self.message.as_deref().map(here);
        let expected = |code: u16, answer: &Value| {
            code == self.code && message.as_deref().is_none_or(|message| answer["message"] == message)
        };
        if self.code >= 400 {
            // kube-apiserver's admission reads quotas, limit ranges and the like from informers: dry runs until
            // they have caught up. A step that succeeds can't be waited for this way, so a refused one precedes it
            // wherever admission has to know of the object before.
            let separator = if path.contains('?') { '&' } else { '?' };
            let dry_run = format!("{path}{separator}dryRun=All");
            let observed = async {
                loop {
                    let (code, answer) = ask(client, &self.method, &dry_run, &body).await;
                    if expected(code, &answer) {
                        break;
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            // Late, the request itself says what is wrong.
            let _ = tokio::time::timeout(INFORMER_DEADLINE, observed).await;
        }
        let (code, answer) = ask(client, &self.method, &path, &body).await;
        (!expected(code, &answer))
            .then(|| format!("{} {}: {code}: {}", self.method, self.path, answer["message"]))
    }
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn kube_apiserver_says_what_the_table_says() {
    let scenarios: Vec<Scenario> = serde_json::from_str(SCENARIOS).expect("scenarios");
    let cluster = Cluster::start(Config::of(Parts::ApiServer)).await.expect("it starts");
    plumb_testbed::install_crypto();
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.expect("a sound kubeconfig");
    // A budget that says no is an answer.
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    let mut wrong = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        let namespace = format!("s{number}");
        let make = |name: &str| json!({ "metadata": { "name": name } });
        let (code, answer) = ask(&client, "POST", "/api/v1/namespaces", &make(&namespace)).await;
        assert_eq!(code, 201, "namespace {namespace}: {answer}");
        // No controller runs that would create it, and pods need it.
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let (code, answer) = ask(&client, "POST", &accounts, &make("default")).await;
        assert_eq!(code, 201, "service account of {namespace}: {answer}");
        for step in &scenario.steps {
            wrong
                .extend(step.check(&client, &namespace).await.map(|why| format!("{}: {why}", scenario.name)));
        }
    }
    cluster.stop().await.expect("it is gone");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
