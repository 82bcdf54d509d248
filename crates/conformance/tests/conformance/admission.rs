//! The table of admission that our API server is tested with, run against a real kube-apiserver.

use std::time::Duration;

use kube::Client;
use plumb_conformance::scenario::{Scenario, Step};

use super::kube_apiserver::{Response, create_namespace, send, start};

/// How long the informers of kube-apiserver's admission may lag behind a write.
const INFORMER_DEADLINE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const SCENARIOS: &str = include_str!("../../../apiserver/tests/it/admission.json");

/// Sends the request of a step; what is wrong with the response, if anything is.
async fn check(step: &Step, client: &Client, namespace: &str) -> Option<String> {
    let message = step.message.as_deref().map(|text| text.replace("{ns}", namespace));
    let expected = |response: &Response| {
        response.code == step.code
            && message.as_deref().is_none_or(|message| response.body["message"] == message)
    };
    if step.code >= 400 {
        // kube-apiserver's admission reads quotas, limit ranges and the like from informers: dry runs until
        // they have caught up. A step that succeeds can't be waited for this way, so a refused one precedes it
        // wherever admission has to know of the object before.
        let separator = if step.path.contains('?') { '&' } else { '?' };
        let dry_run = Step { path: format!("{}{separator}dryRun=All", step.path), ..step.clone() };
        let observed = async {
            while !expected(&send(client, dry_run.request(namespace).expect("a request")).await) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        // Late, the request itself says what is wrong.
        let _ = tokio::time::timeout(INFORMER_DEADLINE, observed).await;
    }
    let response = send(client, step.request(namespace).expect("a request")).await;
    let Response { code, body, .. } = &response;
    (!expected(&response)).then(|| format!("{} {}: {code}: {}", step.method, step.path, body["message"]))
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn kube_apiserver_has_the_messages_of_the_table() {
    let scenarios: Vec<Scenario> = serde_json::from_str(SCENARIOS).expect("scenarios");
    let (cluster, client) = start().await;
    let mut wrong = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        let namespace = format!("s{number}");
        create_namespace(&client, &namespace).await;
        for step in &scenario.steps {
            let found = check(step, &client, &namespace).await;
            wrong.extend(found.map(|why| format!("{}: {why}", scenario.name)));
        }
    }
    cluster.stop().await.expect("it is gone");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
