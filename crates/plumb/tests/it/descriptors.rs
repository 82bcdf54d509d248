//! File descriptors: as many as there may be, and what happens when there are no more.

use std::path::Path;
use std::process::Command;

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::cluster::{Cluster, up};
use super::nodes::machine::{Machine, create, equal, is_settled, load, pod, pods, until};
use super::wire::{Speech, soon};

/// `plumb up` under a limit of the shell's.
fn limited(data: &Path, limit: &str) -> Command {
    let up = up(data);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\""));
    command.arg(up.get_program()).args(up.get_args());
    command
}

/// The soft and the hard limit of open files of a process.
fn limits_of(pid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut words = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn the_limit_of_file_descriptors_is_raised_to_the_hard_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::run(&data, limited(&data, "-Sn 64"), &["--components", "apiserver"]);
    let (soft, hard) = limits_of(cluster.pid());
    assert_eq!(soft, hard.min(1 << 20));
    assert!(soft > 64, "the hard limit of this machine is too low to show it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_few_file_descriptors_many_idle_connections_do_not_keep_the_administrator_out() {
    const DESCRIPTORS: usize = 128;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let command = limited(&data, &format!("-n {DESCRIPTORS}"));
    let cluster = Cluster::run(&data, command, &["--components", "apiserver"]);
    let wire = cluster.wire();
    let mut idle = Vec::new();
    for _ in 0..2 * DESCRIPTORS {
        // Those beyond the limit are closed, sooner or later.
        idle.extend(soon(wire.raw(Speech::Http1)).await);
    }
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    soon(maps.list(&ListParams::default())).await.unwrap();
    let said = cluster.said();
    assert!(!said.contains("cannot accept a connection"), "{said}");
    // When they are closed the server accepts connections again.
    drop(idle);
    let again = async {
        loop {
            let answered = wire.connect(Speech::Http2).await.ask(Method::GET, "/version", "", "").await;
            if answered.is_ok_and(|(status, _)| status == 200) {
                break;
            }
        }
    };
    soon(again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_file_descriptors_waits_for_some_and_says_so_once() {
    let set = |pid: u32, soft: &str| {
        Command::new("prlimit").args(["--pid", &pid.to_string(), &format!("--nofile={soft}:")]).status()
    };
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_alone(&folder.path().join("data"));
    let (before, _) = limits_of(cluster.pid());
    if set(cluster.pid(), "3").is_err() {
        plumb_testkit::skip(plumb_testkit::MACHINE, "there is no prlimit here");
        return;
    }
    let wire = cluster.wire();
    let waiting = tokio::spawn({
        let wire = wire.clone();
        async move { wire.connect(Speech::Http1).await.ask(Method::GET, "/version", "", "").await.unwrap().0 }
    });
    let refused = async {
        while !cluster.said().contains("cannot accept a connection") {
            tokio::task::yield_now().await;
        }
    };
    soon(refused).await;
    assert!(set(cluster.pid(), &before.to_string()).unwrap().success());
    assert_eq!(soon(waiting).await.unwrap(), 200);
    let connection = wire.connect(Speech::Http2).await;
    let (_, figures) = soon(connection.ask(Method::GET, "/metrics", "", "")).await.unwrap();
    let line = figures
        .as_str()
        .unwrap()
        .lines()
        .find(|line| line.starts_with("plumb_apiserver_accept_errors_total "));
    let errors: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(errors > 0);
    assert_eq!(cluster.said().matches("cannot accept a connection").count(), 1, "{}", cluster.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_the_limit_that_the_server_was_started_with() {
    const ARGS: [&str; 4] = ["--cpu", "7m", "--memory", "3Mi"];
    let Some(machine) = Machine::here() else { return };
    let data = machine.data();
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "builtin"];
    let cluster = Cluster::run(&data, limited(&data, "-Sn 777"), &flags);
    let pods = pods(&cluster).await;
    create(&pods, &pod("limited", json!([load("c", &ARGS, equal("10m", "32Mi"))]))).await;
    until(&pods, "limited", "running", is_settled).await;
    // The child of the shim that was given a folder of this cluster's.
    let data = std::fs::canonicalize(&data).unwrap();
    let line = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).into_owned()
    };
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let container = pids.find(|pid| {
        line(*pid).contains(&ARGS.join("\0"))
            && parent(*pid).is_some_and(|shim| line(shim).contains(&*data.to_string_lossy()))
    });
    assert_eq!(limits_of(container.unwrap()).0, 777);
    assert!(limits_of(cluster.pid()).0 > 777);
    drop(cluster);
    machine.clear();
}
