//! Graceful node shutdown: pods are terminated before the process ends that runs their node.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;

use super::cluster::Cluster;
use super::nodes::machine::{create, equal, load, pod, pods, until};
use super::nodes::running;

const VIRTUAL: [&str; 4] = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];

fn web(name: &str, class: Option<&str>) -> Pod {
    let mut pod = pod(name, json!([load("c", &[], equal("10m", "16Mi"))]));
    let spec = pod.spec.as_mut().unwrap();
    spec.priority_class_name = class.map(str::to_owned);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_terminated_when_the_node_shuts_down_critical_ones_last() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let periods = ["--shutdown-grace-period", "40s", "--shutdown-grace-period-critical-pods", "20s"];
    let cluster = Cluster::start_with(&data, &[&VIRTUAL[..], &periods].concat());
    let api = pods(&cluster).await;
    for (name, class) in [("critical", Some("system-cluster-critical")), ("web", None), ("other", None)] {
        create(&api, &web(name, class)).await;
        running(&api, name).await;
    }
    assert!(cluster.terminate().success());

    let cluster = Cluster::start_alone(&data);
    let api = pods(&cluster).await;
    let mut versions = Vec::new();
    for name in ["web", "other", "critical"] {
        let found = until(&api, name, "terminated", |_| true).await;
        versions.push(found.metadata.resource_version.unwrap().parse::<u64>().unwrap());
        let status = found.status.unwrap();
        let message = "Pod was terminated in response to imminent node shutdown.";
        let expected = (Some("Failed"), Some("Terminated"), Some(message));
        let said = (status.phase.as_deref(), status.reason.as_deref(), status.message.as_deref());
        assert_eq!(said, expected, "{name}");
        let conditions = status.conditions.unwrap();
        let disruption = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
        let expected = ("True", Some("TerminationByKubelet"), Some(message));
        let said = (disruption.status.as_str(), disruption.reason.as_deref(), disruption.message.as_deref());
        assert_eq!(said, expected, "{name}");
        let containers = status.container_statuses.unwrap();
        assert!(containers[0].state.as_ref().unwrap().terminated.is_some(), "{name}");
    }
    assert!(versions[0].max(versions[1]) < versions[2], "{versions:?}");
    let nodes: Api<Node> = Api::all(cluster.client().await);
    let conditions = nodes.get("plumb").await.unwrap().status.unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.message.as_deref()), ("False", Some("node is shutting down")));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grace_period_pods_outlive_their_agent() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &VIRTUAL);
    let api = pods(&cluster).await;
    create(&api, &web("web", None)).await;
    running(&api, "web").await;
    assert!(cluster.terminate().success());
    let cluster = Cluster::start_alone(&data);
    let found = pods(&cluster).await.get("web").await.unwrap().status.unwrap();
    assert_eq!((found.phase.as_deref(), found.reason), (Some("Running"), None));
}
