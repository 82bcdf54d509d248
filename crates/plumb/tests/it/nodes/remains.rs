//! What runs on when a cluster stops, and what is left when it is gone.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, soon, until};

fn mounts(data: &Path) -> usize {
    plumb_runtime::mounts_below(&std::fs::canonicalize(data).unwrap()).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_run_on_when_a_cluster_stops_and_starts_again() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    create(&api, &pod("web", json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]))).await;
    let before = until(&api, "web", "settled", is_settled).await;
    let groups = Groups::of(&before);
    let pid = groups.pid(&id(&before, "c")).unwrap();
    assert!(cluster.stop().success());
    assert_eq!(groups.pid(&id(&before, "c")), Some(pid), "it ran on");

    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let after = until(&api, "web", "settled", is_settled).await;
    assert_eq!(id(&after, "c"), id(&before, "c"));
    assert_eq!(groups.pid(&id(&after, "c")), Some(pid));
    let status = after.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(status.restart_count, 0);
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_directory_that_was_partly_removed_by_hand_is_cleaned_up() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    create(&api, &pod("web", json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]))).await;
    until(&api, "web", "settled", is_settled).await;
    cluster.stop();
    // It fails at what is mounted, and leaves just that.
    let removed =
        Command::new("rm").arg("-rf").arg(machine.data().join("runtime/sandboxes")).output().unwrap();
    assert!(!removed.status.success() && mounts(&machine.data()) > 0);

    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    until(&api, "web", "settled", is_settled).await;
    assert!(cluster.stop().success());
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_of_the_machine_are_kept_out_of_what_pods_have() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    create(&api, &pod("web", json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]))).await;
    until(&api, "web", "settled", is_settled).await;
    assert!(cluster.stop().success());
    for entry in std::fs::read_dir(machine.data()).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", entry.path().display());
    }
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn down_leaves_nothing_on_the_machine() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    create(&api, &pod("web", json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]))).await;
    let before = until(&api, "web", "settled", is_settled).await;
    let groups = Groups::of(&before);
    cluster.stop();
    let down = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        let done = command.args(["down", "--data-dir"]).arg(machine.data()).args(flags).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let said = down(&[]);
    assert!(said.starts_with("removed 1 container, 1 pod, "), "{said}");
    assert!(said.contains("cgroup ") && said.contains("bridge "), "{said}");
    let said = down(&[]);
    assert_eq!(said, "no containers, cgroups or bridge were left; objects and images stay\n");
    assert_eq!(mounts(&machine.data()), 0);
    soon("gone", || groups.pid(&id(&before, "c")).is_none()).await;

    // Objects stay: the pod is there, and is started anew.
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    until(&api, "web", "settled", is_settled).await;
    cluster.stop();
    down(&["--purge"]);
    assert!(!machine.data().exists());
}
