//! The table of admission that ours is held against, put to the real Kubernetes.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plumb_testbed::{Cluster, Config, Parts};
use serde::Deserialize;
use serde_json::{Value, json};

/// One thing that is asked, and what has to be answered.
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
    /// Asks; what is wrong with the answer, if anything is.
    async fn ask(&self, client: &Client, namespace: &str) -> Option<String> {
        let here = |text: &str| text.replace("{ns}", namespace);
        let body: Value = serde_json::from_str(&here(&self.body.to_string())).expect("JSON");
        let path = here(&self.path);
        if self.code >= 400 {
            self.until_seen(client, &path, &body).await;
        }
        let (code, answer) = ask(client, &self.method, &path, &body).await;
        let told = answer["message"].as_str().unwrap_or_default();
        let right = code == self.code && self.message.as_ref().is_none_or(|message| here(message) == told);
        (!right).then(|| format!("{} {}: {code}: {told}", self.method, self.path))
    }

    /// Waits until kube-apiserver, which learns of quotas and the like by watching itself, refuses this as it should:
    /// asked without effect, for a few seconds at most.
    async fn until_seen(&self, client: &Client, path: &str, body: &Value) {
        let separator = if path.contains('?') { '&' } else { '?' };
        let dry = format!("{path}{separator}dryRun=All");
        let seen = async {
            while ask(client, &self.method, &dry, body).await.0 != self.code {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(5), seen).await;
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
        ask(&client, "POST", "/api/v1/namespaces", &make(&namespace)).await;
        // Nobody makes it where no controllers run, and pods ask for it.
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        ask(&client, "POST", &accounts, &make("default")).await;
        for step in &scenario.steps {
            wrong.extend(step.ask(&client, &namespace).await.map(|why| format!("{}: {why}", scenario.name)));
        }
    }
    cluster.stop().await.expect("it is gone");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
