//! Responses of a node's server.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_node::metrics::{Metrics, ProbedContainer};
use plumb_node::probe::Kind;
use plumb_node::server::{Body, Gate, MachineSize, Pods, Server, ServerConfig};
use plumb_runtime::types::{
    Container, ContainerConfig, ContainerFilter, ContainerId, ContainerMeta, ContainerStats, ContainerStatus,
    Credentials, ExecOutput, FilesystemUsage, Image, LinuxResources, PodMeta, QosClass, Resources,
    RuntimeStatus, Sandbox, SandboxConfig, SandboxFilter, SandboxId, SandboxStats, SandboxStatus,
    StatsFilter, Version,
};
use plumb_runtime::{Events, Result, Runtime, Virtual, VirtualConfig};
use plumb_testkit::{assert_documented, in_time};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A virtual runtime whose containers log, each to `<folder>/<id>/0.log`.
struct Logging {
    inner: Virtual,
    folder: PathBuf,
}

macro_rules! pass {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Runtime for Logging {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$answer> {
                self.inner.$name($($argument),*).await
            })*

            async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus> {
                let mut status = self.inner.container_status(id).await?;
                status.log_path = Some(self.folder.join(id.as_str()).join("0.log"));
                Ok(status)
            }

            fn events(&self) -> Events {
                self.inner.events()
            }
        }
    };
}

pass! {
    version() -> Version;
    status() -> RuntimeStatus;
    run_sandbox(config: SandboxConfig) -> SandboxId;
    stop_sandbox(id: &SandboxId) -> ();
    remove_sandbox(id: &SandboxId) -> ();
    sandbox_status(id: &SandboxId) -> SandboxStatus;
    list_sandboxes(filter: &SandboxFilter) -> Vec<Sandbox>;
    update_sandbox_resources(id: &SandboxId, resources: &LinuxResources) -> ();
    update_class_resources(class: QosClass, resources: &LinuxResources) -> ();
    create_container(sandbox: &SandboxId, config: ContainerConfig) -> ContainerId;
    start_container(id: &ContainerId) -> ();
    stop_container(id: &ContainerId, grace: Duration) -> ();
    remove_container(id: &ContainerId) -> ();
    list_containers(filter: &ContainerFilter) -> Vec<Container>;
    update_container_resources(id: &ContainerId, resources: &Resources) -> ();
    reopen_container_log(id: &ContainerId) -> ();
    exec_sync(id: &ContainerId, command: &[String], timeout: Option<Duration>) -> ExecOutput;
    container_stats(id: &ContainerId) -> ContainerStats;
    list_container_stats(filter: &StatsFilter) -> Vec<ContainerStats>;
    sandbox_stats(id: &SandboxId) -> SandboxStats;
    list_sandbox_stats(filter: &SandboxFilter) -> Vec<SandboxStats>;
    list_images() -> Vec<Image>;
    image_status(name: &str) -> Option<Image>;
    pull_image(name: &str, credentials: Option<&Credentials>) -> String;
    remove_image(name: &str) -> ();
    image_fs_info() -> Vec<FilesystemUsage>;
}

#[derive(Default)]
struct CertificateResolver(Mutex<Vec<Arc<Pod>>>);

impl Pods for CertificateResolver {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().clone()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let is = |pod: &&Arc<Pod>| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        };
        self.0.lock().iter().find(is).cloned()
    }
}

pub(super) struct Node {
    pub(super) server: Server,
    runtime: Arc<Logging>,
    pods: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
    id: ContainerId,
    folder: tempfile::TempDir,
}

impl Node {
    /// A node with one pod, `default/web`, whose container `c` runs.
    async fn start() -> Self {
        Self::behind(Arc::new(|extensions| extensions.get::<Stranger>().is_none())).await
    }

