//! The processes, cgroups, mounts, links, files and sysctls of this machine that a cluster could leave behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Sysctls of the whole machine that a kubelet or a container runtime may change.
const SETTINGS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];

/// Folders in which a container runtime or a kubelet makes others.
const FOLDERS: [&str; 8] =
    ["/run", "/run/netns", "/run/containerd", "/var/lib", "/var/lib/cni", "/var/log", "/etc", "/etc/cni"];

/// The state, each item as a line of text. Items of other programs on this machine are left out: their processes run in
/// this process's namespaces, and their cgroups are below cgroups that existed before.
pub(crate) struct MachineState(BTreeSet<String>);

impl MachineState {
    pub(crate) fn read() -> Self {
        let mut all = BTreeSet::new();
        all.extend(processes());
        all.extend(cgroups());
        all.extend(mounts());
        all.extend(names("link", Path::new("/sys/class/net")));
        all.extend(FOLDERS.iter().flat_map(|folder| names("entry", Path::new(folder))));
        all.extend(names("entry", &std::env::temp_dir()).filter(|name| name.contains("plumb-testbed")));
        all.extend(SETTINGS.iter().map(|setting| {
            let value = fs::read_to_string(Path::new("/proc/sys").join(setting)).unwrap_or_default();
            format!("setting {setting} = {}", value.trim())
        }));
        Self(all)
    }

    /// The items that exist now and are not in this state.
    pub(crate) fn additions(&self) -> Vec<String> {
        let added: Vec<String> = Self::read().0.difference(&self.0).cloned().collect();
        let is_of_another = |line: &String| {
            // Groups below one that existed before belong to its owner.
            line.strip_prefix("cgroup ").is_some_and(|path| {
                Path::new(path)
                    .ancestors()
                    .skip(1)
                    .any(|above| self.0.contains(&format!("cgroup {}", above.display())))
            })
        };
        added.into_iter().filter(|line| !is_of_another(line)).collect()
    }
}

/// Processes in other PID or mount namespaces than this one's, and those that run programs of ours.
fn processes() -> BTreeSet<String> {
    let namespace = |id: &str, kind: &str| fs::read_link(format!("/proc/{id}/ns/{kind}")).ok();
    let own = ["pid", "mnt"].map(|kind| namespace("self", kind));
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let Ok(program) = fs::read_link(format!("/proc/{id}/exe")) else { continue };
        let apart = ["pid", "mnt"].map(|kind| namespace(&id, kind)) != own;
        if apart || program.ends_with("testbed") || program.to_string_lossy().contains("plumb/testbed/") {
            found.insert(format!("process {id} {}", program.display()));
        }
    }
    found
}

/// All groups below the roots of all hierarchies.
fn cgroups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for mount in mounts().iter().filter(|line| line.contains(" - cgroup")) {
        if let Some(root) = mount.split(' ').nth(5) {
            collect_groups(Path::new(root), &mut found);
        }
    }
    found
}

fn collect_groups(group: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(format!("cgroup {}", entry.path().display()));
            collect_groups(&entry.path(), found);
        }
    }
}

fn mounts() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().map(|line| format!("mount {line}")).collect()
}

fn names(kind: &'static str, folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.into_iter().map(move |entry| format!("{kind} {}", entry.path().display()))
}
