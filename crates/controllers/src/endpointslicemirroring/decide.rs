//! The slices that mirror Endpoints: one for the ports and the address type of each subset.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use kube::api::ObjectMeta;
use plumb_controller_runtime::controller_reference;

use super::MANAGER;
use crate::endpoint::subsets::repack;
use crate::endpoints::writer::Changes;
use crate::endpoints::{LAST_CHANGE_TRIGGER_TIME, LEADER_ANNOTATION, MANAGED_BY, SERVICE_NAME, label};
use crate::endpointslice::endpoint::{EndpointKey, EndpointSet, PortKey, is_same, port_key, sorted};
use crate::workload::Note;

/// The label of Endpoints that are not mirrored.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The annotation of `kubectl apply`, which is about the Endpoints object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether Endpoints are mirrored if their Service has no selector.
pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let metadata = &endpoints.metadata;
    label(metadata.labels.as_ref(), SKIP_MIRROR) != Some("true")
        && label(metadata.annotations.as_ref(), LEADER_ANNOTATION).is_none()
}

/// What is to be done about Endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What is to be written.
    pub changes: Changes,
    /// Events about the Endpoints.
    pub notes: Vec<Note>,
}

/// The desired endpoints of one slice.
#[derive(Default)]
struct Desired {
    ports: Vec<SlicePort>,
    endpoints: EndpointSet,
}

/// The address type and ports of a slice.
type SliceKey = (String, PortKey);

/// Decides what is to be written, with at most so many endpoints of a subset.
pub fn decide(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>], max: usize) -> Decision {
    let mut decision = Decision::default();
    let desired = desired(endpoints, max, &mut decision.notes);
    let mut existing: BTreeMap<SliceKey, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        let ports = sorted(slice.ports.clone().unwrap_or_default());
        existing.entry((slice.address_type.clone(), port_key(&ports))).or_default().push(slice);
    }
    let changes = &mut decision.changes;
    for ((address_type, ports), wanted) in desired {
        let found = existing.remove(&(address_type.clone(), ports)).unwrap_or_default();
        let mut found = found.into_iter();
        let first = found.next();
        changes.delete.extend(found.cloned());
        if first.is_some_and(|slice| is_mirror(slice, endpoints, &wanted.endpoints)) {
            continue;
        }
        let mut slice = new_slice(endpoints, &address_type, wanted.ports);
        slice.endpoints = Some(wanted.endpoints.into_values().take(max).collect());
        match first {
            None => changes.create.push(slice),
            Some(first) => {
                // As upstream, which gives a slice a name or the prefix of one.
                slice.metadata.generate_name = None;
                changes.update.push(named(slice, first));
            }
        }
    }
    changes.delete.extend(existing.into_values().flatten().cloned());
    // A slice that would be deleted becomes one that would be created.
    for slice in std::mem::take(&mut changes.delete) {
        let new = changes.create.iter().position(|new| new.address_type == slice.address_type);
        match new {
            Some(index) => changes.update.push(named(changes.create.remove(index), &slice)),
            None => changes.delete.push(slice),
        }
    }
    if endpoints.metadata.deletion_timestamp.is_some() {
        changes.create.clear();
    }
    decision
}

/// A slice that replaces another one.
fn named(mut slice: EndpointSlice, replaced: &EndpointSlice) -> EndpointSlice {
    slice.metadata.name.clone_from(&replaced.metadata.name);
    slice.metadata.resource_version.clone_from(&replaced.metadata.resource_version);
    slice
}

fn desired(endpoints: &Endpoints, max: usize, notes: &mut Vec<Note>) -> BTreeMap<SliceKey, Desired> {
    let mut all: BTreeMap<SliceKey, Desired> = BTreeMap::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in repack(endpoints.subsets.as_deref().unwrap_or_default()) {
        let ports = sorted(subset.ports.iter().flatten().map(slice_port).collect());
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let mut added = 0;
        for (address, ready) in ready.chain(not_ready) {
            if added >= max {
                skipped += 1;
                continue;
            }
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                invalid += 1;
                continue;
            };
            let key = (if ip.is_ipv6() { "IPv6" } else { "IPv4" }.to_owned(), port_key(&ports));
            let slice =
                all.entry(key).or_insert_with(|| Desired { ports: ports.clone(), ..Desired::default() });
            let endpoint = from_address(address, ip, ready);
            slice.endpoints.insert(EndpointKey::new(&endpoint), endpoint);
            added += 1;
        }
    }
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        notes.push(Note::warning("InvalidIPAddress", message));
    }
    if skipped > 0 {
        let message = format!(
            "A max of {max} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
            skipped + invalid
        );
        notes.push(Note::warning("TooManyAddressesToMirror", message));
    }
    all
}

fn slice_port(port: &EndpointPort) -> SlicePort {
    SlicePort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn from_address(address: &EndpointAddress, ip: IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

/// Whether a slice mirrors these endpoints, their labels and their annotations.
fn is_mirror(slice: &EndpointSlice, endpoints: &Endpoints, desired: &EndpointSet) -> bool {
    let current = slice.endpoints.as_deref().unwrap_or_default();
    let same = |endpoint: &Endpoint| {
        desired.get(&EndpointKey::new(endpoint)).is_some_and(|wanted| is_same(wanted, endpoint))
    };
    let owned = slice
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == "Endpoints" && Some(&owner.uid) == endpoints.metadata.uid.as_ref());
    let wanted = metadata(endpoints);
    let annotations = |metadata: &ObjectMeta| metadata.annotations.clone().unwrap_or_default();
    owned
        && current.len() == desired.len()
        && current.iter().all(same)
        && slice.metadata.labels == wanted.labels
        && annotations(&slice.metadata) == annotations(&wanted)
}

fn new_slice(endpoints: &Endpoints, address_type: &str, ports: Vec<SlicePort>) -> EndpointSlice {
    EndpointSlice {
        address_type: address_type.to_owned(),
        endpoints: None,
        metadata: metadata(endpoints),
        ports: Some(ports),
    }
}

fn metadata(endpoints: &Endpoints) -> ObjectMeta {
    let metadata = &endpoints.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut labels = metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    for key in [LAST_CHANGE_TRIGGER_TIME, LAST_APPLIED] {
        annotations.remove(key);
    }
    ObjectMeta {
        // The Service of the same name has at most 63 characters, so that the prefix is always a valid one.
        generate_name: Some(format!("{name}-")),
        namespace: metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![controller_reference(endpoints)]),
        ..ObjectMeta::default()
    }
}
