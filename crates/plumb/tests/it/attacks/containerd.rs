//! The attacks by and on pods, with `plumb up --runtime cri`. `.ci/containerd` runs these tests.

use plumb_testbed::BUSYBOX;
use serde_json::{from_value, json};

use super::{network, node, streams};
use crate::it::cluster::Cluster;
use crate::it::containerd::Site;
use crate::it::nodes::machine::{create, equal, is_settled, pod, pods, until};

/// Runs the pod `web` with this script.
async fn start(cluster: &Cluster, script: &str) {
    let container = json!({
        "name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], "resources": equal("100m", "64Mi"),
    });
    let api = pods(cluster).await;
    create(&api, &from_value(json!(pod("web", json!([container])))).unwrap()).await;
    until(&api, "web", "running", is_settled).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd; .ci/containerd runs it"]
async fn a_pod_of_containerd_that_forks_without_end_gets_no_more_processes_than_the_limit() {
    let site = Site::start().await;
    let cluster = site.up(&["--components", "apiserver,controllers,node", "--pod-max-pids", "64"]);
    start(&cluster, node::FORKS).await;
    node::processes_up_to_the_limit(&site.data(), &cluster).await;
    drop(cluster);
    site.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd; .ci/containerd runs it"]
async fn a_pod_of_containerd_leads_no_proxy_to_the_loopback_of_the_node_and_has_a_limit_of_sessions() {
    let site = Site::start().await;
    let cluster = site.up(&["--components", "apiserver,controllers,node"]);
    start(&cluster, "exec sleep 1000").await;
    network::proxies_to_a_changing_pod_address(&cluster).await;
    streams::sessions_beyond_the_limit(&cluster).await;
    drop(cluster);
    site.clear().await;
}
