//! Pods that come and go leave nothing on the machine.

use std::fs;

use futures_util::StreamExt as _;
use kube::api::DeleteParams;
use plumb_conformance::Cgroups;
use serde_json::json;

use super::machine::{Machine, create, equal, is_settled, load, pod, pods, soon, until};

/// How many pods come and go; `PLUMB_PODS` asks for more.
fn how_many() -> usize {
    std::env::var("PLUMB_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_leave_no_cgroup_mount_process_or_file() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let data = fs::canonicalize(machine.data()).unwrap();
    let live = futures_util::stream::iter(0..how_many()).map(|nth| {
        let pods = &pods;
        async move {
            let name = format!("pod-{nth}");
            let container = load("c", &["--memory", "1Mi"], equal("10m", "32Mi"));
            let made = create(pods, &pod(&name, json!([container]))).await;
            until(pods, &name, "settled", is_settled).await;
            pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
            made.metadata.uid.unwrap()
        }
    });
    let uids: Vec<String> = live.buffer_unordered(8).collect().await;
    let folder = |name: &str| fs::read_dir(data.join(name)).map_or(0, Iterator::count);
    let left = || {
        ["runtime/containers", "runtime/sandboxes", "volumes", "logs"].map(folder).into_iter().sum::<usize>()
    };
    soon("empty", || left() == 0).await;
    for uid in &uids {
        assert_eq!(Cgroups::find("memory", &format!("pod{uid}")), None);
    }
    let below = data.to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts: Vec<&str> = mounts.lines().filter(|line| line.contains(&below)).collect();
    assert_eq!(mounts, Vec::<&str>::new());
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        line.contains(&below) && line.contains("shim")
    });
    assert_eq!(processes.count(), 0);
    drop(cluster);
    machine.clear().await;
}
