//! How a node is, in the kubelet's words.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::eviction::{PressureCondition, Pressures};
use crate::shutdown;

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
    /// The same under these pressures.
    pub(crate) fn with_pressures(self, pressures: &Pressures) -> Self {
        let has = |condition: PressureCondition| pressures.contains(&condition);
        Self {
            memory_pressure: has(PressureCondition::Memory),
            disk_pressure: has(PressureCondition::Disk),
            pid_pressure: has(PressureCondition::Pid),
            ..self
        }
    }

    fn why_not_ready(&self) -> Option<&str> {
        if self.shutting_down { Some(shutdown::NOT_READY) } else { self.not_ready.as_deref() }
    }
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
