//! The feature switched off and on again between starts on one data directory.

use http::Method;
use serde_json::{Value, json};

use super::cluster::Cluster;
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

    /// What a patch of a pod, or of a part of it, is told.
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
        // The other door is not there at all, as in kube-apiserver.
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
