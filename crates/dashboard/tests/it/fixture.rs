//! A dashboard of a cluster with a node, a pod, a VPA and a rollout, and an HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_dashboard::{Config, Dashboard};
use plumb_rollout::workloads::STATUS_ANNOTATION;
use plumb_testkit::{TestCluster, object};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A text that must not become an element.
pub(crate) const HOSTILE: &str = "<script>alert('x')</script>";

/// A dashboard that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Response {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Running {
    /// A dashboard with a client.
    pub(crate) async fn start(client: Client, namespace: Option<&str>) -> Self {
        let config = Config {
            recheck: Duration::from_millis(100),
            usage_interval: Duration::from_millis(100),
            ..Config::new(client, namespace.map(str::to_owned), "test".to_owned())
        };
        let dashboard = Dashboard::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
        let (address, token) = (dashboard.address(), dashboard.token().to_owned());
        assert_eq!(dashboard.url(), format!("http://{address}/?token={token}"));
        Self { address, token, task: tokio::spawn(async move { dashboard.run().await }) }
    }

    /// Sends a request with these lines of its head, and reads the response.
    pub(crate) async fn send(&self, method: &str, path: &str, head: &[String]) -> Response {
        let mut stream = self.open(method, path, head).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Sends a request, whose response is not read.
    async fn open(&self, method: &str, path: &str, head: &[String]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head: String = head.iter().flat_map(|line| [line, "\r\n"]).collect();
        let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{head}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The head of a request of the user.
    pub(crate) fn own(&self) -> Vec<String> {
        vec![format!("Host: {}", self.address), format!("Authorization: Bearer {}", self.token)]
    }

    /// Gets a page as the user.
    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &self.own()).await
    }

    /// The updates of a page for the user.
    pub(crate) async fn updates(&self, path: &str) -> Updates {
        Updates { stream: self.open("GET", path, &self.own()).await, text: String::new() }
    }
}

/// The updates of a page.
pub(crate) struct Updates {
    stream: TcpStream,
    text: String,
}

impl Updates {
    /// Reads until a text was received, and returns all since the last time.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        plumb_testkit::in_time(async {
            let mut buffer = [0; 4096];
            while !self.text.contains(wanted) {
                let count = self.stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the stream ended after {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        })
        .await;
        std::mem::take(&mut self.text)
    }
}

/// Creates a node.
pub(crate) async fn create_node(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let amounts = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
    let node: Node = object(json!({ "metadata": { "name": "n1" } }));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({ "status": { "capacity": amounts, "allocatable": amounts,
        "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Creates a pod that runs with 500m and 256Mi.
pub(crate) async fn create_pod(cluster: &TestCluster, name: &str) -> Pod {
    let pods: Api<Pod> = Api::default_namespaced(cluster.admin());
    let resources = json!({ "requests": { "cpu": "500m", "memory": "256Mi" } });
    let pod: Pod = object(json!({
        "metadata": { "name": name },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "image": "app", "resources": resources }] },
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let container = running_container(&resources["requests"]);
    patch_status(cluster, name, json!({ "phase": "Running", "containerStatuses": [container] })).await
}

/// The status of a container that runs with these requests.
pub(crate) fn running_container(requests: &Value) -> Value {
    json!({ "name": "app", "image": "app", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} },
        "allocatedResources": requests, "resources": { "requests": requests } })
}

/// Patches the status of a pod, as its node: allocated resources are the node's alone.
pub(crate) async fn patch_status(cluster: &TestCluster, name: &str, status: Value) -> Pod {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client_as("system:node:n1", ["system:nodes"]));
    let patch = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap()
}

/// Resizes a pod to 2 CPUs, and has its node defer that with a hostile message.
pub(crate) async fn defer_resize(cluster: &TestCluster, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(cluster.admin());
    let container = json!({ "name": "app", "resources": { "requests": { "cpu": "2" } } });
    let patch = Patch::Strategic(json!({ "spec": { "containers": [container] } }));
    let pod = pods.patch_resize(name, &PatchParams::default(), &patch).await.unwrap();
    let condition = json!({ "type": "PodResizePending", "status": "True", "reason": "Deferred", "message": HOSTILE,
        "observedGeneration": pod.metadata.generation });
    patch_status(cluster, name, json!({ "conditions": [condition] })).await;
    let events: Api<Event> = Api::default_namespaced(cluster.admin());
    let event: Event = object(json!({
        "metadata": { "name": format!("{name}.waits"), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": pod.metadata.uid },
        "reason": "ResizeWaits", "type": "Normal", "message": "held by pod other", "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }));
    events.create(&PostParams::default(), &event).await.unwrap();
}

/// Creates a VPA with a recommendation.
pub(crate) async fn create_vpa(client: &Client) {
    plumb_vpa::install::install(client).await.unwrap();
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlaceOrRecreate" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "app", "maxAllowed": { "cpu": "1" } }] },
        },
    }));
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
    let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    let container = json!({ "containerName": "app", "target": amounts("750m", "300Mi"),
        "lowerBound": amounts("100m", "200Mi"), "upperBound": amounts("1", "600Mi"), "uncappedTarget": amounts("750m", "300Mi") });
    let condition = json!({ "type": "NoPodsMatched", "status": "True", "message": HOSTILE });
    let status = json!({ "status": { "recommendation": { "containerRecommendations": [container] }, "conditions": [condition] } });
    let patch = Patch::Merge(status);
    // The definition may have the subresource or not: what counts is that the status is stored.
    vpas.patch_status("web", &PatchParams::default(), &patch).await.unwrap();
}

/// Creates a deployment whose rollout is held because a pod is stuck.
pub(crate) async fn create_rollout(client: &Client) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let status = json!({ "revision": "r1", "phase": "Held", "message": HOSTILE,
        "pods": { "total": 2, "pending": 0, "resizing": 0, "soaking": 0, "done": 1, "stuck": 1, "rollingBack": 0,
            "rolledBack": 0, "rollbackFailed": 0 },
        "stuck": [{ "pod": "web-1", "reason": "Infeasible", "message": "too large" }] });
    let deployment: Deployment = object(json!({
        "metadata": { "name": "web", "annotations": { STATUS_ANNOTATION: status.to_string() } },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": "app" }] } },
        },
    }));
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
}

/// A cluster with all of that.
pub(crate) async fn cluster() -> TestCluster {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    create_node(&client).await;
    create_pod(&cluster, "web-0").await;
    create_pod(&cluster, "web-1").await;
    defer_resize(&cluster, "web-1").await;
    create_vpa(&client).await;
    create_rollout(&client).await;
    cluster
}
