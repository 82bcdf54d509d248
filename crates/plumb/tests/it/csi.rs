//! A CSI driver of a cluster with real containers: its volumes outlive pods and the cluster's own process.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_testkit::{DriverBehavior, TestDriver, eventually, object, until, until_gone};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::nodes::machine::Machine;

const DRIVER: &str = "test.csi.example";
const PARTS: [&str; 2] = ["--components", "apiserver,controllers,scheduler,node"];

/// A volume of the driver that is reserved for a claim of its name.
fn volume(name: &str, mode: &str) -> PersistentVolume {
    object(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "volumeMode": mode, "storageClassName": "",
            "claimRef": { "namespace": "default", "name": name }, "csi": { "driver": DRIVER, "volumeHandle": name },
        },
    }))
}

fn claim(name: &str, mode: &str) -> PersistentVolumeClaim {
    let resources = json!({ "requests": { "storage": "1Gi" } });
    object(json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": mode, "resources": resources,
    } }))
}

/// A pod that writes a line into one volume, if it has the other one as a device.
fn pod(name: &str) -> Pod {
    let programs = [("bin", "/usr/bin"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")];
    let mut mounts: Vec<Value> = programs
        .iter()
        .map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}"), "readOnly": true }))
        .collect();
    mounts.push(json!({ "name": "data", "mountPath": "/data" }));
    let mut volumes: Vec<Value> =
        programs.iter().map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } })).collect();
    volumes.extend(
        ["data", "disk"].map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })),
    );
    let container = json!({
        "name": "main", "image": "plumb/load", "env": [{ "name": "PATH", "value": "/bin" }],
        "command": ["/bin/sh", "-c", "test -b /dev/disk && echo started >> /data/starts; exec sleep 1000000"],
        "volumeMounts": mounts, "volumeDevices": [{ "name": "disk", "devicePath": "/dev/disk" }],
    });
    object(json!({ "metadata": { "name": name }, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [container],
        "volumes": volumes, "tolerations": [{ "operator": "Exists" }],
    } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_attaches_and_mounts_volumes_that_outlive_their_pods_and_a_killed_cluster() {
    let Some(machine) = Machine::here() else { return };
    let flags = [&PARTS[..], &["--runtime", "builtin", "--pod-network", "none"]].concat();
    let start = || Cluster::start_with(&machine.data(), &flags);
    let cluster = start();
    let kubelet = std::fs::canonicalize(machine.data()).unwrap().join("kubelet");
    let driver = TestDriver::start(DRIVER, &kubelet, DriverBehavior::default());
    let starts =
        || std::fs::read_to_string(driver.data("data").join("starts")).map_or(0, |text| text.lines().count());
    let client = cluster.client().await;
    let attaches = object(json!({ "metadata": { "name": DRIVER }, "spec": { "attachRequired": true } }));
    Api::<CSIDriver>::all(client.clone()).create(&PostParams::default(), &attaches).await.unwrap();
    for (name, mode) in [("data", "Filesystem"), ("disk", "Block")] {
        let volumes = Api::<PersistentVolume>::all(client.clone());
        volumes.create(&PostParams::default(), &volume(name, mode)).await.unwrap();
        let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
        claims.create(&PostParams::default(), &claim(name, mode)).await.unwrap();
    }
    until(&Api::<CSINode>::all(client.clone()), "plumb", |node| !node.spec.drivers.is_empty()).await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("first")).await.unwrap();
    // The test plays external-attacher.
    let attachments = Api::<VolumeAttachment>::all(client);
    for handle in ["data", "disk"] {
        let name = plumb_csi::attachment_name(handle, DRIVER, "plumb");
        until(&attachments, &name, |_| true).await;
        assert_eq!(starts(), 0);
        let attached = Patch::Merge(json!({ "status": { "attached": true } }));
        attachments.patch_status(&name, &PatchParams::default(), &attached).await.unwrap();
    }
    eventually(async || starts() == 1).await;

    // Killed and started again: the agent takes the volumes back that it did not mount itself.
    cluster.kill();
    let cluster = start();
    let client = cluster.client().await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.delete("first", &DeleteParams::default()).await.unwrap();
    until_gone(&pods, "first").await;
    // Unmounted, and then detached.
    let attachments = Api::<VolumeAttachment>::all(client);
    for handle in ["data", "disk"] {
        until_gone(&attachments, &plumb_csi::attachment_name(handle, DRIVER, "plumb")).await;
    }
    let unstaged = driver.calls().into_iter().filter(|call| call == "NodeUnstageVolume").count();
    assert_eq!((unstaged, starts()), (2, 1));
    drop(cluster);
    machine.clear();
}
