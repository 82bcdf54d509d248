//! A node: containerd with its images, and the kubelet. Several nodes share the machine; each reports all of it as
//! capacity.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::process::Command;

use super::TIMEOUT;
use super::components::{self, Components};
use super::control_plane::{self, ControlPlane};
use crate::assets::{NodeAssets, Programs, RuntimeAssets};
use crate::error::{Error, IoContext as _};
use crate::image;
use crate::instance::Instance;

/// One node of a cluster: its number, from which its name, files and cgroup follow.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    instance: &'a Instance,
    /// From 1 on.
    number: u8,
}

impl<'a> Site<'a> {
    /// Every node of a cluster.
    pub(super) fn all(instance: &'a Instance) -> Vec<Self> {
        (1..=instance.nodes).map(|number| Self { instance, number }).collect()
    }

    /// The only node, or the first one.
    pub(super) fn first(instance: &'a Instance) -> Self {
        Self { instance, number: 1 }
    }

    /// The node's name; that of the first node has no number.
    pub(super) fn name(self) -> String {
        self.named("testbed-node")
    }

    fn named(self, name: &str) -> String {
        if self.number == 1 { name.to_owned() } else { format!("{name}-{}", self.number) }
    }

    /// One of its files; those of the first node are the cluster's.
    fn file(self, name: &str) -> PathBuf {
        if self.number == 1 {
            self.instance.file(name)
        } else {
            self.instance.file(self.named("node")).join(name)
        }
    }

    /// containerd's socket.
    pub(super) fn socket(self) -> PathBuf {
        self.file("containerd.sock")
    }
}

/// Writes the archive of images that every node imports.
pub(super) fn write_images(instance: &Instance, assets: &RuntimeAssets) -> Result<(), Error> {
    image::write_archive(&archive(instance), &assets.busybox, &instance.images)
}

fn archive(instance: &Instance) -> PathBuf {
    instance.file("images.tar")
}

/// What the launcher does when containerd ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    /// It ends the cluster.
    Never,
    /// It restarts containerd: tests kill it.
    Always,
}

/// Starts containerd and imports the images.
pub(super) async fn start_containerd(
    site: Site<'_>,
    assets: &RuntimeAssets,
    components: &mut Components,
    restart_policy: RestartPolicy,
) -> Result<(), Error> {
    let network = site.file("cni");
    fs::create_dir_all(&network).doing("create", &network)?;
    write(&network.join("10-testbed.conflist"), &cni_config(site.instance))?;
    let config = site.file("containerd.toml");
    write(&config, &containerd_config(site, assets, &network))?;
    let archive = archive(site.instance);

    let (program, path) = (assets.containerd.clone(), path_with(&[&assets.shim, &assets.runc]));
    let containerd = move || {
        let mut containerd = Command::new(&program);
        containerd.arg("--config").arg(&config).env("PATH", &path);
        containerd
    };
    let part = site.named("containerd");
    match restart_policy {
        RestartPolicy::Never => components.start(&part, containerd())?,
        RestartPolicy::Always => components.start_with_restarts(&part, containerd)?,
    }
    let socket = site.socket();
    components::poll("containerd's socket", TIMEOUT, async || {
        tokio::net::UnixStream::connect(&socket).await.ok()
    })
    .await?;
    let mut import = Command::new(&assets.ctr);
    import.arg("--address").arg(&socket).args(["--namespace", "k8s.io", "images", "import"]).arg(&archive);
    components.finish("importing the images", import).await
}

/// Registers the node before the kubelet does. The kubelet does not report a loopback address itself, but keeps
/// one that is in the status, as it keeps that of a cloud provider.
pub(super) async fn register(site: Site<'_>, client: &Client) -> Result<(), Error> {
    let name = site.name();
    let nodes: Api<Node> = Api::all(client.clone());
    let mut node = Node::default();
    node.metadata.name = Some(name.clone());
    let api = |doing| move |source| Error::Api { doing, source: Box::new(source) };
    nodes.create(&PostParams::default(), &node).await.map_err(api("register the node"))?;
    let addresses = json!({ "status": { "addresses": [
        { "type": "InternalIP", "address": "127.0.0.1" },
        { "type": "Hostname", "address": name },
    ] } });
    nodes
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&addresses))
        .await
        .map_err(api("set the node's address"))?;
    Ok(())
}

