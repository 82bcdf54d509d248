//! Memory limits that go down under programs that grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use plumb_runtime::cgroup::{Controller, Group, Version};
use plumb_runtime::types::{ContainerId, ContainerState, Event, LinuxResources, Mount, QosClass, SandboxId};
use plumb_runtime::{Events, Runtime as _};

use crate::node::{Node, TIMEOUT, soon};

const MIB: i64 = 1 << 20;
/// Allocates 160 MiB once its trigger file exists.
const GROWS: &str =
    "echo up; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; exec /plumb load --memory 160Mi";

fn limit(bytes: i64) -> LinuxResources {
    LinuxResources { memory_limit: Some(bytes), ..LinuxResources::default() }
}

/// A program of this machine at the same place in a container.
fn of_machine(path: &str) -> Mount {
    Mount { container_path: path.into(), host_path: path.into(), readonly: true, ..Mount::default() }
}

/// A pod with a container that grows when its trigger file is created.
struct Grower {
    node: Node,
    sandbox: SandboxId,
    id: ContainerId,
    events: Events,
    trigger: PathBuf,
}

impl Grower {
    /// `None` where there are no containers. Pod and container may use this much.
    async fn new(test: &str, pod: i64, container: i64) -> Option<Self> {
        Some(Self::of(Node::new(test).await?, pod, container).await)
    }

    async fn of(node: Node, pod: i64, container: i64) -> Self {
        Self::running(node, pod, container, GROWS).await
    }

    /// The same with a script of its own, which says `up`.
    async fn running(node: Node, pod: i64, container: i64, script: &str) -> Self {
        let mut config = node.sandbox_config("grower");
        config.resources = limit(pod);
        let sandbox = node.runtime.run_sandbox(config).await.unwrap();
        let mut config = Node::shell("c", script);
        config.image = "plumb/load".into();
        // The image has the program alone; these need no other libraries than it does.
        config.mounts = ["/bin/sh", "/bin/sleep"].map(of_machine).into();
        config.resources = limit(container).into();
        let id = node.start(&sandbox, config).await;
        node.says(&id, "up").await;
        let pid = node.runtime.container_status(&id).await.unwrap().pid.unwrap();
        let trigger = Path::new("/proc").join(pid.to_string()).join("root/dev/shm/go");
        let events = node.runtime.events();
        Self { node, sandbox, id, events, trigger }
    }

    fn grow(&self) {
        fs::write(&self.trigger, "").unwrap();
    }

    async fn lower(&self, bytes: i64) {
        self.node.runtime.update_container_resources(&self.id, &limit(bytes).into()).await.unwrap();
    }

    fn pod(&self) -> Group {
        self.node.runtime.cgroups().pod(QosClass::Burstable, "uid-grower")
    }

    fn group(&self) -> Group {
        self.node.runtime.cgroups().container(QosClass::Burstable, "uid-grower", self.id.as_str())
    }

    /// Waits until so many limits were restored, and the container has grown: the container's, or the pod's, by who is
    /// named.
    async fn taken_back(&mut self, limits: usize) -> Vec<Option<ContainerId>> {
        let mut whose = Vec::new();
        let restored = async {
            while whose.len() < limits {
                if let Event::LimitRestored { container, .. } = self.events.next().await.unwrap() {
                    whose.push(container);
                }
            }
        };
        assert!(tokio::time::timeout(TIMEOUT, restored).await.is_ok(), "{whose:?}");
        self.has_grown().await;
        // The other events until it had grown.
        while let Some(Some(event)) = futures_util::FutureExt::now_or_never(self.events.next()) {
            if let Event::LimitRestored { container, .. } = event {
                whose.push(container);
            }
        }
        whose
    }

    async fn has_grown(&self) {
        let group = self.group();
        soon("grown", || group.memory().unwrap().0 > 160 << 20).await;
    }

    /// The container grows beyond its guarded limit, and the runtime restores the limit before it kills anything.
    async fn outgrows_its_limit_and_gets_it_back(mut self, limit: i64) {
        assert_eq!(guarded(&self.group()), 1);
        self.grow();
        assert_eq!(self.taken_back(1).await, [Some(self.id.clone())]);
        assert_eq!(self.group().read().unwrap().memory_limit, Some(limit));
        self.is_unharmed().await;
        self.node.end().await;
    }

