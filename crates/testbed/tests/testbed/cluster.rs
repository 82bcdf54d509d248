//! A real cluster runs pods, and leaves nothing behind whichever of its processes is killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_testbed::{BUSYBOX, Cluster, Config, Parts};
use serde_json::json;
use tokio::sync::Mutex;

use crate::machine_state::MachineState;

/// The state of the whole machine is compared, so only one of these tests may run at a time.
static MACHINE: Mutex<()> = Mutex::const_new(());

const TIMEOUT: Duration = Duration::from_mins(3);

/// Runs a pod, and waits until the kubelet's readiness probe has reached its address.
async fn run_pod(client: &Client) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "server" },
        "spec": { "containers": [{
            "name": "main",
            "image": BUSYBOX,
            "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/etc"],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            "readinessProbe": { "httpGet": { "port": 8080, "path": "/passwd" }, "periodSeconds": 1 },
        }] },
    }))
    .expect("the pod is well formed");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.expect("the pod is accepted");
    let ready = await_condition(pods.clone(), "server", is_ready);
    tokio::time::timeout(TIMEOUT, ready).await.expect("the pod is ready in time").expect("the watch holds");
}

/// Runs a pod on a node, which reaches the API server by the Service `kubernetes`.
async fn run_on(client: &Client, node: &str) {
    let ask = "until nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null; do sleep 1; done";
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": node },
        "spec": { "nodeName": node, "restartPolicy": "Never", "containers": [{
            "name": "main", "image": BUSYBOX, "command": ["/bin/sh", "-c", ask],
        }] },
    }))
    .expect("the pod is well formed");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.expect("the pod is accepted");
    let succeeded = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref());
        phase == Some("Succeeded")
    };
    let done = await_condition(pods.clone(), node, succeeded);
    tokio::time::timeout(TIMEOUT, done).await.expect("the pod is done in time").expect("the watch holds");
}

fn is_ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = Command::new(cluster.kubectl())
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig_path())
        .output()
        .expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn two_clusters_run_pods_at_once_and_leave_nothing_behind() {
    let _machine = MACHINE.lock().await;
    let before = MachineState::read();
    let mut two_nodes = Config::default();
    two_nodes.nodes = 2;
    let (one, other) = tokio::join!(Cluster::start(Config::default()), Cluster::start(two_nodes));
    let (one, other) = (one.expect("one starts"), other.expect("the other starts"));
    assert_ne!(one.endpoints().server, other.endpoints().server);
    let (one_client, other_client) =
        (one.client().await.expect("a client"), other.client().await.expect("a client"));
    tokio::join!(run_pod(&one_client), run_pod(&other_client));

    for node in ["testbed-node", "testbed-node-2"] {
        run_on(&other_client, node).await;
    }

    // Both clusters have a pod of this name: `exec` reaches each through its own API server and kubelet.
    for cluster in [&one, &other] {
        assert_eq!(
            kubectl(cluster, &["exec", "server", "--", "echo", "hello"]),
            "hello
"
        );
        assert!(
            kubectl(cluster, &["version"]).contains(&format!("Server Version: {}", plumb_testbed::VERSION))
        );
    }
    assert_ne!(before.additions(), Vec::<String>::new(), "the state has the items of a running cluster");
    one.stop().await.expect("one is gone");
    kubectl(&other, &["get", "pod", "server"]);
    other.stop().await.expect("the other is gone");
    assert_eq!(before.additions(), Vec::<String>::new());
}

/// `testbed up`, and its output. The monitor, too, holds its standard error open, and no other process does.
struct Owner {
    process: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Owner {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .arg("up")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("testbed runs");
        let output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let errors = BufReader::new(process.stderr.take().expect("it is a pipe"));
        Self { process, output, errors }
    }

    /// The first line of its output: that it is ready, and with which kubeconfig.
    fn ready(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it can be read");
        line.trim().rsplit_once("KUBECONFIG=").expect("it says where the kubeconfig is").1.to_owned()
    }

    /// Waits until it and its monitor have ended.
    fn wait(mut self) {
        self.process.wait().expect("it can be waited for");
        self.errors.read_to_end(&mut Vec::new()).expect("it can be read");
    }
}

async fn client_of(kubeconfig: &str) -> Client {
    plumb_testbed::install_crypto();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig is there");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("it is a kubeconfig")).expect("a client")
}

fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).expect("it is a process id");
    kill(Pid::from_raw(process), signal).expect("it can be signalled");
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn a_killed_owner_leaves_nothing_behind() {
    let _machine = MACHINE.lock().await;
    let before = MachineState::read();
    let mut owner = Owner::start();
    run_pod(&client_of(&owner.ready()).await).await;
    owner.process.kill().expect("it can be killed");
    owner.wait();
    assert_eq!(before.additions(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn an_interrupted_start_leaves_nothing_behind() {
    let _machine = MACHINE.lock().await;
    let before = MachineState::read();
    let mut owner = Owner::start();
    let mut line = String::new();
    owner.errors.read_line(&mut line).expect("it can be read");
    assert!(line.starts_with("kube-apiserver is ready"), "{line}");
    signal(owner.process.id(), Signal::SIGINT);
    owner.wait();
    assert_eq!(before.additions(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn processes_end_with_a_killed_monitor_and_clean_removes_the_rest() {
    let _machine = MACHINE.lock().await;
    let before = MachineState::read();
    let cluster = Cluster::start(Config::default()).await.expect("it starts");
    run_pod(&cluster.client().await.expect("a client")).await;
    signal(cluster.monitor_id(), Signal::SIGKILL);
    drop(cluster);
    assert_eq!(plumb_testbed::clean().expect("all can be removed").len(), 1);
    assert_eq!(before.additions(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn an_api_server_alone_takes_objects_and_leaves_nothing_behind() {
    let _machine = MACHINE.lock().await;
    let before = MachineState::read();
    let cluster = Cluster::start(Config::of(Parts::ApiServer)).await.expect("it starts");
    let objects: Api<ConfigMap> = Api::default_namespaced(cluster.client().await.expect("a client"));
    let mut object = ConfigMap::default();
    object.meta_mut().name = Some("object".to_owned());
    objects.create(&PostParams::default(), &object).await.expect("it is accepted");
    assert_eq!(cluster.endpoints().node, None);
    cluster.stop().await.expect("it is gone");
    assert_eq!(before.additions(), Vec::<String>::new());
}
