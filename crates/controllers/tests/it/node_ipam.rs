//! Node IPAM: the networks in Node objects.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controllers::node_ipam::{self, Range};
use plumb_controllers::{Clients, GROUPS, WATCHER, user_of};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, event, object, until};
use serde_json::json;
use tokio::task::JoinSet;

/// The controller on a cluster CIDR with two networks.
fn start(cluster: &TestCluster) -> JoinSet<()> {
    let watcher = cluster.client(WATCHER);
    let writer = |name: &str| cluster.client_as(&user_of(name), GROUPS);
    let supervisor = Supervisor::default();
    let manager =
        plumb_controllers::workloads(Clock::default(), supervisor.clone(), Metrics::default(), writer);
    let clients = Clients {
        watch: watcher.clone(),
        write: writer(node_ipam::USER),
        supervisor,
        metrics: Metrics::default(),
    };
    let range = Range {
        cluster: "10.66.0.0/23".parse().unwrap(),
        node_mask: 24,
        first: Some("10.66.1.0/24".parse().unwrap()),
        excluded: Vec::new(),
    };
    let mut running = JoinSet::new();
    running.spawn(node_ipam::run(manager.informers(), clients, range, Clock::default()).unwrap());
    running.spawn(manager.run(watcher));
    running
}

async fn register(nodes: &Api<Node>, name: &str) {
    let node: Node = object(json!({ "metadata": { "name": name } }));
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

/// Waits until a node has this network.
async fn has(nodes: &Api<Node>, name: &str, network: &str) {
    let node = until(nodes, name, |node: &Node| {
        node.spec.as_ref().is_some_and(|spec| spec.pod_cidr.as_deref() == Some(network))
    })
    .await;
    assert_eq!(node.spec.unwrap().pod_cidrs.unwrap(), [network]);
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_networks_of_the_cluster_cidr_and_release_them_when_they_are_deleted() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let running = start(&cluster);
    let nodes = nodes(&client);
    register(&nodes, "a").await;
    has(&nodes, "a", "10.66.1.0/24").await;
    register(&nodes, "b").await;
    has(&nodes, "b", "10.66.0.0/24").await;
    // No network is left: the node has an event about it, and gets the next one that is released.
    register(&nodes, "c").await;
    let emitted = event(&client, "c", "CIDRNotAvailable", 1).await;
    assert_eq!(emitted.message.as_deref(), Some("Node c status is now: CIDRNotAvailable"));
    assert_eq!(emitted.source.unwrap().component.as_deref(), Some("cidrAllocator"));
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    has(&nodes, "c", "10.66.1.0/24").await;

    // The next controller adopts the networks in Node objects, and has no other record.
    drop(running);
    let _running = start(&cluster);
    nodes.delete("b", &DeleteParams::default()).await.unwrap();
    register(&nodes, "d").await;
    has(&nodes, "d", "10.66.0.0/24").await;
    has(&nodes, "c", "10.66.1.0/24").await;
}
