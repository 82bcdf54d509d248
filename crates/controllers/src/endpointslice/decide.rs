//! Which slices a Service has, and what is to be written.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::pods as pod_functions;

use super::endpoint::{
    EndpointKey, EndpointSet, PortKey, from_pod, port_key, ports_of, publishes_not_ready, sorted,
};
use super::hints::{Distribution, is_topology_aware};
use super::labels::{is_owned_by, labels, new_slice};
use super::pack::Packing;
use super::topology::{self, AssignedHints, CpuRatios};
pub use crate::endpoints::writer::Changes;
use crate::endpoints::{address_types, pods, trigger_time};
use crate::workload::Note;

/// A Service with a selector and all that its slices depend on.
#[derive(Clone, Debug)]
pub struct State {
    /// The Service.
    pub service: Arc<Service>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The zones of their nodes; a node that does not exist is missing.
    pub zones: BTreeMap<String, Option<String>>,
    /// The CPU of the zones of the cluster, for a Service with the annotation for topology-aware routing.
    pub cpu_ratios: CpuRatios,
    /// The hints that it was given for that.
    pub assigned_hints: AssignedHints,
    /// The slices that this controller maintains for it.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The time of the change that this reconcile is about.
    pub trigger_time: Option<Timestamp>,
}

/// What is to be done about a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What is to be written.
    pub changes: Changes,
    /// Pods that are left out since their node is unknown. The Service is to be reconciled again.
    pub skipped: Vec<String>,
    /// The hints that it has for the annotation.
    pub assigned_hints: AssignedHints,
    /// Events about these hints.
    pub notes: Vec<Note>,
}

/// Decides what is to be written, with at most so many endpoints in a slice.
pub fn decide(state: &State, max: usize) -> Decision {
    let mut decision = Decision { assigned_hints: state.assigned_hints.clone(), ..Decision::default() };
    let types = address_types(&state.service);
    let foreign = state.slices.iter().filter(|slice| !types.contains(&&*slice.address_type)).cloned();
    let foreign: Vec<Arc<EndpointSlice>> = foreign.collect();
    for slice in &foreign {
        decision.assigned_hints.remove(&slice.address_type);
    }
    for address_type in &types {
        let slices =
            state.slices.iter().filter(|slice| slice.address_type == **address_type).cloned().collect();
        decide_address_type(state, address_type, slices, max, &mut decision);
    }
    decision.changes.delete.extend(foreign);
    decision
}

/// The endpoints of one set of ports.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: EndpointSet,
}

fn decide_address_type(
    state: &State,
    address_type: &str,
    slices: Vec<Arc<EndpointSlice>>,
    max: usize,
    decision: &mut Decision,
) {
    let service = &*state.service;
    let mut changes = Changes::default();
    let mut existing: BTreeMap<PortKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in &slices {
        if is_owned_by(slice, service) {
            let ports = sorted(slice.ports.clone().unwrap_or_default());
            existing.entry(port_key(&ports)).or_default().push(slice.clone());
        } else {
            changes.delete.push(slice.clone());
        }
    }
    let (groups, skipped) = desired(state, address_type);
    // A pod is left out of the slices of each address type, and is mentioned once.
    if decision.skipped.is_empty() {
        decision.skipped = skipped;
    }
    for (key, Group { ports, endpoints }) in groups {
        let packing = Packing {
            max,
            new_slice: &|| new_slice(service, address_type, ports.clone()),
            labels: &|slice| labels(slice.metadata.labels.as_ref(), service),
        };
        let packed = packing.pack(&existing.remove(&key).unwrap_or_default(), endpoints);
        changes.create.extend(packed.create);
        changes.update.extend(packed.update);
        changes.delete.extend(packed.delete);
    }
    // Slices of ports that no pod has any more.
    changes.delete.extend(existing.into_values().flatten());
    add_placeholder(service, address_type, slices.len(), &mut changes);
    assign_hints(state, address_type, &slices, &mut changes, decision);
    reuse(service, &mut changes);
    if service.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes the slices while this controller would make others.
        changes.create.clear();
    }
    for slice in changes.create.iter_mut().chain(&mut changes.update) {
        trigger_time::annotate(&mut slice.metadata.annotations, state.trigger_time);
    }
    decision.changes.create.extend(changes.create);
    decision.changes.update.extend(changes.update);
    decision.changes.delete.extend(changes.delete);
}