    /// The container still runs, no process of it was killed, and no cgroup is guarded any more.
    async fn is_unharmed(&self) {
        let status = self.node.runtime.container_status(&self.id).await.unwrap();
        assert_eq!(status.container.state, ContainerState::Running);
        assert_eq!(self.group().oom_kills().unwrap(), 0);
        for group in [self.group(), self.pod()] {
            soon("disarmed", || guarded(&group) == 0).await;
        }
    }
}

/// Whether the OOM killer of a cgroup is disabled (v1), or the cgroup is throttled (v2).
fn guarded(group: &Group) -> u64 {
    let folder = group.folder(Controller::Memory).unwrap();
    match group.version() {
        Version::V1 => {
            let text = fs::read_to_string(folder.join("memory.oom_control")).unwrap();
            text.lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
        }
        Version::V2 => u64::from(group.read().unwrap().memory_high != Some(-1)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_outgrows_a_limit_that_was_just_lowered_gets_it_back() {
    let test = "a_program_that_outgrows_a_limit_that_was_just_lowered_gets_it_back";
    let Some(grower) = Grower::new(test, -1, 512 * MIB).await else { return };
    grower.lower(64 * MIB).await;
    grower.outgrows_its_limit_and_gets_it_back(512 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_restores_the_limit_from_before_several_changes() {
    let test = "a_guard_restores_the_limit_from_before_several_changes";
    let Some(mut grower) = Grower::new(test, -1, 512 * MIB).await else { return };
    for bytes in [100, 48, 64] {
        grower.lower(bytes * MIB).await;
    }
    grower.grow();
    grower.taken_back(1).await;
    assert_eq!(grower.group().read().unwrap().memory_limit, Some(512 * MIB));
    grower.is_unharmed().await;
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_limit_is_restored_before_those_of_its_containers() {
    let test = "a_pods_limit_is_restored_before_those_of_its_containers";
    let Some(mut grower) = Grower::new(test, 512 * MIB, 512 * MIB).await else { return };
    grower.lower(64 * MIB).await;
    grower.node.runtime.update_sandbox_resources(&grower.sandbox, &limit(64 * MIB)).await.unwrap();
    grower.grow();
    let whose = grower.taken_back(2).await;
    assert!(whose.first() == Some(&None) && whose.contains(&Some(grower.id.clone())), "{whose:?}");
    for group in [grower.group(), grower.pod()] {
        assert_eq!(group.read().unwrap().memory_limit, Some(512 * MIB));
    }
    grower.is_unharmed().await;
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_limit_is_restored_by_itself_if_its_containers_have_none() {
    let test = "a_pods_limit_is_restored_by_itself_if_its_containers_have_none";
    let Some(mut grower) = Grower::new(test, 512 * MIB, -1).await else { return };
    grower.node.runtime.update_sandbox_resources(&grower.sandbox, &limit(64 * MIB)).await.unwrap();
    // What is made meanwhile is not guarded with its pod.
    let other = grower.node.start(&grower.sandbox, Node::shell("other", "exec sleep 1000")).await;
    let other = grower.node.runtime.cgroups().container(QosClass::Burstable, "uid-grower", other.as_str());
    assert_eq!((guarded(&grower.pod()), guarded(&other)), (1, 0));
    grower.grow();
    assert_eq!(grower.taken_back(1).await, [None]);
    assert_eq!(grower.pod().read().unwrap().memory_limit, Some(512 * MIB));
    grower.is_unharmed().await;
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_not_exceeded_is_enforced_after_the_window() {
    let test = "a_limit_that_is_not_exceeded_is_enforced_after_the_window";
    let Some(node) = Node::settling(test, Duration::from_millis(100)).await else { return };
    let mut grower = Grower::of(node, -1, 512 * MIB).await;
    grower.lower(64 * MIB).await;
    soon("settled", || guarded(&grower.group()) == 0).await;
    let record = grower.node.folder.path().join("data/runtime/containers");
    let record = record.join(grower.id.as_str()).join("guard.json");
    soon("forgotten", || !record.exists()).await;
    assert_eq!(grower.group().read().unwrap().memory_limit, Some(64 * MIB));
    grower.grow();
    let status = grower.node.ended(&mut grower.events, &grower.id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "OOMKilled"));
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runtime_after_a_crashed_agent_restores_the_limit_of_a_program() {
    let test = "the_runtime_after_a_crashed_agent_restores_the_limit_of_a_program";
    let Some(grower) = Grower::new(test, 512 * MIB, 512 * MIB).await else { return };
    grower.lower(64 * MIB).await;
    grower.node.runtime.update_sandbox_resources(&grower.sandbox, &limit(64 * MIB)).await.unwrap();
    let (group, folder) = (grower.group(), grower.node.folder.clone());
    let Grower { node, sandbox, id, trigger, .. } = grower;
    drop(node);
    // While no runtime is open, it sleeps at its limit, or close to it.
    fs::write(&trigger, "").unwrap();
    soon("near its limit", || group.memory().unwrap().0 > 56 << 20).await;
    let node = Node::again(folder).await;
    let events = node.runtime.events();
    let grower = Grower { node, sandbox, id, events, trigger };
    grower.has_grown().await;
    for group in [grower.group(), grower.pod()] {
        assert_eq!(group.read().unwrap().memory_limit, Some(512 * MIB));
    }
    grower.is_unharmed().await;
    grower.node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_was_left_armed_is_disarmed_by_the_next_runtime_whatever_the_record_says() {
    let test = "a_group_that_was_left_armed_is_disarmed_by_the_next_runtime_whatever_the_record_says";
    for damage in [None, Some("{")] {
        let Some(grower) = Grower::new(test, 512 * MIB, 512 * MIB).await else { return };
        grower.lower(64 * MIB).await;
        grower.node.runtime.update_sandbox_resources(&grower.sandbox, &limit(64 * MIB)).await.unwrap();
        let groups = [grower.group(), grower.pod()];
        assert_eq!(groups.each_ref().map(guarded), [1, 1]);
        let (folder, data) = (grower.node.folder.clone(), grower.node.folder.path().join("data/runtime"));
        let records = [
            data.join("containers").join(grower.id.as_str()).join("guard.json"),
            data.join("sandboxes").join(grower.sandbox.as_str()).join("guard.json"),
        ];
        let Grower { node, .. } = grower;
        drop(node);
        for record in &records {
            match damage {
                None => fs::remove_file(record).unwrap(),
                Some(text) => fs::write(record, text).unwrap(),
            }
        }
        let node = Node::again(folder).await;
        assert_eq!(groups.each_ref().map(guarded), [0, 0], "{damage:?}");
        assert!(records.iter().all(|record| !record.exists()), "{damage:?}");
        node.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_that_comes_again_after_the_limit_went_down_gets_it_back() {
    let test = "a_burst_that_comes_again_after_the_limit_went_down_gets_it_back";
    let Some(node) = Node::settling(test, Duration::from_secs(2)).await else { return };
    let script = format!("/plumb load --memory 120Mi --duration 200ms --quiet; {GROWS}");
    let grower = Grower::running(node, -1, 512 * MIB, &script).await;
    // Another that has never used that much is guarded for as long as usual.
    let mut config = Node::shell("other", "exec sleep 1000");
    config.resources = limit(512 * MIB).into();
    let other = grower.node.start(&grower.sandbox, config).await;
    grower.lower(64 * MIB).await;
    grower.node.runtime.update_container_resources(&other, &limit(64 * MIB).into()).await.unwrap();
    let other = grower.node.runtime.cgroups().container(QosClass::Burstable, "uid-grower", other.as_str());
    soon("the other settled", || guarded(&other) == 0).await;
    grower.outgrows_its_limit_and_gets_it_back(512 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_under_which_file_pages_are_reclaimed_is_kept() {
    let test = "a_limit_under_which_file_pages_are_reclaimed_is_kept";
    let Some(node) = Node::settling(test, Duration::from_millis(50)).await else { return };
    let script = "echo up; exec /plumb load --memory 10Mi --file 120Mi --quiet";
    let grower = Grower::running(node, -1, 512 * MIB, script).await;
    let group = grower.group();
    soon("120 MiB of page cache", || group.memory().unwrap().0 > 125 << 20).await;
    grower.lower(64 * MIB).await;
    soon("settled", || guarded(&group) == 0).await;
    assert_eq!(group.read().unwrap().memory_limit, Some(64 * MIB), "it was not restored");
    grower.is_unharmed().await;
    grower.node.end().await;
}
