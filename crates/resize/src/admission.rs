//! Whether a node takes a resize: it fits, not now, or never.

mod ledger;
mod node;

use std::fmt;

pub use ledger::{Held, Ledger, Room};
pub use node::{CpuManager, MemoryManager, NodeFacts, Os, Swap};

use crate::pod::{PodResources, PodShape, RestartPolicy};
use crate::qos::QosClass;
use crate::resource::{Amounts, Requirements, Resource};
use crate::rules::{NeverFits, Rules, StaticCpu};

/// A pod that is to be resized.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The pod's uid.
    pub pod: &'a str,
    /// The pod.
    pub shape: &'a PodShape,
    /// What it is allocated.
    pub allocated: &'a PodResources,
    /// What it wants to be.
    pub desired: &'a PodResources,
}

/// What the node says to a resize.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// There is room, and nothing speaks against it.
    Fits,
    /// Not now; it is tried again when something changes.
    Deferred(Deferral),
    /// Never, on this node.
    Infeasible(Infeasibility),
}

/// Why a resize is put off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deferral {
    /// The node is too full.
    Shortage(Shortage),
    /// Something else on the node speaks against it: pressure, a taint, a shutdown.
    Other {
        /// Who refused, in one word.
        reason: String,
        /// Why, for the person who looks.
        message: String,
    },
}

/// What a node has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shortage {
    /// The resource.
    pub resource: Resource,
    /// How much the pod wants in all.
    pub requested: i64,
    /// How much the other pods hold.
    pub used: i64,
    /// How much there is for pods.
    pub capacity: i64,
}

/// Why a resize is refused for good.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Infeasibility {
    /// The feature is switched off.
    GateOff,
    /// Windows, where the runtime or the rules do not resize.
    Windows,
    /// Neither Linux nor Windows.
    UnsupportedPlatform,
    /// The container uses swap, and its swap would have to change with its memory.
    Swap,
    /// Resizing pod-level resources is switched off.
    PodLevelGateOff,
    /// The static cpu manager has given the pod cpus of its own.
    StaticCpu,
    /// The static cpu manager gives whole cores only.
    FractionalCpu {
        /// The container that asked for a fraction.
        container: String,
    },
    /// The static memory manager has given the pod memory of its own.
    StaticMemory,
    /// More than the node has in all.
    Capacity {
        /// The resource.
        resource: Resource,
        /// How much the pod wants.
        requested: i64,
        /// How much there is for pods.
        capacity: i64,
    },
}

impl Infeasibility {
    /// The label under which it is counted.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::GateOff => "feature_gate_off",
            Self::Windows => "windows",
            Self::UnsupportedPlatform => "unsupported_platform",
            Self::Swap => "swap_limitation",
            Self::PodLevelGateOff => "plr_feature_gate_off",
            Self::StaticCpu | Self::FractionalCpu { .. } => "guaranteed_pod_cpu_manager_static_policy",
            Self::StaticMemory => "guaranteed_pod_memory_manager_static_policy",
            Self::Capacity { .. } => "insufficient_node_allocatable",
        }
    }
}

impl fmt::Display for Infeasibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GateOff => f.write_str("InPlacePodVerticalScaling is disabled"),
            Self::Windows => f.write_str("In-place pod resize is not supported on Windows"),
            Self::UnsupportedPlatform => f.write_str("In-place pod resize is not supported on this node"),
            Self::Swap => f.write_str("In-place resize of containers with swap is not supported."),
            Self::PodLevelGateOff => f.write_str("InPlacePodLevelResourcesVerticalScaling is disabled"),
            Self::StaticCpu => f.write_str(
                "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
            ),
            Self::FractionalCpu { container } => write!(
                f,
                "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\": \
                 the cpu of container {container:?} must be a whole number of cores"
            ),
            Self::StaticMemory => f.write_str(
                "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
            ),
            Self::Capacity { resource, requested, capacity } => write!(
                f,
                "Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
            ),
        }
    }
}

impl Deferral {
    /// One word for events: `OutOfcpu`.
    pub fn reason(&self) -> String {
        match self {
            Self::Shortage(shortage) => format!("OutOf{}", shortage.resource),
            Self::Other { reason, .. } => reason.clone(),
        }
    }
}

