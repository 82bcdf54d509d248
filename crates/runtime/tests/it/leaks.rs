//! Nothing is left behind.

use std::fs;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use plumb_runtime::Runtime as _;

use crate::node::{Node, TIMEOUT};

const PODS: usize = 125;
const CONTAINERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_containers_leave_nothing() {
    let Some(node) = Node::new("five_hundred_containers_leave_nothing").await else { return };
    // One pod stays, so that what all pods share is there before and after.
    let stays = node.sandbox("stays").await;
    let here = node.folder.path().to_string_lossy().into_owned();
    let before = Seen::now(&node, &here);
    for round in 0..PODS / 5 {
        let pods = (0..5).map(|pod| one_pod(&node, format!("leak-{round}-{pod}")));
        join_all(pods).await;
    }
    let mut after = Seen::now(&node, &here);
    // Namespaces and processes disappear a moment after their users.
    let deadline = Instant::now() + TIMEOUT;
    while !after.has_no_more_than(&before) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
        after = Seen::now(&node, &here);
    }
    assert!(after.has_no_more_than(&before), "{after:?}, before: {before:?}");
    node.runtime.remove_sandbox(&stays).await.unwrap();
    node.end().await;
}

async fn one_pod(node: &Node, name: String) {
    let mut config = node.sandbox_config(&name);
    config.log_directory = Some(node.logs().join(&name));
    let sandbox = node.runtime.run_sandbox(config).await.unwrap();
    for number in 0..CONTAINERS {
        let script =
            ["exec sleep 1000", "exit 1", "exec sleep 1000", "touch /a /b; exec sleep 1000"][number % 4];
        let config = Node::shell(&format!("c{number}"), script);
        let id = node.runtime.create_container(&sandbox, config).await.unwrap();
        if number != 2 {
            node.runtime.start_container(&id).await.unwrap();
        }
        if number == 0 {
            node.runtime.remove_container(&id).await.unwrap();
        }
    }
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    fs::remove_dir_all(node.logs().join(&name)).unwrap();
}

#[derive(Debug)]
struct Seen {
    cgroups: Vec<usize>,
    mounts: usize,
    interfaces: usize,
    shims: usize,
    files: usize,
    open_files: usize,
}

impl Seen {
    /// What is there for a moment only may have been counted before, too.
    fn has_no_more_than(&self, before: &Self) -> bool {
        self.cgroups.len() == before.cgroups.len()
            && self.cgroups.iter().zip(&before.cgroups).all(|(now, then)| now <= then)
            && self.mounts <= before.mounts
            && self.interfaces <= before.interfaces
            && self.shims <= before.shims
            && self.files <= before.files
            && self.open_files <= before.open_files
    }

    fn now(node: &Node, here: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let groups = node.runtime.cgroups().pods();
        Self {
            cgroups: groups.folders().iter().map(|folder| count(folder, true)).collect(),
            mounts: mounts.lines().filter(|line| line.contains(here)).count(),
            interfaces: ports(&groups.path().to_string_lossy()),
            shims: processes(here),
            files: count(node.folder.path(), false),
            open_files: fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter(|entry| {
                    let Ok(entry) = entry else { return false };
                    fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains(here))
                })
                .count(),
        }
    }
}

/// The ports of our bridge; its name and the cgroup's come from the same folder.
fn ports(cgroup: &str) -> usize {
    let hash = cgroup.trim_start_matches("plumb-");
    let bridge = format!("/sys/class/net/plumb{}/brif", &hash[..8]);
    fs::read_dir(bridge).map_or(0, Iterator::count)
}

fn count(folder: &std::path::Path, folders_only: bool) -> usize {
    let mut found = 0;
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        found += usize::from(is_folder || !folders_only);
        if is_folder {
            found += count(&entry.path(), folders_only);
        }
    }
    found
}

/// Processes that were started for something in this folder.
fn processes(here: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(here)
    })
    .count()
}