    /// The same, behind this gate.
    pub(super) async fn behind(gate: Gate) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inner = Virtual::new(VirtualConfig { now: Timestamp::now(), pod_network: Ipv4Addr::LOCALHOST });
        let runtime = Arc::new(Logging { inner, folder: folder.path().to_owned() });
        let meta = PodMeta { name: "web".into(), namespace: "default".into(), uid: "u".into(), attempt: 0 };
        let mut sandbox = SandboxConfig::new(meta, QosClass::BestEffort);
        sandbox.annotations.insert("virtual.plumb.dev/model".into(), "cpu=250m memory=64Mi".into());
        sandbox.labels.insert("io.kubernetes.pod.uid".into(), "u".into());
        let sandbox = runtime.run_sandbox(sandbox).await.unwrap();
        let meta = ContainerMeta { name: "c".into(), attempt: 0 };
        let labels = [("io.kubernetes.pod.uid".to_owned(), "u".to_owned())].into();
        let config = ContainerConfig { meta, image: "i".into(), labels, ..ContainerConfig::default() };
        let id = runtime.create_container(&sandbox, config).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        fs::create_dir(folder.path().join(id.as_str())).unwrap();
        let (pods, metrics) = (Arc::<CertificateResolver>::default(), Arc::<Metrics>::default());
        let server = Server::new(ServerConfig {
            node: "n1".into(),
            pods: pods.clone(),
            runtime: runtime.clone(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            reachable: true,
            metrics: metrics.clone(),
            clock: Arc::new(Timestamp::now),
            machine: Some(folder.path().to_owned()),
            size: MachineSize { cpus: 4, memory: 8 << 30 },
            configuration: json!({ "maxPods": 110 }),
            volumes: None,
            gate,
        });
        let node = Self { server, runtime, pods, metrics, id, folder };
        node.show(json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }), Value::Null);
        node
    }

    /// Shows the pod with its container in this state, and in that before.
    fn show(&self, state: Value, before: Value) {
        let status = json!({
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("plumb://{}", self.id), "state": state, "lastState": before,
        });
        let pod = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u" },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
            "status": { "containerStatuses": [status] },
        });
        *self.pods.0.lock() = vec![Arc::new(serde_json::from_value(pod).unwrap())];
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(self.id.as_str()).join("0.log")
    }

    pub(super) fn write(&self, second: u32, text: &str) {
        append(&self.log(), &format!("2026-01-01T00:00:{second:02}Z stdout F {text}\n"));
    }

    async fn send(&self, path: &str) -> Response<Body> {
        let request = Request::get(path).body(()).unwrap();
        self.server.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = in_time(self.send(path)).await;
        let code = response.status().as_u16();
        let body = in_time(response.into_body().collect()).await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// Marks a request of an unauthorized user.
#[derive(Clone)]
struct Stranger;

fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The next piece of an answer.
async fn piece(body: &mut Pin<Box<Body>>) -> Option<String> {
    let frame = in_time(body.frame()).await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap_or(Bytes::new()).to_vec()).unwrap())
}

#[tokio::test]
async fn a_log_has_the_output_of_the_container() {
    let node = Node::start().await;
    for second in 1..=4 {
        node.write(second, &format!("line {second}"));
    }
    let path = "/containerLogs/default/web/c";
    assert_eq!(node.get(path).await, (200, "line 1\nline 2\nline 3\nline 4\n".into()));
    assert_eq!(node.get(&format!("{path}?tailLines=1")).await.1, "line 4\n");
    let since = "sinceTime=2026-01-01T00%3A00%3A03Z&timestamps=true&limitBytes=27";
    assert_eq!(node.get(&format!("{path}?{since}")).await.1, "2026-01-01T00:00:03Z line 3");
}

