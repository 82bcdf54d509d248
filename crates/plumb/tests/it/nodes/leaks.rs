//! Pods that come and go leave nothing on the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use futures_util::StreamExt as _;
use kube::api::DeleteParams;
use plumb_conformance::Group;
use serde_json::json;

use super::machine::{Machine, create, equal, is_settled, is_soon, load, pod, pods, soon, until};

/// How many pods come and go; `PLUMB_PODS` asks for more.
fn how_many() -> usize {
    std::env::var("PLUMB_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_leave_no_cgroup_mount_interface_process_or_file() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let data = fs::canonicalize(machine.data()).unwrap();
    // The first brings what all of them share.
    let first =
        create(&pods, &pod("first", json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]))).await;
    let first = until(&pods, &first.metadata.name.unwrap(), "settled", is_settled).await;
    let bridge = bridge(&first);
    pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    let folder = |name: &str| fs::read_dir(data.join(name)).map_or(0, Iterator::count);
    let left = || {
        ["runtime/containers", "runtime/sandboxes", "volumes", "logs"].map(folder).into_iter().sum::<usize>()
    };
    soon("empty", || left() == 0).await;
    let before = Seen::now(&data, cluster.pid(), &bridge);
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
    soon("empty", || left() == 0).await;
    soon("no cgroups", || uids.iter().all(|uid| Group::find(&format!("pod{uid}")).is_none())).await;
    let mut after = Seen::now(&data, cluster.pid(), &bridge);
    // The kernel lets interfaces and processes go a moment after their pod, also those of the first.
    let is_clean = || {
        after = Seen::now(&data, cluster.pid(), &bridge);
        after.has_no_more_than(&before)
    };
    assert!(is_soon(is_clean).await, "{after:#?}, before: {before:#?}");
    drop(cluster);
    machine.clear();
}

/// What there is of a cluster on the machine.
#[derive(Debug)]
struct Seen {
    /// Namespaces are held by mounts, too.
    mounts: Vec<String>,
    interfaces: usize,
    shims: usize,
    files: usize,
    /// Open files of the process that are no connections: folders, logs, bells of cgroups.
    open: BTreeMap<String, usize>,
}

impl Seen {
    fn has_no_more_than(&self, before: &Self) -> bool {
        let is_open_before =
            |(path, count): (&String, &usize)| before.open.get(path).is_some_and(|was| count <= was);
        self.mounts.iter().all(|mount| before.mounts.contains(mount))
            && self.interfaces <= before.interfaces
            && self.shims <= before.shims
            && self.files <= before.files
            && self.open.iter().all(is_open_before)
    }

    fn now(data: &Path, pid: u32, bridge: &str) -> Self {
        let below = data.to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let shims = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            line.contains(&below) && line.contains("shim")
        });
        let mut open = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let Ok(to) = fs::read_link(entry.path()) else { continue };
            let to = to.to_string_lossy();
            // The objects and the journal of the cluster grow and are written anew.
            let of_objects = [data.join("objects"), data.join("journal")];
            if !to.starts_with("socket:")
                && !of_objects.iter().any(|of| to.starts_with(&*of.to_string_lossy()))
            {
                *open.entry(to.into_owned()).or_default() += 1;
            }
        }
        Self {
            mounts: mounts.lines().filter(|line| line.contains(&below)).map(str::to_owned).collect(),
            interfaces: fs::read_dir(format!("/sys/class/net/{bridge}/brif")).map_or(0, Iterator::count),
            shims: shims.count(),
            files: count(&data.join("runtime")) + count(&data.join("volumes")) + count(&data.join("logs")),
            open,
        }
    }
}

/// The bridge of the cluster that a pod is in: its name and the cgroup's come from the same folder.
fn bridge(pod: &k8s_openapi::api::core::v1::Pod) -> String {
    let group = Group::find(&format!("pod{}", pod.metadata.uid.as_deref().unwrap())).unwrap();
    let mut names = group.path().ancestors().filter_map(|folder| folder.file_name()?.to_str());
    let name = names.find_map(|name| name.strip_prefix("plumb-")).unwrap();
    format!("plumb{}", &name[..8])
}

/// The files and folders below a folder.
fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            1 + if is_folder { count(&entry.path()) } else { 0 }
        })
        .sum()
}