/// The endpoints by their ports, and the pods that are left out.
fn desired(state: &State, address_type: &str) -> (BTreeMap<PortKey, Group>, Vec<String>) {
    let service = &*state.service;
    let (mut groups, mut skipped): (BTreeMap<PortKey, Group>, Vec<String>) = Default::default();
    for pod in state.pods.iter().filter(|pod| pods::is_endpoint(pod, true)) {
        let ports = ports_of(pod, service);
        // A group without endpoints keeps its slices from being deleted as a whole, as upstream.
        let group = groups.entry(port_key(&ports)).or_insert(Group { ports, endpoints: EndpointSet::new() });
        let node = pod_functions::node_of(pod).unwrap_or_default();
        let zone = match state.zones.get(node) {
            Some(zone) => zone.as_deref(),
            None if publishes_not_ready(service) => None,
            None => {
                let [name, namespace, service] =
                    [&pod.metadata.name, &service.metadata.namespace, &service.metadata.name]
                        .map(|field| field.as_deref().unwrap_or_default());
                skipped.push(format!(
                    "skipping Pod {name} for Service {namespace}/{service}: Node {node} Not Found"
                ));
                continue;
            }
        };
        if let Some(endpoint) = from_pod(pod, zone, service, address_type) {
            group.endpoints.insert(EndpointKey::new(&endpoint), endpoint);
        }
    }
    (groups, skipped)
}

/// Adds an empty slice if there would be none: proxies and DNS servers then know that the Service has no endpoints.
fn add_placeholder(service: &Service, address_type: &str, existing: usize, changes: &mut Changes) {
    if existing != changes.delete.len() || !changes.create.is_empty() {
        return;
    }
    let placeholder = new_slice(service, address_type, Vec::new());
    let is_placeholder = |slice: &EndpointSlice| {
        slice.endpoints.as_ref().is_none_or(Vec::is_empty)
            && slice.ports.as_ref().is_none_or(Vec::is_empty)
            && slice.metadata.labels == placeholder.metadata.labels
            && is_owned_by(slice, service)
    };
    if let [slice] = &*changes.delete
        && is_placeholder(slice)
    {
        changes.delete.clear();
    } else {
        changes.create.push(placeholder);
    }
}

fn assign_hints(
    state: &State,
    address_type: &str,
    slices: &[Arc<EndpointSlice>],
    changes: &mut Changes,
    decision: &mut Decision,
) {
    let deleted = changes.delete.iter().map(|slice| slice.metadata.name.as_deref());
    let changed: HashSet<Option<&str>> =
        changes.update.iter().map(|slice| slice.metadata.name.as_deref()).chain(deleted).collect();
    let unchanged = slices.iter().filter(|slice| !changed.contains(&slice.metadata.name.as_deref()));
    let assigned = &mut decision.assigned_hints;
    if is_topology_aware(&state.service) {
        let unchanged = unchanged.cloned().collect();
        let note = topology::assign(address_type, &state.cpu_ratios, unchanged, changes, assigned);
        decision.notes.extend(note);
        return;
    }
    decision.notes.extend(assigned.disable(address_type));
    let distribution = Distribution::for_service(&state.service);
    let stale = unchanged.filter(|slice| distribution.needs_update(slice));
    let stale: Vec<EndpointSlice> = stale.map(|slice| EndpointSlice::clone(slice)).collect();
    changes.update.extend(stale);
    for slice in changes.create.iter_mut().chain(&mut changes.update) {
        distribution.apply(slice);
    }
}

/// Makes updates of slices that would be deleted out of creations.
fn reuse(service: &Service, changes: &mut Changes) {
    let mut deleted = std::mem::take(&mut changes.delete).into_iter();
    for slice in deleted.by_ref() {
        // A slice of a former Service of this name is the garbage collector's; the address type is immutable.
        let fits =
            |new: &EndpointSlice| new.address_type == slice.address_type && is_owned_by(&slice, service);
        match changes.create.pop_if(|new| fits(new)) {
            Some(mut new) => {
                new.metadata.name.clone_from(&slice.metadata.name);
                new.metadata.resource_version.clone_from(&slice.metadata.resource_version);
                changes.update.push(new);
            }
            None => changes.delete.push(slice),
        }
    }
}
