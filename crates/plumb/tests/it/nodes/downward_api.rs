//! The downward API: which resources containers see while a resize of their pod is refused, and after it was applied.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::machine::{
    Groups, Machine, condition, create, equal, id, is_settled, load, pod, pods, resize, soon, until,
};

const MIB: u64 = 1 << 20;

/// The first process of the container `c`.
fn process(pod: &Pod) -> i32 {
    i32::try_from(Groups::of(pod).pid(&id(pod, "c")).unwrap()).unwrap()
}

/// What a path of its container is on this machine.
fn inside(process: i32, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/root{path}"))
}

/// A variable of a process.
fn variable(process: i32, name: &str) -> String {
    let all = fs::read(format!("/proc/{process}/environ")).unwrap();
    let all = String::from_utf8(all).unwrap();
    let found = all.split('\0').find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default().to_owned()
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count
}

#[tokio::test(flavor = "multi_thread")]
async fn the_downward_api_shows_what_is_allocated_and_never_what_the_spec_requests() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let mut container = load("c", &["--memory", "1Mi"], equal("100m", "64Mi"));
    let limit = json!({ "resource": "limits.memory", "divisor": "1Mi" });
    container["env"] = json!([{ "name": "LIMIT", "valueFrom": { "resourceFieldRef": limit } }]);
    container["volumeMounts"] =
        json!([{ "name": "info", "mountPath": "/info" }, { "name": "scratch", "mountPath": "/scratch" }]);
    let file = json!({ "resource": "limits.memory", "divisor": "1Mi", "containerName": "c" });
    let mut wanted = serde_json::to_value(pod("web", json!([container]))).unwrap();
    wanted["spec"]["volumes"] = json!([
        { "name": "info", "downwardAPI": { "items": [{ "path": "limit", "resourceFieldRef": file }] } },
        { "name": "scratch", "emptyDir": { "medium": "Memory" } },
    ]);
    create(&api, &serde_json::from_value(wanted).unwrap()).await;
    let before = until(&api, "web", "running", is_settled).await;
    let shown = |pod: &Pod| {
        let process = process(pod);
        (variable(process, "LIMIT"), fs::read_to_string(inside(process, "/info/limit")).unwrap_or_default())
    };
    let size = |pod: &Pod| {
        let found = rustix::fs::statvfs(inside(process(pod), "/scratch")).unwrap();
        found.f_blocks * found.f_frsize
    };
    assert_eq!((shown(&before), size(&before)), (("64".to_owned(), "64".to_owned()), 64 * MIB));

    // More than the node has: it waits, and the container is restarted meanwhile.
    let resources = json!([{ "name": "c", "resources": equal("100m", "100Gi") }]);
    resize(&api, "web", resources).await;
    let waits = until(&api, "web", "waiting", |pod| condition(pod, "PodResizePending").is_some()).await;
    assert_eq!(waits.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()["memory"].0, "100Gi");
    kill(Pid::from_raw(process(&waits)), Signal::SIGKILL).unwrap();
    let ready = |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].ready;
    let again = until(&api, "web", "running again", |pod| restarts(pod) == 1 && ready(pod)).await;
    assert_eq!((shown(&again), size(&again)), (("64".to_owned(), "64".to_owned()), 64 * MIB));

    // What fits is allocated, and the file follows without a restart; also with another agent.
    resize(&api, "web", json!([{ "name": "c", "resources": equal("100m", "128Mi") }])).await;
    let taken = until(&api, "web", "resized", is_settled).await;
    soon("128 MiB in the file", || shown(&taken).1 == "128").await;
    assert_eq!(restarts(&taken), 1);
    assert!(cluster.stop().success());
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    resize(&api, "web", json!([{ "name": "c", "resources": equal("100m", "192Mi") }])).await;
    let taken = until(&api, "web", "resized", is_settled).await;
    soon("192 MiB in the file", || shown(&taken).1 == "192").await;
    assert_eq!(restarts(&taken), 1);
    drop(cluster);
    machine.clear();
}
