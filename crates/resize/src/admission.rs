//! Admission of a resize by the node: it fits, is deferred, or is infeasible.

mod ledger;
mod node;

use std::fmt;

pub use ledger::{Available, Ledger, LedgerEntry};
pub use node::{CpuManager, MemoryManager, NodeFacts, Os, Swap};

use crate::pod::{PodResources, PodShape, RestartPolicy};
use crate::qos::QosClass;
use crate::resource::{Amounts, Requirements, Resource};
use crate::rules::{NeverFits, Rules, StaticCpu};

/// A resize request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The pod's uid.
    pub pod: &'a str,
    /// The pod.
    pub shape: &'a PodShape,
    /// Its allocated resources.
    pub allocated: &'a PodResources,
    /// Its desired resources.
    pub desired: &'a PodResources,
}

/// The node's verdict on a resize.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It fits.
    Fits,
    /// It does not fit now; it is retried when something changes.
    Deferred(Deferral),
    /// Never, on this node.
    Infeasible(Infeasibility),
}

/// Why a resize is deferred.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deferral {
    /// A resource is short.
    Shortage(Shortage),
    /// Another condition of the node: pressure, a taint, a shutdown.
    Other {
        /// The reason in CamelCase.
        reason: String,
        /// A human-readable message.
        message: String,
    },
}

/// A resource that a node has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shortage {
    /// The resource.
    pub resource: Resource,
    /// The pod's request.
    pub requested: i64,
    /// The requests of the other pods.
    pub used: i64,
    /// The node's allocatable amount.
    pub capacity: i64,
}

/// Why a resize is infeasible.
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
    /// The static CPU manager policy has assigned exclusive CPUs to the pod.
    StaticCpu,
    /// The static CPU manager policy assigns integer CPUs only.
    FractionalCpu {
        /// The container with a fractional request.
        container: String,
    },
    /// The static memory manager policy has assigned memory to the pod.
    StaticMemory,
    /// More than the node's allocatable amount.
    Capacity {
        /// The resource.
        resource: Resource,
        /// The pod's request.
        requested: i64,
        /// The node's allocatable amount.
        capacity: i64,
    },
}

impl Infeasibility {
    /// The value of the metric's label.
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
    /// The reason in CamelCase for events: `OutOfcpu`.
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
/// Only resources that increase have to fit: a decrease is never deferred, however full the node is.
pub fn admit(request: Request<'_>, node: NodeFacts, ledger: &Ledger, rules: &Rules) -> Verdict {
    if let Some(why) = infeasible(request, node, rules) {
        return Verdict::Infeasible(why);
    }
    let wanted = request.shape.requests(request.desired);
    let available = ledger.available_to(request.pod);
    let never = || Resource::ALL.into_iter().find(|resource| available.never_fits(*resource, wanted));
    if rules.never_fits == NeverFits::Infeasible
        && let Some(resource) = never()
    {
        return Verdict::Infeasible(Infeasibility::Capacity {
            resource,
            requested: wanted[resource],
            capacity: available.allocatable[resource],
        });
    }
    match shortage(wanted, available) {
        None => Verdict::Fits,
        Some(shortage) => Verdict::Deferred(Deferral::Shortage(shortage)),
    }
}

/// Decides about the admission of a new pod.
pub fn admit_new(pod: &str, requests: Amounts, ledger: &Ledger) -> Result<(), Shortage> {
    shortage(requests, Available { held: Amounts::ZERO, ..ledger.available_to(pod) }).map_or(Ok(()), Err)
}

/// Why a resize is infeasible, whatever else runs on the node.
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

/// The first container whose CPU request changes to a fraction.
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

fn shortage(wanted: Amounts, available: Available) -> Option<Shortage> {
    Resource::ALL.into_iter().find(|r| available.missing_of(*r, wanted) > 0).map(|resource| Shortage {
        resource,
        requested: wanted[resource],
        used: available.others[resource],
        capacity: available.allocatable[resource],
    })
}

/// The changes that would let a resize fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// How much is missing now.
    pub missing: Amounts,
    /// The pods whose own resizes, once they are actual, would each free enough alone.
    pub enough_alone: Vec<String>,
    /// Whether it fits once every shrink in progress is completed.
    pub after_all_shrinks: bool,
}

/// Computes which changes a deferred resize waits for.
pub fn what_if(request: Request<'_>, ledger: &Ledger) -> WhatIf {
    let wanted = request.shape.requests(request.desired);
    let available = ledger.available_to(request.pod);
    let missing = Amounts::of(|r| available.missing_of(r, wanted));
    let others = || ledger.shrinking().filter(|(pod, _)| *pod != request.pod);
    let fits_with =
        |freed: Amounts| Available { others: available.others.less(freed), ..available }.fits(wanted);
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

/// The message with which the API server rejects a resize that can never fit its node, if the rules require that; the
/// cause is `NodeCapacity`. `allocatable` is the node's.
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
