//! A containerd of the testbed, and clients of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_cri::{CgroupDriver, Config, Cri, REQUEST_TIMEOUT};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::types::{
    ContainerChange, ContainerConfig, ContainerId, ContainerMeta, Event, LinuxResources, PodMeta, QosClass,
    SandboxConfig, SandboxId,
};
use plumb_runtime::{Events, Runtime as _};
use plumb_testbed::{BUSYBOX, Containerd};

pub(crate) const MIB: i64 = 1 << 20;
/// How long anything may take on a loaded machine; no test waits that long unless it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);

/// A containerd and a client of it.
pub(crate) struct Node {
    pub(crate) containerd: Arc<Containerd>,
    pub(crate) runtime: Cri,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with_timeout(REQUEST_TIMEOUT).await
    }

    /// The same with calls that may take so long.
    pub(crate) async fn with_timeout(timeout: Duration) -> Self {
        let containerd =
            Containerd::start().await.expect("containerd starts; `testbed obtain --packages` gets it");
        let containerd = Arc::new(containerd);
        let runtime = client(&containerd, "one", timeout).await;
        Self { containerd, runtime }
    }

    /// Another client of the same containerd, of the cluster of this name.
    pub(crate) async fn client(&self, cluster: &str) -> Cri {
        client(&self.containerd, cluster, REQUEST_TIMEOUT).await
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.containerd.dir().join("pod-logs")
    }

    pub(crate) fn sandbox_config(&self, name: &str) -> SandboxConfig {
        let meta = PodMeta {
            name: name.into(),
            namespace: "default".into(),
            uid: format!("uid-{name}"),
            attempt: 0,
        };
        let mut config = SandboxConfig::new(meta, QosClass::Burstable);
        config.log_directory = Some(self.logs().join(name));
        config.resources = resources(500, 256);
        config
    }

    pub(crate) async fn sandbox(&self, name: &str) -> SandboxId {
        self.runtime.run_sandbox(self.sandbox_config(name)).await.unwrap()
    }

    /// Starts a container that runs a script.
    pub(crate) async fn run(&self, sandbox: &SandboxId, name: &str, script: &str) -> ContainerId {
        let id = self.runtime.create_container(sandbox, shell(name, script)).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    /// Sends containerd itself a signal; its containers do not get it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.containerd.process().unwrap()), signal).unwrap();
    }

    /// Stops containerd; all clients of it have to be gone.
    pub(crate) async fn stop(self) {
        self.runtime.clear().await.unwrap();
        drop(self.runtime);
        Arc::into_inner(self.containerd).unwrap().stop().await.unwrap();
    }
}

async fn client(containerd: &Containerd, cluster: &str, timeout: Duration) -> Cri {
    let endpoints = containerd.endpoints();
    let config = Config {
        endpoint: containerd.endpoint(),
        image_endpoint: None,
        cluster: format!("{}/{cluster}", endpoints.cgroup),
        folder: containerd.dir().join("cri"),
        cgroups: Layout::detect().unwrap(),
        cgroup_driver: CgroupDriver::Cgroupfs,
        request_timeout: timeout,
    };
    Cri::open(config, plumb_supervise::process()).await.unwrap()
}

/// A container that runs a script.
pub(crate) fn shell(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        meta: ContainerMeta { name: name.into(), attempt: 0 },
        image: BUSYBOX.into(),
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        log_path: Some(format!("{name}/0.log").into()),
        resources: resources(100, 64).into(),
        ..ContainerConfig::default()
    }
}

/// Resources of so many thousandths of a core, requested and allowed, and of so many MiB.
pub(crate) fn resources(milli: u64, mib: i64) -> LinuxResources {
    LinuxResources {
        cpu_period: Some(100_000),
        cpu_quota: Some(i64::try_from(milli).unwrap() * 100),
        cpu_shares: Some(milli * 1024 / 1000),
        memory_limit: Some(mib * MIB),
        memory_swap_limit: Some(mib * MIB),
        ..LinuxResources::default()
    }
}

/// What matters of resources in these tests: quota, shares and memory.
pub(crate) fn figures(resources: &LinuxResources) -> (Option<i64>, Option<u64>, Option<i64>) {
    (resources.cpu_quota, resources.cpu_shares, resources.memory_limit)
}

/// Waits until a container has stopped.
pub(crate) async fn stopped(events: &mut Events, id: &ContainerId) {
    until(events, |event| {
        matches!(event, Event::Container { id: of, change: ContainerChange::Stopped, .. } if of == id)
    })
    .await;
}

/// Waits until a runtime that did not respond does again.
pub(crate) async fn back(events: &mut Events) {
    until(events, |event| matches!(event, Event::Missed(_))).await;
}

/// Waits for an event.
async fn until(events: &mut Events, is_it: impl Fn(&Event) -> bool) {
    let wait = async { while !is_it(&events.next().await.expect("the events go on")) {} };
    tokio::time::timeout(TIMEOUT, wait).await.expect("the event comes in time");
}

/// Waits until something holds that no event announces.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.expect("it holds in time");
}
