//! `plumb up --runtime cri` with a real containerd. `.ci/containerd` runs these tests.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;

use futures_util::SinkExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_client::Api;
use plumb_cri::{CgroupDriver, Cri};
use plumb_node::image_gc::{self, ImageGcConfig, ImageUse};
use plumb_runtime::Runtime as _;
use plumb_runtime::builtin::gateway_of;
use plumb_runtime::cgroup::Layout;
use plumb_testbed::{BUSYBOX, Containerd, PAUSE};
use plumb_testkit::{until, until_gone};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::cluster::{Cluster, up};
use super::nodes::api::{self, answer_to, variable};
use super::nodes::machine::{Groups, id};
use super::streams::{open, spdy, text, until_received, websocket};

/// A containerd, and a data directory for clusters whose pods run in it.
pub(crate) struct Site {
    containerd: Containerd,
    folder: TempDir,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let containerd = Containerd::start().await;
        let containerd = containerd.expect("containerd starts; `testbed obtain --packages` gets it");
        Self { containerd, folder: tempfile::tempdir().unwrap() }
    }

    /// The data directory of its clusters.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A cluster on the data directory. It is in the mount namespace of containerd, which has to see volumes.
    pub(crate) fn up(&self, flags: &[&str]) -> Cluster {
        let data = self.data();
        std::fs::create_dir_all(&data).unwrap();
        let mut command = up(&data);
        command.args(["--runtime", "cri", "--container-runtime-endpoint", &self.containerd.endpoint()]);
        // A machine that is short of disk is no reason to remove the images of tests.
        command.args(["--image-gc-high-threshold", "100"]);
        Cluster::run(&data, self.containerd.enter(&command).unwrap(), flags)
    }

    /// The same with what pods need.
    fn up_with_pods(&self) -> Cluster {
        self.up(&["--components", "apiserver,controllers,scheduler,node"])
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.containerd.process().unwrap()), signal).unwrap();
    }

    /// Removes what is left of the cluster, with `plumb down`.
    pub(crate) async fn clear(self) {
        // A cluster was not ended with the command that entered the namespaces.
        self.end_plumb();
        let mut down = std::process::Command::new(env!("CARGO_BIN_EXE_plumb"));
        down.args(["down", "--data-dir"]).arg(self.folder.path().join("data"));
        let down = self.containerd.enter(&down).unwrap().stdin(Stdio::null()).output().unwrap();
        assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
        self.containerd.stop().await.unwrap();
    }

    /// Kills the clusters on the data directory, and waits until they are gone.
    fn end_plumb(&self) {
        let data = self.folder.path().to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let path = entry.path();
            let is_plumb = std::fs::read_link(path.join("exe")).is_ok_and(|exe| exe.ends_with("plumb"));
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            if !is_plumb || !String::from_utf8_lossy(&line).contains(&data) {
                continue;
            }
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            while has_files(&path) {
                std::thread::yield_now();
            }
        }
    }
}

/// Whether a process may have files open, and locks with them: one has until all of its threads have ended, whether or not
/// its parent knows. Its first thread can end long before the others.
fn has_files(process: &std::path::Path) -> bool {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
        state.is_some_and(|state| !["Z", "X"].contains(&state))
    })
}

fn web(resources: Value) -> Pod {
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": BUSYBOX, "command": ["sleep", "infinity"], "resources": resources,
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

fn equal(cpu: &str, memory: &str) -> Value {
    json!({ "requests": { "cpu": cpu, "memory": memory }, "limits": { "cpu": cpu, "memory": memory } })
}

fn main_of(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn has(pod: &Pod, resources: &Value) -> bool {
    let actual = main_of(pod)
        .filter(|status| status.started == Some(true))
        .and_then(|status| status.resources.as_ref());
    let is_resizing = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    actual.is_some_and(|actual| serde_json::to_value(actual).unwrap() == *resources)
        && !is_resizing.into_iter().any(|condition| condition.type_.starts_with("PodResize"))
}

async fn resize(pods: &Api<Pod>, to: &Value) {
    let patch = json!({ "spec": { "containers": [{ "name": "main", "resources": to }] } });
    pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

fn is_ready(node: &Node, status: &str) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == status)
}

#[tokio::test]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_pod_is_resized_in_place_and_survives_the_agent() {
    let site = Site::start().await;
    let cluster = site.up_with_pods();
    let client = cluster.client().await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get("plumb").await.unwrap();
    let version = node.status.unwrap().node_info.unwrap().container_runtime_version;
    assert!(version.starts_with("containerd://1."), "{version}");
    let pods: Api<Pod> = Api::default_namespaced(client);
    let (before, after) = (equal("100m", "64Mi"), equal("300m", "128Mi"));
    pods.create(&PostParams::default(), &web(before.clone())).await.unwrap();
    let running = until(pods.clone(), "web", |pod: &Pod| has(pod, &before)).await;
    let id = main_of(&running).unwrap().container_id.clone().unwrap();
    assert!(id.starts_with("containerd://"), "{id}");
    resize(&pods, &after).await;
    let resized = until(pods.clone(), "web", |pod: &Pod| has(pod, &after)).await;
    let status = main_of(&resized).unwrap();
    assert_eq!((status.container_id.as_ref(), status.restart_count), (Some(&id), 0));

    // The agent is killed, and another one takes up where it was.
    drop(cluster);
    site.end_plumb();
    let cluster = site.up_with_pods();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    resize(&pods, &before).await;
    let back = until(pods.clone(), "web", |pod: &Pod| has(pod, &before)).await;
    let status = main_of(&back).unwrap();
    assert_eq!((status.container_id.as_ref(), status.restart_count), (Some(&id), 0));
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    until_gone::<Pod>(pods.clone(), "web").await;
    drop(cluster);
    site.clear().await;
}

