//! Expressions made up from a seed, compiled and evaluated by kube-apiserver and by our API server in one run.

use kube::Client;
use plumb_apiserver::authn::User;
use plumb_conformance::cli::client;
use plumb_conformance::differential::expressions::{Options, run};
use plumb_resize::rules::Rules;
use plumb_testbed::{Cluster, Config, Parts};

use super::test_api_server::TestApiServer;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain` gets: docs/differential.md"]
async fn expressions_are_compiled_and_evaluated_as_kube_apiserver_does() {
    plumb_testbed::install_crypto();
    let reference = Cluster::start(Config::of(Parts::ApiServer)).await.expect("it starts");
    let theirs = client(Some(reference.kubeconfig_path().to_owned())).await.expect("a client");
    let apiserver = TestApiServer::open(Rules::v1_36());
    let admin = User::new("kubernetes-admin", "", ["system:masters"]);
    let ours = Client::new(apiserver.server.inside(admin), "default");
    let usual = Options::default();
    let options = Options {
        cases: number("PLUMB_DIFFERENTIAL_CASES").unwrap_or(usual.cases),
        seed: number("PLUMB_DIFFERENTIAL_SEED").unwrap_or(usual.seed),
        ..usual
    };
    let outcome = run(&theirs, &ours, &options).await.expect("a run");
    println!("{outcome}");
    reference.stop().await.expect("it stops");
    assert!(outcome.is_clean(), "see above");
}
