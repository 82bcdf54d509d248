//! The feature switched off and on again between starts on one data directory, and off at the node alone, at the API server
//! alone, and at both.

use std::path::Path;

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::join::{ALONE, Agent, agent, invitation, until};
use super::wire::{Connection, Speech, soon};

const PODS: &str = "/api/v1/namespaces/default/pods";
const OFF: &str = "InPlacePodVerticalScaling=false";

fn pod(name: &str) -> Value {
    let amounts = json!({ "cpu": "500m", "memory": "64Mi" });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{
            "name": "main", "image": "plumb/load", "resources": { "requests": amounts, "limits": amounts },
            "resizePolicy": [
                { "resourceName": "cpu", "restartPolicy": "NotRequired" },
                { "resourceName": "memory", "restartPolicy": "RestartContainer" },
            ],
        }]},
    })
}

fn cpu(amount: &str) -> Value {
    let amounts = json!({ "cpu": amount });
    json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } })
}

/// A cluster in a dialect, with or without the feature.
struct Run {
    cluster: Cluster,
    connection: Connection,
}

impl Run {
    async fn start(data: &std::path::Path, dialect: &str, gates: &str) -> Self {
        let cluster = Cluster::start_with(data, &["--resize-dialect", dialect, "--feature-gates", gates]);
        let connection = cluster.wire().connect(Speech::Http2).await;
        Self { cluster, connection }
    }

    async fn get(&self, name: &str) -> Value {
        self.ok(Method::GET, &format!("{PODS}/{name}"), "", "").await
    }

    async fn ok(&self, method: Method, path: &str, media: &str, body: impl ToString) -> Value {
        let (status, answer) =
            soon(self.connection.ask(method, path, media, body.to_string())).await.unwrap();
        assert!(matches!(status, 200 | 201), "{path}: {answer}");
        answer
    }

    /// The response to a patch of a pod, or of a subresource.
    async fn patch(&self, below: &str, patch: &Value) -> (u16, Value) {
        let media = "application/strategic-merge-patch+json";
        let address = format!("{PODS}/{below}");
        soon(self.connection.ask(Method::PATCH, &address, media, patch.to_string())).await.unwrap()
    }
}

