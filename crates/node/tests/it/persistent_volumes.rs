//! Persistent volumes: what a claim is bound to is what containers see, and what is removed with it is no more than that.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use k8s_openapi::api::core::v1::{Node as ApiNode, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_node::cri_config::ConfigError;
use plumb_node::volumes::LocalVolumeError;
use plumb_testkit::object;
use rustix::mount::{MountFlags, mount, mount_remount};
use serde_json::{Value, json};

use super::cluster::NODE;
use super::volumes::{Node, at, may_mount, mode, mounts, text, uid};

/// A claim of this name that is bound to a volume of this name, with the source that the volume has.
pub(super) async fn bind(node: &Node, name: &str, source: Value) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
        "resources": { "requests": { "storage": "1Gi" } },
    });
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(node.cluster.admin());
    let claim = object(json!({ "metadata": { "name": name }, "spec": spec }));
    let claim: PersistentVolumeClaim = claims.create(&PostParams::default(), &claim).await.unwrap();
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
    claims.patch_status(name, &PatchParams::default(), &bound).await.unwrap();
    let mut volume = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "claimRef": { "namespace": "default", "name": name, "uid": claim.metadata.uid },
        },
    });
    for (field, value) in source.as_object().unwrap() {
        match field.as_str() {
            "metadata" => volume["metadata"]["annotations"] = value["annotations"].clone(),
            field => volume["spec"][field] = value.clone(),
        }
    }
    let volumes = Api::<PersistentVolume>::all(node.cluster.admin());
    volumes.create(&PostParams::default(), &object(volume)).await.unwrap();
}

pub(super) async fn add_node(node: &Node) {
    let own = json!({ "metadata": { "name": NODE, "labels": { "kubernetes.io/hostname": NODE } } });
    let nodes = Api::<ApiNode>::all(node.cluster.admin());
    nodes.create(&PostParams::default(), &object(own)).await.unwrap();
}

/// A `local` volume of a node, like those of the provisioner.
fn provisioned(node: &Node, name: &str, on: &str) -> Value {
    let term = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [on] });
    json!({
        "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "plumb.dev/local-path" } },
        "local": { "path": node.folder.path().join("local").join(name) },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [term] }] } },
    })
}

pub(super) fn uses(claim: &str) -> Value {
    json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }])
}

