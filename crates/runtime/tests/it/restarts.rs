//! The agent dies and comes back; containers run on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_runtime::Runtime as _;
use plumb_runtime::types::{
    ContainerFilter, ContainerState, LinuxResources, Resources, SandboxFilter, SandboxState,
};

use crate::node::{Node, TIMEOUT, said, soon};

fn quota(quota: i64) -> LinuxResources {
    LinuxResources { cpu_quota: Some(quota), cpu_period: Some(100_000), ..LinuxResources::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_containers_are_adopted_after_a_restart() {
    let Some(node) = Node::new("running_containers_are_adopted_after_a_restart").await else { return };
    let sandbox = node.sandbox("adopted").await;
    let runs = node.start(&sandbox, Node::shell("runs", "echo up; exec sleep 1000")).await;
    let made = node
        .runtime
        .create_container(&sandbox, Node::shell("made", "echo made; exec sleep 1000"))
        .await
        .unwrap();
    let mut ends = Node::shell("ends", "echo up; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; exit 5");
    ends.resources = Resources::Linux(quota(50_000));
    let ends = node.start(&sandbox, ends).await;
    for id in [&runs, &ends] {
        node.says(id, "up").await;
    }
    let before = node.runtime.container_status(&runs).await.unwrap();
    let ips = node.runtime.sandbox_status(&sandbox).await.unwrap().ips;
    let pid = node.runtime.container_status(&ends).await.unwrap().pid.unwrap();

    // While no runtime is open, one of them exits.
    let folder = node.folder.clone();
    drop(node);
    let inside = Path::new("/proc").join(pid.to_string()).join("root");
    fs::write(inside.join("dev/shm/go"), "").unwrap();
    let exit = fs::read_dir(folder.path().join("data/runtime/containers")).unwrap();
    let exits: Vec<_> = exit.map(|entry| entry.unwrap().path().join("exit.json")).collect();
    soon("exited", || exits.iter().any(|path| path.exists())).await;
    let node = Node::again(folder).await;

    let after = node.runtime.container_status(&runs).await.unwrap();
    assert_eq!((after.pid, after.started_at), (before.pid, before.started_at));
    let ended = node.runtime.container_status(&ends).await.unwrap();
    assert_eq!((ended.container.state, ended.exit_code), (ContainerState::Exited, Some(5)));
    assert_eq!(node.runtime.container_status(&made).await.unwrap().container.state, ContainerState::Created);
    let status = node.runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!((status.sandbox.state, status.ips), (SandboxState::Ready, ips.clone()));

    // What has ended holds nothing back: the kernel lets no group have less than a group in it may.
    node.runtime.update_sandbox_resources(&sandbox, &quota(20_000)).await.unwrap();

    // It is as it was: what was made starts, what runs is changed, run into and stopped, addresses are not given twice.
    node.runtime.start_container(&made).await.unwrap();
    node.says(&made, "made").await;
    let more = LinuxResources { cpu_shares: Some(333), ..LinuxResources::default() };
    node.runtime.update_container_resources(&runs, &more.into()).await.unwrap();
    assert_eq!(
        node.runtime.exec_sync(&runs, &["cat".into(), "/greeting".into()], None).await.unwrap().stdout,
        b"hello\n"
    );
    let mut events = node.runtime.events();
    kill(Pid::from_raw(after.pid.unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(node.ended(&mut events, &runs).await.exit_code, Some(137));
    let other = node.sandbox("other").await;
    assert_ne!(node.runtime.sandbox_status(&other).await.unwrap().ips, ips);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_that_dies_takes_its_container_along() {
    let Some(node) = Node::new("a_shim_that_dies_takes_its_container_along").await else { return };
    let sandbox = node.sandbox("shimless").await;
    let present = node.start(&sandbox, Node::shell("present", "echo up; exec sleep 1000")).await;
    let away = node.start(&sandbox, Node::shell("away", "echo up; exec sleep 1000")).await;
    for id in [&present, &away] {
        node.says(id, "up").await;
    }
    let pid_of = |status: &plumb_runtime::types::ContainerStatus| Pid::from_raw(status.pid.unwrap());
    let mut events = node.runtime.events();
    let first = pid_of(&node.runtime.container_status(&present).await.unwrap());
    let second = pid_of(&node.runtime.container_status(&away).await.unwrap());
    kill(parent_of(first), Signal::SIGKILL).unwrap();
    let status = node.ended(&mut events, &present).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "ContainerStatusUnknown"));

    let folder = node.folder.clone();
    drop(node);
    kill(parent_of(second), Signal::SIGKILL).unwrap();
    let node = Node::again(folder).await;
    // The shim may have been dying still when the runtime was opened.
    let ended = async {
        loop {
            let status = node.runtime.container_status(&away).await.unwrap();
            if status.exit_code.is_some() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let status = tokio::time::timeout(TIMEOUT, ended).await.unwrap();
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "ContainerStatusUnknown"));
    for pid in [first, second] {
        soon("gone", || fs::metadata(format!("/proc/{pid}")).is_err()).await;
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_sandboxes_and_containers_are_cleaned_up() {
    let Some(node) = Node::new("unfinished_sandboxes_and_containers_are_cleaned_up").await else { return };
    let sandbox = node.sandbox("whole").await;
    let id = node.start(&sandbox, Node::shell("c", "echo up; exec sleep 1000")).await;
    node.says(&id, "up").await;
    let tree = node.runtime.cgroups().clone();
    let folder = node.folder.clone();
    drop(node);
    let root = folder.path().join("data/runtime");
    // A sandbox whose creation was interrupted, containers without a record, cgroups of no pod, a torn record.
    let record =
        fs::read_to_string(root.join("sandboxes").join(sandbox.as_str()).join("sandbox.json")).unwrap();
    for (name, text) in [
        (
            "half",
            record
                .replace("\"complete\":true", "\"complete\":false")
                .replace(sandbox.as_str(), "half")
                .replace("uid-whole", "uid-half"),
        ),
        ("torn", record[..record.len() / 2].to_owned()),
    ] {
        fs::create_dir_all(root.join("sandboxes").join(name)).unwrap();
        fs::write(root.join("sandboxes").join(name).join("sandbox.json"), text).unwrap();
    }
    fs::create_dir_all(root.join("containers/without/upper")).unwrap();
    let class = plumb_resize::qos::QosClass::Burstable;
    tree.pod(class, "unknown").create().unwrap();
    tree.container(class, "uid-whole", "without").create().unwrap();
    tree.container(class, "uid-half", "c").create().unwrap();

    let node = Node::again(folder).await;
    assert_eq!(node.runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap().len(), 1);
    assert_eq!(node.runtime.list_containers(&ContainerFilter::default()).await.unwrap().len(), 1);
    assert_eq!(fs::read_dir(root.join("sandboxes")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(root.join("containers")).unwrap().count(), 1);
    assert_eq!(tree.class(class).children().unwrap().len(), 1);
    assert_eq!(tree.pod(class, "uid-whole").children().unwrap().len(), 1);
    let status = node.runtime.container_status(&id).await.unwrap();
    assert_eq!(status.container.state, ContainerState::Running);
    assert_eq!(said(&status.log_path.unwrap()), "up\n");
    node.end().await;
}

fn parent_of(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    Pid::from_raw(line.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_a_restart_of_the_machine_ended_is_not_ready() {
    let Some(node) = Node::new("a_pod_that_a_restart_of_the_machine_ended_is_not_ready").await else {
        return;
    };
    let sandbox = node.sandbox("rebooted").await;
    let id = node.start(&sandbox, Node::shell("c", "echo up; exec sleep 1000")).await;
    node.says(&id, "up").await;
    node.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let folder = node.folder.clone();
    drop(node);
    // What a restart takes away.
    let held = folder.path().join("data/runtime/sandboxes").join(sandbox.as_str());
    for name in ["net", "uts", "ipc", "shm"] {
        nix::mount::umount2(&held.join(name), nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    let node = Node::again(folder).await;
    let status = node.runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!((status.sandbox.state, status.ips.len()), (SandboxState::NotReady, 0));
    // The next attempt has a place, and the first one goes without a trace of the second.
    let mut config = node.sandbox_config("rebooted");
    config.meta.attempt = 1;
    let next = node.runtime.run_sandbox(config).await.unwrap();
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    let again = node.start(&next, Node::shell("c", "echo up; exec sleep 1000")).await;
    node.says(&again, "up").await;
    assert_eq!(node.runtime.sandbox_status(&next).await.unwrap().ips.len(), 1);
    node.end().await;
}
