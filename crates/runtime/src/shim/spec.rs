//! The specification that the agent passes to a shim about its container: everything is resolved, except for what
//! only the container's own files have.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::types::{Propagation, Rlimit};

/// A container, ready to be made. Fields are only ever added, with a default: a shim reads what an older agent
/// wrote, and the other way round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) process: ProcessSpec,
    pub(crate) overlay: OverlaySpec,
    pub(crate) namespaces: NamespaceSpec,
    pub(crate) binds: Vec<BindSpec>,
    pub(crate) devices: Vec<DeviceSpec>,
    pub(crate) cgroup: CgroupSpec,
    pub(crate) log: Option<LogSpec>,
    /// The tmpfs that all containers of the pod have at `/dev/shm`.
    pub(crate) shm: Option<PathBuf>,
    pub(crate) privileged: bool,
    pub(crate) read_only_rootfs: bool,
    pub(crate) masked_paths: Vec<String>,
    pub(crate) readonly_paths: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct ProcessSpec {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) cwd: String,
    /// A number, a name, or either with a group after a colon, as in images.
    pub(crate) user: String,
    pub(crate) group: Option<u32>,
    pub(crate) supplemental_groups: Vec<u32>,
    pub(crate) strict_groups: bool,
    /// A bit for each capability.
    pub(crate) capabilities: u64,
    pub(crate) no_new_privs: bool,
    pub(crate) seccomp: bool,
    pub(crate) rlimits: Vec<Rlimit>,
    pub(crate) oom_score_adj: Option<i32>,
    pub(crate) tty: bool,
    /// Whether standard input stays open without anything coming.
    pub(crate) stdin: bool,
    /// Whether it is closed once the first client that attached to it has disconnected.
    pub(crate) stdin_once: bool,
}

/// The layers of the root file system.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OverlaySpec {
    /// Where the lower folders are; they are named relative to it, for all of them have to fit into a page.
    pub(crate) base: PathBuf,
    /// The uppermost first.
    pub(crate) lower: Vec<PathBuf>,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
}

/// Namespaces that are there already, by the files that lead to them. `None` is the machine's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NamespaceSpec {
    pub(crate) net: Option<PathBuf>,
    pub(crate) ipc: Option<PathBuf>,
    pub(crate) uts: Option<PathBuf>,
    pub(crate) pid: PidSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PidSpec {
    /// Its own.
    #[default]
    New,
    /// One by its file: only in a `spec.json` of an earlier version, whose container may still run.
    Join(PathBuf),
    /// That of a process, which has this start time: another process may have its pid by now.
    JoinOf { pid: i32, start: u64 },
    /// The machine's.
    Host,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BindSpec {
    pub(crate) source: PathBuf,
    /// The layers of an image instead of the source, relative to [`OverlaySpec::base`], the uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    /// The part of the image.
    pub(crate) sub_path: PathBuf,
    pub(crate) destination: String,
    pub(crate) readonly: bool,
    pub(crate) recursive_readonly: bool,
    pub(crate) propagation: Propagation,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DeviceSpec {
    pub(crate) source: PathBuf,
    pub(crate) destination: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CgroupSpec {
    pub(crate) v2: bool,
    /// The files that a process writes `0` into to join.
    #[serde(rename = "doors")]
    pub(crate) join_files: Vec<PathBuf>,
    /// The container's folders in each hierarchy, as it sees them below `/sys/fs/cgroup`, by name.
    pub(crate) views: Vec<(String, PathBuf)>,
    /// The file with the number of OOM kills.
    pub(crate) oom: PathBuf,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogSpec {
    pub(crate) path: PathBuf,
    pub(crate) max_size: u64,
    pub(crate) max_files: u32,
}
