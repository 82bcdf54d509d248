//! `plumb run` against a cluster that runs elsewhere.

mod autoscaler;
mod rollout;

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_testkit::{TIMEOUT, eventually, object, until};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::processes::{ended, first_line, kill as kill_process};

/// Everything but the autoscaler, with virtual containers that are measured every second.
pub(crate) const FLAGS: [&str; 8] = [
    "--components",
    "apiserver,controllers,scheduler,node",
    "--runtime",
    "virtual",
    "--node-cpu",
    "8",
    "--metric-resolution",
    "1s",
];

/// A leader that a loaded machine keeps from renewing its lease for a while stays the leader.
pub(crate) const LONG_LEASES: [&str; 5] = [
    "--leader-elect",
    "--leader-elect-resource-namespace=default",
    "--leader-elect-lease-duration=10m",
    "--leader-elect-renew-deadline=9m",
    "--leader-elect-retry-period=1s",
];

/// A `plumb run`, until it is dropped.
pub(crate) struct Running {
    process: Child,
    address: String,
    /// What it writes to standard error: a file and not a pipe, since nothing reads it while it runs, and a full pipe
    /// would stop it.
    log: File,
}

/// `plumb run COMPONENT`.
fn command(kubeconfig: &Path, component: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["run", component, "--address=127.0.0.1:0"]);
    command.arg("--kubeconfig").arg(kubeconfig).args(flags);
    command
}

impl Running {
    pub(crate) fn start(cluster: &Cluster, component: &str, flags: &[&str]) -> Self {
        Self::against(&cluster.kubeconfig(), component, flags)
    }

