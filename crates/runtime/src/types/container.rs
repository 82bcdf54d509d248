//! Containers, which run in a sandbox.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ContainerId, Pairs, Resources, SandboxId, Security};

/// Which container of a pod it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerMeta {
    /// Its name in the pod.
    pub name: String,
    /// How many times it was restarted before.
    pub attempt: u32,
}

/// The configuration of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerConfig {
    /// Which container of the pod it is.
    pub meta: ContainerMeta,
    /// The image's name or id.
    pub image: String,
    /// The command, instead of the image's entrypoint. If it is set, the image's arguments are ignored.
    pub command: Vec<String>,
    /// Arguments, instead of the image's.
    pub args: Vec<String>,
    /// Its working directory; `None` is the image's.
    pub working_dir: Option<String>,
    /// Environment variables, in addition to the image's.
    pub env: Vec<Env>,
    /// Mounts from the host.
    pub mounts: Vec<Mount>,
    /// Images whose files are mounted, read-only and without a way to execute them. A runtime for which
    /// [`Runtime::has_image_volumes`](crate::Runtime::has_image_volumes) is false gets none.
    pub image_mounts: Vec<ImageMount>,
    /// Devices of the host, in addition to the default ones.
    pub devices: Vec<Device>,
    /// The log, relative to the sandbox's log directory. `None` is no log.
    pub log_path: Option<PathBuf>,
    /// When the log is rotated.
    pub log_limits: LogLimits,
    /// Whether its standard input stays open; otherwise it is empty.
    pub stdin: bool,
    /// Whether its standard input is closed once the first client that attached to it has disconnected.
    pub stdin_once: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The stop signal, such as `SIGQUIT`; `None` is the image's, else `SIGTERM`.
    pub stop_signal: Option<String>,
    /// Its resources.
    pub resources: Resources,
    /// Its security context.
    pub security: Security,
    /// The container of the same sandbox whose pid namespace it joins, instead of that of the sandbox.
    pub pid_target: Option<ContainerId>,
    /// Resource limits of its processes (setrlimit).
    pub rlimits: Vec<Rlimit>,
    /// Labels, which filters match.
    pub labels: Pairs,
    /// Annotations, which the runtime only stores.
    pub annotations: Pairs,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Env {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A bind mount from the host into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The mount point in the container.
    pub container_path: String,
    /// The file or directory of the host.
    pub host_path: PathBuf,
    /// Whether it is mounted read-only.
    #[serde(default)]
    pub readonly: bool,
    /// Whether mounts below it are read-only, too. Only with `readonly`.
    #[serde(default)]
    pub recursive_readonly: bool,
    /// Its mount propagation.
    #[serde(default)]
    pub propagation: Propagation,
}

/// A mount of an image's files into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageMount {
    /// The mount point in the container.
    pub container_path: String,
    /// The image's name or id.
    pub image: String,
    /// The part of the image; empty is all of it.
    pub sub_path: PathBuf,
}

/// Mount propagation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    #[default]
    Private,
    /// Later mounts of the host appear in the container.
    HostToContainer,
    /// Later mounts of the container appear on the host, too.
    Bidirectional,
}

/// A device of the host in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The device file in the container.
    pub container_path: String,
    /// The device on the host.
    pub host_path: PathBuf,
    /// The permitted operations: some of `r`, `w` and `m`.
    pub permissions: String,
}

/// When a log is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLimits {
    /// The size in bytes at which a file is rotated; 0 is never.
    pub max_size: u64,
    /// The maximum number of files, the current one included.
    pub max_files: u32,
}

impl Default for LogLimits {
    /// The kubelet's defaults: five files of 10 MiB.
    fn default() -> Self {
        Self { max_size: 10 << 20, max_files: 5 }
    }
}

/// A resource limit of a process (setrlimit).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Its name, such as `RLIMIT_NOFILE`.
    pub name: String,
    /// The soft limit; `u64::MAX` is unlimited.
    pub soft: u64,
    /// The hard limit, up to which the process may raise the soft one.
    pub hard: u64,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Running.
    Running,
    /// Exited.
    Exited,
    /// Unknown: it was started, and its exit status was lost.
    Unknown,
}

/// A container in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox it is in.
    pub sandbox: SandboxId,
    /// Which container of the pod it is.
    pub meta: ContainerMeta,
    /// The image as it was requested.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// Its state.
    pub state: ContainerState,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its labels.
    pub labels: Pairs,
    /// Its annotations.
    pub annotations: Pairs,
}

/// The status of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// The container as in a list.
    pub container: Container,
    /// The pid of its first process in the host's pid namespace, while it runs.
    pub pid: Option<i32>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it exited.
    pub finished_at: Option<Timestamp>,
    /// Its exit code, or 128 and the signal that killed it.
    pub exit_code: Option<i32>,
    /// Why it exited: `Completed`, `Error` or `OOMKilled`; empty before.
    pub reason: String,
    /// A human-readable message about that.
    pub message: String,
    /// The path of its log.
    pub log_path: Option<PathBuf>,
    /// The actual resources, as read back; `None` when it has exited.
    pub resources: Option<Resources>,
    /// Mounts from the host.
    pub mounts: Vec<Mount>,
    /// Its user and groups, once it was started.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// The stop signal.
    pub stop_signal: String,
}

/// Selects containers. All fields that are set must match; an empty filter matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// The container with this id.
    pub id: Option<ContainerId>,
    /// In this sandbox.
    pub sandbox: Option<SandboxId>,
    /// In this state.
    pub state: Option<ContainerState>,
    /// With these labels.
    pub labels: Pairs,
}

impl ContainerFilter {
    /// The containers of one sandbox.
    pub fn of(sandbox: &SandboxId) -> Self {
        Self { sandbox: Some(sandbox.clone()), ..Self::default() }
    }

    /// Whether a container matches.
    pub fn matches(&self, container: &Container) -> bool {
        self.id.as_ref().is_none_or(|id| *id == container.id)
            && self.sandbox.as_ref().is_none_or(|sandbox| *sandbox == container.sandbox)
            && self.state.is_none_or(|state| state == container.state)
            && self.labels.iter().all(|(name, value)| container.labels.get(name) == Some(value))
    }
}

/// The output of a command that was run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its standard output, at most the first 16 MiB.
    pub stdout: Vec<u8>,
    /// Its standard error, at most the first 16 MiB.
    pub stderr: Vec<u8>,
    /// Its exit code, or 128 and the signal that killed it.
    pub exit_code: i32,
}
