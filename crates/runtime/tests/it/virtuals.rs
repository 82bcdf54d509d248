//! Pods without processes, on a clock that the test moves.

use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use plumb_resize::qos::QosClass;
use plumb_runtime::types::{
    ContainerChange, ContainerConfig, ContainerId, ContainerMeta, ContainerState, Event, LinuxResources,
    PodMeta, SandboxConfig, SandboxFilter, SandboxId, Timestamp,
};
use plumb_runtime::{Error, MODEL, Runtime as _, Virtual, VirtualConfig};
use tokio::time::advance;

const MIB: i64 = 1 << 20;

fn runtime() -> Virtual {
    Virtual::new(VirtualConfig { now: Timestamp::UNIX_EPOCH, pod_network: Ipv4Addr::new(10, 200, 0, 0) })
}

fn limits(cpu_quota: i64, memory: i64) -> LinuxResources {
    LinuxResources { cpu_quota: Some(cpu_quota), memory_limit: Some(memory), ..LinuxResources::default() }
}

async fn start(
    runtime: &Virtual,
    name: &str,
    model: &str,
    resources: LinuxResources,
) -> (SandboxId, ContainerId) {
    let meta = PodMeta { name: name.into(), namespace: "default".into(), uid: name.into(), attempt: 0 };
    let mut config = SandboxConfig::new(meta, QosClass::Burstable);
    config.annotations = [(MODEL.to_owned(), model.to_owned())].into();
    let sandbox = runtime.run_sandbox(config).await.unwrap();
    let config = ContainerConfig {
        meta: ContainerMeta { name: "c".into(), attempt: 0 },
        image: "anything".into(),
        resources: resources.into(),
        ..ContainerConfig::default()
    };
    let id = runtime.create_container(&sandbox, config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    (sandbox, id)
}

#[tokio::test(start_paused = true)]
async fn usage_follows_the_model_and_the_limits() {
    let runtime = runtime();
    let model = "cpu=2 memory=64Mi memory-peak=192Mi shape=ramp period=100s cpu-peak=2";
    let (sandbox, id) = start(&runtime, "a", model, limits(50_000, 512 * MIB)).await;
    advance(Duration::from_secs(50)).await;
    let stats = runtime.container_stats(&id).await.unwrap();
    assert_eq!(stats.cpu.usage_nanos, 25_000_000_000);
    assert_eq!(stats.cpu.throttling.unwrap().throttled_nanos, 75_000_000_000);
    assert_eq!(stats.memory.usage, 128 << 20);
    assert_eq!(stats.memory.at.as_second(), 50);
    // From now on it may use more, and what was is not changed by that.
    runtime.update_container_resources(&id, &limits(200_000, 512 * MIB).into()).await.unwrap();
    advance(Duration::from_secs(10)).await;
    let stats = runtime.sandbox_stats(&sandbox).await.unwrap();
    assert_eq!(stats.cpu.usage_nanos, 45_000_000_000);
    assert_eq!(stats.containers.len(), 1);
}

/// On the clock of the machine, which advances between any two readings.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_begins_with_more_memory_than_its_limit_is_out_of_memory_at_once() {
    let runtime = runtime();
    let mut events = runtime.events();
    let (_, id) = start(&runtime, "large", "memory=64Mi", limits(-1, 32 * MIB)).await;
    let stopped = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::Container { change: ContainerChange::Stopped, .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), stopped).await.unwrap();
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "OOMKilled"));
}

#[tokio::test(start_paused = true)]
async fn memory_that_leaks_ends_the_container_when_it_reaches_the_limit() {
    let runtime = runtime();
    let mut events = runtime.events();
    let model = "memory=64Mi memory-peak=128Mi shape=leak period=10s";
    let (sandbox, id) = start(&runtime, "leak", model, limits(-1, 96 * MIB)).await;
    advance(Duration::from_secs(4)).await;
    assert_eq!(runtime.container_status(&id).await.unwrap().container.state, ContainerState::Running);
    // A higher limit, more time.
    runtime.update_container_resources(&id, &limits(-1, 128 * MIB).into()).await.unwrap();
    advance(Duration::from_secs(5)).await;
    assert_eq!(runtime.container_status(&id).await.unwrap().container.state, ContainerState::Running);
    let mut changes = Vec::new();
    while let Some(Event::Container { change, at, .. }) = events.next().await {
        changes.push((change, at.as_second()));
        if change == ContainerChange::Stopped {
            break;
        }
    }
    let expected = [
        (ContainerChange::Created, 0),
        (ContainerChange::Started, 0),
        (ContainerChange::OutOfMemory, 10),
        (ContainerChange::Stopped, 10),
    ];
    assert_eq!(changes, expected);
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "OOMKilled"));
    runtime.remove_sandbox(&sandbox).await.unwrap();
    assert!(runtime.container_status(&id).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_what_is_kept_is_refused() {
    let runtime = runtime();
    let (_, id) = start(&runtime, "kept", "memory=100Mi keep=60Mi", limits(-1, 200 * MIB)).await;
    let refused = runtime.update_container_resources(&id, &limits(-1, 50 * MIB).into()).await.unwrap_err();
    assert!(matches!(refused, Error::Failed { errno: Some(16), .. }), "{refused:?}");
    assert_eq!(runtime.reclaim_memory(&id, 10 << 20).await.unwrap(), 10 << 20);
    assert_eq!(runtime.container_stats(&id).await.unwrap().memory.usage, 90 << 20);
    runtime.update_container_resources(&id, &limits(-1, 70 * MIB).into()).await.unwrap();
    assert_eq!(runtime.container_stats(&id).await.unwrap().memory.usage, 70 << 20);
    assert_eq!(runtime.reclaim_memory(&id, 1 << 30).await.unwrap(), 10 << 20);
}

#[tokio::test(start_paused = true)]
async fn it_starts_up_and_ends_in_its_time() {
    let runtime = runtime();
    let mut events = runtime.events();
    let (_, id) = start(&runtime, "short", "startup=5s duration=20s exit-code=3", limits(-1, -1)).await;
    let probe = || async { runtime.exec_sync(&id, &["true".into()], None).await.unwrap().exit_code };
    assert_eq!(probe().await, 1);
    advance(Duration::from_secs(5)).await;
    assert_eq!(probe().await, 0);
    while let Some(event) = events.next().await {
        if matches!(event, Event::Container { change: ContainerChange::Stopped, .. }) {
            break;
        }
    }
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!((status.exit_code, status.finished_at.unwrap().as_second()), (Some(3), 20));
}

#[tokio::test(start_paused = true)]
async fn thirty_thousand_pods_are_no_more_than_numbers() {
    let runtime = runtime();
    for number in 0..30_000 {
        let model = "cpu=100m memory=64Mi shape=sine period=10m";
        start(&runtime, &format!("p{number}"), model, limits(20_000, 256 * MIB)).await;
    }
    advance(Duration::from_hours(1)).await;
    let stats = runtime.list_sandbox_stats(&SandboxFilter::default()).await;
    // Each of them has its own address, too.
    let sandboxes = runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap();
    assert_eq!((stats.unwrap().len(), sandboxes.len()), (30_000, 30_000));
}
