//! What a user can ask for and do: resizes that are not made, and commands for rollouts.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plumb_rollout::workloads::{RECORD_ANNOTATION, WorkloadRecord};
use plumb_testkit::{TestCluster, eventually};
use serde_json::json;

use crate::fixture::{Running, cluster};
use crate::rights::bind;

/// The texts that a what-if page has for its query.
async fn answer(running: &Running, query: &str) -> String {
    let page = running.get(&format!("/pods/default/web-0/what-if?{query}&format=json")).await.json();
    page["answer"].to_string()
}

#[tokio::test]
async fn a_resize_that_is_not_made_is_answered_by_the_api_server_and_by_the_capacity_of_nodes() {
    let cluster = cluster().await;
    let running = Running::start(cluster.admin(), None).await;
    eventually(async || answer(&running, "container=app&cpu=1").await.contains("It fits node n1 now")).await;
    for (query, texts) in [
        ("container=app&cpu=3500m", &["accepts the resize", "It fits node n1 now"][..]),
        // The other pod has 500m.
        ("container=app&cpu=3600m", &["Node n1 would defer it", "used: 500, capacity: 4000"]),
        ("container=app&memory=9Gi", &["rejects the resize", "not fit node n1 even without other pods"]),
        ("container=app&cpu=lots", &["Nothing can be computed", "lots"]),
        ("container=other&cpu=1", &["the pod has no container"]),
    ] {
        let answer = answer(&running, query).await;
        for text in texts {
            assert!(answer.contains(text), "{query}: {answer}");
        }
    }
    let nodes = running.get("/pods/default/web-0/what-if?container=app&cpu=3600m&format=json").await.json();
    let expected = json!({ "name": "n1", "fits": "DoesNotFit", "cpuFree": "3500m", "cpuMissing": "100m",
        "memoryFree": "7936Mi", "memoryMissing": "0" });
    assert_eq!(nodes["nodes"]["rows"][0], expected);
    let page = running.get("/pods/default/web-0/what-if?container=%3Cb%3E&cpu=1").await.body;
    assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    let link = running.get("/pods/default/web-0").await.body;
    assert!(link.contains("href=\"/pods/default/web-0/what-if?container=app\""), "{link}");
    let pods: Api<Pod> = Api::default_namespaced(cluster.admin());
    let pod = pods.get("web-0").await.unwrap();
    assert_eq!(pod.metadata.generation, Some(1), "nothing was changed");
}

/// Records an open rollout on the deployment.
async fn open_rollout(cluster: &TestCluster) {
    let record =
        json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z", "heading": "Forward" });
    let annotations = json!({ RECORD_ANNOTATION: record.to_string() });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    deployments(cluster).patch("web", &PatchParams::default(), &patch).await.unwrap();
}

fn deployments(cluster: &TestCluster) -> Api<Deployment> {
    Api::default_namespaced(cluster.admin())
}

async fn is_paused(cluster: &TestCluster) -> bool {
    let deployment = deployments(cluster).get("web").await.unwrap();
    WorkloadRecord::read(&deployment.metadata).unwrap().rollout.paused
}

const PAGE: &str = "/rollouts/deployment/default/web";

/// Posts a form from a page of this origin.
async fn post(running: &Running, origin: &str, form: &str) -> crate::fixture::Response {
    let mut head = running.own();
    head.extend([
        format!("Origin: {origin}"),
        "Content-Type: application/x-www-form-urlencoded".to_owned(),
        format!("Content-Length: {}\r\n\r\n{form}", form.len()),
    ]);
    running.send("POST", PAGE, &head).await
}

#[tokio::test]
async fn a_rollout_is_paused_by_a_form_of_its_page_alone() {
    let cluster = cluster().await;
    open_rollout(&cluster).await;
    let running = Running::start(cluster.admin(), None).await;
    let own = format!("http://{}", running.address);
    eventually(async || running.get(PAGE).await.body.contains("value=\"pause\"")).await;
    let refused = post(&running, "http://attacker.example", "command=pause").await;
    assert_eq!(refused.status, 403);
    for form in ["command=other", "", "other=pause"] {
        assert_eq!(post(&running, &own, form).await.status, 400, "{form:?}");
    }
    let large = format!("command=pause&more={}", "a".repeat(5 << 10));
    assert_eq!(post(&running, &own, &large).await.status, 400);
    assert!(!is_paused(&cluster).await);
    let done = post(&running, &own, "command=pause").await;
    assert_eq!((done.status, done.header("location")), (303, Some(PAGE)));
    assert!(is_paused(&cluster).await);
    assert_eq!(post(&running, &own, "command=resume").await.status, 303);
    assert!(!is_paused(&cluster).await);
}

#[tokio::test]
async fn a_user_without_the_right_has_no_buttons_and_is_refused_by_the_api_server() {
    let cluster = cluster().await;
    open_rollout(&cluster).await;
    bind(&cluster.admin(), &["deployments", "replicasets"]).await;
    let running = Running::start(cluster.client("jane"), None).await;
    eventually(async || running.get(PAGE).await.body.contains("Held")).await;
    assert!(!running.get(PAGE).await.body.contains("value=\"pause\""));
    let refused = post(&running, &format!("http://{}", running.address), "command=pause").await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("forbidden") && refused.body.contains("jane"), "{}", refused.body);
    assert!(!is_paused(&cluster).await);
}
