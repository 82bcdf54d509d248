//! Node allocatable: what is reserved of a node is not for pods.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use super::cluster::{Cluster, complaint, up};
use super::nodes::machine::{create, load, pod, pods, until};

const VIRTUAL: [&str; 8] = [
    "--components",
    "apiserver,controllers,node",
    "--runtime",
    "virtual",
    "--node-cpu",
    "4",
    "--node-memory",
    "8Gi",
];

#[tokio::test(flavor = "multi_thread")]
async fn reserved_resources_are_not_allocatable() {
    let folder = tempfile::tempdir().unwrap();
    let reserved =
        ["--system-reserved", "cpu=500m,memory=1Gi,pid=100", "--kube-reserved", "cpu=500m, memory=1Gi"];
    let cluster = Cluster::start_with(&folder.path().join("data"), &[&VIRTUAL[..], &reserved].concat());
    let nodes: Api<Node> = Api::all(cluster.client().await);
    let status = nodes.get("plumb").await.unwrap().status.unwrap();
    let amounts = |list: Option<&std::collections::BTreeMap<String, _>>, name: &str| {
        let list: &std::collections::BTreeMap<
            String,
            k8s_openapi::apimachinery::pkg::api::resource::Quantity,
        > = list.unwrap();
        list[name].0.clone()
    };
    let (capacity, allocatable) = (status.capacity.as_ref(), status.allocatable.as_ref());
    assert_eq!([amounts(capacity, "cpu"), amounts(capacity, "memory")], ["4", "8Gi"]);
    assert_eq!([amounts(allocatable, "cpu"), amounts(allocatable, "memory")], ["3", "6Gi"]);

    // The node admits by the same figures.
    let pods = pods(&cluster).await;
    let asking =
        |name: &str, cpu: &str| pod(name, json!([load("c", &[], json!({ "requests": { "cpu": cpu } }))]));
    create(&pods, &asking("large", "3001m")).await;
    let rejected = until(&pods, "large", "rejected", |pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
    })
    .await;
    assert_eq!(rejected.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
    create(&pods, &asking("fits", "3")).await;
    super::nodes::running(&pods, "fits").await;
}

#[test]
fn more_than_the_node_has_cannot_be_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = up(&folder.path().join("data"));
    command.args(VIRTUAL).args(["--system-reserved", "cpu=3", "--kube-reserved", "cpu=2"]);
    let said = complaint(command);
    let expected = "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 5 but capacity of 4. \
                    Expected capacity >= reservation.";
    assert!(said.contains(expected), "{said}");
}
