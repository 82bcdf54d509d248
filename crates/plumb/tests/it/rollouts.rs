//! Workloads in a whole cluster with virtual nodes: what real `kubectl` does with them, and what a kill in their midst
//! does to them.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kubectl::kubectl;

const PARTS: [&str; 10] = [
    "--components",
    "apiserver,controllers,scheduler,node",
    "--runtime",
    "virtual",
    "--nodes",
    "3",
    "--node-cpu",
    "8",
    "--node-memory",
    "16Gi",
];

fn start(data: &Path) -> Cluster {
    Cluster::start_with(data, &PARTS)
}

fn web(replicas: i32, cpu: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": "16Mi" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{ "name": "main", "image": "plumb/load", "resources": { "requests": amounts } }],
                },
            },
        },
    })
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_rolls_undoes_pauses_scales_and_drains() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = start(&folder.path().join("data"));
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    let rolled = || {
        let said = run(&["rollout", "status", "deployment/web", "--timeout=120s"]);
        assert!(said.contains("deployment \"web\" successfully rolled out"), "{said}");
    };
    let request = || {
        run(&[
            "get",
            "deploy",
            "web",
            "-o",
            "jsonpath={.spec.template.spec.containers[0].resources.requests.cpu}",
        ])
    };
    kubectl(&cluster, &["apply", "-f", "-"], &web(3, "10m").to_string());
    rolled();
    run(&["set", "resources", "deployment/web", "--requests=cpu=20m"]);
    rolled();
    let history = run(&["rollout", "history", "deployment/web"]);
    let revisions: Vec<&str> =
        history.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(revisions, ["1", "2"], "{history}");
    let second = run(&["rollout", "history", "deployment/web", "--revision=2"]);
    assert!(second.contains("20m"), "{second}");

    assert!(run(&["rollout", "undo", "deployment/web"]).contains("rolled back"));
    rolled();
    assert_eq!(request(), "10m");
    run(&["rollout", "undo", "deployment/web", "--to-revision=2"]);
    rolled();
    assert_eq!(request(), "20m");

    run(&["rollout", "pause", "deployment/web"]);
    run(&["set", "resources", "deployment/web", "--requests=cpu=30m"]);
    run(&["scale", "deployment/web", "--replicas=5"]);
    run(&["wait", "deployment/web", "--for=jsonpath={.status.availableReplicas}=5", "--timeout=120s"]);
    let cpus = "jsonpath={.items[*].spec.containers[0].resources.requests.cpu}";
    let of_pods = run(&["get", "pods", "-l", "app=web", "-o", cpus]);
    assert!(of_pods.split_whitespace().all(|cpu| cpu == "20m"), "{of_pods}");
    run(&["rollout", "resume", "deployment/web"]);
    rolled();
    run(&["rollout", "restart", "deployment/web"]);
    rolled();

    let nodes = run(&["get", "nodes", "-o", "name"]);
    let node = nodes.lines().next().unwrap().trim_start_matches("node/");
    run(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--max-unavailable=1"]);
    run(&["drain", node, "--ignore-daemonsets", "--timeout=120s"]);
    rolled();
    let left = run(&[
        "get",
        "pods",
        "-l",
        "app=web",
        "--field-selector",
        &format!("spec.nodeName={node}"),
        "-o",
        "name",
    ]);
    assert_eq!(left, "");
    let described = run(&["describe", "deployment", "web"]);
    assert!(described.contains("ScalingReplicaSet"), "{described}");

    run(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=120s"]);
    assert_eq!(run(&["get", "replicasets,pods", "-l", "app=web", "-o", "name"]), "");
    run(&["create", "namespace", "team"]);
    run(&["create", "deployment", "more", "--image=plumb/load", "-n", "team"]);
    run(&["wait", "deployment/more", "-n", "team", "--for=condition=Available", "--timeout=120s"]);
    run(&["delete", "namespace", "team", "--timeout=120s"]);
}

/// Waits until a rollout is over.
async fn rolled(client: &Client, image: &str) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let watching = async {
        loop {
            let found = deployments.get("web").await.unwrap();
            let (spec, status) = (found.spec.unwrap(), found.status.unwrap_or_default());
            let wanted = spec.replicas;
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            if status.observed_generation >= found.metadata.generation
                && counts.iter().all(|count| *count == wanted)
            {
                return;
            }
            // Anything that happens to it is a reason to look again.
            let one = WatchParams::default().fields("metadata.name=web").timeout(5);
            let from = found.metadata.resource_version.unwrap();
            let mut events = deployments.watch(&one, &from).await.unwrap().boxed();
            let _ = events.next().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(3), watching).await.expect(image);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_in_the_midst_of_rollouts_leave_nothing_undone_and_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut cluster = start(&data);
    let client = cluster.client().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let first: Deployment = serde_json::from_value(web(12, "10m")).unwrap();
    deployments.create(&PostParams::default(), &first).await.unwrap();
    for round in 0..4 {
        let client = cluster.client().await;
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let cpu = format!("{}m", 11 + round);
        let change = json!({ "spec": { "template": web(12, &cpu)["spec"]["template"] } });
        deployments.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        // Somewhere in the midst: after so many events of pods.
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let from = pods.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let mut events = pods.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        for _ in 0..7 * round {
            let _ = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
        }
        drop(events);
        cluster.kill();
        cluster = start(&data);
        let client = cluster.client().await;
        rolled(&client, &cpu).await;
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let there = pods.list(&ListParams::default().labels("app=web")).await.unwrap().items;
        let stays: Vec<&Pod> = there.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        assert_eq!(stays.len(), 12);
        assert!(stays.iter().all(|pod| {
            let container = &pod.spec.as_ref().unwrap().containers[0];
            container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0 == cpu
        }));
        let sets: Api<ReplicaSet> = Api::default_namespaced(client);
        let sizes: Vec<i32> = sets
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .iter()
            .filter_map(|set| set.spec.as_ref()?.replicas)
            .collect();
        assert_eq!(sizes.iter().filter(|size| **size > 0).collect::<Vec<_>>(), [&12]);
    }
    cluster.stop();
}
