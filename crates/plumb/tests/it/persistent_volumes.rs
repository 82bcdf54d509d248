//! Claims of a cluster with real containers: their data outlives pods and the cluster's own process, and goes with the claim.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use plumb_testkit::{eventually, object, until, until_all, until_gone};
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
    machine.clear();
}

/// A file system in memory, unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    const OPTIONS: &str = "size=64m,mode=0700";

    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), Some(Self::OPTIONS)).unwrap();
        Self(at)
    }

    fn remount(&self, flags: MsFlags) {
        let flags = flags | MsFlags::MS_REMOUNT;
        mount(Some("tmpfs"), &self.0, Some("tmpfs"), flags, Some(Self::OPTIONS)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn claim(name: &str, size: &str) -> PersistentVolumeClaim {
    let resources = json!({ "requests": { "storage": size } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
    object(json!({ "metadata": { "name": name }, "spec": spec }))
}

/// A pod of the claim of its name, with further volumes.
fn pod(name: &str, more: &[Value]) -> Pod {
    let own = json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } });
    let volumes: Vec<Value> = std::iter::once(own).chain(more.iter().cloned()).collect();
    let container = json!({ "name": "main", "image": "plumb/load", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] });
    object(json!({ "metadata": { "name": name }, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [container],
        "volumes": volumes, "tolerations": [{ "operator": "Exists" }],
    } }))
}

/// Waits for an event about an object with this reason, and with this in its message.
async fn event_with(client: &Client, name: &str, reason: &str, part: &str) {
    let is_it = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some(reason)
            && event.message.as_deref().is_some_and(|message| message.contains(part))
    };
    until_all(&Api::<Event>::default_namespaced(client.clone()), |all| all.values().any(is_it)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_and_read_only_disks_and_claims_that_are_deleted_are_events_and_lose_nothing() {
    let Some(machine) = Machine::here() else { return };
    // A data directory that exists, to which an administrator adds a disk.
    assert!(Cluster::start_alone(&machine.data()).stop().success());
    let disk = Disk::mount(machine.data().join("volumes-local"));
    let flags = [&PARTS[..], &["--runtime", "builtin", "--pod-network", "none"]].concat();
    let cluster = Cluster::start_with(&machine.data(), &flags);
    let client = cluster.client().await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let create = async |name: &str, size: &str, more: &[Value]| {
        claims.create(&PostParams::default(), &claim(name, size)).await.unwrap();
        pods.create(&PostParams::default(), &pod(name, more)).await.unwrap();
    };
    create("large", "65Mi", &[]).await;
    event_with(&client, "large", "FailedScheduling", "1 node(s) did not have enough free storage").await;

    create("first", "64Mi", &[]).await;
    until(&pods, "first", is_ready).await;
    let (first, path) = bound(&cluster, "first").await;
    std::fs::write(path.join("row"), "1").unwrap();

    // A claim is deleted while its pod starts: it is not mounted any more, and stays as long as the pod.
    let missing = json!({ "name": "settings", "configMap": { "name": "settings" } });
    create("starting", "1Mi", &[missing]).await;
    event_with(&client, "starting", "FailedMount", "settings").await;
    claims.delete("starting", &DeleteParams::default()).await.unwrap();
    let settings: ConfigMap = object(json!({ "metadata": { "name": "settings" } }));
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &settings).await.unwrap();
    let why = "error processing PVC default/starting: PVC is being deleted";
    event_with(&client, "starting", "FailedMount", why).await;
    assert!(claims.get("starting").await.unwrap().metadata.deletion_timestamp.is_some());
    pods.delete("starting", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "starting").await;

    // Neither a directory for a new pod, nor the removal of an old one.
    disk.remount(MsFlags::MS_RDONLY);
    create("second", "1Mi", &[]).await;
    event_with(&client, "second", "FailedMount", "Read-only file system (os error 30)").await;
    pods.delete("first", &DeleteParams::default()).await.unwrap();
    claims.delete("first", &DeleteParams::default()).await.unwrap();
    let why = "node \"plumb\" cannot remove the directory: row: Read-only file system (os error 30)";
    event_with(&client, &first, "VolumeFailedDelete", why).await;
    assert_eq!(std::fs::read_to_string(path.join("row")).unwrap(), "1");
    disk.remount(MsFlags::empty());
    until(&pods, "second", is_ready).await;
    until_gone(&Api::<PersistentVolume>::all(client.clone()), &first).await;
    assert!(!path.exists());
    drop(cluster);
    drop(disk);
    machine.clear();
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