    /// Against any cluster.
    pub(crate) fn against(kubeconfig: &Path, component: &str, flags: &[&str]) -> Self {
        let mut command = command(kubeconfig, component, flags);
        let log = tempfile::tempfile().unwrap();
        let stderr = log.try_clone().unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let line = first_line(&mut process);
        let address = line.trim().rsplit_once("http://").map(|(_, address)| address.to_owned());
        let address = address.unwrap_or_else(|| panic!("not ready: {line}"));
        Self { process, address, log }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written to standard error. It shares the offset of the file, so that this must not seek.
    fn written(&self) -> String {
        let mut written = vec![0; self.log.metadata().unwrap().len().try_into().unwrap()];
        self.log.read_exact_at(&mut written, 0).unwrap();
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Ends it without asking.
    pub(crate) fn kill(mut self) {
        kill_process(&mut self.process);
    }

    /// A client of its own pages.
    pub(crate) fn client(&self) -> kube::Client {
        let config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        kube::Client::try_from(config).unwrap()
    }

    /// The code and the body of a page.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Waits until its metrics have these series.
    pub(crate) async fn until_metrics(&self, expected: &[&str]) {
        let mut missing = Vec::new();
        let has_all = async {
            loop {
                let (code, metrics) = self.get("/metrics");
                assert_eq!(code, 200);
                missing = expected.iter().filter(|series| !metrics.contains(**series)).collect();
                if missing.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, has_all).await;
        assert!(found.is_ok(), "not in the metrics: {missing:#?}");
    }

    /// Asks it to stop, and returns how it ended and what it wrote to standard error.
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let status = ended(&mut self.process);
        let mut written = String::new();
        self.log.rewind().unwrap();
        self.log.read_to_string(&mut written).unwrap();
        (status, written)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) async fn create_web(client: &kube::Client) {
    let deployment: Deployment = object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{
                    "name": "load", "image": "plumb/load", "args": ["--cpu", "200m", "--memory", "400Mi"],
                }] },
            },
        },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "Off" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "maxAllowed": { "cpu": "200m" } }] },
        },
    }));
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_recommenders_one_leads_explains_itself_and_hands_over_when_it_is_asked_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let drop_in = ["--install-crds=true", "--v=4", "--stderrthreshold=info", "--memory-saver=true"];
    let start = |flags: &[&str]| {
        let flags = [&["--recommender-interval=1s"], &LONG_LEASES[..], flags].concat();
        Running::start(&cluster, "recommender", &flags)
    };
    let first = start(&drop_in);
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    until(&leases, "vpa-recommender-lease", |lease: &Lease| lease.spec.is_some()).await;
    let second = start(&[]);
    assert_eq!(second.get("/health-check"), (200, "OK".to_owned()));
    assert_eq!(second.get("/debug/vpa").0, 503, "another process leads");

    create_web(&client).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let recommended = |vpa: &VerticalPodAutoscaler| {
        let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
        let first =
            recommendation.and_then(|recommendation| recommendation.container_recommendations.first());
        first.is_some_and(|of| of.uncapped_target["cpu"].0 == "247m" && of.target["cpu"].0 == "200m")
    };
    until(&vpas, "web", recommended).await;
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client.clone());
    until(&checkpoints, "web-load", |_: &VerticalPodAutoscalerCheckpoint| true).await;

    assert_eq!(first.get("/health-check"), (200, "OK".to_owned()));
    let expected = [
        "vpa_recommender_vpa_objects_count{update_mode=\"Off\",has_recommendation=\"true\",api=\"v1\",matches_pods=\"true\",unsupported_config=\"false\"} 1",
        "vpa_recommender_recommendation{vpa_namespace=\"default\",vpa_name=\"web\",container=\"load\",resource=\"cpu\",bound=\"target\"} 0.2",
        "vpa_recommender_metric_server_responses{is_error=\"false\",client_name=\"default-metrics-client\"}",
        "leader_election_master_status{name=\"vpa-recommender-lease\"} 1",
        "kubernetes_feature_enabled{name=\"PerVPAConfig\"",
    ];
    // It counts VPAs with a recommendation in the round after the one that has written it.
    first.until_metrics(&expected).await;
    assert_eq!(first.get("/debug/vpa").1, "/debug/vpa/default/web\n");
    let (_, text) = first.get("/debug/vpa/default/web");
    assert!(text.starts_with("vpa default/web, from the memory of the recommender\n"), "{text}");
    assert!(text.contains("with margin 247m, capped to maxAllowed 200m: 200m"), "{text}");
    let value: Value = serde_json::from_str(&first.get("/debug/vpa/default/web?format=json").1).unwrap();
    assert_eq!(value["containers"][0]["cpu"]["bounds"]["target"]["uncapped"], "247m");
    assert_eq!(first.get("/debug/vpa/default/none").0, 404);
    assert_eq!(first.get("/elsewhere").0, 404);

    let (status, said) = first.stop();
    assert!(status.success(), "{said}");
    assert!(said.contains("--v, --stderrthreshold") && said.contains("plumb: stopping"), "{said}");
    let holder = format!("_{}", second.process.id());
    until(&leases, "vpa-recommender-lease", |lease: &Lease| {
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_ref())
            .is_some_and(|identity| identity.ends_with(&holder))
    })
    .await;
    eventually(async || second.get("/debug/vpa/default/web").0 == 200).await;
    assert!(second.stop().0.success());
}

/// Who holds the lease of each shard.
async fn holders(leases: &Api<Lease>) -> Vec<String> {
    let mut holders = Vec::new();
    for shard in 0..4 {
        let lease = leases.get_opt(&format!("vpa-recommender-lease-{shard}")).await.unwrap();
        let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
        holders.push(holder.unwrap_or_default());
    }
    holders
}