#[tokio::test]
async fn the_feature_is_switched_off_and_on_again_and_nothing_is_lost() {
    for dialect in ["kep", "v1.36"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");

        let run = Run::start(&data, dialect, "").await;
        run.ok(Method::POST, PODS, "application/json", pod("old")).await;
        assert_eq!(run.patch("old/resize", &cpu("650m")).await.0, 200);
        let old = run.get("old").await;
        assert!(run.cluster.stop().success());

        let run = Run::start(&data, dialect, OFF).await;
        assert_eq!(run.get("old").await, old, "{dialect}: what is stored stays as it is");
        let metrics = run.ok(Method::GET, "/metrics", "", "").await;
        for line in [
            r#"kubernetes_feature_enabled{name="InPlacePodVerticalScaling",stage=""} 0"#,
            r#"kubernetes_feature_enabled{name="InPlacePodVerticalScalingInitContainers",stage="BETA"} 1"#,
            r#"kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0"#,
        ] {
            assert!(metrics.as_str().unwrap().lines().any(|found| found == line), "{line}");
        }
        let (status, refused) = run.patch("old", &cpu("700m")).await;
        assert_eq!(status, 422, "{dialect}: {refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("pod updates may not change fields other than"), "{dialect}: {message}");
        // The other endpoint does not exist, as in kube-apiserver.
        let (status, refused) = run.patch("old/resize", &cpu("700m")).await;
        assert_eq!(
            (status, &refused["message"]),
            (404, &json!("the server could not find the requested resource"))
        );
        let kinds = run.ok(Method::GET, "/api/v1", "", "").await.to_string();
        assert!(kinds.contains("pods/status") && !kinds.contains("pods/resize"), "{kinds}");
        let document = run.ok(Method::GET, "/openapi/v3/api/v1", "", "").await;
        assert!(document["paths"].get("/api/v1/namespaces/{namespace}/pods/{name}/resize").is_none());
        assert_eq!(run.get("old").await, old, "{dialect}: nothing came of it");
        // A pod that uses the feature keeps what it has of it through any other change.
        let label = json!({ "metadata": { "labels": { "seen": "yes" } } });
        let (status, labelled) = run.patch("old", &label).await;
        assert_eq!(status, 200, "{dialect}: {labelled}");
        for part in ["spec", "status"] {
            assert_eq!(labelled[part], old[part], "{dialect}");
        }
        // One that is made now does not begin to.
        let mut new = run.ok(Method::POST, PODS, "application/json", pod("new")).await;
        // Who set a field is noted before it is dropped, as in kube-apiserver.
        new["metadata"].as_object_mut().unwrap().remove("managedFields");
        let text = new.to_string();
        for field in ["resizePolicy", "allocatedResources", "\"resize\""] {
            assert!(!text.contains(field), "{dialect}: {field} in {text}");
        }
        assert!(run.cluster.stop().success());

        let run = Run::start(&data, dialect, "").await;
        assert_eq!(run.get("old").await, labelled, "{dialect}");
        for name in ["old", "new"] {
            let (status, resized) = run.patch(&format!("{name}/resize"), &cpu("700m")).await;
            assert_eq!(status, 200, "{dialect}: {resized}");
            assert_eq!(resized["spec"]["containers"][0]["resources"]["limits"]["cpu"], "700m", "{dialect}");
            let proposed = resized["status"]["resize"] == "Proposed";
            assert_eq!(proposed, dialect == "kep", "{resized}");
        }
        let (status, _) = run.patch("old", &cpu("800m")).await;
        assert_eq!(status, if dialect == "kep" { 200 } else { 422 });
    }
}

/// A cluster and its one node, each a process with its own feature gates.
struct Skewed {
    cluster: Cluster,
    agent: Agent,
    pods: Api<Pod>,
}

impl Skewed {
    async fn start(folder: &Path, server: &str, node: &str, words: &mut Vec<String>) -> Self {
        let cluster =
            Cluster::start_with(&folder.join("data"), &[&ALONE[..], &["--feature-gates", server]].concat());
        if words.is_empty() {
            *words = invitation(&cluster).split_whitespace().skip(1).map(str::to_owned).collect();
        }
        // The port may be another one than last time.
        if let Some(at) = words.iter().position(|word| word == "--server") {
            words[at + 1] = format!("https://{}", cluster.address());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let data = folder.join("node");
        let mut command = agent(&words, &data);
        command.args(["--feature-gates", node]);
        let pods = Api::default_namespaced(cluster.client().await);
        Self { agent: Agent::start(command, &data), cluster, pods }
    }

    fn stop(self) {
        self.agent.stop();
        assert!(self.cluster.stop().success());
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, async || {
            let pod = serde_json::to_value(self.pods.get("a").await.unwrap()).unwrap();
            holds(&pod).then_some(pod)
        })
        .await
    }

    async fn resize(&self, amount: &str) -> Result<Pod, kube::Error> {
        self.pods.patch_resize("a", &PatchParams::default(), &Patch::Strategic(cpu(amount))).await
    }
}

fn status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn has_cpu(amount: &str) -> impl Fn(&Value) -> bool {
    move |pod| status(pod)["resources"]["limits"]["cpu"] == amount && status(pod)["ready"] == true
}

fn is_pending(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| {
        condition["type"] == "PodResizePending"
            && condition["reason"] == "Infeasible"
            && condition["message"] == "InPlacePodVerticalScaling is disabled"
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feature_is_off_at_the_node_alone_at_the_server_alone_and_at_both() {
    const ON: &str = "InPlacePodVerticalScaling=true";
    let folder = tempfile::tempdir().unwrap();
    let (folder, mut words) = (folder.path(), Vec::new());

    // At the node alone: it says so, and does what it was asked for once it may.
    let run = Skewed::start(folder, ON, OFF, &mut words).await;
    let new = serde_json::from_value(pod("a")).unwrap();
    run.pods.create(&PostParams::default(), &new).await.unwrap();
    let first = run.until("running", |pod| status(pod)["ready"] == true).await;
    run.resize("600m").await.unwrap();
    let pod = run.until("infeasible", is_pending).await;
    assert_eq!(status(&pod)["containerID"], status(&first)["containerID"]);
    run.stop();
    let run = Skewed::start(folder, ON, ON, &mut words).await;
    // The pods of the virtual runtime ended with its process; they have what is allocated.
    run.until("resized", has_cpu("600m")).await;
    run.stop();

    // At the server alone: no resize gets to the node, and what the node reports of it is dropped, without end.
    let run = Skewed::start(folder, OFF, ON, &mut words).await;
    run.until("running", |pod| status(pod)["ready"] == true).await;
    assert!(run.resize("700m").await.is_err());
    let other = serde_json::from_value(self::pod("b")).unwrap();
    run.pods.create(&PostParams::default(), &other).await.unwrap();
    let is_running = async || {
        let pod = serde_json::to_value(run.pods.get("b").await.unwrap()).unwrap();
        (status(&pod)["ready"] == true).then_some(pod)
    };
    let pod = until("running", is_running).await;
    assert!(status(&pod).get("allocatedResources").is_none(), "{pod}");
    run.stop();

    // At both, and on again.
    let run = Skewed::start(folder, OFF, OFF, &mut words).await;
    run.until("running", |pod| status(pod)["ready"] == true).await;
    assert!(run.resize("700m").await.is_err());
    run.stop();
    let run = Skewed::start(folder, ON, ON, &mut words).await;
    run.until("running", has_cpu("600m")).await;
    run.resize("700m").await.unwrap();
    run.until("resized", has_cpu("700m")).await;
    run.stop();
}