impl fmt::Display for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shortage(shortage) => shortage.fmt(f),
            Self::Other { message, .. } => f.write_str(message),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, used, capacity } = self;
        write!(
            f,
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// Decides about a resize.
///
/// A pod asks for room only in the resources of which it wants more than it holds: giving something back is
/// never refused for want of room, however full the node is.
pub fn admit(request: Request<'_>, node: NodeFacts, ledger: &Ledger, rules: &Rules) -> Verdict {
    if let Some(why) = infeasible(request, node, rules) {
        return Verdict::Infeasible(why);
    }
    let wanted = request.shape.requests(request.desired);
    let room = ledger.room_for(request.pod);
    let never = || Resource::ALL.into_iter().find(|resource| room.never_holds(*resource, wanted));
    if rules.never_fits == NeverFits::Infeasible
        && let Some(resource) = never()
    {
        return Verdict::Infeasible(Infeasibility::Capacity {
            resource,
            requested: wanted[resource],
            capacity: room.capacity[resource],
        });
    }
    match shortage(wanted, room) {
        None => Verdict::Fits,
        Some(shortage) => Verdict::Deferred(Deferral::Shortage(shortage)),
    }
}

/// Decides about a pod that is new to the node.
pub fn admit_new(pod: &str, requests: Amounts, ledger: &Ledger) -> Result<(), Shortage> {
    shortage(requests, Room { held: Amounts::ZERO, ..ledger.room_for(pod) }).map_or(Ok(()), Err)
}

/// What speaks against a resize whatever else runs on the node.
fn infeasible(request: Request<'_>, node: NodeFacts, rules: &Rules) -> Option<Infeasibility> {
    let Request { shape, allocated, desired, .. } = request;
    if !rules.resize {
        return Some(Infeasibility::GateOff);
    }
    match node.os {
        Os::Linux => {}
        Os::Windows { runtime_resizes } if rules.resize_windows && runtime_resizes => {}
        Os::Windows { .. } => return Some(Infeasibility::Windows),
        Os::Other => return Some(Infeasibility::UnsupportedPlatform),
    }
    if swap_in_the_way(request, node) {
        return Some(Infeasibility::Swap);
    }
    if allocated.pod != desired.pod && !rules.resize_pod_level {
        return Some(Infeasibility::PodLevelGateOff);
    }
    if shape.qos != QosClass::Guaranteed {
        return None;
    }
    if node.cpu_manager == CpuManager::Static && allocated.request_differs(desired, Resource::Cpu) {
        match rules.static_cpu {
            StaticCpu::Any => {}
            StaticCpu::Refuse => return Some(Infeasibility::StaticCpu),
            StaticCpu::WholeCores => {
                if let Some(container) = fractional_container(request) {
                    return Some(Infeasibility::FractionalCpu { container });
                }
            }
        }
    }
    let memory_pinned = node.memory_manager == MemoryManager::Static && !rules.static_memory;
    (memory_pinned && allocated.request_differs(desired, Resource::Memory))
        .then_some(Infeasibility::StaticMemory)
}

/// The first container whose cpu changes to something that is not a whole number of cores.
fn fractional_container(request: Request<'_>) -> Option<String> {
    let changed = request.allocated.containers.iter().zip(&request.desired.containers);
    changed
        .zip(&request.shape.containers)
        .find(|((old, new), _)| {
            old.requests.cpu != new.requests.cpu && new.requests.cpu.is_some_and(|milli| milli % 1000 != 0)
        })
        .map(|(_, container)| container.name.clone())
}

fn swap_in_the_way(request: Request<'_>, node: NodeFacts) -> bool {
    let swaps = |requirements: &Requirements| node.swap.used_by(request.shape.qos, requirements);
    let changed = request.allocated.containers.iter().zip(&request.desired.containers);
    changed.zip(&request.shape.containers).any(|((old, new), container)| {
        old.requests.memory != new.requests.memory
            && container.policy.memory != RestartPolicy::RestartContainer
            && (swaps(old) || swaps(new))
    })
}

fn shortage(wanted: Amounts, room: Room) -> Option<Shortage> {
    Resource::ALL.into_iter().find(|r| room.missing_of(*r, wanted) > 0).map(|resource| Shortage {
        resource,
        requested: wanted[resource],
        used: room.others[resource],
        capacity: room.capacity[resource],
    })
}

/// What would have to happen for a resize to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// How much is missing now.
    pub missing: Amounts,
    /// The pods whose own resizes, once they are in force, would each free enough alone.
    pub enough_alone: Vec<String>,
    /// Whether it fits once every shrink that is under way has ended.
    pub after_all_shrinks: bool,
}

/// Works out what a resize is waiting for.
pub fn what_if(request: Request<'_>, ledger: &Ledger) -> WhatIf {
    let wanted = request.shape.requests(request.desired);
    let room = ledger.room_for(request.pod);
    let missing = Amounts::of(|r| room.missing_of(r, wanted));
    let others = || ledger.shrinking().filter(|(pod, _)| *pod != request.pod);
    let fits_with = |freed: Amounts| Room { others: room.others.less(freed), ..room }.fits(wanted);
    let all = others().fold(Amounts::ZERO, |sum, (_, freed)| sum.plus(freed));
    WhatIf {
        missing,
        enough_alone: others()
            .filter(|(_, freed)| fits_with(*freed))
            .map(|(pod, _)| pod.to_owned())
            .collect(),
        after_all_shrinks: fits_with(all),
    }
}

/// The text with which the API server refuses a resize that its node could never hold, where the rules have
/// it do so; the cause is `NodeCapacity`. `allocatable` is the node's.
pub fn over_capacity(requests: Amounts, allocatable: Amounts, rules: &Rules) -> Option<String> {
    if !rules.refuse_over_capacity || requests.within(allocatable) {
        return None;
    }
    let parts: Vec<String> = Resource::ALL
        .into_iter()
        .filter(|r| requests[*r] > allocatable[*r])
        .map(|r| format!("{r}, requested: {}, allocatable: {}", requests[r], allocatable[r]))
        .collect();
    Some(format!("node didn't have enough allocatable resources: {}", parts.join("; ")))
}
