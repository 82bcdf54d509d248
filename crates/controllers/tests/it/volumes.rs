//! Persistent volumes and their claims, as clients see them. The test plays the scheduler: it selects nodes.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use plumb_controllers::volumes::local_path;
use plumb_testkit::{event, eventually, until, until_all, until_gone};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::workloads::Cluster;

async fn create<K>(cluster: &Cluster, object: Value) -> K
where
    K: Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::all(cluster.client.clone()).create(&PostParams::default(), &object).await.unwrap()
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

fn volume(name: &str, size: &str, more: &[(&str, Value)]) -> Value {
    let mut spec = json!({
        "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": format!("/mnt/{name}") },
        "storageClassName": "manual",
    });
    for (field, value) in more {
        spec[*field] = value.clone();
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn claim(name: &str, size: &str, class: Option<&str>) -> Value {
    let resources = json!({ "requests": { "storage": size } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": class });
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn is_in(phase: &'static str) -> impl Fn(&PersistentVolumeClaim) -> bool {
    move |claim| claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

fn volume_is(phase: &'static str) -> impl Fn(&PersistentVolume) -> bool {
    move |volume| volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

fn named(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().unwrap().volume_name.as_deref().unwrap_or_default()
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<&str> {
    Some(&claim.status.as_ref()?.capacity.as_ref()?.get("storage")?.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_to_the_smallest_volume_and_a_retained_volume_is_released() {
    let cluster = Cluster::without_nodes();
    for (name, size) in [("large", "50Gi"), ("fits", "5Gi"), ("small", "1Gi")] {
        create::<PersistentVolume>(&cluster, volume(name, size, &[])).await;
        until(&volumes(&cluster), name, volume_is("Available")).await;
    }
    cluster.create::<PersistentVolumeClaim>(claim("data", "3Gi", Some("manual"))).await;
    let bound = cluster.until("data", is_in("Bound")).await;
    assert_eq!((named(&bound), capacity(&bound)), ("fits", Some("5Gi")));
    until(&volumes(&cluster), "fits", volume_is("Bound")).await;

    // A claim that waits is bound when a volume comes.
    cluster.create::<PersistentVolumeClaim>(claim("late", "70Gi", Some("manual"))).await;
    create::<PersistentVolume>(&cluster, volume("huge", "99Gi", &[])).await;
    assert_eq!(named(&cluster.until("late", is_in("Bound")).await), "huge");

    cluster.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    until(&volumes(&cluster), "fits", volume_is("Released")).await;
    // Its data is that of the former claim, so no other is bound to it until an administrator clears the reference.
    cluster.create::<PersistentVolumeClaim>(claim("data", "4Gi", Some("manual"))).await;
    assert_eq!(named(&cluster.until("data", is_in("Bound")).await), "large");
    let clear = Patch::Merge(json!({ "spec": { "claimRef": null } }));
    volumes(&cluster).patch("fits", &PatchParams::default(), &clear).await.unwrap();
    until(&volumes(&cluster), "fits", volume_is("Available")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_and_a_claim_that_name_each_other_are_bound_and_a_deleted_volume_is_a_lost_claim() {
    let cluster = Cluster::without_nodes();
    let mut reserved = claim("mine", "1Gi", Some(""));
    reserved["spec"]["volumeName"] = json!("reserved");
    cluster.create::<PersistentVolumeClaim>(reserved).await;
    let for_claim = json!({ "namespace": "default", "name": "mine" });
    let more = [("claimRef", for_claim), ("storageClassName", json!(""))];
    create::<PersistentVolume>(&cluster, volume("reserved", "1Gi", &more)).await;
    let bound = cluster.until("mine", is_in("Bound")).await;
    let annotations = bound.metadata.annotations.unwrap();
    assert_eq!(annotations["pv.kubernetes.io/bind-completed"], "yes");
    assert!(!annotations.contains_key("pv.kubernetes.io/bound-by-controller"), "a user has bound it");

    // The finalizer keeps a bound volume.
    let deleted = volumes(&cluster).delete("reserved", &DeleteParams::default()).await.unwrap();
    assert!(deleted.is_left());
    let force = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    volumes(&cluster).patch("reserved", &PatchParams::default(), &force).await.unwrap();
    cluster.until("mine", is_in("Lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_class_provisions_on_the_selected_node_grows_and_is_reclaimed() {
    let cluster = Cluster::without_nodes();
    // A claim that is older than the class gets it, too.
    cluster.create::<PersistentVolumeClaim>(claim("data", "1Gi", None)).await;
    let provisioner = cluster.writer(local_path::NAME);
    local_path::class::run(provisioner.clone()).await;
    let class = until(&Api::<StorageClass>::all(cluster.client.clone()), "local-path", |_| true).await;
    assert_eq!(class.volume_binding_mode.as_deref(), Some("WaitForFirstConsumer"));
    let has_class = |claim: &PersistentVolumeClaim| {
        claim.spec.as_ref().unwrap().storage_class_name.as_deref() == Some("local-path")
    };
    cluster.until("data", has_class).await;

    create::<Node>(
        &cluster,
        json!({ "metadata": { "name": "a", "labels": { "kubernetes.io/hostname": "a" } } }),
    )
    .await;
    let select = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "a" } } });
    cluster.merge::<PersistentVolumeClaim>("data", select).await;
    let bound = cluster.until("data", is_in("Bound")).await;
    let name = format!("pvc-{}", bound.metadata.uid.as_deref().unwrap());
    assert_eq!(named(&bound), name);

    let larger = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    cluster.merge::<PersistentVolumeClaim>("data", larger).await;
    cluster.until::<PersistentVolumeClaim>("data", |claim| capacity(claim) == Some("2Gi")).await;

    cluster.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    until_gone(&volumes(&cluster), &name).await;

    // A class that the user has deleted is not created again.
    Api::<StorageClass>::all(cluster.client.clone())
        .delete("local-path", &DeleteParams::default())
        .await
        .unwrap();
    local_path::class::run(provisioner).await;
    let left = Api::<StorageClass>::all(cluster.client.clone()).get_opt("local-path").await.unwrap();
    assert!(left.is_none());
    let marker: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-system");
    assert!(marker.get_opt(local_path::NAME).await.unwrap().is_some());
}

/// Waits for a warning about an object with this reason, whose message begins so.
async fn warning(cluster: &Cluster, name: &str, reason: &str, message: &str) {
    let is_it = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some(reason)
            && event.type_.as_deref() == Some("Warning")
            && event.message.as_deref().is_some_and(|found| found.starts_with(message))
    };
    until_all(&cluster.api::<Event>(), |all| all.values().any(is_it)).await;
}

/// A node with a directory for local volumes on a disk of this size.
fn with_disk(name: &str, size: &str) -> Value {
    let annotations =
        json!({ "plumb.dev/local-volumes": "/data/volumes-local", "plumb.dev/local-volumes-capacity": size });
    json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name }, "annotations": annotations } })
}

fn is_selected(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key("volume.kubernetes.io/selected-node"))
}

/// Selects a node for the claim `data` until something holds, as the scheduler: a provisioner that has not observed the Node
/// gives it back.
async fn select(cluster: &Cluster, node: &str, holds: impl AsyncFn(&PersistentVolumeClaim) -> bool) {
    let claims = cluster.api::<PersistentVolumeClaim>();
    let selects = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": node } } });
    eventually(async || {
        let claim = claims.get("data").await.unwrap();
        let is_done = holds(&claim).await;
        if !is_done && !is_selected(&claim) {
            cluster.merge::<PersistentVolumeClaim>("data", selects.clone()).await;
        }
        is_done
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_larger_than_the_disk_gives_its_node_back_and_does_not_grow_beyond_it() {
    let cluster = Cluster::without_nodes();
    local_path::class::run(cluster.writer(local_path::NAME)).await;
    for (name, size) in [("small", "1Gi"), ("large", "10Gi")] {
        create::<Node>(&cluster, with_disk(name, size)).await;
    }
    cluster.create::<PersistentVolumeClaim>(claim("data", "2Gi", Some("local-path"))).await;
    let why = "failed to provision volume with StorageClass \"local-path\": 2Gi is requested, and the disk of node \"small\" \
               has 1Gi";
    let events = cluster.api::<Event>();
    let is_warned = async |_: &PersistentVolumeClaim| {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.iter().any(|event| event.message.as_deref() == Some(why))
    };
    select(&cluster, "small", is_warned).await;
    warning(&cluster, "data", "ProvisioningFailed", why).await;
    cluster.until("data", |claim| !is_selected(claim)).await;
    select(&cluster, "large", async |claim: &PersistentVolumeClaim| is_in("Bound")(claim)).await;
    let bound = cluster.until("data", is_in("Bound")).await;

    let request = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
    cluster.merge::<PersistentVolumeClaim>("data", request("11Gi")).await;
    let why = format!(
        "resize volume {:?} failed: 11Gi is requested, and the disk of node \"large\" has 10Gi",
        named(&bound)
    );
    warning(&cluster, "data", "VolumeResizeFailed", &why).await;
    // The request may be lowered again, and what the claim has stays.
    cluster.merge::<PersistentVolumeClaim>("data", request("3Gi")).await;
    cluster.until::<PersistentVolumeClaim>("data", |claim| capacity(claim) == Some("3Gi")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_directory_cannot_be_removed_stays_with_an_event_until_its_node_is_deleted() {
    let cluster = Cluster::without_nodes();
    local_path::class::run(cluster.writer(local_path::NAME)).await;
    // No agent answers for it.
    create::<Node>(&cluster, with_disk("a", "10Gi")).await;
    cluster.create::<PersistentVolumeClaim>(claim("data", "2Gi", Some("local-path"))).await;
    select(&cluster, "a", async |claim: &PersistentVolumeClaim| is_in("Bound")(claim)).await;
    let name = named(&cluster.until("data", is_in("Bound")).await).to_owned();
    cluster.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    warning(&cluster, &name, "VolumeFailedDelete", "node \"a\" cannot remove the directory: ").await;
    assert!(volume_is("Released")(&volumes(&cluster).get(&name).await.unwrap()));
    Api::<Node>::all(cluster.client.clone()).delete("a", &DeleteParams::default()).await.unwrap();
    until_gone(&volumes(&cluster), &name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_deleted_while_its_pod_starts_stays_until_the_pod_is_gone() {
    let cluster = Cluster::without_nodes();
    create::<PersistentVolume>(&cluster, volume("disk", "1Gi", &[])).await;
    cluster.create::<PersistentVolumeClaim>(claim("data", "1Gi", Some("manual"))).await;
    cluster.until("data", is_in("Bound")).await;
    // It has a node, whose agent has not started it yet.
    create::<Node>(&cluster, json!({ "metadata": { "name": "a" } })).await;
    let pod = json!({ "metadata": { "name": "p" }, "spec": {
        "nodeName": "a", "tolerations": [{ "operator": "Exists" }], "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "x" }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
    } });
    cluster.create::<Pod>(pod).await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    // The controllers have observed the deletion when they have acted on a later one.
    cluster.create::<PersistentVolumeClaim>(claim("unused", "1Gi", Some("manual"))).await;
    claims.delete("unused", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "unused").await;
    let terminating = claims.get("data").await.unwrap();
    assert!(terminating.metadata.deletion_timestamp.is_some());
    assert_eq!(terminating.metadata.finalizers, Some(vec!["kubernetes.io/pvc-protection".to_owned()]));
    assert!(volume_is("Bound")(&volumes(&cluster).get("disk").await.unwrap()));

    cluster.api::<Pod>().delete("p", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "data").await;
    until(&volumes(&cluster), "disk", volume_is("Released")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_volume_has_a_claim_that_goes_with_its_pod() {
    let cluster = Cluster::without_nodes();
    let template = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let spec = json!({
        "containers": [{ "name": "c", "image": "x" }], "terminationGracePeriodSeconds": 0,
        "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } }],
    });
    cluster.create::<Pod>(json!({ "metadata": { "name": "p" }, "spec": spec })).await;
    cluster.until::<PersistentVolumeClaim>("p-scratch", |_| true).await;
    cluster.api::<Pod>().delete("p", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster.api::<PersistentVolumeClaim>(), "p-scratch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_driver_is_attached_to_one_node_and_detached_once_it_is_unmounted() {
    let cluster = Cluster::without_nodes();
    for name in ["a", "b"] {
        let annotations = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
        create::<Node>(&cluster, json!({ "metadata": { "name": name, "annotations": annotations } })).await;
    }
    let source = json!({ "driver": "d.example", "volumeHandle": "h" });
    let mut disk = volume("disk", "1Gi", &[("csi", source)]);
    disk["spec"].as_object_mut().unwrap().remove("hostPath");
    create::<PersistentVolume>(&cluster, disk).await;
    cluster.create::<PersistentVolumeClaim>(claim("data", "1Gi", Some("manual"))).await;
    cluster.until("data", is_in("Bound")).await;
    let pod = |name: &str, node: &str| {
        json!({ "metadata": { "name": name }, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "x" }],
            "tolerations": [{ "operator": "Exists" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        } })
    };
    cluster.create::<Pod>(pod("first", "a")).await;
    let attachments = Api::<VolumeAttachment>::all(cluster.client.clone());
    let name = plumb_csi::attachment_name("h", "d.example", "a");
    let attachment = until(&attachments, &name, |_| true).await;
    assert_eq!((attachment.spec.attacher.as_str(), attachment.spec.node_name.as_str()), ("d.example", "a"));

    // The test plays external-attacher.
    let finalizer = json!({ "metadata": { "finalizers": ["external-attacher/d-example"] } });
    attachments.patch(&name, &PatchParams::default(), &Patch::Merge(finalizer)).await.unwrap();
    let attached = Patch::Merge(json!({ "status": { "attached": true } }));
    attachments.patch_status(&name, &PatchParams::default(), &attached).await.unwrap();
    let nodes = Api::<Node>::all(cluster.client.clone());
    let shown = |node: &Node| {
        let attached = node.status.as_ref().and_then(|status| status.volumes_attached.clone());
        attached.unwrap_or_default().into_iter().map(|volume| volume.name).collect::<Vec<_>>()
    };
    let unique = "kubernetes.io/csi/d.example^h".to_owned();
    until(&nodes, "a", |node| shown(node) == [unique.clone()]).await;
    event(&cluster.client, "first", "SuccessfulAttachVolume", 1).await;

    // A second node does not get it.
    cluster.create::<Pod>(pod("second", "b")).await;
    let refused = event(&cluster.client, "second", "FailedAttachVolume", 1).await;
    let message = "Multi-Attach error for volume \"disk\" Volume is already used by pod(s) first";
    assert_eq!(refused.message.as_deref(), Some(message));

    // Its node still has it when the pod is deleted.
    let in_use = |names: &[&str]| {
        Patch::Merge(json!({ "status": {
        "volumesInUse": names, "conditions": [{ "type": "Ready", "status": "True" }],
    } }))
    };
    nodes.patch_status("a", &PatchParams::default(), &in_use(&[&unique])).await.unwrap();
    cluster.api::<Pod>().delete("first", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster.api::<Pod>(), "first").await;
    assert!(attachments.get(&name).await.unwrap().metadata.deletion_timestamp.is_none());
    nodes.patch_status("a", &PatchParams::default(), &in_use(&[])).await.unwrap();
    until(&attachments, &name, |attachment| attachment.metadata.deletion_timestamp.is_some()).await;
    until(&nodes, "a", |node| shown(node).is_empty()).await;
    let detached = json!({ "metadata": { "finalizers": null } });
    attachments.patch(&name, &PatchParams::default(), &Patch::Merge(detached)).await.unwrap();
    // Now the second node gets it.
    until(&attachments, &plumb_csi::attachment_name("h", "d.example", "b"), |_| true).await;
}
