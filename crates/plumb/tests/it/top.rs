//! `kubectl top`, against a server that something measures for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use plumb_apiserver::kubeconfig::{CurrentContext, Entry};
use plumb_apiserver::pki::{Pki, SystemClock};
use plumb_apiserver::serve::{self, Listener, Trigger};
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_resize::Quantity;
use plumb_resize::rules::Rules;
use plumb_testkit::{Options, TestCluster};
use serde_json::json;

use super::kubectl::command_with;

/// Everything uses the same.
struct Steady;

impl Steady {
    fn span() -> Span {
        Span { until: Timestamp::now(), length: Duration::from_secs(15) }
    }

    fn amounts(milli: i64, bytes: i64) -> Amounts {
        Amounts { cpu: Quantity::from_milli(milli), memory: Quantity::from_bytes(bytes) }
    }
}

impl UsageSource for Steady {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        Some(NodeUsage { span: Self::span(), used: Self::amounts(1500, 2 << 30) })
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        let containers = vec![("main".to_owned(), Self::amounts(250, 64 << 20))];
        Some(PodUsage { span: Self::span(), containers })
    }
}

/// Serves until the trigger is pulled or dropped, and writes the administrator's kubeconfig.
fn serve(folder: &Path) -> (TestCluster, PathBuf, Trigger) {
    serve::install_crypto();
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let pki = Pki::open(folder.join("pki"), ["127.0.0.1".to_owned()], Arc::new(SystemClock)).unwrap();
    let cluster = TestCluster::with(Options {
        rules: Rules::kep(),
        usage: Some(Arc::new(Steady)),
        ..Options::default()
    });
    let kubeconfig = folder.join("kubeconfig");
    let entry = Entry::new("top", &listener.url(), &pki.authority_pem(), &pki.admin());
    entry.merge(&kubeconfig, CurrentContext::Switch).unwrap();
    let (trigger, shutdown) = serve::shutdown();
    let tls = serve::tls(&pki).unwrap();
    tokio::spawn(serve::serve(listener, tls, serve::Limits::default(), cluster.server().clone(), shutdown));
    (cluster, kubeconfig, trigger)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn kubectl_top_shows_what_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, kubeconfig, _trigger) = serve(folder.path());
    let client = cluster.admin();
    let post = PostParams::default();
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "n1" },
        "status": {
            "capacity": { "cpu": "4", "memory": "8Gi" }, "allocatable": { "cpu": "3", "memory": "8Gi" },
        },
    }))
    .unwrap();
    Api::<Node>::all(client.clone()).create(&post, &node).await.unwrap();
    for (name, app) in [("web", "web"), ("db", "db")] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": { "nodeName": "n1", "containers": [{ "name": "main", "image": "plumb/load" }] },
        }))
        .unwrap();
        Api::<Pod>::default_namespaced(client.clone()).create(&post, &pod).await.unwrap();
    }
    for (args, lines) in [
        (
            &["top", "nodes"][..],
            &["NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)", "n1 1500m 50% 2048Mi 25%"][..],
        ),
        (&["top", "pods"], &["NAME CPU(cores) MEMORY(bytes)", "db 250m 64Mi", "web 250m 64Mi"]),
        (&["top", "pods", "-l", "app=web", "--no-headers"], &["web 250m 64Mi"]),
        (&["top", "pod", "web", "--containers", "--no-headers"], &["web main 250m 64Mi"]),
        (
            &["get", "pods.metrics.k8s.io"],
            &["NAME CPU MEMORY WINDOW", "db 250m 64Mi 15s", "web 250m 64Mi 15s"],
        ),
    ] {
        let output = command_with(&kubeconfig, args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let found: Vec<String> =
            said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(found, lines, "kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
}
