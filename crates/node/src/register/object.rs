//! The Node as an object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_placement::volumes::{LOCAL_VOLUMES, LOCAL_VOLUMES_CAPACITY};
use plumb_resize::cgroup::shares;
use plumb_resize::quantity::Quantity;
use plumb_runtime::types::LinuxResources;

use super::conditions::{NodeHealth, conditions};
use super::{Machine, Setup};
use crate::eviction::Signal;

/// The annotation of a node to which the attach/detach controller attaches volumes.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The resources that the cgroup of all pods limits. Of CPU it has a weight.
const LIMITED: [&str; 2] = ["memory", "pid"];

/// The labels that a node gives itself.
pub(super) fn labels(setup: &Setup) -> BTreeMap<String, String> {
    let arch = plumb_oci::architecture();
    let own = [
        ("kubernetes.io/hostname", setup.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let mut labels: BTreeMap<String, String> =
        own.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
    labels.extend(setup.labels.clone());
    labels
}

/// The annotations that a node gives itself.
pub(super) fn annotations(setup: &Setup) -> BTreeMap<String, String> {
    // A virtual node has no volumes.
    let Some(path) = &setup.local_volumes else { return BTreeMap::new() };
    let capacity = setup.local_volumes_capacity.and_then(|bytes| i64::try_from(bytes).ok());
    let capacity = capacity.map(|bytes| (LOCAL_VOLUMES_CAPACITY, Quantity::from_bytes(bytes).to_string()));
    let own =
        [(LOCAL_VOLUMES, path.to_string_lossy().into_owned()), (CONTROLLER_ATTACHES, "true".to_owned())];
    own.into_iter().chain(capacity).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A new Node.
pub(super) fn new(setup: &Setup, labels: BTreeMap<String, String>) -> Node {
    let annotations = Some(annotations(setup)).filter(|all| !all.is_empty());
    let (name, labels) = (Some(setup.name.clone()), Some(labels));
    let metadata = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    let taints = (!setup.taints.is_empty()).then(|| setup.taints.clone());
    Node { metadata, spec: Some(NodeSpec { taints, ..NodeSpec::default() }), status: None }
}

/// The capacity of a node: that of the machine, unless the setup has another.
fn capacity(setup: &Setup, machine: &Machine) -> BTreeMap<String, WireQuantity> {
    let bytes = |bytes: u64| Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    let mut all: BTreeMap<String, WireQuantity> = [
        ("cpu".to_owned(), Quantity::from_units(machine.cpus.into())),
        ("memory".to_owned(), bytes(machine.memory)),
        ("pods".to_owned(), Quantity::from_units(setup.max_pods.into())),
        ("ephemeral-storage".to_owned(), bytes(machine.disk)),
    ]
    .into_iter()
    .filter(|(_, amount)| !amount.is_zero())
    .map(|(name, amount)| (name, WireQuantity(amount.to_string())))
    .collect();
    all.extend(setup.capacity.clone());
    all
}

/// The allocatable resources of a node: its capacity without the reserved resources.
pub fn allocatable(setup: &Setup, machine: &Machine) -> BTreeMap<String, WireQuantity> {
    let mut all = capacity(setup, machine);
    let read = |amount: Option<&WireQuantity>| amount.and_then(|amount| amount.0.parse::<Quantity>().ok());
    let kept = [("memory", Signal::MemoryAvailable), ("ephemeral-storage", Signal::NodeFsAvailable)];
    for (name, amount) in &mut all {
        // A node whose capacity is configured reserves only what the configuration reserves.
        let free = kept.iter().find(|(kept, _)| kept == name && !setup.capacity.contains_key(name));
        let free = free.and_then(|(_, signal)| setup.eviction_hard.0.get(signal));
        let free = free.zip(read(Some(&*amount))).map(|(free, has)| free.of(has.saturating_units()));
        let taken = [read(setup.reserved.get(name)), free].into_iter().flatten();
        let Some(has) = read(Some(&*amount)) else { continue };
        let left = taken.fold(has, |left, taken| left.checked_sub(taken).unwrap_or(Quantity::ZERO));
        let left = if left.is_negative() { Quantity::ZERO.with_format(has.format()) } else { left };
        *amount = WireQuantity(left.to_string());
    }
    all
}

/// The resources of the cgroup of all pods: the capacity without the reserved resources. Unlike [`allocatable`] it does not
/// leave out what the kubelet's eviction thresholds keep free, as in the kubelet: the kernel would otherwise kill processes
/// before the node is under pressure.
pub(crate) fn pods_cgroup(setup: &Setup, machine: &Machine) -> LinuxResources {
    let capacity = capacity(setup, machine);
    let amount = |list: &BTreeMap<String, WireQuantity>, name: &str| -> Option<Quantity> {
        list.get(name).and_then(|amount| amount.0.parse().ok())
    };
    let left = |name: &str| {
        let reserved = amount(&setup.reserved, name).unwrap_or(Quantity::ZERO);
        amount(&capacity, name)?.checked_sub(reserved).ok().filter(|left| left.is_positive())
    };
    let pids = i64::try_from(machine.pids).unwrap_or(i64::MAX);
    let reserved_pids = amount(&setup.reserved, "pid").map_or(0, |pids| pids.saturating_milli() / 1000);
    LinuxResources {
        cpu_shares: left("cpu").map(|cpu| shares(cpu.saturating_milli())),
        memory_limit: left("memory").map(|memory| memory.saturating_milli() / 1000),
        // The CRI has no number of tasks in a capacity: it is always the machine's.
        pids_limit: Some(pids.saturating_sub(reserved_pids)).filter(|pids| *pids > 0),
        ..LinuxResources::default()
    }
}

/// The reserved resources exceed the node's capacity, with the kubelet's message, or leave nothing of it to pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid Node Allocatable configuration. {}", .exceeding.join(" "))]
pub struct ReservedTooMuch {
    /// A sentence for each resource.
    pub exceeding: Vec<String>,
}

/// Checks that less is reserved than a node has: of memory and processes something has to be left, since the cgroup of all
/// pods would otherwise have no limit at all.
pub fn check_reserved(setup: &Setup, machine: &Machine) -> Result<(), ReservedTooMuch> {
    let mut all = capacity(setup, machine);
    if machine.pids > 0 {
        all.insert("pid".to_owned(), WireQuantity(machine.pids.to_string()));
    }
    let read = |amount: &WireQuantity| amount.0.parse::<Quantity>().ok();
    let exceeding: Vec<String> = setup
        .reserved
        .iter()
        .filter_map(|(name, reserved)| {
            let capacity = all.get(name)?;
            let (amount, has) = (read(reserved)?, read(capacity)?);
            let of = format!("{} but capacity of {}", reserved.0, capacity.0);
            if amount > has {
                Some(format!(
                    "Resource {name:?} has a reservation of {of}. Expected capacity >= reservation."
                ))
            } else if amount == has && amount.is_positive() && LIMITED.contains(&name.as_str()) {
                Some(format!("Resource {name:?} has a reservation of {of}. It leaves nothing for pods."))
            } else {
                None
            }
        })
        .collect();
    if exceeding.is_empty() { Ok(()) } else { Err(ReservedTooMuch { exceeding }) }
}

/// The status of a node. Of `before` only the times of conditions are used.
pub fn status(
    setup: &Setup,
    machine: &Machine,
    before: Option<&NodeStatus>,
    health: &NodeHealth,
    now: Timestamp,
) -> NodeStatus {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    let mut addresses: Vec<NodeAddress> =
        setup.addresses.iter().map(|ip| address("InternalIP", ip.to_string())).collect();
    addresses.push(address("Hostname", setup.name.clone()));
    let arch = labels(setup).remove("kubernetes.io/arch").unwrap_or_default();
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(capacity(setup, machine)),
        allocatable: Some(allocatable(setup, machine)),
        conditions: Some(conditions(health, before, now)),
        declared_features: (!setup.declared_features.is_empty()).then(|| setup.declared_features.clone()),
        features: setup.features.clone(),
        runtime_handlers: setup.runtime_handlers.clone(),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: setup.port.into() }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: arch,
            boot_id: machine.boot_id.clone(),
            container_runtime_version: setup.runtime_version.clone(),
            kernel_version: machine.kernel_version.clone(),
            kubelet_version: setup.agent_version.clone(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}
