//! Machines that join: a token, certificates, pods, logs and usage; and what is said when it does not work.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_testkit::{TIMEOUT, free_port};
use serde_json::{Value, json};

use super::cluster::{Cluster, complaint};
use super::processes::{ended, first_line};

/// A cluster without a node of its own.
pub(super) const ALONE: [&str; 4] =
    ["--components", "apiserver,controllers,scheduler", "--metric-resolution", "100ms"];

/// A running `plumb node`. It is killed when it is dropped.
pub(super) struct Agent(Child);

impl Agent {
    /// Starts it and waits until it has joined.
    pub(super) fn start(mut command: Command, data: &Path) -> Self {
        let said = fs::File::create(data.with_extension("stderr")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(said).spawn().unwrap();
        let line = first_line(&mut process);
        let why = || fs::read_to_string(data.with_extension("stderr")).unwrap();
        assert!(line.contains("has joined"), "not joined: {line}{}", why());
        Self(process)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(super) fn stop(mut self) {
        self.signal(Signal::SIGINT);
        assert!(ended(&mut self.0).success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `plumb token create` prints.
pub(super) fn invitation(cluster: &Cluster) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["token", "create", "--kubeconfig"]).arg(cluster.kubeconfig());
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        let output = command.output().unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap().trim().to_owned();
        }
        // The controllers tell where the cluster is a moment after it is ready.
        assert!(std::time::Instant::now() < deadline, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The command of an invitation, for an agent of virtual pods.
pub(super) fn agent(words: &[&str], data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(words).args(["--name", "n1", "--runtime", "virtual", "--listen", "127.0.0.1:0"]);
    command.args(["--metric-resolution", "100ms", "--data-dir"]).arg(data);
    command
}

fn pod(name: &str) -> Pod {
    let container =
        json!({ "name": "main", "image": "plumb/load", "args": ["--cpu", "100m", "--memory", "16Mi"] });
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "containers": [container] } }))
        .unwrap()
}

/// Asks until an answer is as it must become.
pub(super) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(TIMEOUT, wait).await;
    found.unwrap_or_else(|_| panic!("not {what}"))
}

