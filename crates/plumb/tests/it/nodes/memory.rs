//! Memory that is lowered under programs that use it.

use serde_json::json;

use super::machine::{
    Groups, Machine, condition, create, id, is_settled, load, pod, pods, resize, soon, until,
};

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn a_limit_below_what_is_used_kills_nobody_is_told_and_completes_once_memory_is_given_up() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // 100 MiB for three seconds, then 10.
    let args = ["--memory", "10Mi", "--memory-peak", "100Mi", "--shape", "spike", "--period", "30s"];
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "256Mi" } });
    create(&pods, &pod("holder", json!([load("c", &args, resources)]))).await;
    let before = until(&pods, "holder", "running", is_settled).await;
    let (groups, container) = (Groups::of(&before), id(&before, "c"));
    let pid = groups.pid(&container);
    let used = || groups.number(&container, "memory.usage_in_bytes").unwrap();
    soon("100 MiB", || used() > 95 * MIB).await;
    resize(&pods, "holder", json!([{ "name": "c", "resources": { "limits": { "memory": "64Mi" } } }])).await;
    let told = until(&pods, "holder", "told", |pod| {
        condition(pod, "PodResizeInProgress").is_some_and(|message| !message.is_empty())
    })
    .await;
    let message = condition(&told, "PodResizeInProgress").unwrap();
    let expected = "cannot decrease memory limits: attempting to set container \"c\" memory limit (67108864) below \
                    current usage (";
    assert!(message.starts_with(expected), "{message}");
    let after = until(&pods, "holder", "settled", is_settled).await;
    assert_eq!(groups.number(&container, "memory.limit_in_bytes"), Some(64 * MIB));
    assert_eq!((id(&after, "c"), groups.pid(&container)), (container.clone(), pid), "nobody was killed");
    drop(cluster);
    machine.clear().await;
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
    let used = || groups.number(&container, "memory.usage_in_bytes").unwrap();
    soon("growing", || used() > 20 * MIB).await;
    resize(&pods, "grower", json!([{ "name": "c", "resources": { "limits": { "memory": "512Mi" } } }])).await;
    soon("800 MiB", || used() > 790 * MIB).await;
    let told = until(&pods, "grower", "told", |pod| {
        condition(pod, "PodResizeInProgress").is_some_and(|message| message.contains("below current usage"))
    })
    .await;
    let status = &told.status.unwrap().container_statuses.unwrap()[0];
    assert_eq!((status.restart_count, status.ready), (0, true), "it was not killed");
    assert!(groups.pid(&container).is_some());
    drop(cluster);
    machine.clear().await;
}
