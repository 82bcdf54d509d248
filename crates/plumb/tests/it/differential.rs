//! The same questions to kube-apiserver and to `plumb up`, and the same answers; the same workloads, and the same of them.

use plumb_conformance::cli::client;
use plumb_conformance::differential::{AllowedDifferences, Options, Servers, controllers, run};
use plumb_testbed::{Config, Parts};

use super::cluster::Cluster;

/// No accounts, which a controller makes and there is none.
const WITHOUT: &str = "--disable-admission-plugins=ServiceAccount";
/// A plugin that only kube-apiserver has.
const NOT_HERE: &str = "--disable-admission-plugins=PodTopologyLabels";
/// The network of services that is built in here.
const NETWORK: &str = "--service-cluster-ip-range=10.96.0.0/12";
/// Its usual limits would have scenarios that happen at the same time wait for each other.
const UNLIMITED: [&str; 2] = ["--kube-api-qps=500", "--kube-api-burst=1000"];
/// How often autoscalers are synced: more often than a difference takes to be final.
const SYNC_PERIOD: &str = "--horizontal-pod-autoscaler-sync-period=3s";
/// How many cases are played if nothing else is said.
const CASES: u64 = 5_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn plumb_answers_as_kube_apiserver_does() {
    let mut config = Config::of(Parts::ApiServer);
    config.apiserver_flags = [WITHOUT, NOT_HERE, NETWORK].map(str::to_owned).to_vec();
    let reference = plumb_testbed::Cluster::start(config).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--resize-dialect", "v1.36", "--components", "apiserver", WITHOUT];
    let subject = Cluster::start_with(folder.path(), &flags);
    let servers = Servers {
        reference: reference.client().await.unwrap(),
        subject: subject.client().await,
        namespace: "differential".to_owned(),
    };
    let options = Options {
        cases: number("PLUMB_DIFFERENTIAL_CASES").unwrap_or(CASES),
        time: None,
        seed: number("PLUMB_DIFFERENTIAL_SEED").unwrap_or(1),
        ..Options::default()
    };
    let outcome = run(&servers, &AllowedDifferences::read().unwrap(), &options).await.unwrap();
    println!("{outcome}");
    assert!(outcome.is_clean(), "see above");
    subject.stop();
    reference.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn plumb_makes_the_same_of_workloads_as_kube_controller_manager_does() {
    let mut config = Config::of(Parts::ControlPlane);
    config.apiserver_flags = vec![NOT_HERE.to_owned()];
    config.controllers_flags = UNLIMITED.into_iter().chain([SYNC_PERIOD]).map(str::to_owned).collect();
    let reference = plumb_testbed::Cluster::start(config).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // As kube-controller-manager without `--allocate-node-cidrs`: nodes get no podCIDR.
    let pod_network = "--pod-network=none";
    let flags =
        ["--resize-dialect", "v1.36", "--components", "apiserver,controllers", pod_network, SYNC_PERIOD];
    let subject = Cluster::start_with(folder.path(), &flags);
    let clients = (
        client(Some(reference.kubeconfig_path().to_owned())).await.unwrap(),
        client(Some(subject.kubeconfig())).await.unwrap(),
    );
    let kept = controllers::AllowedDifferences::read().unwrap();
    let only = std::env::var("PLUMB_DIFFERENTIAL_ONLY").ok();
    let options =
        controllers::Options { only: only.into_iter().collect(), ..controllers::Options::default() };
    let outcome = controllers::run(clients.0, clients.1, kept, &options, controllers::print).await.unwrap();
    println!("{outcome}");
    assert!(outcome.is_clean(), "see above");
    subject.stop();
    reference.stop().await.unwrap();
}
