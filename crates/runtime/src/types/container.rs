//! Containers: what runs in a sandbox.

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

/// How to make a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerConfig {
    /// Which container of the pod it is.
    pub meta: ContainerMeta,
    /// The image's name or id.
    pub image: String,
    /// What to run, instead of the image's entrypoint. If it is given, the image's arguments don't count.
    pub command: Vec<String>,
    /// Arguments, instead of the image's.
    pub args: Vec<String>,
    /// Where to run it; `None` is where the image says.
    pub working_dir: Option<String>,
    /// Variables, on top of the image's.
    pub env: Vec<Env>,
    /// What is seen in it from outside.
    pub mounts: Vec<Mount>,
    /// Devices of the machine, besides the usual ones.
    pub devices: Vec<Device>,
    /// The log, relative to the sandbox's folder. `None` logs nothing.
    pub log_path: Option<PathBuf>,
    /// How far the log grows.
    pub log_limits: LogLimits,
    /// Whether its standard input is kept open; else it is empty.
    pub stdin: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The signal that asks it to end, such as `SIGQUIT`; `None` is the image's, else `SIGTERM`.
    pub stop_signal: Option<String>,
    /// What it may use.
    pub resources: Resources,
    /// What it may do.
    pub security: Security,
    /// Limits of its processes.
    pub rlimits: Vec<Rlimit>,
    /// To find it by.
    pub labels: Pairs,
    /// Carried along.
    pub annotations: Pairs,
}

/// A variable of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Env {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Something from outside that is seen in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where it is seen.
    pub container_path: String,
    /// What is seen: a file or folder of the machine.
    pub host_path: PathBuf,
    /// It cannot be written there.
    #[serde(default)]
    pub readonly: bool,
    /// Nor can what is mounted below it. Only with `readonly`.
    #[serde(default)]
    pub recursive_readonly: bool,
    /// Which later mounts are seen on the other side.
    #[serde(default)]
    pub propagation: Propagation,
}

/// Which later mounts are seen on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    #[default]
    Private,
    /// The machine's are seen in the container.
    HostToContainer,
    /// And the container's by the machine.
    Bidirectional,
}

/// A device of the machine in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Where it is seen.
    pub container_path: String,
    /// The device on the machine.
    pub host_path: PathBuf,
    /// What may be done with it: of `r`, `w` and `m`.
    pub permissions: String,
}

/// How far a log grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLimits {
    /// A file that has grown to this many bytes is moved aside; 0 is never.
    pub max_size: u64,
    /// How many files there are at most, the current one included.
    pub max_files: u32,
}

impl Default for LogLimits {
    /// As the kubelet has it: five files of 10 MiB.
    fn default() -> Self {
        Self { max_size: 10 << 20, max_files: 5 }
    }
}

/// A limit of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Its name, such as `RLIMIT_NOFILE`.
    pub name: String,
    /// What is in force; `u64::MAX` is unlimited.
    pub soft: u64,
    /// How far the process itself may raise that.
    pub hard: u64,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know: it was started, and how it ended was lost.
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
    /// The image as it was asked for.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// Where it is in its life.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its labels.
    pub labels: Pairs,
    /// Its annotations.
    pub annotations: Pairs,
}

/// How a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// What a list says of it.
    pub container: Container,
    /// The process that it is, in the machine's numbering, while it runs.
    pub pid: Option<i32>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How it ended: its exit code, or 128 and the signal that killed it.
    pub exit_code: Option<i32>,
    /// One word for how it ended: `Completed`, `Error` or `OOMKilled`; empty before.
    pub reason: String,
    /// More about that, for people.
    pub message: String,
    /// Where its log is.
    pub log_path: Option<PathBuf>,
    /// The resources in force, as read back; `None` when it has ended.
    pub resources: Option<Resources>,
    /// What is seen in it from outside.
    pub mounts: Vec<Mount>,
    /// Its user and groups, once it was started.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// The signal that asks it to end.
    pub stop_signal: String,
}

/// Which containers. All that is given must hold; an empty filter lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// This one.
    pub id: Option<ContainerId>,
    /// In this sandbox.
    pub sandbox: Option<SandboxId>,
    /// In this state.
    pub state: Option<ContainerState>,
    /// With these labels.
    pub labels: Pairs,
}

impl ContainerFilter {
    /// Those of one sandbox.
    pub fn of(sandbox: &SandboxId) -> Self {
        Self { sandbox: Some(sandbox.clone()), ..Self::default() }
    }

    /// Whether a container passes.
    pub fn admits(&self, container: &Container) -> bool {
        self.id.as_ref().is_none_or(|id| *id == container.id)
            && self.sandbox.as_ref().is_none_or(|sandbox| *sandbox == container.sandbox)
            && self.state.is_none_or(|state| state == container.state)
            && self.labels.iter().all(|(name, value)| container.labels.get(name) == Some(value))
    }
}

/// What a command that was run in a container said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to standard output; the first 16 MiB of it.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error; the first 16 MiB of it.
    pub stderr: Vec<u8>,
    /// Its exit code, or 128 and the signal that killed it.
    pub exit_code: i32,
}
