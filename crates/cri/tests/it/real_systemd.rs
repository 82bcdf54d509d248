//! The cgroup driver systemd against the systemd that is the init process of this machine: `.ci/cgroup2` boots one.
//!
//! The runtime is a fake one, for which `systemd-run` starts a scope in the slice of a pod, or a containerd that the machine
//! has: one of the testbed is in a PID namespace, and systemd knows processes by their ids outside of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plumb_cri::systemd::{Systemd, UnitManager};
use plumb_cri::{CgroupDriver, Config, Cri, REQUEST_TIMEOUT, api};
use plumb_resize::cgroup::{DEFAULT_PERIOD, actual_cpu_limit};
use plumb_runtime::cgroup::{Layout, Version};
use plumb_runtime::image::Load;
use plumb_runtime::types::{
    ContainerConfig, ContainerMeta, LinuxResources, NamespaceMode, PodMeta, QosClass, SandboxConfig,
    SandboxId,
};
use plumb_runtime::{Confirmation, Runtime as _};

use crate::fake::Fake;
use crate::node::{MIB, eventually, figures, resources};

/// The variable with the endpoint of a containerd that has `SystemdCgroup = true`, and takes `plumb/pause` for sandboxes.
const CONTAINERD: &str = "PLUMB_SYSTEMD_CONTAINERD";

/// A client of a fake runtime, and real slices of its own.
struct Site {
    fake: Fake,
    cluster: String,
    runtime: Cri,
}

impl Site {
    /// `None` where systemd does not run.
    async fn start(name: &str) -> Option<Self> {
        if !has_systemd() {
            return None;
        }
        let fake = Fake::start();
        fake.answer("RunPodSandbox", &api::RunPodSandboxResponse { pod_sandbox_id: "s".into() });
        for call in ["StopPodSandbox", "RemovePodSandbox", "UpdateContainerResources"] {
            fake.answer(call, &api::Empty {});
        }
        let cluster = format!("plumb-test-{name}-{}", std::process::id());
        let runtime = Self::client(&fake, &cluster).await;
        Some(Self { fake, cluster, runtime })
    }

    async fn client(fake: &Fake, cluster: &str) -> Cri {
        let config = Config {
            cluster: cluster.to_owned(),
            cgroup_driver: CgroupDriver::Systemd,
            ..fake.config(Layout::detect().unwrap())
        };
        Cri::open(config, plumb_supervise::process()).await.unwrap()
    }

    async fn restart(&mut self) {
        self.runtime = Self::client(&self.fake, &self.cluster).await;
    }

    async fn sandbox(&self, resources: LinuxResources) -> SandboxId {
        let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "1-2".into(), attempt: 0 };
        let config = SandboxConfig { resources, ..SandboxConfig::new(meta, QosClass::Burstable) };
        self.runtime.run_sandbox(config).await.unwrap()
    }

    async fn actual(&self, id: &SandboxId) -> LinuxResources {
        self.runtime.sandbox_resources(id).await.unwrap().expect("the pod has a cgroup")
    }

    fn root(&self) -> String {
        self.cluster.replace('-', "_")
    }

    fn pod(&self) -> String {
        format!("{}-burstable-pod1_2.slice", self.root())
    }

    /// The cgroup of the pod, in the hierarchy of the memory controller.
    fn folder(&self) -> PathBuf {
        let mount = match Layout::detect().unwrap().version() {
            Version::V1 => "/sys/fs/cgroup/memory",
            Version::V2 => "/sys/fs/cgroup",
        };
        let root = self.root();
        Path::new(mount).join(format!("{root}.slice/{root}-burstable.slice/{}", self.pod()))
    }

    /// Starts a scope in the slice of the pod, as containerd does for a container.
    async fn scope(&self) -> Child {
        let scope = Command::new("systemd-run")
            .args(["--scope", "--quiet", "--unit", "cri-containerd-c.scope", "--slice", &self.pod()])
            .args(["--property", "Delegate=yes", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let folder = self.folder().join("cri-containerd-c.scope");
        eventually(async || fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|all| !all.is_empty()))
            .await;
        let annotations = [("plumb.dev/cgroup", "Burstable/1-2"), ("plumb.dev/sandbox", "s")];
        let status = api::ContainerStatus {
            id: "c".into(),
            state: api::ContainerState::Running.into(),
            annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Default::default()
        };
        self.fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
        scope
    }
}