pub(super) async fn refusal(node: &Node, pod: &Pod) -> String {
    node.volumes.prepare(pod).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provisioned_directory_outlives_its_pods_and_is_removed_when_none_has_it() {
    let node = Node::start();
    add_node(&node).await;
    bind(&node, "pvc-1", provisioned(&node, "pvc-1", NODE)).await;
    let pod = node.pod(uses("pvc-1"), json!({})).await;
    let prepared = node.prepare(&pod).await;
    let path = at(&prepared, &pod, "/data");
    assert_eq!((path.clone(), mode(&path)), (node.folder.path().join("local/pvc-1"), 0o777));
    fs::write(path.join("row"), "1").unwrap();
    // What a container has put there leads nowhere.
    let outside = node.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    symlink(&outside, path.join("link")).unwrap();
    assert!(matches!(node.volumes.remove_local("pvc-1").await, Err(LocalVolumeError::InUse(_))));
    node.volumes.clear(uid(&pod)).await.unwrap();

    let next = node.pod(uses("pvc-1"), json!({})).await;
    let prepared = node.prepare(&next).await;
    assert_eq!(text(at(&prepared, &next, "/data").join("row")), "1");
    node.volumes.clear(uid(&next)).await.unwrap();
    node.volumes.remove_local("pvc-1").await.unwrap();
    node.volumes.remove_local("pvc-1").await.unwrap();
    assert!(!path.exists() && outside.join("kept").exists());
    assert!(matches!(node.volumes.remove_local("../outside").await, Err(LocalVolumeError::Name(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_claim_with_the_words_of_the_kubelet() {
    let node = Node::start();
    add_node(&node).await;
    let pod = node.pod(uses("later"), json!({})).await;
    let refused = node.volumes.prepare(&pod).await.unwrap_err();
    assert_eq!(refused.event_reason(), "FailedMount");
    assert!(matches!(&refused, ConfigError::Claim { volume, .. } if volume == "data"));
    let begin = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process \
                 volumes=[data]: error processing PVC default/later: ";
    let said = refused.to_string();
    assert!(said.starts_with(&format!("{begin}failed to fetch PVC from API server: ")), "{said}");
    let claim = json!({ "metadata": { "name": "later" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    } });
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(node.cluster.admin());
    claims.create(&PostParams::default(), &object(claim)).await.unwrap();
    assert_eq!(refusal(&node, &pod).await, format!("{begin}PVC is not bound"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_this_node_does_not_have_is_refused() {
    let node = Node::start();
    add_node(&node).await;
    let missing = node.folder.path().join("missing");
    for (name, source, why) in [
        ("elsewhere", provisioned(&node, "elsewhere", "other"), "no matching NodeSelectorTerms".to_owned()),
        (
            "driver",
            json!({ "csi": { "driver": "x.example", "volumeHandle": "1" } }),
            "driver name x.example not found in the list of registered CSI drivers".to_owned(),
        ),
        (
            "block",
            json!({ "hostPath": { "path": "/tmp" }, "volumeMode": "Block" }),
            "volumeMode Block is not supported for volumes of kind hostPath".to_owned(),
        ),
        (
            "typed",
            json!({ "hostPath": { "path": missing, "type": "Directory" } }),
            format!("hostPath type check failed: {} is not a directory", missing.display()),
        ),
    ] {
        bind(&node, name, source).await;
        let pod = node.pod(uses(name), json!({})).await;
        let expected = format!("MountVolume.SetUp failed for volume {name:?} : {why}");
        assert_eq!(refusal(&node, &pod).await, expected);
    }
    assert!(!node.folder.path().join("local/elsewhere").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_volume_is_mounted_read_only_and_with_the_group_that_the_pod_asks_for() {
    let node = Node::start();
    add_node(&node).await;
    let disk = node.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("old"), "").unwrap();
    let group = if rustix::process::geteuid().is_root() { 4711 } else { rustix::process::getegid().as_raw() };
    let mut local = provisioned(&node, "disk", NODE);
    local["local"]["path"] = json!(disk);
    local["metadata"] = json!({ "annotations": {} });
    bind(&node, "disk", local).await;

    let read_only =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "disk", "readOnly": true } }]);
    let security = json!({ "securityContext": { "fsGroup": group } });
    let pod = node.pod(read_only, security.clone()).await;
    let before = fs::metadata(&disk).unwrap().mode();
    let prepared = node.prepare(&pod).await;
    assert!(mounts(&prepared, &pod).iter().any(|mount| mount.container_path == "/data" && mount.readonly));
    assert_eq!(fs::metadata(&disk).unwrap().mode(), before);

    let pod = node.pod(uses("disk"), security).await;
    node.prepare(&pod).await;
    let old = fs::metadata(disk.join("old")).unwrap();
    assert_eq!((old.gid(), old.mode() & 0o660), (group, 0o660));
    assert_eq!(mode(&disk) & 0o2070, 0o2070);

    // The root has the group already, so that its files are left alone.
    fs::write(disk.join("new"), "").unwrap();
    let new = fs::metadata(disk.join("new")).unwrap().mode();
    let once = json!({ "securityContext": { "fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch" } });
    let pod = node.pod(uses("disk"), once).await;
    node.prepare(&pod).await;
    assert_eq!(fs::metadata(disk.join("new")).unwrap().mode(), new);
    // The directory of an administrator is never removed.
    node.volumes.clear(uid(&pod)).await.unwrap();
    node.volumes.remove_local("disk").await.unwrap();
    assert!(disk.join("old").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_or_read_only_is_named_to_the_pod_and_loses_nothing() {
    if !may_mount() {
        return;
    }
    let node = Node::start();
    add_node(&node).await;
    for name in ["pvc-1", "pvc-2"] {
        bind(&node, name, provisioned(&node, name, NODE)).await;
    }
    // The directory itself, one volume and one file: then it is full.
    let disk = node.folder.path().join("local");
    fs::create_dir(&disk).unwrap();
    mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), c"nr_inodes=3").unwrap();
    let first = node.pod(uses("pvc-1"), json!({})).await;
    let prepared = node.prepare(&first).await;
    fs::write(at(&prepared, &first, "/data").join("row"), "1").unwrap();
    let second = node.pod(uses("pvc-2"), json!({})).await;
    let failed = "MountVolume.SetUp failed for volume \"pvc-2\" : ";
    let full = format!("{failed}No space left on device (os error 28)");
    assert_eq!(refusal(&node, &second).await, full);

    mount_remount(&disk, MountFlags::RDONLY, c"").unwrap();
    let read_only = format!("{failed}Read-only file system (os error 30)");
    assert_eq!(refusal(&node, &second).await, read_only);
    let again = node.pod(uses("pvc-1"), json!({})).await;
    let prepared = node.prepare(&again).await;
    assert_eq!(text(at(&prepared, &again, "/data").join("row")), "1");

    mount_remount(&disk, MountFlags::empty(), c"nr_inodes=9").unwrap();
    node.prepare(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_deleted_while_its_pod_starts_is_not_mounted_and_stays_with_a_pod_that_runs() {
    let node = Node::start();
    add_node(&node).await;
    bind(&node, "pvc-1", provisioned(&node, "pvc-1", NODE)).await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(node.cluster.admin());
    // As if another pod had it.
    let kept = Patch::Merge(json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] } }));
    claims.patch("pvc-1", &PatchParams::default(), &kept).await.unwrap();
    claims.delete("pvc-1", &DeleteParams::default()).await.unwrap();
    let mut pod = node.pod(uses("pvc-1"), json!({})).await;
    let refused = refusal(&node, &pod).await;
    assert!(refused.ends_with("error processing PVC default/pvc-1: PVC is being deleted"), "{refused}");
    assert!(!node.folder.path().join("local/pvc-1").exists());
    // An agent that was restarted finds it with its pod.
    pod.status.get_or_insert_default().phase = Some("Running".to_owned());
    let prepared = node.prepare(&pod).await;
    assert!(at(&prepared, &pod, "/data").exists());
}
