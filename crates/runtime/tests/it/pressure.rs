//! Containers that come near their memory limits while these are watched.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use plumb_runtime::cgroup::Version;
use plumb_runtime::types::{
    ContainerId, ContainerState, Event, LinuxResources, MemoryPressure, MemoryWatch, Mount, QosClass,
};
use plumb_runtime::{Events, Runtime as _};

use crate::node::{Node, TIMEOUT, soon};

const MIB: u64 = 1 << 20;
/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(10);
/// Allocates 64 MiB once its trigger file exists.
const GROWS: &str =
    "echo up; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; exec /plumb load --memory 64Mi --quiet";

fn limit(mib: u64) -> LinuxResources {
    LinuxResources { memory_limit: i64::try_from(mib * MIB).ok(), ..LinuxResources::default() }
}

fn watch(hold: Duration) -> MemoryWatch {
    MemoryWatch { thresholds: [24 * MIB, 28 * MIB], hold }
}

/// A container with a limit of 32 MiB that grows beyond it when its trigger file is created.
struct Grower {
    node: Node,
    id: ContainerId,
    events: Events,
    trigger: PathBuf,
}

impl Grower {
    /// None where a container cannot be held at its limit.
    async fn new(test: &str) -> Option<Self> {
        let node = Node::new(test).await?;
        if node.runtime.cgroups().pods().version() != Version::V1 {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: cgroup v2 holds no container"));
            return None;
        }
        let sandbox = node.sandbox("grower").await;
        let mut config = Node::shell("c", GROWS);
        config.image = "plumb/load".into();
        // The image has the program alone; these need no other libraries than it does.
        let of_machine = |path: &str| Mount {
            container_path: path.into(),
            host_path: path.into(),
            readonly: true,
            ..Mount::default()
        };
        config.mounts = ["/bin/sh", "/bin/sleep"].map(of_machine).into();
        config.resources = limit(32).into();
        let id = node.start(&sandbox, config).await;
        node.says(&id, "up").await;
        let pid = node.runtime.container_status(&id).await.unwrap().pid.unwrap();
        let trigger = Path::new("/proc").join(pid.to_string()).join("root/dev/shm/go");
        let events = node.runtime.events();
        Some(Self { node, id, events, trigger })
    }

    fn grow(&self) {
        std::fs::write(&self.trigger, "").unwrap();
    }

    async fn watch(&self, watch: Option<MemoryWatch>) {
        self.node.runtime.watch_memory(&self.id, watch).await.unwrap();
    }

    async fn raise(&self, mib: u64) {
        self.node.runtime.update_container_resources(&self.id, &limit(mib).into()).await.unwrap();
    }

    /// Waits for an event of such a pressure.
    async fn pressure(&mut self, holds: impl Fn(MemoryPressure) -> bool) -> MemoryPressure {
        let waiting = async {
            loop {
                if let Event::MemoryPressure { container, pressure, .. } = self.events.next().await.unwrap()
                    && container == self.id
                    && holds(pressure)
                {
                    return pressure;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap()
    }

    async fn has_grown_unharmed(self) {
        let group =
            self.node.runtime.cgroups().container(QosClass::Burstable, "uid-grower", self.id.as_str());
        soon("grown", || group.memory_pressure().unwrap().usage > 64 * MIB).await;
        let status = self.node.runtime.container_status(&self.id).await.unwrap();
        assert_eq!(status.container.state, ContainerState::Running);
        self.node.end().await;
    }

    async fn expect_killed(mut self) {
        let status = self.node.ended(&mut self.events, &self.id).await;
        assert_eq!(status.reason, "OOMKilled");
        self.node.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_reaches_its_limit_is_held_and_runs_on_once_the_limit_is_raised() {
    let test = "a_container_that_reaches_its_limit_is_held_and_runs_on_once_the_limit_is_raised";
    let Some(mut grower) = Grower::new(test).await else { return };
    grower.watch(Some(watch(LONG))).await;
    grower.grow();
    let held = grower.pressure(|pressure| pressure.held).await;
    assert_eq!(held.limit, Some(32 * MIB));
    assert!(held.usage > 24 * MIB, "{held:?}");
    // Twice: it reaches the next limit too.
    grower.raise(48).await;
    grower.pressure(|pressure| pressure.held && pressure.limit == Some(48 * MIB)).await;
    grower.raise(128).await;
    grower.has_grown_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_held_too_long_is_killed() {
    let Some(mut grower) = Grower::new("a_container_that_is_held_too_long_is_killed").await else { return };
    grower.watch(Some(watch(Duration::from_millis(200)))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    grower.expect_killed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_container_is_killed_at_its_deadline_also_while_no_runtime_runs() {
    let test = "a_held_container_is_killed_at_its_deadline_also_while_no_runtime_runs";
    let Some(mut grower) = Grower::new(test).await else { return };
    grower.watch(Some(watch(Duration::from_millis(500)))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    let Grower { node, id, .. } = grower;
    let folder = node.folder.clone();
    drop(node);
    let exit = folder.path().join("data/runtime/containers").join(id.as_str()).join("exit.json");
    soon("killed", || exit.exists()).await;
    let node = Node::again(folder).await;
    assert_eq!(node.runtime.container_status(&id).await.unwrap().reason, "OOMKilled");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_comes_back_finds_a_held_container_and_can_raise_its_limit() {
    let test = "a_runtime_that_comes_back_finds_a_held_container_and_can_raise_its_limit";
    let Some(mut grower) = Grower::new(test).await else { return };
    grower.watch(Some(watch(LONG))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    let Grower { node, id, trigger, .. } = grower;
    let folder = node.folder.clone();
    drop(node);
    let node = Node::again(folder).await;
    let events = node.runtime.events();
    let mut grower = Grower { node, id, events, trigger };
    assert!(grower.node.runtime.memory_pressure(&grower.id).await.unwrap().held);
    // It is notified at once.
    grower.watch(Some(watch(LONG))).await;
    grower.pressure(|pressure| pressure.held).await;
    grower.raise(128).await;
    grower.has_grown_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_container_is_killed_when_its_watch_ends() {
    let Some(mut grower) = Grower::new("a_held_container_is_killed_when_its_watch_ends").await else {
        return;
    };
    grower.watch(Some(watch(LONG))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    grower.watch(None).await;
    grower.expect_killed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_container_can_be_stopped() {
    let Some(mut grower) = Grower::new("a_held_container_can_be_stopped").await else { return };
    grower.watch(Some(watch(LONG))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    grower.node.runtime.stop_container(&grower.id, Duration::ZERO).await.unwrap();
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_stays_held_at_its_limit_after_the_guard_of_a_lowered_one_ends() {
    let test = "a_container_stays_held_at_its_limit_after_the_guard_of_a_lowered_one_ends";
    let Some(mut grower) = Grower::new(test).await else { return };
    grower.raise(40).await;
    grower.watch(Some(watch(LONG))).await;
    // Guarded for an hour; a raise ends that.
    grower.raise(31).await;
    grower.raise(32).await;
    grower.watch(Some(watch(LONG))).await;
    grower.grow();
    grower.pressure(|pressure| pressure.held).await;
    grower.raise(128).await;
    grower.has_grown_unharmed().await;
}
