//! Evictions and disruption budgets.

use futures_util::future::join_all;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A pod that runs, and is ready or not.
async fn running(apiserver: &TestApiServer, name: &str, ready: bool) {
    let mut pod = pod(name, "1m", "1Mi");
    pod["metadata"]["labels"] = json!({ "app": "web" });
    apiserver.post(PODS, &pod).await.ok();
    let status = if ready { "True" } else { "False" };
    let status =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] } });
    apiserver.merge(&format!("{PODS}/{name}/status"), &status).await.ok();
}

async fn budget(apiserver: &TestApiServer, name: &str, policy: Option<&str>, status: Value) {
    let mut budget = json!({
        "metadata": { "name": name },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    if let Some(policy) = policy {
        budget["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
    }
    apiserver.post(BUDGETS, &budget).await.ok();
    if !status.is_null() {
        apiserver.merge(&format!("{BUDGETS}/{name}/status"), &json!({ "status": status })).await.ok();
    }
}

fn eviction(name: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } })
}

fn counted(allowed: i64, current: i64, desired: i64) -> Value {
    json!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
        "desiredHealthy": desired, "expectedPods": current,
    })
}

#[tokio::test]
async fn an_eviction_uses_one_disruption_and_deletes_the_pod() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    running(&apiserver, "a", true).await;
    budget(&apiserver, "b", None, counted(1, 2, 1)).await;
    let done = apiserver.post(&format!("{PODS}/a/eviction"), &eviction("a")).await.ok();
    assert_eq!((&done["status"], &done["code"]), (&json!("Success"), &json!(201)));
    assert_eq!(apiserver.get(&format!("{PODS}/a")).await.status, 404);
    let status = apiserver.get(&format!("{BUDGETS}/b")).await.ok()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status["disruptedPods"], json!({ "a": super::test_api_server::NOW }));
}

#[tokio::test]
async fn an_evicted_pod_on_a_node_gets_a_disruption_condition_and_its_grace_period() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.ok();
    running(&apiserver, "a", true).await;
    let binding = json!({ "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "n" } });
    apiserver.post(&format!("{PODS}/a/binding"), &binding).await.ok();
    apiserver.post(&format!("{PODS}/a/eviction"), &eviction("a")).await.ok();
    let pod = apiserver.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
}

#[tokio::test]
async fn eviction_errors_have_the_messages_of_kube_apiserver() {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let table = [
        // The controller has not observed the budget yet.
        (
            None,
            Value::Null,
            true,
            Some("The disruption budget b is still being processed by the server."),
            Some(10),
        ),
        (
            None,
            counted(0, 1, 1),
            true,
            Some("The disruption budget b needs 1 healthy pods and has 1 currently"),
            None,
        ),
        (
            None,
            counted(0, 2, 1),
            true,
            Some("The disruption budget b does not allow evicting pods currently"),
            None,
        ),
        // What is not healthy takes nothing away where enough others are.
        (None, counted(0, 1, 1), false, None, None),
        (
            None,
            counted(0, 0, 1),
            false,
            Some("The disruption budget b needs 1 healthy pods and has 0 currently"),
            None,
        ),
        (Some("AlwaysAllow"), counted(0, 0, 1), false, None, None),
        (
            Some("AlwaysAllow"),
            counted(0, 0, 1),
            true,
            Some("The disruption budget b needs 1 healthy pods and has 0 currently"),
            None,
        ),
    ];
    for (policy, status, ready, refused, retry) in table {
        let apiserver = TestApiServer::open(Rules::v1_36());
        running(&apiserver, "a", ready).await;
        budget(&apiserver, "b", policy, status.clone()).await;
        let answer = apiserver.post(&format!("{PODS}/a/eviction"), &eviction("a")).await;
        let Some(why) = refused else {
            assert_eq!(answer.status, 201, "{status}: {}", answer.body);
            continue;
        };
        let mut details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
        if let Some(seconds) = retry {
            details["retryAfterSeconds"] = json!(seconds);
        }
        assert_eq!(answer.body["details"], details, "{status}");
        assert_eq!(answer.rejected(), (429, "TooManyRequests".into(), message.into()));
    }
}

#[tokio::test]
async fn a_dry_run_eviction_checks_the_budget_and_uses_nothing() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    running(&apiserver, "a", true).await;
    budget(&apiserver, "b", None, counted(1, 2, 1)).await;
    let mut tried = eviction("a");
    tried["deleteOptions"] = json!({ "dryRun": ["All"] });
    apiserver.post(&format!("{PODS}/a/eviction"), &tried).await.ok();
    apiserver.post(&format!("{PODS}/a/eviction?dryRun=All"), &eviction("a")).await.ok();
    assert_eq!(apiserver.get(&format!("{PODS}/a")).await.status, 200);
    assert_eq!(apiserver.get(&format!("{BUDGETS}/b")).await.ok()["status"]["disruptionsAllowed"], 1);
}

#[tokio::test]
async fn an_eviction_checks_preconditions_the_name_and_several_budgets() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    running(&apiserver, "a", true).await;
    let mut other = eviction("a");
    other["deleteOptions"] = json!({ "preconditions": { "uid": "another" } });
    assert_eq!(apiserver.post(&format!("{PODS}/a/eviction"), &other).await.status, 409);
    assert_eq!(
        apiserver.post(&format!("{PODS}/a/eviction"), &eviction("b")).await.rejected().2,
        "name in URL does not match name in Eviction object"
    );
    assert_eq!(apiserver.post(&format!("{PODS}/gone/eviction"), &eviction("gone")).await.status, 404);
    budget(&apiserver, "b", None, counted(1, 2, 1)).await;
    budget(&apiserver, "c", None, counted(1, 2, 1)).await;
    let answer = apiserver.post(&format!("{PODS}/a/eviction"), &eviction("a")).await;
    assert_eq!(answer.status, 500);
    assert_eq!(
        answer.body["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_at_once_do_not_take_more_than_the_budget_has() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for number in 0..30 {
        running(&apiserver, &format!("p{number}"), true).await;
    }
    budget(&apiserver, "b", None, counted(7, 30, 23)).await;
    let answers =
        join_all((0..30).map(|number| {
            let (apiserver, name) = (&apiserver, format!("p{number}"));
            async move {
                apiserver.post(&format!("{PODS}/{name}/eviction"), &eviction(&name)).await.status.as_u16()
            }
        }))
        .await;
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 7);
    assert_eq!(answers.iter().filter(|status| **status == 429).count(), 23);
    assert_eq!(apiserver.get(PODS).await.ok()["items"].as_array().unwrap().len(), 23);
    assert_eq!(apiserver.get(&format!("{BUDGETS}/b")).await.ok()["status"]["disruptionsAllowed"], 0);
}
