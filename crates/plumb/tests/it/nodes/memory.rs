//! Memory that is lowered under programs that use it.

use std::collections::BTreeSet;

use super::machine::{
    Groups, Machine, condition, create, equal, id, is_settled, load, pod, pods, resize, soon, until,
};
use k8s_openapi::api::core::v1::Pod;
use plumb_conformance::Figure;
use serde_json::json;

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn a_limit_below_the_usage_kills_no_process_is_reported_and_completes_once_memory_is_freed() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // 100 MiB for half a minute, then 10.
    let args = ["--memory", "10Mi", "--memory-peak", "100Mi", "--shape", "spike", "--period", "300s"];
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "256Mi" } });
    create(&pods, &pod("holder", json!([load("c", &args, resources)]))).await;
    let before = until(&pods, "holder", "running", is_settled).await;
    let (groups, container) = (Groups::of(&before), id(&before, "c"));
    let pid = groups.pid(&container);
    let used = || groups.number(&container, Figure::MemoryUsage).unwrap();
    soon("100 MiB", || used() > 95 * MIB).await;
    resize(&pods, "holder", json!([{ "name": "c", "resources": { "limits": { "memory": "64Mi" } } }])).await;
    let reported = until(&pods, "holder", "reported", |pod| {
        condition(pod, "PodResizeInProgress").is_some_and(|message| !message.is_empty())
    })
    .await;
    let message = condition(&reported, "PodResizeInProgress").unwrap();
    let expected = "cannot decrease memory limits: attempting to set container \"c\" memory limit (67108864) below \
                    current usage (";
    assert!(message.starts_with(expected), "{message}");
    // The limit stays as it was for as long as the memory is in use, in the kernel and in the status.
    let (mut limits, mut looks) = (BTreeSet::new(), 0);
    soon("given up", || {
        let (limit, still_used) = (groups.number(&container, Figure::MemoryLimit), used() > 64 * MIB);
        // Read before the usage: what was in use then is in use at that limit.
        if still_used {
            limits.extend(limit);
            looks += 1;
        }
        !still_used
    })
    .await;
    assert_eq!(limits, [256 * MIB].into(), "in {looks} looks");
    assert_eq!(memory_limit(&reported), "256Mi");
    let after = until(&pods, "holder", "settled", is_settled).await;
    assert_eq!(groups.number(&container, Figure::MemoryLimit), Some(64 * MIB));
    assert_eq!((id(&after, "c"), groups.pid(&container)), (container.clone(), pid), "no process was killed");
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_program_that_allocates_1_mib_per_ms_while_the_limit_drops_is_not_killed_by_the_resize() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // In bursts: 100 MiB at once, ten times a second, up to 800 MiB.
    let args = ["--memory", "10Mi", "--memory-peak", "800Mi", "--shape", "ramp", "--period", "790ms"];
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "1Gi" } });
    create(&pods, &pod("grower", json!([load("c", &args, resources)]))).await;
    let started = until(&pods, "grower", "running", |pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    })
    .await;
    let (groups, container) = (Groups::of(&started), id(&started, "c"));
    let used = || groups.number(&container, Figure::MemoryUsage).unwrap();
    // Near the new limit: a slow machine, too, has to reach it before the guard of the lowered limit ends.
    soon("growing", || used() > 400 * MIB).await;
    resize(&pods, "grower", json!([{ "name": "c", "resources": { "limits": { "memory": "512Mi" } } }])).await;
    soon("800 MiB", || used() > 790 * MIB).await;
    let reported = until(&pods, "grower", "reported", |pod| {
        condition(pod, "PodResizeInProgress").is_some_and(|message| message.contains("below current usage"))
    })
    .await;
    let status = &reported.status.unwrap().container_statuses.unwrap()[0];
    assert_eq!((status.restart_count, status.ready), (0, true), "it was not killed");
    assert!(groups.pid(&container).is_some());
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_container_that_grows_keeps_the_limit_it_had_while_a_lower_one_cannot_be_applied() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // From 60 MiB on by 5 MiB a second. It takes minutes to its limit.
    let args = ["--memory", "60Mi", "--memory-peak", "110Mi", "--shape", "leak", "--period", "10s"];
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "1Gi" } });
    create(&pods, &pod("leaker", json!([load("c", &args, resources)]))).await;
    let before = until(&pods, "leaker", "running", is_settled).await;
    let (groups, container) = (Groups::of(&before), id(&before, "c"));
    let pid = groups.pid(&container);
    let used = || groups.number(&container, Figure::MemoryUsage).unwrap_or_default();
    soon("growing", || used() > 66 * MIB).await;
    resize(&pods, "leaker", json!([{ "name": "c", "resources": { "limits": { "memory": "40Mi" } } }])).await;
    let failing = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "PodResizeInProgress" && condition.reason.as_deref() == Some("Error")
        })
    };
    let reported = until(&pods, "leaker", "failing", failing).await;
    assert_eq!(memory_limit(&reported), "1Gi", "what is applied is reported");
    // It grows by far more than a margin above what it used when it was asked to shrink.
    let mut limits = BTreeSet::new();
    soon("grown", || {
        limits.extend(groups.number(&container, Figure::MemoryLimit));
        used() > 130 * MIB
    })
    .await;
    assert_eq!(limits, [1024 * MIB].into(), "the limit was never squeezed");
    let after = until(&pods, "leaker", "still failing", failing).await;
    assert_eq!(memory_limit(&after), "1Gi");
    assert_eq!((id(&after, "c"), groups.pid(&container)), (container.clone(), pid), "it was not killed");
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_container_that_dies_while_another_holds_its_memory_starts_with_the_limit_it_had() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let holds = ["--memory", "150Mi"];
    let containers = json!([
        load("c", &["--memory", "10Mi"], equal("100m", "64Mi")),
        load("holder", &holds, equal("100m", "192Mi"))
    ]);
    create(&pods, &pod("pair", containers)).await;
    let before = until(&pods, "pair", "running", is_settled).await;
    let (groups, holder) = (Groups::of(&before), id(&before, "holder"));
    soon("150 MiB", || groups.number(&holder, Figure::MemoryUsage).unwrap_or_default() > 150 * MIB).await;
    let moved = json!([
        { "name": "c", "resources": equal("100m", "192Mi") },
        { "name": "holder", "resources": equal("100m", "64Mi") },
    ]);
    resize(&pods, "pair", moved).await;
    let names_holder = |pod: &Pod| {
        let expected = "cannot decrease memory limits: attempting to set container \"holder\" memory limit \
                        (67108864) below current usage (";
        condition(pod, "PodResizeInProgress").is_some_and(|message| message.starts_with(expected))
    };
    until(&pods, "pair", "failing", names_holder).await;
    let pid = i32::try_from(groups.pid(&id(&before, "c")).unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let restarts = |pod: &Pod, name: &str| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let found = statuses.and_then(|all| all.iter().find(|status| status.name == name)).unwrap();
        (found.restart_count, found.ready)
    };
    let back = until(&pods, "pair", "back", |pod| restarts(pod, "c") == (1, true) && names_holder(pod)).await;
    assert_eq!(groups.number(&id(&back, "c"), Figure::MemoryLimit), Some(64 * MIB));
    assert_eq!(groups.number(&holder, Figure::MemoryLimit), Some(192 * MIB));
    assert_eq!((memory_limit(&back), restarts(&back, "holder")), ("64Mi".to_owned(), (0, true)));
    drop(cluster);
    machine.clear();
}

/// The memory limit of the container `c` as its status reports it.
fn memory_limit(pod: &Pod) -> String {
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    status.resources.as_ref().unwrap().limits.as_ref().unwrap()["memory"].0.clone()
}
