//! Node allocatable: what is reserved of a node is not for pods.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use plumb_resize::cgroup::milli_of_shares;
use plumb_runtime::builtin::cgroup_of;
use plumb_runtime::cgroup::{Layout, Tree};
use plumb_runtime::types::LinuxResources;
use serde_json::json;

use super::cluster::{Cluster, complaint, up};
use super::nodes::machine::{Machine, create, load, pod, pods, soon, until};

/// The cgroups of a cluster.
fn tree(machine: &Machine) -> Tree {
    Tree::new(Layout::detect().unwrap(), cgroup_of(&machine.data()).unwrap())
}

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

#[tokio::test(flavor = "multi_thread")]
async fn the_cgroup_of_all_pods_has_what_is_not_reserved() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&["--system-reserved", "cpu=1,memory=1Gi,pid=100"]);
    let pods = tree(&machine).pods();
    // 64 cpus and 64Gi is what the node of such a cluster has.
    let limited = || {
        let read = pods.read().unwrap();
        read.cpu_shares.map(milli_of_shares) == Some(63_000) && read.memory_limit == Some(63 << 30)
    };
    soon("limited", limited).await;
    let most = ["pid_max", "threads-max"].map(|name| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        text.trim().parse::<i64>().unwrap()
    });
    assert_eq!(pods.read().unwrap().pids_limit, most.into_iter().min().map(|most| most - 100));
    drop(cluster);
    // An agent that does not enforce it removes the limits of the one before.
    let cluster = machine.start(&["--enforce-node-allocatable", "none"]);
    soon("unlimited", || pods.read().unwrap().memory_limit.is_none_or(|limit| limit < 0)).await;
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_all_pods_below_what_they_use_kills_none() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    create(&api, &pod("large", json!([load("c", &["--memory", "64Mi"], json!({}))]))).await;
    super::nodes::running(&api, "large").await;
    let pods = tree(&machine).pods();
    soon("in use", || pods.memory().unwrap().0 > 60 << 20).await;
    let too_little = LinuxResources { memory_limit: Some(16 << 20), ..LinuxResources::default() };
    pods.set(&too_little).unwrap_err();
    let status = api.get("large").await.unwrap().status.unwrap();
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 0);
    assert_eq!(pods.oom_kills().unwrap(), 0);
    drop(cluster);
    machine.clear();
}