/// A kubeconfig of a server that cannot be reached, and its URL.
fn unreachable(folder: &Path) -> (PathBuf, String) {
    // No process listens on a port that was just closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let kubeconfig = folder.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "down",
        "clusters": [{ "name": "down", "cluster": { "server": server } }],
        "users": [{ "name": "down", "user": { "token": "t" } }],
        "contexts": [{ "name": "down", "context": { "cluster": "down", "user": "down" } }],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    (kubeconfig, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_recommenders_share_the_vpas_and_one_takes_over_those_of_another_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let flags = ["--shards=4", "--recommender-interval=1s"];
    let first = Running::start(&cluster, "recommender", &[&flags[..], &["--install-crds=true"]].concat());
    create_web(&client).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let is_recommended = |vpa: &VerticalPodAutoscaler| {
        vpa.status.as_ref().is_some_and(|status| status.recommendation.is_some())
    };
    until(&vpas, "web", is_recommended).await;
    assert_eq!(first.get("/debug/vpa").1, "/debug/vpa/default/web\n");
    let second = Running::start(&cluster, "recommender", &flags);
    let share = async |process: &Running| {
        let suffix = format!("_{}", process.process.id());
        holders(&leases).await.iter().filter(|holder| holder.ends_with(&suffix)).count()
    };
    eventually(async || (share(&first).await, share(&second).await) == (2, 2)).await;
    let knows = |process: &Running| process.get("/debug/vpa/default/web").0 == 200;
    eventually(async || knows(&first) != knows(&second)).await;
    let (holder, other) = if knows(&first) { (first, second) } else { (second, first) };
    // Without a word.
    drop(holder);
    eventually(async || share(&other).await == 4).await;
    eventually(async || knows(&other)).await;
    assert!(other.stop().0.success());
    assert_eq!(holders(&leases).await, [""; 4]);
}

#[tokio::test]
async fn while_the_api_server_is_down_its_address_is_named_once_and_requests_are_retried() {
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, server) = unreachable(folder.path());
    let running = Running::against(&kubeconfig, "updater", &[]);
    let report = format!("plumb: cannot reach the API server at {server}: Connection refused");
    plumb_testkit::eventually(async || running.written().contains(&report)).await;
    let (status, written) = running.stop();
    assert!(status.success(), "{written}");
    assert_eq!(written.matches(&report).count(), 1, "{written}");
    assert!(written.contains("--kubeconfig") && written.contains("retried"), "{written}");
    assert!(!written.contains("client error") && !written.contains("kube_client"), "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_registered_by_a_service_is_warned_of_outside_a_pod() {
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, _) = unreachable(folder.path());
    let by_url = ["--port=0", "--register-by-url", "--webhook-address=127.0.0.1"];
    for (flags, is_warned) in [(&by_url[..1], true), (&by_url[..], false)] {
        let running = Running::against(&kubeconfig, "admission", flags);
        // It is written before the line that says that the process is ready.
        let written = running.written();
        let warning =
            written.contains("Service kube-system/vpa-webhook") && written.contains("--register-by-url");
        assert_eq!(warning, is_warned, "{written}");
        running.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_definition_is_named_once_and_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let running = Running::start(&cluster, "recommender", &["--recommender-interval=1s"]);
    let named = "does not serve resource \"verticalpodautoscalers\"";
    eventually(async || running.written().contains(named)).await;
    plumb_vpa::install::install(&client).await.unwrap();
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } },
    }));
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
    until(&vpas, "web", |vpa: &VerticalPodAutoscaler| vpa.status.is_some()).await;
    let (status, written) = running.stop();
    assert!(status.success(), "{written}");
    assert_eq!(written.matches(named).count(), 1, "{written}");
    assert!(written.contains("--install-crds=true") && !written.contains("Status {"), "{written}");
}

#[test]
fn flags_that_contradict_each_other_or_are_not_known_are_refused() {
    for (component, flags, why) in [
        (
            "recommender",
            &["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"][..],
            "cannot be used together",
        ),
        ("recommender", &["--leader-elect-resource-lock=endpoints"][..], "leases"),
        ("recommender", &["--storage=etcd"][..], "checkpoint"),
        ("recommender", &["--shards=0"][..], "--shards"),
        ("recommender", &["--use-external-metrics"][..], "--external-metrics-cpu-metric"),
        ("recommender", &["--feature-gates=Nonsense=true"][..], "PerVPAConfig"),
        ("recommender", &["--no-such-flag"][..], "--no-such-flag"),
        ("admission", &["--register-by-url"][..], "--webhook-address"),
        ("admission", &["--tls-cert-file=/x"][..], "--tls-private-key"),
        ("admission", &["--leader-elect"][..], "--leader-elect"),
        ("updater", &["--eviction-tolerance=2"][..], "from 0 to 1"),
        (
            "updater",
            &["--leader-elect", "--leader-elect-lease-duration=5s"][..],
            "shorter than the whole seconds",
        ),
        ("rollout", &["--leader-elect", "--leader-elect-retry-period=9s"][..], "--leader-elect-retry-period"),
        ("all", &["--leader-elect-resource-name=x"][..], "--leader-elect-resource-name"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        let refused = command.args(["run", component]).args(flags).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
