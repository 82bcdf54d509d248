//! How a node is, in the kubelet's words.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::machine::memory_figure;
use crate::shutdown;

/// Less memory than this is too little, in bytes.
const LEAST_MEMORY: u64 = 100 << 20;
/// Less of a disk than this is too little, in hundredths.
const LEAST_DISK: u64 = 10;
const LEAST_INODES: u64 = 5;

/// How a node is.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Why it cannot run pods, if it cannot.
    pub not_ready: Option<String>,
    /// The node is shutting down: no longer ready, whatever the state of its runtime.
    pub shutting_down: bool,
    /// It runs short of memory.
    pub memory_pressure: bool,
    /// It runs short of disk.
    pub disk_pressure: bool,
    /// It runs short of process ids.
    pub pid_pressure: bool,
}

impl NodeHealth {
    fn why_not_ready(&self) -> Option<&str> {
        if self.shutting_down { Some(shutdown::NOT_READY) } else { self.not_ready.as_deref() }
    }
}

/// The pressures of the machine, by the kubelet's usual thresholds. `root` is the root of the kernel's files, `data`
/// a directory on the disk that pods use.
pub fn pressures(root: &Path, data: &Path) -> io::Result<NodeHealth> {
    let memory = memory_figure(&std::fs::read_to_string(root.join("proc/meminfo"))?, "MemAvailable");
    let disk = rustix::fs::statvfs(data)?;
    let short =
        |free: u64, all: u64, least: u64| all > 0 && free.saturating_mul(100) < all.saturating_mul(least);
    let number =
        |path: &str| -> Option<u64> { std::fs::read_to_string(root.join(path)).ok()?.trim().parse().ok() };
    // The fourth word of loadavg is `running/all`.
    let load = std::fs::read_to_string(root.join("proc/loadavg")).unwrap_or_default();
    let tasks = load.split_whitespace().nth(3).and_then(|word| word.split_once('/')?.1.parse::<u64>().ok());
    let most =
        number("proc/sys/kernel/pid_max").into_iter().chain(number("proc/sys/kernel/threads-max")).min();
    Ok(NodeHealth {
        memory_pressure: memory.is_some_and(|free| free < LEAST_MEMORY),
        disk_pressure: short(disk.f_bavail, disk.f_blocks, LEAST_DISK)
            || short(disk.f_favail, disk.f_files, LEAST_INODES),
        pid_pressure: tasks.zip(most).is_some_and(|(tasks, most)| tasks >= most),
        ..NodeHealth::default()
    })
}

/// The conditions for a status. A condition that is unchanged keeps its transition time.
pub(super) fn conditions(
    health: &NodeHealth,
    before: Option<&NodeStatus>,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let pressure = |kind: &str, under: bool, words: [(&str, &str); 2]| {
        let (reason, message) = words[usize::from(under)];
        (kind.to_owned(), under, reason.to_owned(), message.to_owned())
    };
    let all = [
        pressure(
            "MemoryPressure",
            health.memory_pressure,
            [
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ],
        ),
        pressure(
            "DiskPressure",
            health.disk_pressure,
            [
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ],
        ),
        pressure(
            "PIDPressure",
            health.pid_pressure,
            [
                ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ],
        ),
        match health.why_not_ready() {
            None => {
                ("Ready".into(), true, "KubeletReady".into(), "kubelet is posting ready status".to_owned())
            }
            Some(why) => ("Ready".into(), false, "KubeletNotReady".into(), why.to_owned()),
        },
    ];
    let known = before.and_then(|status| status.conditions.as_ref());
    all.into_iter()
        .map(|(type_, holds, reason, message)| {
            let status = if holds { "True" } else { "False" }.to_owned();
            let same = known.into_iter().flatten();
            let same = same.into_iter().find(|known| known.type_ == type_ && known.status == status);
            let since = same.and_then(|known| known.last_transition_time.clone());
            NodeCondition {
                type_,
                status,
                reason: Some(reason),
                message: Some(message),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: since.or(Some(Time(now))),
            }
        })
        .collect()
}