/// Starts the kubelet.
pub(super) fn start_kubelet(
    site: Site<'_>,
    assets: &NodeAssets,
    plane: &ControlPlane<'_>,
    components: &mut Components,
) -> Result<(), Error> {
    let (name, part) = (site.name(), site.named("kubelet"));
    let serving = plane.authority().server(&site.named("kubelet-serving"), &[&name])?;
    let user = format!("system:node:{name}");
    let kubeconfig = plane.user_kubeconfig(&part, &user, Some("system:nodes"))?;
    let [port] = control_plane::free_ports()?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "tlsCertFile": serving.certificate,
        "tlsPrivateKeyFile": serving.key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": plane.authority().identity().certificate },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", site.socket().display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", site.instance.node_cgroup(site.number)),
        "failCgroupV1": false,
        "failSwapOn": false,
        // The kubelet must not evict pods or remove images of a test when the machine is short of disk or memory.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        // A negative score needs CAP_SYS_RESOURCE, which a container for builds seldom has.
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "podLogsDir": site.file("pod-logs"),
        "volumePluginDir": site.file("volume-plugins"),
    });
    let path = site.file("kubelet.json");
    write(&path, &format!("{config:#}\n"))?;

    let (program, root) = (assets.kubelet.clone(), site.file("kubelet"));
    let search_path = path_with(&[&assets.runtime.runc]);
    // It is restarted, as systemd does: a kubelet that starts while another sets the sysctls of the machine may read
    // one of them as empty, and ends.
    components.start_with_restarts(&part, move || {
        let mut kubelet = Command::new(&program);
        kubelet.arg("--config").arg(&path).arg("--kubeconfig").arg(&kubeconfig);
        kubelet.arg("--root-dir").arg(&root);
        kubelet.args(["--hostname-override", &name, "--cloud-provider=external"]);
        kubelet.env("PATH", &search_path);
        kubelet
    })
}

/// Waits until the node is ready and has no taint.
pub(super) async fn wait_until_ready(site: Site<'_>, client: &Client) -> Result<(), Error> {
    let (nodes, name): (Api<Node>, String) = (Api::all(client.clone()), site.name());
    components::poll("readiness of the node", TIMEOUT, async || nodes.get(&name).await.ok().filter(is_ready))
        .await?;
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| {
        all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let tainted = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_ref())
        .is_some_and(|taints| taints.iter().any(|taint| taint.effect != "PreferNoSchedule"));
    // The node was registered without labels; the kubelet adds its own with its first update, and pods may select them.
    ready && !tainted && node.labels().contains_key("kubernetes.io/os")
}

fn cni_config(instance: &Instance) -> String {
    let mut routes = vec![json!({ "dst": instance.service_subnet() })];
    if let Programs::Containerd(_) = instance.programs {
        // The Services of the cluster that a test runs in it, as a default route would cover them.
        routes.push(json!({ "dst": "10.96.0.0/16" }));
    }
    let config = json!({
        "cniVersion": "0.4.0",
        "name": "testbed",
        "plugins": [{
            "type": "bridge",
            "bridge": instance.bridge(),
            "isGateway": false,
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": instance.file("cni-addresses"),
                "ranges": [[{
                    "subnet": instance.subnet_text(),
                    "rangeStart": instance.first_pod_address(),
                    "gateway": instance.gateway(),
                }]],
                "routes": routes,
            },
        }],
    });
    format!("{config:#}\n")
}

fn containerd_config(site: Site<'_>, assets: &RuntimeAssets, network: &Path) -> String {
    // A JSON string is a TOML basic string.
    let quoted = |path: &Path| json!(path).to_string();
    format!(
        r#"version = 2
root = {root}
state = {state}
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Without CAP_SYS_RESOURCE a negative score is refused; clamped, containers start all the same.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
SystemdCgroup = false

# A second handler, for pods of a RuntimeClass.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other.options]
BinaryName = {runc}
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {network}
"#,
        root = quoted(&site.file("containerd/root")),
        state = quoted(&site.file("containerd/state")),
        socket = quoted(&site.socket()),
        pause = image::PAUSE,
        runc = quoted(&assets.runc),
        plugins = quoted(&assets.cni),
        network = quoted(network),
    )
}

/// The PATH with the folders of `programs` in front.
fn path_with(programs: &[&Path]) -> OsString {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = programs.iter().filter_map(|program| program.parent()).map(PathBuf::from);
    let all: Vec<PathBuf> = folders.chain(std::env::split_paths(&inherited)).collect();
    std::env::join_paths(all).unwrap_or(inherited)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).doing("write", path)
}