#[tokio::test]
async fn a_log_is_followed_over_its_files_until_the_container_ends() {
    let node = Node::start().await;
    node.write(1, "one");
    let response = in_time(node.send("/containerLogs/default/web/c?follow=true")).await;
    let mut body = Box::pin(response.into_body());
    assert_eq!(piece(&mut body).await.as_deref(), Some("one\n"));
    node.write(2, "two");
    assert_eq!(piece(&mut body).await.as_deref(), Some("two\n"));
    fs::rename(node.log(), node.log().with_extension("log.1")).unwrap();
    node.write(3, "three");
    assert_eq!(piece(&mut body).await.as_deref(), Some("three\n"));
    node.write(4, "four");
    node.runtime.stop_container(&node.id, Duration::ZERO).await.unwrap();
    assert_eq!(piece(&mut body).await.as_deref(), Some("four\n"));
    assert_eq!(piece(&mut body).await, None);
}

#[tokio::test]
async fn a_log_of_one_that_has_ended_is_not_waited_for() {
    let node = Node::start().await;
    node.write(1, "one");
    node.runtime.stop_container(&node.id, Duration::ZERO).await.unwrap();
    assert_eq!(node.get("/containerLogs/default/web/c?follow=true").await, (200, "one\n".into()));
}

#[tokio::test]
async fn the_status_decides_which_log_is_returned() {
    let node = Node::start().await;
    node.write(1, "one");
    let path = "/containerLogs/default/web/c";
    let own = format!("plumb://{}", node.id);
    let ended = json!({ "terminated": { "exitCode": 1, "containerID": own } });
    let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
    let table = [
        (ended.clone(), Value::Null, "", (200, "one\n")),
        (waiting("CrashLoopBackOff"), ended.clone(), "", (200, "one\n")),
        (waiting("CrashLoopBackOff"), ended.clone(), "?previous=true", (200, "one\n")),
        (
            waiting("ImagePullBackOff"),
            Value::Null,
            "",
            (400, r#"container "c" in pod "web" is waiting to start: trying and failing to pull image"#),
        ),
        (
            waiting("ContainerCreating"),
            Value::Null,
            "",
            (400, r#"container "c" in pod "web" is waiting to start: ContainerCreating"#),
        ),
        (
            ended,
            Value::Null,
            "?previous=true",
            (400, r#"previous terminated container "c" in pod "web" not found"#),
        ),
    ];
    for (state, before, query, (code, text)) in table {
        node.show(state.clone(), before);
        assert_eq!(node.get(&format!("{path}{query}")).await, (code, text.to_owned()), "{state} {query}");
    }
    let missing = [
        ("/containerLogs/default/none/c", r#"pod "none" does not exist"#),
        ("/containerLogs/default/web/none", r#"container "none" not found in pod "web""#),
    ];
    for (path, text) in missing {
        assert_eq!(node.get(path).await, (404, text.to_owned()));
    }
    assert_eq!(node.get(&format!("{path}?tailLines=-1")).await.0, 422);
    assert_eq!(node.get(&format!("{path}?tailLines=x")).await.0, 400);
}

#[tokio::test]
async fn pods_are_shown_as_the_node_knows_them() {
    let node = Node::start().await;
    let (code, text) = node.get("/pods").await;
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &list["kind"], &list["items"][0]["metadata"]["name"]),
        (200, &json!("PodList"), &json!("web"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_summary_has_usage_and_rates() {
    let node = Node::start().await;
    let summary = async || -> Value { serde_json::from_str(&node.get("/stats/summary").await.1).unwrap() };
    let first = summary().await;
    assert_eq!(first["node"]["nodeName"], "n1");
    let pod = |summary: &Value| summary["pods"][0].clone();
    assert_eq!(pod(&first)["podRef"], json!({ "name": "web", "namespace": "default", "uid": "u" }));
    assert!(pod(&first)["cpu"].get("usageNanoCores").is_none(), "one reading is none");
    tokio::time::advance(Duration::from_secs(10)).await;
    let second = summary().await;
    let container = &pod(&second)["containers"][0];
    assert_eq!(container["name"], "c");
    assert_eq!(container["startTime"], "2026-01-01T00:00:00Z");
    assert_eq!(container["memory"]["workingSetBytes"], 64 << 20);
    let rate = container["cpu"]["usageNanoCores"].as_u64().unwrap();
    assert!((240_000_000..=260_000_000).contains(&rate), "{rate}");
    assert_eq!(second["node"]["memory"]["workingSetBytes"], 64 << 20, "what its pods use");
}

#[tokio::test]
async fn usage_is_exported_to_prometheus_under_the_kubelets_names() {
    let node = Node::start().await;
    let (code, text) = node.get("/metrics/resource").await;
    assert_eq!(code, 200);
    for name in [
        "node_cpu_usage_seconds_total ",
        "node_memory_working_set_bytes 67108864 ",
        "container_cpu_usage_seconds_total{container=\"c\",pod=\"web\",namespace=\"default\"} ",
        "container_memory_working_set_bytes{container=\"c\",pod=\"web\",namespace=\"default\"} 67108864 ",
        "container_start_time_seconds{container=\"c\",pod=\"web\",namespace=\"default\"} 1767225600",
        "pod_cpu_usage_seconds_total{pod=\"web\",namespace=\"default\"} ",
        "pod_memory_working_set_bytes{pod=\"web\",namespace=\"default\"} 67108864 ",
        "resource_scrape_error 0",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}\nin\n{text}");
    }
    assert_documented(&text);
    node.metrics.end_to_end(Duration::from_millis(3));
    let (_, text) = node.get("/metrics").await;
    assert!(text.contains("plumb_resize_end_to_end_seconds_count 1\n"));
    assert_documented(&text);
}

#[tokio::test]
async fn usage_is_exported_under_the_names_of_cadvisor() {
    let node = Node::start().await;
    let (code, text) = node.get("/metrics/cadvisor").await;
    assert_eq!(code, 200);
    let labels = format!(
        "{{container=\"c\",id=\"/{0}\",image=\"i\",name=\"{0}\",namespace=\"default\",pod=\"web\"}}",
        node.id
    );
    for line in [
        format!("container_cpu_usage_seconds_total{labels} "),
        format!("container_memory_working_set_bytes{labels} 67108864"),
        format!("container_start_time_seconds{labels} 1767225600"),
        "machine_cpu_cores 4".to_owned(),
        "machine_memory_bytes 8589934592".to_owned(),
    ] {
        assert!(text.lines().any(|found| found.starts_with(&line)), "{line}\nin\n{text}");
    }
    assert_documented(&text);
}

#[tokio::test]
async fn the_results_of_probes_are_exported_by_container() {
    let node = Node::start().await;
    let container = ProbedContainer {
        uid: "u".into(),
        namespace: "default".into(),
        pod: "web".into(),
        container: "c".into(),
    };
    node.metrics.probed(container, Kind::Readiness, "successful");
    let (code, text) = node.get("/metrics/probes").await;
    let expected = "prober_probe_total{container=\"c\",namespace=\"default\",pod=\"web\",pod_uid=\"u\",\
                    probe_type=\"Readiness\",result=\"successful\"} 1";
    assert!(code == 200 && text.contains(expected), "{text}");
    assert_documented(&text);
}

#[tokio::test]
async fn tools_read_the_configuration_and_the_pods_that_run() {
    let node = Node::start().await;
    let read = async |path: &str| -> Value { serde_json::from_str(&node.get(path).await.1).unwrap() };
    assert_eq!(read("/configz").await, json!({ "kubeletconfig": { "maxPods": 110 } }));
    let pods = read("/runningpods/").await;
    assert_eq!(pods["items"][0]["metadata"], json!({ "name": "web", "namespace": "default", "uid": "u" }));
    assert_eq!(pods["items"][0]["spec"]["containers"][0]["name"], "c");
    node.show(json!({ "waiting": { "reason": "CrashLoopBackOff" } }), Value::Null);
    assert_eq!(read("/runningpods/").await["items"], json!([]));
}

#[tokio::test]
async fn system_logs_are_read_and_nothing_beside_them() {
    let node = Node::start().await;
    let logs = node.folder.path().join("var/log");
    fs::create_dir_all(logs.join("apt")).unwrap();
    fs::write(logs.join("syslog"), "line\n").unwrap();
    fs::write(node.folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../../secret", logs.join("link")).unwrap();
    std::os::unix::fs::symlink(logs.join("syslog"), logs.join("apt/link")).unwrap();
    mknodat(CWD, logs.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert_eq!(node.get("/logs/apt/link").await, (200, "line\n".into()));
    assert_eq!(node.get("/logs/syslog").await, (200, "line\n".into()));
    let (code, page) = node.get("/logs/").await;
    assert!(code == 200 && page.contains("<a href=\"apt/\">apt/</a>\n"), "{page}");
    for path in ["/logs/none", "/logs/link", "/logs/pipe", "/logs/../../secret", "/logs/apt/../../../secret"]
    {
        assert_eq!(node.get(path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn strangers_learn_only_that_it_is_there() {
    let node = Node::start().await;
    let ask = |method: Method, path: &str, stranger: bool| {
        let mut request = Request::builder().method(method).uri(path).body(()).unwrap();
        if stranger {
            request.extensions_mut().insert(Stranger);
        }
        let server = node.server.clone();
        async move { server.oneshot(request).await.unwrap().status() }
    };
    assert_eq!(ask(Method::GET, "/healthz", true).await, StatusCode::OK);
    assert_eq!(ask(Method::GET, "/pods", true).await, StatusCode::FORBIDDEN);
    assert_eq!(ask(Method::GET, "/none", true).await, StatusCode::FORBIDDEN);
    assert_eq!(ask(Method::GET, "/none", false).await, StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::POST, "/pods", false).await, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_connection_to_a_pod_goes_to_the_address_of_its_sandbox_and_never_to_loopback() {
    let node = Node::start().await;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A client with the right to patch the status has written the address of the loopback interface.
    let mut pod = (*node.pods.0.lock()[0]).clone();
    pod.status.get_or_insert_default().pod_ip = Some("127.0.0.1".into());
    *node.pods.0.lock() = vec![Arc::new(pod)];
    let request = Request::get(format!("/podConnect/default/web?port={port}"));
    let request = request.header("upgrade", "tcp").body(()).unwrap();
    let response = in_time(node.server.clone().oneshot(request)).await.unwrap();
    // The runtime of this test gives pods loopback addresses.
    assert_eq!(response.status().as_u16(), 403);
    listener.into_std().unwrap().accept().unwrap_err();
}

#[tokio::test]
async fn a_container_id_in_the_status_of_a_pod_does_not_lead_to_a_container_of_another_pod() {
    let node = Node::start().await;
    node.write(1, "secret");
    assert_eq!(node.get("/containerLogs/default/web/c").await, (200, "secret\n".to_owned()));
    // A client with the right to patch the status of its own pod has written the id of the container of `web` into it.
    let mut own = (*node.pods.0.lock()[0]).clone();
    own.metadata.name = Some("own".into());
    own.metadata.uid = Some("another".into());
    node.pods.0.lock().push(Arc::new(own));
    let (code, text) = node.get("/containerLogs/default/own/c").await;
    assert_eq!(code, 400, "{text}");
    assert!(!text.contains("secret"), "{text}");
    for path in ["/exec/default/own/c?command=id&output=1", "/attach/default/own/c?output=1"] {
        let request = Request::get(path)
            .header("upgrade", "SPDY/3.1")
            .header("connection", "Upgrade")
            .header("x-stream-protocol-version", "v4.channel.k8s.io")
            .body(())
            .unwrap();
        let response = in_time(node.server.clone().oneshot(request)).await.unwrap();
        assert_eq!(response.status().as_u16(), 404, "{path}");
    }
}
