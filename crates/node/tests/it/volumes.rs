//! Volumes, on this machine's file system and with an API server behind them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_node::cri_config::ConfigError;
use plumb_node::objects::Objects;
use plumb_node::volumes::{Prepared, Volumes, VolumesConfig};
use plumb_runtime::types::{Env, Mount};
use plumb_testkit::eventually;
use serde_json::{Value, json};

use super::cluster::Cluster;

pub(super) struct Node {
    pub(super) cluster: Cluster,
    pub(super) volumes: Volumes,
    objects: Objects,
    pub(super) folder: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        unmount_all(self.folder.path());
    }
}

impl Node {
    pub(super) fn start() -> Self {
        let cluster = Cluster::start();
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::new(cluster.node());
        let volumes = volumes(&cluster, folder.path(), &objects);
        Self { cluster, volumes, objects, folder }
    }

    /// A pod with these volumes, each mounted at `/<its name>`.
    pub(super) async fn pod(&self, all: Value, rest: Value) -> Pod {
        let mounts: Vec<Value> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|volume| json!({ "name": volume["name"], "mountPath": format!("/{}", volume["name"].as_str().unwrap()) }))
            .collect();
        let mut spec =
            json!({ "volumes": all, "containers": [{ "name": "c", "image": "i", "volumeMounts": mounts }] });
        for (field, value) in rest.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.cluster.pod(spec).await
    }

    /// The directory that CSI drivers know as that of the kubelet.
    pub(super) fn kubelet(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    /// Replaces the volumes by new ones on the same directories, as after a restart of the agent.
    pub(super) fn restart(&mut self) {
        self.volumes = volumes(&self.cluster, self.folder.path(), &self.objects);
    }

    pub(super) async fn prepare(&self, pod: &Pod) -> Prepared {
        self.volumes.prepare(pod).await.unwrap()
    }
}

fn volumes(cluster: &Cluster, folder: &Path, objects: &Objects) -> Volumes {
    let config = VolumesConfig {
        node: "n1".to_owned(),
        root: folder.join("pods"),
        local: folder.join("local"),
        kubelet: folder.join("kubelet"),
        objects: objects.clone(),
        allocatable: serde_json::from_value(json!({ "cpu": "4", "memory": "1Gi" })).unwrap(),
    };
    Volumes::new(config, cluster.node())
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap()
}

pub(super) fn mounts(prepared: &Prepared, pod: &Pod) -> Vec<Mount> {
    prepared.mounts(&pod.spec.as_ref().unwrap().containers[0], 0, &[]).unwrap()
}

/// The host path that a container sees at a path.
pub(super) fn at(prepared: &Prepared, pod: &Pod, path: &str) -> PathBuf {
    let mounts = mounts(prepared, pod);
    mounts.into_iter().find(|mount| mount.container_path == path).unwrap().host_path
}

pub(super) fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub(super) fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Unmounts what volumes have mounted below a folder, so that it can be removed.
pub(super) fn unmount_all(folder: &Path) {
    let Ok(folder) = fs::canonicalize(folder) else { return };
    for point in plumb_runtime::mounts_below(&folder).unwrap_or_default() {
        let _ = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Whether this test may mount; prints that it is skipped if not.
pub(super) fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can mount");
    }
    may
}