/// What the API server answers to a pod's process, with the token and the CA of its service account, about who it is.
fn own_review(pid: i64) -> String {
    let folder = format!("/proc/{pid}/root/var/run/secrets/kubernetes.io/serviceaccount");
    let authority = CertificateDer::from_pem_file(format!("{folder}/ca.crt")).unwrap();
    let token = std::fs::read_to_string(format!("{folder}/token")).unwrap();
    let (host, port) = (variable(pid, "KUBERNETES_SERVICE_HOST"), variable(pid, "KUBERNETES_SERVICE_PORT"));
    let address: SocketAddr = format!("{host}:{port}").parse().unwrap();
    assert_eq!(address.to_string(), "10.96.0.1:443");
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let request = format!(
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: kubernetes\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    answer_to(pid, address, authority, request)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_pod_reaches_the_api_server_with_its_service_account_and_the_default_listen() {
    let site = Site::start().await;
    let cluster = site.up_with_pods();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    let resources = equal("100m", "64Mi");
    pods.create(&PostParams::default(), &web(resources.clone())).await.unwrap();
    let running = until(pods.clone(), "web", |pod: &Pod| has(pod, &resources)).await;
    let pid = Groups::of(&running).pid(&id(&running, "main")).unwrap();
    let user = "system:serviceaccount:default:default";
    let answer = own_review(pid);
    assert!(answer.contains(user), "{answer}");

    // The next agent lets the pods that run reach it again.
    drop(cluster);
    site.end_plumb();
    let cluster = site.up_with_pods();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    until(pods.clone(), "web", |pod: &Pod| has(pod, &resources)).await;
    let answer = own_review(pid);
    assert!(answer.contains(user), "{answer}");
    // What it is reached by is gone when the pods are.
    let endpoint = gateway_of(&site.folder.path().join("data")).unwrap();
    let exists = || TcpListener::bind((endpoint, 0)).is_ok();
    assert!(exists());
    drop(cluster);
    site.clear().await;
    assert!(!exists());
}

#[tokio::test]
#[ignore = "needs containerd: .ci/containerd"]
async fn the_handler_of_a_runtime_class_is_that_of_the_sandbox() {
    let site = Site::start().await;
    let cluster = site.up_with_pods();
    let client = cluster.client().await;
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    for handler in ["other", "missing"] {
        let class = json!({ "metadata": { "name": handler }, "handler": handler });
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let resources = equal("100m", "64Mi");
    let of = |class: &str| {
        let mut pod = web(resources.clone());
        pod.metadata.name = Some(class.to_owned());
        pod.spec.as_mut().unwrap().runtime_class_name = Some(class.to_owned());
        pod
    };
    pods.create(&PostParams::default(), &of("other")).await.unwrap();
    until(pods.clone(), "other", |pod: &Pod| has(pod, &resources)).await;
    pods.create(&PostParams::default(), &of("missing")).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(client);
    let failed = |event: &Event| {
        event.involved_object.name.as_deref() == Some("missing")
            && event.reason.as_deref() == Some("FailedCreatePodSandBox")
    };
    let refused = async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().find(failed)
    };
    let message = api::soon("refused", refused).await.message.unwrap();
    assert!(message.starts_with("Failed to create pod sandbox: "), "{message}");
    assert!(message.contains(r#"no runtime for "missing" is configured"#), "{message}");
    drop(cluster);
    site.clear().await;
}

#[tokio::test]
#[ignore = "needs containerd: .ci/containerd"]
async fn the_node_is_not_ready_while_containerd_hangs_and_comes_back_by_itself() {
    let site = Site::start().await;
    let cluster =
        site.up(&["--components", "apiserver,controllers,scheduler,node", "--runtime-request-timeout", "5s"]);
    let client = cluster.client().await;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::default_namespaced(client));
    let (before, after) = (equal("100m", "64Mi"), equal("300m", "128Mi"));
    pods.create(&PostParams::default(), &web(before.clone())).await.unwrap();
    let running = until(pods.clone(), "web", |pod: &Pod| has(pod, &before)).await;
    let id = main_of(&running).unwrap().container_id.clone();

    site.signal(Signal::SIGSTOP);
    resize(&pods, &after).await;
    let node = until(nodes.clone(), "plumb", |node: &Node| is_ready(node, "False")).await;
    let why = serde_json::to_string(&node.status.unwrap().conditions).unwrap();
    assert!(why.contains("container runtime is down"), "{why}");
    // Killed under the resize, and started again.
    site.signal(Signal::SIGKILL);
    until(nodes, "plumb", |node: &Node| is_ready(node, "True")).await;
    let resized = until(pods, "web", |pod: &Pod| has(pod, &after)).await;
    let status = main_of(&resized).unwrap();
    assert_eq!((status.container_id.clone(), status.restart_count), (id, 0));
    drop(cluster);
    site.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn commands_containers_and_ports_are_streamed_through_containerd() {
    const WEB: &str = "/api/v1/namespaces/default/pods/web";
    let site = Site::start().await;
    let cluster = site.up_with_pods();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    let resources = equal("100m", "64Mi");
    let mut pod = web(resources.clone());
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    let script = "httpd -p 8080 -h /etc; while read line; do echo got $line; done; sleep infinity";
    container.command = Some(["sh", "-c", script].map(str::to_owned).to_vec());
    container.stdin = Some(true);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until(pods.clone(), "web", |pod: &Pod| has(pod, &resources)).await;

    // A command that reads to the end of its input.
    let path = format!(
        "{WEB}/exec?command=sh&command=-c&command=cat%3B%20exit%207&stdin=true&stdout=true&stderr=true"
    );
    let mut socket = websocket(&cluster, &path, "v5.channel.k8s.io").await;
    socket.send(Message::binary(b"\0hello\n".to_vec())).await.unwrap();
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    until_received(&mut socket, 1, "hello\n").await;
    until_received(&mut socket, 3, "ExitCode").await;

    let path = format!("{WEB}/attach?container=main&stdin=true&stdout=true&stderr=true");
    let mut socket = websocket(&cluster, &path, "v5.channel.k8s.io").await;
    socket.send(Message::binary(b"\0a\n".to_vec())).await.unwrap();
    until_received(&mut socket, 1, "got a\n").await;
    drop(socket);

    let path = format!("{WEB}/portforward");
    let (handle, connection) = spdy(&cluster, &path, "portforward.k8s.io").await;
    let of = |kind| [("streamType", kind), ("port", "8080"), ("requestID", "0")];
    let _error = open(&handle, &of("error")).await;
    let mut data = open(&handle, &of("data")).await;
    data.write_all(b"GET /passwd HTTP/1.0\r\n\r\n").await.unwrap();
    let page = text(data).await;
    assert!(page.contains("root:x:0:0"), "{page}");
    connection.abort();
    drop(cluster);
    site.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn images_that_no_container_uses_are_removed_from_containerd_when_its_disk_is_short() {
    let site = Site::start().await;
    let config = plumb_cri::Config {
        endpoint: site.containerd.endpoint(),
        image_endpoint: None,
        cluster: format!("{}/images", site.containerd.endpoints().cgroup),
        folder: site.folder.path().join("cri"),
        cgroups: Layout::detect().unwrap(),
        cgroup_driver: CgroupDriver::Cgroupfs,
        request_timeout: plumb_cri::REQUEST_TIMEOUT,
    };
    let runtime = Cri::open(config, plumb_supervise::process()).await.unwrap();
    // Every disk is fuller than that.
    let short =
        ImageGcConfig { high_threshold_percent: 0, low_threshold_percent: 0, ..ImageGcConfig::new(None) };
    let (mut uses, start) = (ImageUse::default(), Timestamp::UNIX_EPOCH);
    let young = image_gc::collect(&runtime, &[], &short, &mut uses, start).await.unwrap();
    assert_eq!(young.images, [""; 0]);
    let unused = runtime.image_status(BUSYBOX).await.unwrap().unwrap();
    let removed =
        image_gc::collect(&runtime, &[], &short, &mut uses, start + short.minimum_age).await.unwrap();
    assert_eq!(removed.images, [unused.id]);
    assert_eq!(runtime.image_status(BUSYBOX).await.unwrap(), None);
    assert!(runtime.image_status(PAUSE).await.unwrap().is_some(), "sandboxes need it");
    runtime.clear().await.unwrap();
    drop(runtime);
    site.containerd.stop().await.unwrap();
}