async fn is_running(client: &Client, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until("running", async || {
        let pod = pods.get(name).await.unwrap();
        (pod.status?.phase.as_deref() == Some("Running")).then_some(())
    })
    .await;
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_joins_with_a_token_and_stays_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let (data, node): (PathBuf, PathBuf) = (folder.path().join("data"), folder.path().join("node"));
    let cluster = Cluster::start_with(&data, &ALONE);
    let client = cluster.client().await;
    let invited = invitation(&cluster);
    let words: Vec<&str> = invited.split_whitespace().skip(1).collect();
    // The token goes by a file: a command line is readable by every process of the machine.
    let at = words.iter().position(|word| *word == "--token").unwrap();
    let secret = folder.path().join("token");
    fs::write(&secret, format!("{}\n", words[at + 1])).unwrap();
    let mut kept: Vec<&str> = words.clone();
    kept.splice(at..at + 2, ["--token-file", secret.to_str().unwrap()]);
    let joined = Agent::start(agent(&kept, &node), &node);

    let nodes: Api<Node> = Api::all(client.clone());
    let addresses = nodes.get("n1").await.unwrap().status.unwrap().addresses.unwrap();
    assert!(addresses.iter().any(|address| address.address == "127.0.0.1"), "{addresses:?}");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("web")).await.unwrap();
    is_running(&client, "web").await;
    // The API server finds it, verifies it, and is known to it.
    let summary = get(&client, "/api/v1/nodes/n1/proxy/stats/summary").await.unwrap();
    assert_eq!(summary["node"]["nodeName"], "n1");
    until("measured", async || {
        let found = get(&client, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web").await.ok()?;
        found["containers"][0]["usage"]["memory"].is_string().then_some(())
    })
    .await;
    pods.logs("web", &kube::api::LogParams::default()).await.unwrap();

    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let signed = requests.list(&ListParams::default()).await.unwrap();
    let mut signers: Vec<(String, String)> = signed
        .items
        .into_iter()
        .map(|request| (request.spec.username.unwrap(), request.spec.signer_name))
        .collect();
    signers.sort();
    assert!(signers[0].0.starts_with("system:bootstrap:"), "{signers:?}");
    assert_eq!(signers[0].1, "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(signers[1], ("system:node:n1".to_owned(), "kubernetes.io/kubelet-serving".to_owned()));

    // A new certificate on a signal, and the old one is no longer used.
    let certificate = || fs::read_to_string(node.join("pki/client.pem")).unwrap();
    let first = certificate();
    joined.signal(Signal::SIGHUP);
    until("renewed", async || (certificate() != first).then_some(())).await;
    joined.stop();

    // The token is not needed any more, nor the hash.
    let second = certificate();
    let server = words[words.iter().position(|word| *word == "--server").unwrap() + 1];
    let again = Agent::start(agent(&["node", "--server", server], &node), &node);
    assert_eq!(certificate(), second);
    pods.create(&PostParams::default(), &pod("later")).await.unwrap();
    is_running(&client, "later").await;
    again.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_join_reports_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (data, node) = (folder.path().join("data"), folder.path().join("node"));
    let cluster = Cluster::start_with(&data, &ALONE);
    let invited = invitation(&cluster);
    let words: Vec<&str> = invited.split_whitespace().skip(1).collect();
    let at = |flag: &str| words[words.iter().position(|word| *word == flag).unwrap() + 1];
    let (server, token, hash) = (at("--server"), at("--token"), at("--ca-hash"));

    let said = complaint(agent(&["node", "--server", server], &node));
    assert!(said.contains("which takes a token: run `plumb token create` there"), "{said}");
    let empty = folder.path().join("empty");
    fs::write(&empty, "\n").unwrap();
    let said =
        complaint(agent(&["node", "--server", server, "--token-file", empty.to_str().unwrap()], &node));
    assert!(said.contains("it holds no token"), "{said}");
    let said = complaint(agent(&["node", "--server", server, "--token", token], &node));
    assert!(said.contains("pass --ca-hash, as `plumb token create` prints it"), "{said}");
    let other = format!("sha256:{}", "0".repeat(64));
    let stranger = ["node", "--server", server, "--token", token, "--ca-hash", &other];
    let said = complaint(agent(&stranger, &node));
    assert!(said.contains("is not the cluster that the hash is of"), "{said}");
    let wrong = ["node", "--server", server, "--token", "abcdef.0123456789abcdef", "--ca-hash", hash];
    let said = complaint(agent(&wrong, &node));
    assert!(said.contains("does not know the token"), "{said}");
    let said = complaint(agent(&["node", "--server", server, "--ca-hash", "md5:1"], &node));
    assert!(said.contains("64 hexadecimal digits"), "{said}");

    let mut revoke = Command::new(env!("CARGO_BIN_EXE_plumb"));
    revoke.args(["token", "rm", token, "--kubeconfig"]).arg(cluster.kubeconfig());
    assert!(revoke.status().unwrap().success());
    let again = String::from_utf8(revoke.output().unwrap().stderr).unwrap();
    assert!(again.contains("; `plumb token ls` lists them"), "{again}");
    let said = complaint(agent(&words, &node));
    assert!(said.contains("it has expired or was revoked"), "{said}");
    // Nothing was left that would make it look as if it had joined.
    assert!(!node.join("pki/client.pem").exists());
}

#[tokio::test]
async fn a_token_gives_no_more_than_the_right_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &ALONE);
    let invited = invitation(&cluster);
    let token = invited.split_whitespace().skip_while(|word| *word != "--token").nth(1).unwrap();
    let mut config = super::cluster::config_of(&cluster.kubeconfig()).await;
    config.auth_info =
        kube::config::AuthInfo { token: Some(token.to_owned().into()), ..kube::config::AuthInfo::default() };
    let bearer = Client::try_from(config).unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(bearer.clone());
    assert!(requests.list(&ListParams::default()).await.is_ok());
    let nodes: Api<Node> = Api::all(bearer);
    let refused = nodes.list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("system:bootstrap:"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_does_not_give_a_machine_the_name_of_a_node_that_exists() {
    let folder = tempfile::tempdir().unwrap();
    let (data, node) = (folder.path().join("data"), folder.path().join("node"));
    let cluster = Cluster::start_with(&data, &ALONE);
    let client = cluster.client().await;
    let invited = invitation(&cluster);
    let words: Vec<&str> = invited.split_whitespace().skip(1).collect();
    let joined = Agent::start(agent(&words, &node), &node);

    // Another machine has the same token, and wants that node's pods and their secrets.
    let thief = folder.path().join("thief");
    let said = complaint(agent(&words, &thief));
    assert!(said.contains("a node of this name exists"), "{said}");
    assert!(!thief.join("pki/client.pem").exists());

    // The node itself comes back with its key, although its certificate is lost to it: as after months without power.
    joined.stop();
    let kept = fs::read_to_string(node.join("pki/client.pem")).unwrap();
    let key = &kept[kept.find("-----BEGIN PRIVATE KEY").unwrap()..];
    fs::remove_file(node.join("pki/client.pem")).unwrap();
    fs::write(node.join("pki/client.key"), key).unwrap();
    let back = Agent::start(agent(&words, &node), &node);
    let renewed = fs::read_to_string(node.join("pki/client.pem")).unwrap();
    assert!(renewed != kept && renewed.contains(key));
    assert!(!node.join("pki/client.key").exists());
    back.stop();

    // Once the node is deleted, its name is free.
    Api::<Node>::all(client).delete("n1", &kube::api::DeleteParams::default()).await.unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client().await);
    requests.delete_collection(&kube::api::DeleteParams::default(), &ListParams::default()).await.unwrap();
    Agent::start(agent(&words, &thief), &thief).stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_no_serving_certificate_for_an_address_that_it_only_claims() {
    let folder = tempfile::tempdir().unwrap();
    let (data, node) = (folder.path().join("data"), folder.path().join("node"));
    let cluster = Cluster::start_with(&data, &ALONE);
    let invited = invitation(&cluster);
    let words: Vec<&str> = invited.split_whitespace().skip(1).collect();
    // It says that it is reached at an address that its requests do not come from.
    let mut claims = agent(&words, &node);
    claims.args(["--address", "192.0.2.7"]);
    let said = fs::File::create(node.with_extension("stderr")).unwrap();
    let _agent = Agent(claims.stdout(Stdio::null()).stderr(said).spawn().unwrap());
    until("refused", async || {
        cluster.said().contains("the request for 192.0.2.7 came from 127.0.0.1").then_some(())
    })
    .await;
    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client().await);
    let requests = requests.list(&ListParams::default()).await.unwrap().items;
    let serving =
        requests.iter().find(|one| one.spec.signer_name == "kubernetes.io/kubelet-serving").unwrap();
    let undecided =
        serving.status.as_ref().is_none_or(|status| status.conditions.as_ref().is_none_or(Vec::is_empty));
    assert!(undecided, "left to an administrator: {:?}", serving.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_its_pods_to_a_cluster_that_was_restored_from_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let [data, node, again, copy] = ["data", "node", "again", "copy"].map(|name| folder.path().join(name));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let cluster = Cluster::start_at(&data, address, &ALONE);
    let client = cluster.client().await;
    let invited = invitation(&cluster);
    let words: Vec<&str> = invited.split_whitespace().skip(1).collect();
    let _joined = Agent::start(agent(&words, &node), &node);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    is_running(&client, "a").await;
    let container = |pod: Pod| pod.status?.container_statuses?.into_iter().next();
    let dead = container(pods.get("a").await.unwrap()).unwrap().container_id.unwrap();
    let done = |verb: &str, data: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        assert!(command.arg(verb).arg(&copy).arg("--data-dir").arg(data).status().unwrap().success());
    };
    done("backup", &data);
    // Another container runs after the backup.
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "plumb/load:latest" }] } });
    pods.patch("a", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let runs = |status: &ContainerStatus| {
        status.container_id.as_ref() != Some(&dead)
            && status.state.as_ref().is_some_and(|it| it.running.is_some())
    };
    until("restarted", async || container(pods.get("a").await.unwrap()).filter(runs)).await;
    cluster.stop();

    fs::create_dir(&again).unwrap();
    let copied = Command::new("cp").arg("-a").arg(data.join("pki")).arg(&again).status().unwrap();
    assert!(copied.success());
    done("restore", &again);
    let cluster = Cluster::start_at(&again, address, &ALONE);
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    until("reported again", async || container(pods.get("a").await.unwrap()).filter(runs)).await;
}