#[tokio::test(flavor = "multi_thread")]
async fn files_follow_their_objects_without_a_restart() {
    let node = Node::start();
    node.cluster.config_map("settings", json!({ "a": "1", "b": "2" })).await;
    node.cluster.secret("keys", json!({ "token": "t" })).await;
    let pod = node.pod(json!([
        { "name": "cfg", "configMap": { "name": "settings" } },
        { "name": "some", "configMap": { "name": "settings", "items": [{ "key": "a", "path": "deep/x", "mode": 0o400 }] } },
        { "name": "sec", "secret": { "secretName": "keys", "defaultMode": 0o440 } },
        { "name": "none", "configMap": { "name": "later", "optional": true } },
    ]), json!({})).await;
    let prepared = node.prepare(&pod).await;
    let see = |volume: &str, file: &str| text(at(&prepared, &pod, volume).join(file));
    assert_eq!(
        (see("/cfg", "a"), see("/cfg", "b"), see("/some", "deep/x")),
        ("1".into(), "2".into(), "1".into())
    );
    assert_eq!(see("/sec", "token"), "t");
    assert_eq!(mode(at(&prepared, &pod, "/some").join("deep/x")), 0o400);
    assert_eq!(mode(at(&prepared, &pod, "/sec").join("token")), 0o440);
    assert!(
        mounts(&prepared, &pod)
            .iter()
            .filter(|mount| mount.container_path != "/dev/termination-log")
            .all(|mount| mount.readonly)
    );

    node.cluster.config_map("settings", json!({ "a": "9" })).await;
    eventually(async || see("/cfg", "a") == "9" && see("/some", "deep/x") == "9").await;
    assert!(!at(&prepared, &pod, "/cfg").join("b").exists());
    node.cluster.config_map("later", json!({ "new": "n" })).await;
    eventually(async || see("/none", "new") == "n").await;

    assert_eq!(node.objects.watched().len(), 3);
    node.volumes.clear(uid(&pod)).await.unwrap();
    eventually(async || node.objects.watched().is_empty()).await;
    assert_eq!(node.volumes.known().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downward_api_volume_follows_its_pod() {
    let node = Node::start();
    let pod = node.pod(
        json!([{ "name": "me", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "notes", "fieldRef": { "fieldPath": "metadata.annotations" } },
            { "path": "cpu", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu", "divisor": "1m" } },
        ]}}]),
        json!({}),
    )
    .await;
    let prepared = node.prepare(&pod).await;
    let see = |file: &str| text(at(&prepared, &pod, "/me").join(file));
    assert_eq!(see("labels"), "app=\"web\"");
    assert_eq!(see("notes"), "note=\"a \\\"b\\\"\\n\"");
    assert_eq!(see("cpu"), "4000");
    let mut resized = pod.clone();
    resized.spec.as_mut().unwrap().containers[0].resources =
        serde_json::from_value(json!({ "limits": { "cpu": "1500m" } })).unwrap();
    node.volumes.refresh(&resized);
    eventually(async || see("cpu") == "1500").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_token_of_its_own() {
    let node = Node::start();
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "robot" } })).unwrap();
    let accounts = Api::default_namespaced(node.cluster.admin());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    node.cluster.config_map("ca", json!({ "ca.crt": "authority" })).await;
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
        { "configMap": { "name": "ca", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
    ]);
    let volumes = json!([{ "name": "access", "projected": { "sources": sources } }]);
    let pod = node.pod(volumes, json!({ "serviceAccountName": "robot" })).await;
    let prepared = node.prepare(&pod).await;
    let folder = at(&prepared, &pod, "/access");
    assert_eq!(text(folder.join("token")).split('.').count(), 3);
    assert_eq!(
        (text(folder.join("ca.crt")), text(folder.join("namespace"))),
        ("authority".into(), "default".into())
    );
    assert_eq!(mode(folder.join("token")), 0o644);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_source_is_reported_with_the_name_of_the_volume() {
    let node = Node::start();
    node.cluster.config_map("settings", json!({ "a": "1" })).await;
    let table = [
        (json!({ "configMap": { "name": "gone" } }), r#"configmap "gone" not found"#),
        (json!({ "secret": { "secretName": "gone" } }), r#"secret "gone" not found"#),
        (
            json!({ "configMap": { "name": "settings", "items": [{ "key": "x", "path": "x" }] } }),
            "configmap references non-existent config key: x",
        ),
        (
            json!({ "hostPath": { "path": "/proc/self/nothing", "type": "Directory" } }),
            "hostPath type check failed: /proc/self/nothing is not a directory",
        ),
    ];
    for (source, expected) in table {
        let mut volume = source.clone();
        volume["name"] = json!("v");
        let pod = node.pod(json!([volume]), json!({})).await;
        let refused = node.volumes.prepare(&pod).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("MountVolume.SetUp failed for volume \"v\" : {expected}"));
        assert_eq!(refused.event_reason(), "FailedMount");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_keep_their_files_across_a_restart_of_the_agent() {
    let node = Node::start();
    let pod = node.pod(json!([{ "name": "data", "emptyDir": {} }]), json!({})).await;
    let path = at(&node.prepare(&pod).await, &pod, "/data");
    assert_eq!(mode(&path), 0o777);
    fs::write(path.join("file"), "kept").unwrap();
    let after = volumes(&node.cluster, node.folder.path(), &node.objects);
    assert_eq!(at(&after.prepare(&pod).await.unwrap(), &pod, "/data"), path);
    assert_eq!(text(path.join("file")), "kept");
    assert_eq!(after.known().unwrap(), [uid(&pod)]);
    after.clear(uid(&pod)).await.unwrap();
    after.clear(uid(&pod)).await.unwrap();
    assert!(!path.exists());
    assert!(after.clear("../x").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_belong_to_the_pods_group() {
    if !may_mount() {
        return;
    }
    let node = Node::start();
    node.cluster.config_map("settings", json!({ "a": "1" })).await;
    let all = json!([
        { "name": "data", "emptyDir": {} },
        { "name": "cfg", "configMap": { "name": "settings", "defaultMode": 0o400 } },
    ]);
    let pod = node.pod(all, json!({ "securityContext": { "fsGroup": 1234 } })).await;
    let prepared = node.prepare(&pod).await;
    let (data, file) = (at(&prepared, &pod, "/data"), at(&prepared, &pod, "/cfg").join("a"));
    assert_eq!((fs::metadata(&data).unwrap().gid(), mode(&data)), (1234, 0o2777));
    assert_eq!((fs::metadata(&file).unwrap().gid(), mode(&file)), (1234, 0o440));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_tokens_are_in_memory_and_are_removed_with_their_pod() {
    if !may_mount() {
        return;
    }
    let node = Node::start();
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "robot" } })).unwrap();
    let accounts = Api::default_namespaced(node.cluster.admin());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    node.cluster.config_map("settings", json!({ "a": "1" })).await;
    let token = json!({ "serviceAccountToken": { "path": "token" } });
    let map = json!({ "configMap": { "name": "settings" } });
    let all = json!([
        { "name": "projected", "projected": { "sources": [token, map] } },
        { "name": "labels", "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
        { "name": "cfg", "configMap": { "name": "settings" } },
    ]);
    let pod = node.pod(all, json!({ "serviceAccountName": "robot" })).await;
    let prepared = node.prepare(&pod).await;
    let is_mounted = |path: &Path| {
        let path = path.to_str().unwrap();
        text("/proc/self/mounts").lines().any(|line| line.starts_with(&format!("tmpfs {path} tmpfs ")))
    };
    let paths = ["/projected", "/labels", "/cfg"].map(|path| at(&prepared, &pod, path));
    assert_eq!(paths.each_ref().map(|path| is_mounted(path)), [true, true, false]);
    assert_eq!((text(paths[0].join("a")).as_str(), mode(&paths[0])), ("1", 0o755));
    assert!(!text(paths[0].join("token")).is_empty());
    // An agent that is started again finds them.
    let after = volumes(&node.cluster, node.folder.path(), &node.objects);
    after.prepare(&pod).await.unwrap();
    assert_eq!(text(paths[0].join("a")), "1");
    after.clear(uid(&pod)).await.unwrap();
    assert!(paths.iter().all(|path| !is_mounted(path) && !path.exists()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_in_memory_has_its_size_and_is_removed_with_its_pod() {
    if !may_mount() {
        return;
    }
    let node = Node::start();
    let all = json!([{ "name": "shm", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }]);
    let pod = node.pod(all, json!({})).await;
    let path = at(&node.prepare(&pod).await, &pod, "/shm");
    let mounts = || text("/proc/self/mounts");
    assert!(
        mounts().lines().any(|line| line.contains(path.to_str().unwrap()) && line.contains("size=1024k"))
    );
    fs::write(path.join("x"), "y").unwrap();
    node.volumes.clear(uid(&pod)).await.unwrap();
    assert!(!mounts().contains(path.to_str().unwrap()) && !path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_stays_the_directory_that_it_was_when_it_was_resolved() {
    if !may_mount() {
        return;
    }
    let node = Node::start();
    let mounts = json!([
        { "name": "data", "mountPath": "/data" },
        { "name": "data", "mountPath": "/part", "subPath": "a/b" },
        { "name": "data", "mountPath": "/named", "subPathExpr": "of-$(NAME)" },
    ]);
    let container = json!({ "name": "c", "image": "i", "volumeMounts": mounts,
        "env": [{ "name": "NAME", "value": "x" }] });
    let pod =
        node.pod(json!([{ "name": "data", "emptyDir": {} }]), json!({ "containers": [container] })).await;
    let prepared = node.prepare(&pod).await;
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let env = [Env { name: "NAME".into(), value: "x".into() }];
    let seen = prepared.mounts(container, 0, &env).unwrap();
    let find = |path: &str| seen.iter().find(|mount| mount.container_path == path).unwrap().host_path.clone();
    let (data, part) = (find("/data"), find("/part"));
    fs::write(part.join("file"), "1").unwrap();
    assert_eq!(text(data.join("a/b/file")), "1");
    assert_eq!(mode(data.join("of-x")), 0o777);

    // Another container replaces the name by a symbolic link that leads out; the mount stays.
    fs::rename(data.join("a"), data.join("moved")).unwrap();
    symlink("/", data.join("a")).unwrap();
    assert_eq!(text(part.join("file")), "1");
    let refused = prepared.mounts(container, 1, &env).unwrap_err();
    let expected = r#"failed to prepare subPath for volumeMount "data" of container "c""#;
    assert_eq!(refused, ConfigError::Container(expected.into()));
    node.volumes.clear(uid(&pod)).await.unwrap();
    assert!(!text("/proc/self/mounts").contains(node.folder.path().to_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_the_machine_are_never_removed() {
    let node = Node::start();
    let outside = node.folder.path().join("outside");
    let source = |kind: &str, name: &str| json!({ "path": outside.join(name), "type": kind });
    let pod = node
        .pod(
            json!([
                { "name": "made", "hostPath": source("DirectoryOrCreate", "made") },
                { "name": "file", "hostPath": source("FileOrCreate", "file") },
            ]),
            json!({}),
        )
        .await;
    let prepared = node.prepare(&pod).await;
    assert_eq!(at(&prepared, &pod, "/made"), outside.join("made"));
    fs::write(outside.join("made/x"), "y").unwrap();
    node.volumes.clear(uid(&pod)).await.unwrap();
    assert_eq!(text(outside.join("made/x")), "y");
    assert!(outside.join("file").is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_of_a_container_has_its_own_termination_message() {
    let node = Node::start();
    let pod = node.pod(json!([]), json!({})).await;
    let prepared = node.prepare(&pod).await;
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let file = |attempt: u32| {
        let mounts = prepared.mounts(container, attempt, &[]).unwrap();
        let [mount] = mounts.as_slice() else { panic!("{mounts:?}") };
        assert_eq!((mount.container_path.as_str(), mount.readonly), ("/dev/termination-log", false));
        mount.host_path.clone()
    };
    let (first, second) = (file(0), file(1));
    assert_ne!(first, second);
    assert_eq!((mode(&first), text(&second)), (0o666, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_with_folders_in_folders_is_cleared_however_deep_they_are() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let node = Node::start();
    let pod = node.pod(json!([{ "name": "scratch", "emptyDir": {} }]), json!({})).await;
    let prepared = node.prepare(&pod).await;
    let folder = at(&prepared, &pod, "/scratch");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = openat(CWD, &folder, flags, Mode::empty()).unwrap();
    for _ in 0..20_000 {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
    }
    drop(here);
    node.volumes.clear(uid(&pod)).await.unwrap();
    assert!(!folder.exists() && node.volumes.known().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_follows_the_labels_and_annotations_of_its_pod() {
    let node = Node::start();
    let items = json!([
        { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
        { "path": "notes", "fieldRef": { "fieldPath": "metadata.annotations" }, "mode": 0o400 },
    ]);
    let all = json!([
        { "name": "plain", "downwardAPI": { "items": items } },
        { "name": "projected", "projected": { "sources": [{ "downwardAPI": { "items": items } }] } },
    ]);
    let pod = node.pod(all, json!({})).await;
    let prepared = node.prepare(&pod).await;
    let see = |volume: &str, file: &str| text(at(&prepared, &pod, volume).join(file));
    let volumes = ["/plain", "/projected"];
    for volume in volumes {
        assert_eq!(see(volume, "labels"), "app=\"web\"", "{volume}");
        assert_eq!(mode(at(&prepared, &pod, volume).join("notes")), 0o400, "{volume}");
    }
    let mut changed = pod.clone();
    changed.metadata.labels.as_mut().unwrap().insert("more".into(), "yes".into());
    changed.metadata.annotations = Some([("builder".to_owned(), "foo".to_owned())].into());
    node.volumes.refresh(&changed);
    for volume in volumes {
        eventually(async || see(volume, "labels") == "app=\"web\"\nmore=\"yes\"").await;
        eventually(async || see(volume, "notes") == "builder=\"foo\"").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn projected_files_follow_their_objects() {
    let node = Node::start();
    node.cluster.config_map("settings", json!({ "a": "1" })).await;
    node.cluster.secret("keys", json!({ "token": "t" })).await;
    let sources = json!([
        { "configMap": { "name": "settings" } },
        { "configMap": { "name": "later", "optional": true } },
        { "secret": { "name": "keys", "items": [{ "key": "token", "path": "deep/token", "mode": 0o440 }] } },
        { "secret": { "name": "other", "optional": true, "items": [{ "key": "b", "path": "b" }] } },
    ]);
    let item = json!([{ "key": "token", "path": "deep/token", "mode": 0o440 }]);
    let all = json!([
        { "name": "all", "projected": { "sources": sources, "defaultMode": 0o400 } },
        { "name": "key", "secret": { "secretName": "keys", "items": item, "defaultMode": 0o400 } },
        { "name": "other", "secret": { "secretName": "other", "optional": true } },
    ]);
    let pod = node.pod(all, json!({})).await;
    let prepared = node.prepare(&pod).await;
    let path = |volume: &str, file: &str| at(&prepared, &pod, volume).join(file);
    let see = |volume: &str, file: &str| text(path(volume, file));
    assert_eq!(
        (see("/all", "a"), see("/all", "deep/token"), see("/key", "deep/token")),
        ("1".into(), "t".into(), "t".into())
    );
    assert_eq!(
        (mode(path("/all", "a")), mode(path("/all", "deep/token")), mode(path("/key", "deep/token"))),
        (0o400, 0o440, 0o440)
    );
    assert!(!path("/all", "b").exists() && !path("/other", "b").exists());
    node.cluster.config_map("settings", json!({ "a": "2" })).await;
    node.cluster.config_map("later", json!({ "new": "n" })).await;
    let secrets: Api<Secret> = Api::default_namespaced(node.cluster.admin());
    let other = Patch::Merge(json!({ "stringData": { "token": "u" } }));
    secrets.patch("keys", &PatchParams::default(), &other).await.unwrap();
    node.cluster.secret("other", json!({ "b": "c" })).await;
    for (volume, file, value) in [
        ("/all", "a", "2"),
        ("/all", "new", "n"),
        ("/all", "deep/token", "u"),
        ("/key", "deep/token", "u"),
        ("/all", "b", "c"),
        ("/other", "b", "c"),
    ] {
        eventually(async || see(volume, file) == value).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_config_maps_are_mounted_at_once() {
    let node = Node::start();
    for number in 0..50 {
        node.cluster.config_map(&format!("map-{number}"), json!({ "data": number.to_string() })).await;
    }
    let volume = |number: i32| json!({ "name": format!("v{number}"), "configMap": { "name": format!("map-{number}") } });
    let all: Value = (0..50).map(volume).collect();
    let mut pods = Vec::new();
    for _ in 0..5 {
        pods.push(node.pod(all.clone(), json!({})).await);
    }
    let prepared = futures_util::future::join_all(pods.iter().map(|pod| node.prepare(pod))).await;
    for (pod, prepared) in pods.iter().zip(&prepared) {
        for number in 0..50 {
            assert_eq!(text(at(prepared, pod, &format!("/v{number}")).join("data")), number.to_string());
        }
    }
}
