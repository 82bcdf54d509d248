//! Volumes of a CSI driver: what it is called with, and in which order, whatever is killed in between.

use std::fs;

use k8s_openapi::api::core::v1::{Node as ApiNode, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_csi::api::{
    NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnstageVolumeRequest,
};
use plumb_supervise::Supervisor;
use plumb_testkit::{DriverBehavior, TestDriver, eventually, object, until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::cluster::NODE;
use super::persistent_volumes::{add_node, bind, refusal, uses};
use super::volumes::{Node, at, may_mount, text, uid};

const DRIVER: &str = "test.csi.example";

struct Site {
    node: Node,
    driver: TestDriver,
    running: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Site {
    /// A node with a driver that does not attach; `spec` is that of its object.
    async fn start(behavior: DriverBehavior, spec: Value) -> Self {
        let node = Node::start();
        add_node(&node).await;
        let mut driver =
            json!({ "attachRequired": false, "volumeLifecycleModes": ["Persistent", "Ephemeral"] });
        driver.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let drivers = Api::<CSIDriver>::all(node.cluster.admin());
        let driver = object(json!({ "metadata": { "name": DRIVER }, "spec": driver }));
        drivers.create(&PostParams::default(), &driver).await.unwrap();
        let running = run(&node);
        let driver = TestDriver::start(DRIVER, &node.kubelet(), behavior);
        let site = Self { node, driver, running };
        site.registered().await;
        site
    }

    async fn registered(&self) {
        let nodes = Api::<CSINode>::all(self.node.cluster.admin());
        until(&nodes, NODE, |node| node.spec.drivers.iter().any(|driver| driver.name == DRIVER)).await;
    }

    /// Another agent on the same directories, as after a kill of the one before.
    async fn restart(&mut self) {
        self.running.abort();
        self.node.restart();
        self.running = run(&self.node);
        // It registers the driver anew.
        let pod = self.node.pod(json!([inline()]), json!({})).await;
        eventually(async || self.node.volumes.prepare(&pod).await.is_ok()).await;
        self.node.volumes.clear(uid(&pod)).await.unwrap();
    }

    async fn claim(&self, name: &str, more: Value) {
        let mut source = json!({ "csi": { "driver": DRIVER, "volumeHandle": format!("handle-{name}"), "fsType": "ext4" } });
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bind(&self.node, name, source).await;
    }

    async fn pod(&self, claim: &str) -> Pod {
        self.node.pod(uses(claim), json!({})).await
    }

    /// The calls about volumes so far.
    fn calls(&self) -> Vec<String> {
        self.driver.calls()
    }
}

fn run(node: &Node) -> JoinHandle<()> {
    tokio::spawn(node.volumes.run(&Supervisor::default()))
}

fn inline() -> Value {
    json!({ "name": "scratch", "csi": { "driver": DRIVER, "volumeAttributes": { "size": "1" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_registers_is_in_the_csi_node_until_its_socket_is_removed() {
    let topology = [("topology.test.csi.example/rack".to_owned(), "r1".to_owned())];
    let behavior = DriverBehavior { max_volumes: 3, topology: topology.into(), ..DriverBehavior::default() };
    let site = Site::start(behavior, json!({})).await;
    let admin = site.node.cluster.admin();
    let csi_nodes = Api::<CSINode>::all(admin.clone());
    let csi_node = csi_nodes.get(NODE).await.unwrap();
    let driver = &csi_node.spec.drivers[0];
    assert_eq!(driver.node_id, format!("id-of-{DRIVER}"));
    assert_eq!(driver.topology_keys.as_deref(), Some(&["topology.test.csi.example/rack".to_owned()][..]));
    assert_eq!(driver.allocatable.as_ref().unwrap().count, Some(3));
    let owner = &csi_node.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", NODE));
    let nodes = Api::<ApiNode>::all(admin);
    let own = nodes.get(NODE).await.unwrap();
    let ids = &own.metadata.annotations.as_ref().unwrap()["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(*ids, format!("{{\"{DRIVER}\":\"id-of-{DRIVER}\"}}"));
    assert_eq!(own.metadata.labels.as_ref().unwrap()["topology.test.csi.example/rack"], "r1");
    // A socket of someone else is not a driver.
    let _listener =
        std::os::unix::net::UnixListener::bind(site.node.kubelet().join("plugins_registry/other.sock"))
            .unwrap();
    fs::remove_file(site.node.kubelet().join(format!("plugins_registry/{DRIVER}-reg.sock"))).unwrap();
    until(&csi_nodes, NODE, |node| node.spec.drivers.is_empty()).await;
    until(&nodes, NODE, |node| {
        let annotations = node.metadata.annotations.clone().unwrap_or_default();
        !annotations.contains_key("csi.volume.kubernetes.io/nodeid")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_whose_socket_is_removed_while_it_registers_leaves_nothing_behind() {
    let site = Site::start(DriverBehavior::default(), json!({})).await;
    let csi_nodes = Api::<CSINode>::all(site.node.cluster.admin());
    for round in 0..20 {
        let name = format!("round-{round}.csi.example");
        let driver = TestDriver::start(&name, &site.node.kubelet(), DriverBehavior::default());
        // At the first sight of it: the agent is in the middle of the registration.
        until(&csi_nodes, NODE, |node| node.spec.drivers.iter().any(|driver| driver.name == name)).await;
        fs::remove_file(site.node.kubelet().join(format!("plugins_registry/{name}-reg.sock"))).unwrap();
        until(&csi_nodes, NODE, |node| node.spec.drivers.iter().all(|driver| driver.name != name)).await;
        drop(driver);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_staged_once_published_to_each_pod_and_unstaged_after_the_last() {
    if !may_mount() {
        return;
    }
    let site = Site::start(DriverBehavior::default(), json!({ "podInfoOnMount": true })).await;
    site.claim("data", json!({ "mountOptions": ["noatime"] })).await;
    let (one, other) = (site.pod("data").await, site.pod("data").await);
    let prepared = site.node.prepare(&one).await;
    let path = at(&prepared, &one, "/data");
    fs::write(path.join("row"), "1").unwrap();
    assert_eq!(text(site.driver.data("handle-data").join("row")), "1");
    let second = site.node.prepare(&other).await;
    assert_eq!(text(at(&second, &other, "/data").join("row")), "1");
    assert_eq!(site.calls(), ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]);
    let staged = &site.driver.requests::<NodeStageVolumeRequest>("NodeStageVolume")[0];
    assert!(staged.staging_target_path.ends_with("/globalmount"), "{staged:?}");
    let capability = staged.volume_capability.clone().unwrap();
    let mount = capability.mount.unwrap();
    assert_eq!((mount.fs_type.as_str(), mount.mount_flags.as_slice()), ("ext4", &["noatime".to_owned()][..]));
    // SINGLE_NODE_WRITER.
    assert_eq!(capability.access_mode.unwrap().mode, 1);
    let published = &site.driver.requests::<NodePublishVolumeRequest>("NodePublishVolume")[0];
    let target = format!("pods/{}/volumes/kubernetes.io~csi/data/mount", uid(&one));
    assert_eq!(published.target_path, site.node.kubelet().join(target).to_string_lossy());
    let info = |key: &str| published.volume_context[&format!("csi.storage.k8s.io/{key}")].as_str();
    assert_eq!((info("pod.uid"), info("ephemeral")), (uid(&one), "false"));

    site.node.volumes.clear(uid(&one)).await.unwrap();
    assert_eq!(site.calls().last().unwrap(), "NodeUnpublishVolume");
    site.node.volumes.clear(uid(&other)).await.unwrap();
    eventually(async || site.calls().last().is_some_and(|call| call == "NodeUnstageVolume")).await;
    let unstaged = &site.driver.requests::<NodeUnstageVolumeRequest>("NodeUnstageVolume");
    assert_eq!((unstaged.len(), &unstaged[0].staging_target_path), (1, &staged.staging_target_path));
    assert_eq!(site.node.volumes.known().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_killed_between_two_calls_finishes_after_its_restart() {
    if !may_mount() {
        return;
    }
    let mut site = Site::start(DriverBehavior::default(), json!({})).await;
    site.claim("data", json!({})).await;
    // Killed after the volume was staged: publishing hangs.
    site.driver.set(|behavior| behavior.hangs = Some("NodePublishVolume"));
    let pod = site.pod("data").await;
    let (volumes, preparing) = (site.node.volumes.clone(), pod.clone());
    let killed = tokio::spawn(async move { volumes.prepare(&preparing).await.map(drop) });
    eventually(async || site.calls() == ["NodeStageVolume", "NodePublishVolume"]).await;
    killed.abort();
    site.driver.set(|behavior| behavior.hangs = None);
    site.restart().await;
    // Its pod does not exist any more: both are undone.
    assert_eq!(site.node.volumes.known().unwrap(), [uid(&pod)]);
    site.node.volumes.clear(uid(&pod)).await.unwrap();
    eventually(async || site.calls().iter().filter(|call| *call == "NodeUnstageVolume").count() == 1).await;

    // Killed after the volume was taken back from its pod: unstaging fails.
    let pod = site.pod("data").await;
    site.node.prepare(&pod).await;
    site.driver.set(|behavior| behavior.fails = Some(("NodeUnstageVolume", 13)));
    site.node.volumes.clear(uid(&pod)).await.unwrap();
    eventually(async || site.calls().iter().filter(|call| *call == "NodeUnstageVolume").count() > 1).await;
    site.driver.set(|behavior| behavior.fails = None);
    let before = site.calls().iter().filter(|call| *call == "NodeUnstageVolume").count();
    site.restart().await;
    eventually(async || site.calls().iter().filter(|call| *call == "NodeUnstageVolume").count() > before)
        .await;
    let staging = site.node.kubelet().join("plugins/kubernetes.io/csi").join(DRIVER);
    eventually(async || fs::read_dir(&staging).unwrap().next().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_in_a_pod_is_published_with_a_handle_of_its_own_and_ends_with_it() {
    if !may_mount() {
        return;
    }
    let tokens = json!({ "tokenRequests": [{ "audience": "vault", "expirationSeconds": 600 }], "podInfoOnMount": true });
    let site = Site::start(DriverBehavior::default(), tokens).await;
    let accounts = Api::<ServiceAccount>::default_namespaced(site.node.cluster.admin());
    let account = object(json!({ "metadata": { "name": "robot" } }));
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let pod = site.node.pod(json!([inline()]), json!({ "serviceAccountName": "robot" })).await;
    let prepared = site.node.prepare(&pod).await;
    fs::write(at(&prepared, &pod, "/scratch").join("x"), "").unwrap();
    let request = &site.driver.requests::<NodePublishVolumeRequest>("NodePublishVolume")[0];
    assert!(request.volume_id.starts_with("csi-") && request.staging_target_path.is_empty(), "{request:?}");
    assert_eq!(request.volume_context["size"], "1");
    assert_eq!(request.volume_context["csi.storage.k8s.io/ephemeral"], "true");
    let tokens: Value =
        serde_json::from_str(&request.volume_context["csi.storage.k8s.io/serviceAccount.tokens"]).unwrap();
    assert!(tokens["vault"]["token"].is_string() && tokens["vault"]["expirationTimestamp"].is_string());
    site.node.volumes.clear(uid(&pod)).await.unwrap();
    assert_eq!(site.calls(), ["NodePublishVolume", "NodeUnpublishVolume"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_delays_no_pod_without_its_volumes() {
    if !may_mount() {
        return;
    }
    let site = Site::start(DriverBehavior::default(), json!({})).await;
    for name in ["stuck", "works"] {
        site.claim(name, json!({})).await;
    }
    site.driver.set(|behavior| behavior.hangs = Some("NodeStageVolume"));
    let (volumes, pod) = (site.node.volumes.clone(), site.pod("stuck").await);
    let stuck = tokio::spawn(async move { volumes.prepare(&pod).await.map(drop) });
    eventually(async || site.calls() == ["NodeStageVolume"]).await;
    // Neither another volume of the driver nor one in a pod waits for it.
    let pod = site.node.pod(json!([inline()]), json!({})).await;
    site.node.prepare(&pod).await;
    assert!(!stuck.is_finished());
    site.driver.set(|behavior| behavior.hangs = None);
    stuck.await.unwrap().unwrap();
    let pod = site.pod("works").await;
    site.node.prepare(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_in_use_before_it_is_mounted_and_mounted_once_it_is_attached() {
    if !may_mount() {
        return;
    }
    let site = Site::start(DriverBehavior::default(), json!({ "attachRequired": true })).await;
    site.claim("data", json!({})).await;
    let admin = site.node.cluster.admin();
    let (volumes, pod) = (site.node.volumes.clone(), site.pod("data").await);
    let preparing = pod.clone();
    let mounting = tokio::spawn(async move { volumes.prepare(&preparing).await.map(drop) });
    let nodes = Api::<ApiNode>::all(admin.clone());
    let in_use = |node: &ApiNode| {
        node.status.as_ref().and_then(|status| status.volumes_in_use.clone()).unwrap_or_default()
    };
    let name = format!("kubernetes.io/csi/{DRIVER}^handle-data");
    until(&nodes, NODE, |node| in_use(node) == [name.clone()]).await;
    assert!(site.calls().is_empty() && !mounting.is_finished());
    let attachments = Api::<VolumeAttachment>::all(admin);
    let attachment = plumb_csi::attachment_name("handle-data", DRIVER, NODE);
    let object = object(json!({
        "metadata": { "name": attachment },
        "spec": { "attacher": DRIVER, "nodeName": NODE, "source": { "persistentVolumeName": "data" } },
    }));
    attachments.create(&PostParams::default(), &object).await.unwrap();
    let attached = json!({ "status": { "attached": true, "attachmentMetadata": { "device": "/dev/x" } } });
    let params = PatchParams::default();
    attachments.patch_status(&attachment, &params, &Patch::Merge(attached)).await.unwrap();
    mounting.await.unwrap().unwrap();
    let staged = &site.driver.requests::<NodeStageVolumeRequest>("NodeStageVolume")[0];
    assert_eq!(staged.publish_context["device"], "/dev/x");
    site.node.volumes.clear(uid(&pod)).await.unwrap();
    until(&nodes, NODE, |node| in_use(node).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_its_controller_has_grown_is_expanded_on_the_node() {
    if !may_mount() {
        return;
    }
    let site = Site::start(DriverBehavior::default(), json!({})).await;
    site.claim("data", json!({ "capacity": { "storage": "2Gi" } })).await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(site.node.cluster.admin());
    let pending = json!({ "type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "capacity": { "storage": "1Gi" }, "conditions": [pending] } });
    claims.patch_status("data", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let pod = site.pod("data").await;
    site.node.prepare(&pod).await;
    let expanded = &site.driver.requests::<NodeExpandVolumeRequest>("NodeExpandVolume")[0];
    assert_eq!(expanded.capacity_range.unwrap().required_bytes, 2 << 30);
    let status = claims.get("data").await.unwrap().status.unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "2Gi");
    assert_eq!(status.conditions.unwrap_or_default(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_volume_is_a_device_of_the_container_and_never_a_mount() {
    if !may_mount() {
        return;
    }
    let site = Site::start(DriverBehavior::default(), json!({})).await;
    site.claim("disk", json!({ "volumeMode": "Block" })).await;
    let pod = site.pod("disk").await;
    let prepared = site.node.prepare(&pod).await;
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let refused = prepared.mounts(container, 0, &[]).unwrap_err().to_string();
    assert_eq!(refused, "volume data has volumeMode Block, but is specified in volumeMounts");
    let mut container = container.clone();
    container.volume_mounts = None;
    container.volume_devices = Some(vec![object(json!({ "name": "data", "devicePath": "/dev/data" }))]);
    let devices = prepared.devices(&container).unwrap();
    assert_eq!((devices.len(), devices[0].container_path.as_str()), (1, "/dev/data"));
    let kind = std::os::unix::fs::FileTypeExt::is_block_device(
        &fs::metadata(&devices[0].host_path).unwrap().file_type(),
    );
    assert!(kind);
    let published = &site.driver.requests::<NodePublishVolumeRequest>("NodePublishVolume")[0];
    assert!(published.volume_capability.as_ref().unwrap().block.is_some());
    site.node.volumes.clear(uid(&pod)).await.unwrap();
    assert!(!devices[0].host_path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_driver_is_that_of_the_pod() {
    let site = Site::start(
        DriverBehavior { fails: Some(("NodeStageVolume", 8)), ..DriverBehavior::default() },
        json!({}),
    )
    .await;
    site.claim("data", json!({})).await;
    let pod = site.pod("data").await;
    let refused = refusal(&site.node, &pod).await;
    assert_eq!(
        refused,
        "MountVolume.SetUp failed for volume \"data\" : rpc error: code = ResourceExhausted desc = the test says so"
    );
}
