//! The section "Backward Compatibility and Negative Tests" of KEP-1287, and its rules for version skew, through the API.

use http::Method;
use plumb_apiserver::authn::{InProcess, User};
use plumb_features::FeatureGates;
use plumb_resize::features::IN_PLACE_POD_VERTICAL_SCALING;
use plumb_resize::rules::{Dialect, Rules};
use serde_json::{Value, json};
use std::sync::Arc;

use super::test_api_server::{ApiResponse, TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn dialects() -> [(&'static str, Rules); 2] {
    [("kep", Rules::kep()), ("v1.36", Rules::v1_36())]
}

fn node(name: &str) -> InProcess {
    InProcess(Arc::new(User::new(format!("system:node:{name}"), "", ["system:nodes"])))
}

impl TestApiServer {
    /// A server with a pod that runs on a node.
    async fn with_a_bound_pod(rules: Rules) -> Self {
        let apiserver = Self::open(rules);
        apiserver.post("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await.ok();
        let allocatable = json!({ "status": { "allocatable": { "cpu": "8", "memory": "8Gi" } } });
        apiserver.merge("/api/v1/nodes/n1/status", &allocatable).await.ok();
        apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
        let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n1" } });
        apiserver.post(&format!("{PODS}/web/binding"), &binding).await.ok();
        apiserver
    }

    async fn as_node(&self, name: &str, path: &str, patch: &Value) -> ApiResponse {
        self.request_as(node(name), Method::PATCH, path, STRATEGIC, patch.to_string()).await
    }
}

fn allocated(cpu: &str) -> Value {
    json!({ "status": { "containerStatuses": [{
        "name": "main", "image": "plumb/load", "imageID": "", "ready": true, "restartCount": 0,
        "allocatedResources": { "cpu": cpu, "memory": "500Mi" } }] } })
}

fn of_status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"]
}

#[tokio::test]
async fn a_node_can_write_its_allocation_and_no_spec() {
    for (dialect, rules) in dialects() {
        let apiserver = TestApiServer::with_a_bound_pod(rules).await;
        let own = format!("{PODS}/web");
        let written = apiserver.as_node("n1", &format!("{own}/status"), &allocated("400m")).await.ok();
        assert_eq!(of_status(&written), "400m", "{dialect}");
        // A status update cannot change the spec, too.
        let mut sneaky = allocated("300m");
        sneaky["spec"] = json!({ "containers": [{ "name": "main", "image": "other",
            "resources": { "requests": { "cpu": "300m" } } }] });
        let written = apiserver.as_node("n1", &format!("{own}/status"), &sneaky).await.ok();
        assert_eq!(of_status(&written), "300m", "{dialect}");
        let container = &written["spec"]["containers"][0];
        assert_eq!(
            (&container["image"], &container["resources"]["requests"]["cpu"]),
            (&json!("plumb/load"), &json!("500m"))
        );
        let resize = json!({ "spec": { "containers": [{ "name": "main",
            "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } }] } });
        for below in ["", "/resize"] {
            let (code, reason, _) =
                apiserver.as_node("n1", &format!("{own}{below}"), &resize).await.rejected();
            assert_eq!((code, reason.as_str()), (403, "Forbidden"), "{dialect} {below}");
        }
    }
}

#[tokio::test]
async fn only_the_node_of_a_pod_can_set_its_allocation() {
    for (dialect, rules) in dialects() {
        let apiserver = TestApiServer::with_a_bound_pod(rules).await;
        let path = format!("{PODS}/web/status");
        let (code, _, message) = apiserver.as_node("n2", &path, &allocated("400m")).await.rejected();
        assert_eq!(code, 403, "{dialect}");
        assert!(
            message.contains("can only update pod status for pods with spec.nodeName set to itself"),
            "{message}"
        );
        let (code, _, message) = apiserver.strategic(&path, &allocated("400m")).await.rejected();
        assert_eq!(code, 403, "{dialect}: {message}");
        // The other endpoints ignore changes of the status.
        let before = apiserver.get(&format!("{PODS}/web")).await.ok();
        for below in ["", "/resize"] {
            apiserver.strategic(&format!("{PODS}/web{below}"), &allocated("400m")).await.ok();
        }
        let after = apiserver.get(&format!("{PODS}/web")).await.ok();
        assert_eq!(of_status(&after), of_status(&before), "{dialect}");
    }
}

#[tokio::test]
async fn fields_that_an_old_client_drops_are_not_lost() {
    let apiserver = TestApiServer::with_a_bound_pod(Rules::kep()).await;
    apiserver.as_node("n1", &format!("{PODS}/web/status"), &allocated("400m")).await.ok();
    let strip = |pod: &mut Value| {
        pod["spec"]["containers"][0].as_object_mut().unwrap().remove("resizePolicy");
        pod["status"]["containerStatuses"][0].as_object_mut().unwrap().remove("allocatedResources");
    };
    for (below, note) in [("", "labels"), ("/status", "annotations")] {
        let mut old_client = apiserver.get(&format!("{PODS}/web")).await.ok();
        strip(&mut old_client);
        old_client["metadata"][note] = json!({ "seen": "yes" });
        let updated = apiserver.put(&format!("{PODS}/web{below}"), &old_client).await.ok();
        assert_eq!(updated["metadata"][note], json!({ "seen": "yes" }), "{below}");
        assert_eq!(updated["spec"]["containers"][0]["resizePolicy"].as_array().unwrap().len(), 2, "{below}");
        assert_eq!(of_status(&updated), "400m", "{below}");
    }
    // Kubernetes 1.36 does not support such clients: an omitted policy is a removal, which is rejected.
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut object = pod("web", "500m", "500Mi");
    object["spec"]["containers"][0]["resizePolicy"] =
        json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
    let mut made = apiserver.post(PODS, &object).await.ok();
    made["spec"]["containers"][0].as_object_mut().unwrap().remove("resizePolicy");
    let (code, _, message) = apiserver.put(&format!("{PODS}/web"), &made).await.rejected();
    assert_eq!(code, 422);
    assert!(message.contains("pod updates may not change fields other than"), "{message}");
}

#[tokio::test]
async fn only_cpu_and_memory_change() {
    let resources = [
        ("ephemeral-storage", "1Gi", "2Gi"),
        ("hugepages-2Mi", "2Mi", "4Mi"),
        ("example.com/device", "1", "2"),
    ];
    for (dialect, rules) in dialects() {
        for (resource, before, after) in resources {
            let apiserver = TestApiServer::open(rules.clone());
            let mut made = pod("web", "500m", "500Mi");
            for list in ["requests", "limits"] {
                made["spec"]["containers"][0]["resources"][list][resource] = json!(before);
            }
            apiserver.post(PODS, &made).await.ok();
            let amounts = json!({ resource: after });
            let patch = json!({ "spec": { "containers": [{ "name": "main",
                "resources": { "requests": amounts, "limits": amounts } }] } });
            for (below, words) in
                [("/resize", "only cpu and memory resources are mutable"), ("", "Forbidden: ")]
            {
                let (code, reason, message) =
                    apiserver.strategic(&format!("{PODS}/web{below}"), &patch).await.rejected();
                assert_eq!((code, reason.as_str()), (422, "Invalid"), "{dialect} {resource} {below}");
                assert!(message.contains(words), "{dialect} {resource} {below}: {message}");
            }
            // Removing the resource is a change, too.
            let patch = json!({ "spec": { "containers": [{ "name": "main",
                "resources": { "requests": { resource: null }, "limits": { resource: null } } }] } });
            assert_eq!(
                apiserver.strategic(&format!("{PODS}/web/resize"), &patch).await.status,
                422,
                "{dialect}"
            );
        }
    }
}

#[tokio::test]
async fn pod_templates_can_be_updated_in_every_dialect() {
    let template = |cpu: &str| {
        json!({ "metadata": { "labels": { "app": "x" } }, "spec": { "restartPolicy": "Never", "containers": [
            { "name": "main", "image": "x", "resources": { "requests": { "cpu": cpu } } }] } })
    };
    let grow = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "main", "resources": { "requests": { "cpu": "2" } } }] } } } });
    for (dialect, rules) in dialects() {
        let apiserver = TestApiServer::open(rules);
        // A new template, which its controller rolls out with new pods.
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let mut own = template("1");
        own["spec"]["restartPolicy"] = json!("Always");
        apiserver
            .post(
                deployments,
                &json!({ "metadata": { "name": "d" },
            "spec": { "selector": { "matchLabels": { "app": "x" } }, "template": own } }),
            )
            .await
            .ok();
        let grown = apiserver.strategic(&format!("{deployments}/d"), &grow).await.ok();
        assert_eq!(grown["metadata"]["generation"], 2, "{dialect}");

        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        for (name, suspended) in [("running", false), ("suspended", true)] {
            apiserver
                .post(
                    jobs,
                    &json!({ "metadata": { "name": name },
                "spec": { "suspend": suspended, "template": template("1") } }),
                )
                .await
                .ok();
            let answer = apiserver.strategic(&format!("{jobs}/{name}"), &grow).await;
            if suspended && dialect == "v1.36" {
                answer.ok();
                continue;
            }
            let (code, reason, message) = answer.rejected();
            assert_eq!((code, reason.as_str()), (422, "Invalid"), "{dialect} {name}");
            assert!(message.contains("spec.template: Invalid value"), "{dialect} {name}: {message}");
            assert!(message.contains("field is immutable"), "{dialect} {name}: {message}");
        }
    }
}

#[tokio::test]
async fn a_status_update_drops_new_fields_of_disabled_features() {
    let off = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        let apiserver = TestApiServer::with_a_bound_pod(Rules::new(dialect, &off)).await;
        let mut status = allocated("400m");
        status["status"]["containerStatuses"][0]["resources"] = json!({ "requests": { "cpu": "400m" } });
        let written = apiserver.as_node("n1", &format!("{PODS}/web/status"), &status).await.ok();
        let container = &written["status"]["containerStatuses"][0];
        assert_eq!(container["ready"], true);
        assert!(container.get("allocatedResources").is_none() && container.get("resources").is_none());
    }
}