/// Whether systemd is the init process, and this is root. Otherwise the test is skipped.
fn has_systemd() -> bool {
    let has = Path::new("/run/systemd/system").is_dir() && nix::unistd::geteuid().is_root();
    if !has {
        plumb_testkit::skip(plumb_testkit::SYSTEMD, "it takes systemd as the init process, and root");
    }
    has
}

fn systemctl(args: &[&str]) -> String {
    let done = Command::new("systemctl").args(args).output().unwrap();
    assert!(done.status.success(), "systemctl {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn property(unit: &str, name: &str) -> String {
    systemctl(&["show", "--value", "--property", name, unit]).trim().to_owned()
}

/// The figures of resources after systemd may have rounded the quota.
fn rounded(read: &LinuxResources, written: i64) -> (Option<i64>, Option<u64>, Option<i64>) {
    let limit = actual_cpu_limit(read.cpu_quota, read.cpu_period.unwrap_or(DEFAULT_PERIOD), Some(written));
    (limit, read.cpu_shares, read.memory_limit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_resized_stays_resized_when_systemd_is_reloaded() {
    let Some(mut site) = Site::start("pod").await else { return };
    let id = site.sandbox(resources(250, 64)).await;
    assert_eq!(figures(&site.actual(&id).await), figures(&resources(250, 64)));
    let mut scope = site.scope().await;
    let pod = site.pod();
    assert_eq!(property("cri-containerd-c.scope", "Slice"), pod);

    // A fraction that systemd rounds.
    site.runtime.update_sandbox_resources(&id, &resources(505, 128)).await.unwrap();
    assert_eq!(figures(&site.actual(&id).await), figures(&resources(505, 128)));
    systemctl(&["daemon-reload"]);
    let expected = (Some(505), resources(505, 128).cpu_shares, Some(128 * MIB));
    assert_eq!(rounded(&site.actual(&id).await, 505), expected, "after a reload");
    let memory = match Layout::detect().unwrap().version() {
        Version::V1 => "MemoryLimit",
        Version::V2 => "MemoryMax",
    };
    assert_eq!(property(&pod, memory), (128 * MIB).to_string());
    assert_eq!(property(&pod, "CPUQuotaPerSecUSec"), "510ms");
    // What is written to a file alone does not outlive a reload.
    if memory == "MemoryMax" {
        fs::write(site.folder().join("memory.max"), (200 * MIB).to_string()).unwrap();
        systemctl(&["daemon-reload"]);
        assert_eq!(site.actual(&id).await.memory_limit, Some(128 * MIB));
    }

    // The container is found in its scope.
    site.runtime.update_container_resources(&"c".into(), &resources(100, 32).into()).await.unwrap();
    let found = site.runtime.container_resources(&"c".into()).await.unwrap().unwrap();
    assert_eq!(figures(found.linux().unwrap()), figures(&resources(100, 32)));
    assert_eq!(site.runtime.reclaim_memory(&"c".into(), 0).await.err(), None);

    // It is not on the bus for a moment.
    systemctl(&["daemon-reexec"]);
    site.runtime.update_sandbox_resources(&id, &resources(300, 96)).await.unwrap();
    assert_eq!(figures(&site.actual(&id).await), figures(&resources(300, 96)));

    // So does an agent that starts again.
    site.restart().await;
    let id = site.sandbox(resources(300, 96)).await;
    assert_eq!(figures(&site.actual(&id).await), figures(&resources(300, 96)));
    assert_eq!(property(&pod, memory), (96 * MIB).to_string());

    // The process in the scope is killed with the pod.
    site.runtime.remove_sandbox(&id).await.unwrap();
    assert!(!site.folder().exists(), "{}", site.folder().display());
    assert_eq!(property(&pod, "ActiveState"), "inactive");
    assert!(!scope.wait().unwrap().success());
    let root = format!("{}.slice", site.root());
    assert_eq!(property(&root, "ActiveState"), "active");
    site.runtime.clear().await.unwrap();
    assert_eq!(property(&root, "ActiveState"), "inactive");
    assert!(!site.folder().ancestors().nth(2).unwrap().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_start_and_end_at_once() {
    let Some(site) = Site::start("many").await else { return };
    let units = Systemd::of_this_machine();
    let root = site.root();
    let names: Vec<String> = (0..40).map(|number| format!("{root}-burstable-pod{number}.slice")).collect();
    let all = names.iter().map(|name| units.start(name, &[]));
    let started = futures_util::future::join_all(all).await;
    assert!(started.iter().all(|started| started == &Ok(true)), "{started:?}");
    let stopped = futures_util::future::join_all(names.iter().map(|name| units.stop(name))).await;
    assert!(stopped.iter().all(Result::is_ok), "{stopped:?}");
    // One that does not exist is stopped.
    units.stop(&names[0]).await.unwrap();
    site.runtime.clear().await.unwrap();
}

/// An image of busybox with arguments.
fn busybox(name: &str, args: &[&str]) -> Load {
    let program = PathBuf::from("/usr/bin/busybox");
    Load {
        name: name.into(),
        program,
        called: "busybox".into(),
        args: args.iter().map(|&arg| arg.into()).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_containerd_is_resized_in_its_scope() {
    if !has_systemd() {
        return;
    }
    let Ok(endpoint) = std::env::var(CONTAINERD) else {
        plumb_testkit::skip(
            plumb_testkit::SYSTEMD,
            "it takes a containerd that PLUMB_SYSTEMD_CONTAINERD names",
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        endpoint,
        image_endpoint: None,
        cluster: format!("plumb-test-containerd-{}", std::process::id()),
        folder: folder.path().to_owned(),
        cgroups: Layout::detect().unwrap(),
        cgroup_driver: CgroupDriver::Systemd,
        request_timeout: REQUEST_TIMEOUT,
    };
    let root = format!("{}.slice", config.cluster.replace('-', "_"));
    let runtime = Cri::open(config, plumb_supervise::process()).await.unwrap();
    for load in [busybox("plumb/pause", &["sleep", "infinity"]), busybox("plumb/busybox", &[])] {
        assert!(runtime.import_load(&load).await.unwrap());
    }
    let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "1-2".into(), attempt: 0 };
    let mut sandbox = SandboxConfig::new(meta, QosClass::Guaranteed);
    sandbox.namespaces.network = NamespaceMode::Node;
    sandbox.resources = resources(500, 128);
    let pod = runtime.run_sandbox(sandbox).await.unwrap();
    let container = ContainerConfig {
        meta: ContainerMeta { name: "c".into(), attempt: 0 },
        image: "plumb/busybox".into(),
        args: vec!["sleep".into(), "infinity".into()],
        resources: resources(250, 64).into(),
        ..ContainerConfig::default()
    };
    let id = runtime.create_container(&pod, container).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let scope = format!("cri-containerd-{id}.scope");
    let slice = root.replace(".slice", "-pod1_2.slice");
    assert_eq!((property(&scope, "ActiveState").as_str(), property(&scope, "Slice")), ("active", slice));
    let actual = async || {
        let read = runtime.container_resources(&id).await.unwrap().expect("it runs");
        let read = read.linux().unwrap().clone();
        (read.cpu_quota, read.memory_limit)
    };
    runtime.container_status(&id).await.unwrap();
    assert_eq!(actual().await, (Some(25_000), Some(64 * MIB)));

    let to = resources(300, 96);
    runtime.update_container_resources(&id, &to.clone().into()).await.unwrap();
    assert_eq!(actual().await, (to.cpu_quota, to.memory_limit));
    eventually(async || runtime.confirmation(&id) == Confirmation::Confirmed).await;
    systemctl(&["daemon-reload"]);
    assert_eq!(actual().await, (to.cpu_quota, to.memory_limit), "after a reload");
    runtime.update_sandbox_resources(&pod, &resources(600, 256)).await.unwrap();
    assert_eq!(actual().await, (to.cpu_quota, to.memory_limit), "the pod's are its own");
    let used = runtime.sandbox_stats(&pod).await.unwrap();
    assert_eq!(used.containers.len(), 1, "{used:?}");

    runtime.remove_sandbox(&pod).await.unwrap();
    assert_eq!(property(&scope, "ActiveState"), "inactive");
    runtime.clear().await.unwrap();
    assert_eq!(property(&root, "ActiveState"), "inactive");
}
