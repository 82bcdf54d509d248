//! Claims of a cluster with real containers: their data outlives pods and the cluster's own process, and goes with the claim.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plumb_testkit::{eventually, object, until, until_gone};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::nodes::machine::Machine;

const PARTS: [&str; 2] = ["--components", "apiserver,controllers,scheduler,node"];

/// A set with a claim for each pod, whose containers write a line at each start with the machine's own programs.
fn writers(replicas: i32) -> StatefulSet {
    let programs = [("bin", "/usr/bin"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")];
    let mut mounts: Vec<Value> = programs
        .iter()
        .map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}"), "readOnly": true }))
        .collect();
    mounts.push(json!({ "name": "data", "mountPath": "/data" }));
    let volumes: Vec<Value> =
        programs.iter().map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } })).collect();
    let container = json!({
        "name": "main", "image": "plumb/load", "env": [{ "name": "PATH", "value": "/bin" }],
        "command": ["/bin/sh", "-c", "echo started >> /data/starts; exec sleep 1000000"],
        "volumeMounts": mounts,
    });
    let spec = json!({
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [container],
        "volumes": volumes, "securityContext": { "fsGroup": 4711 },
        // The disk of a machine that builds may be almost full.
        "tolerations": [{ "operator": "Exists" }],
    });
    let claim =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    object(json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": { "metadata": { "labels": { "app": "db" } }, "spec": spec },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }],
        },
    }))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until a claim is bound, and returns the name of its volume and where it is on this machine.
async fn bound(cluster: &Cluster, claim: &str) -> (String, PathBuf) {
    let client = cluster.client().await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    let claim = until(&claims, claim, is_bound).await;
    let name = claim.spec.unwrap().volume_name.unwrap();
    let volume = Api::<PersistentVolume>::all(client).get(&name).await.unwrap();
    (name, PathBuf::from(volume.spec.unwrap().local.unwrap().path))
}

fn starts(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path.join("starts")).map_or(0, |text| text.lines().count())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_a_claim_outlives_its_pod_and_a_killed_cluster_and_is_removed_with_the_claim() {
    let Some(machine) = Machine::here() else { return };
    // Pods of one node need no network of the cluster's.
    let flags = [&PARTS[..], &["--runtime", "builtin", "--pod-network", "none"]].concat();
    let start = || Cluster::start_with(&machine.data(), &flags);
    let cluster = start();
    let client = cluster.client().await;
    Api::<StatefulSet>::default_namespaced(client.clone())
        .create(&PostParams::default(), &writers(1))
        .await
        .unwrap();
    let (name, path) = bound(&cluster, "data-db-0").await;
    assert!(path.starts_with(std::fs::canonicalize(machine.data()).unwrap()), "{}", path.display());
    let pods = Api::<Pod>::default_namespaced(client);
    let first = until(&pods, "db-0", is_ready).await;
    eventually(async || starts(&path) == 1).await;

    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    until(&pods, "db-0", |pod| pod.metadata.uid != first.metadata.uid && is_ready(pod)).await;
    eventually(async || starts(&path) == 2).await;

    // Killed and started again: the container runs on, and the next pod finds the same data.
    cluster.kill();
    let cluster = start();
    let client = cluster.client().await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let second = until(&pods, "db-0", is_ready).await;
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    until(&pods, "db-0", |pod| pod.metadata.uid != second.metadata.uid && is_ready(pod)).await;
    eventually(async || starts(&path) == 3).await;

    // What is in the volume leads nowhere when it is removed.
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    symlink(outside.path(), path.join("link")).unwrap();
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims.delete("data-db-0", &DeleteParams::default()).await.unwrap();
    // Protected while the pod uses it.
    assert!(claims.get("data-db-0").await.unwrap().metadata.deletion_timestamp.is_some());
    assert!(path.exists());
    Api::<StatefulSet>::default_namespaced(client.clone())
        .delete("db", &DeleteParams::default())
        .await
        .unwrap();
    until_gone(&claims, "data-db-0").await;
    until_gone(&Api::<PersistentVolume>::all(client), &name).await;
    assert!(!path.exists());
    assert!(outside.path().join("kept").exists());
    drop(cluster);
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_with_claims_runs_on_virtual_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&PARTS[..], &["--runtime", "virtual", "--nodes", "3"]].concat();
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let client = cluster.client().await;
    let sets = Api::<StatefulSet>::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &writers(3)).await.unwrap();
    let is_complete =
        |set: &StatefulSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3));
    until(&sets, "db", is_complete).await;
    let (name, _) = bound(&cluster, "data-db-2").await;
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims.delete("data-db-2", &DeleteParams::default()).await.unwrap();
    until_gone(&Api::<PersistentVolume>::all(client), &name).await;
}
