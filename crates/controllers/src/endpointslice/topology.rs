//! Hints of Services with the annotation `service.kubernetes.io/topology-mode: Auto`: upstream's topology-aware routing.
//!
//! Each zone gets as many endpoints as it has of the CPU of the cluster, its own ones first, so that no endpoint has more
//! than 1.2 times its share of the traffic. Where that cannot be, no endpoint has hints, and an event says why.
//!
//! ```text
//!   nodes ──▶ CPU by zone ──▶ allocations: how many endpoints each zone gets
//!                                  │
//!   slices ──▶ hints that stay, the zone of the endpoint for others ──▶ zones with too many give to those with too few
//! ```

mod redistribute;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};

use super::decide::Changes;
use super::hints::is_ready;
use crate::workload::Note;
pub use zones::CpuRatios;
pub(super) use zones::zone;
use zones::{Allocation, float, minimum};

const ENABLED: &str = "TopologyAwareHintsEnabled";
const DISABLED: &str = "TopologyAwareHintsDisabled";

/// How many endpoints zones have.
type Endpoints = BTreeMap<String, usize>;

/// The hints that a Service was given for its annotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssignedHints {
    by_address_type: BTreeMap<String, Endpoints>,
    /// Whether the last decision, of whichever address type, was to give hints.
    is_enabled: bool,
}

impl AssignedHints {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_address_type.is_empty() && !self.is_enabled
    }

    /// Whether a zone has too few endpoints for its part of the CPU by now.
    pub fn is_overloaded(&self, ratios: &CpuRatios) -> bool {
        self.by_address_type.values().any(|endpoints| is_overloaded(endpoints, ratios))
    }

    /// Forgets the hints of an address type. Upstream, too, takes those of the other one for not enabled then.
    pub(super) fn remove(&mut self, address_type: &str) {
        self.by_address_type.remove(address_type);
        self.is_enabled = false;
    }

    /// Forgets the hints of an address type, of a Service without the annotation. Returns the event if it had hints.
    pub(super) fn disable(&mut self, address_type: &str) -> Option<Note> {
        let message = format!("Topology Aware Hints has been disabled, addressType: {address_type}");
        let note = self.is_enabled.then(|| Note::warning(DISABLED, message));
        self.remove(address_type);
        note
    }

    fn set(&mut self, address_type: &str, endpoints: Endpoints) {
        self.by_address_type.insert(address_type.to_owned(), endpoints);
        self.is_enabled = true;
    }
}

fn is_overloaded(endpoints: &Endpoints, ratios: &CpuRatios) -> bool {
    if endpoints.is_empty() {
        return false;
    }
    let Some(ratios) = ratios.by_zone() else { return true };
    let total = float(endpoints.values().sum());
    ratios
        .iter()
        .any(|(zone, ratio)| endpoints.get(zone).is_none_or(|endpoints| *endpoints < minimum(total * ratio)))
}

/// Sets the hints of the slices of one address type, also of those that would stay as they are, and returns the event.
pub(super) fn assign(
    address_type: &str,
    ratios: &CpuRatios,
    unchanged: Vec<Arc<EndpointSlice>>,
    changes: &mut Changes,
    assigned: &mut AssignedHints,
) -> Option<Note> {
    match allocate(ratios, unchanged, changes) {
        Ok(endpoints) => {
            let was_enabled = assigned.is_enabled;
            assigned.set(address_type, endpoints);
            let message = format!("Topology Aware Hints has been enabled, addressType: {address_type}");
            (!was_enabled).then(|| Note::normal(ENABLED, message))
        }
        Err(Impossible { reason, unchanged }) => {
            assigned.remove(address_type);
            remove_hints(&unchanged, changes);
            Some(Note::warning(DISABLED, format!("{reason}, addressType: {address_type}")))
        }
    }
}

/// Why there are no hints, with the slices that do not change for another reason.
struct Impossible {
    reason: String,
    unchanged: Vec<Arc<EndpointSlice>>,
}

/// Sets hints, and returns how many endpoints each zone gets.
fn allocate(
    ratios: &CpuRatios,
    unchanged: Vec<Arc<EndpointSlice>>,
    changes: &mut Changes,
) -> Result<Endpoints, Impossible> {
    let changing = changes.create.iter().chain(&changes.update);
    let ready: usize =
        changing.chain(unchanged.iter().map(Arc::as_ref)).map(|slice| ready(slice).count()).sum();
    let allocations = match ratios.allocations(ready) {
        Ok(allocations) => allocations,
        Err(reason) => return Err(Impossible { reason, unchanged }),
    };
    let mut endpoints = Endpoints::new();
    let mut still_unchanged = Vec::new();
    for slice in unchanged {
        match valid_hints(&slice, &endpoints, &allocations) {
            Some(hints) => {
                for (zone, count) in hints {
                    *endpoints.entry(zone).or_default() += count;
                }
                still_unchanged.push(slice);
            }
            None => changes.update.push(EndpointSlice::clone(&slice)),
        }
    }
    for endpoint in changing_endpoints(changes) {
        let Some(zone) = endpoint.zone.clone().filter(|zone| !zone.is_empty()) else {
            let reason = "One or more endpoints do not have a zone specified".to_owned();
            return Err(Impossible { reason, unchanged: still_unchanged });
        };
        *endpoints.entry(zone.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(zone));
    }
    redistribute::redistribute(changing_endpoints(changes), &allocations, &mut endpoints);
    if endpoints.is_empty() {
        let reason = "No hints allocated for zones".to_owned();
        return Err(Impossible { reason, unchanged: still_unchanged });
    }
    Ok(endpoints)
}

/// The endpoints of slices that are written, which may get other hints. One that is not ready keeps what it has.
fn changing_endpoints(changes: &mut Changes) -> impl Iterator<Item = &mut Endpoint> {
    let slices = changes.create.iter_mut().chain(&mut changes.update);
    slices.flat_map(|slice| slice.endpoints.iter_mut().flatten()).filter(|endpoint| is_ready(endpoint))
}

fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint))
}

fn for_zone(name: String) -> EndpointHints {
    EndpointHints { for_zones: Some(vec![ForZone { name }]), ..EndpointHints::default() }
}

/// How many endpoints of a slice each zone has by its hints. None if it cannot stay as it is: an endpoint has no hint, or
/// that of a zone that gets none, or a zone would have so many that others cannot have their minimum.
fn valid_hints(
    slice: &EndpointSlice,
    others: &Endpoints,
    allocations: &BTreeMap<String, Allocation>,
) -> Option<Endpoints> {
    let mut hints = Endpoints::new();
    for endpoint in ready(slice) {
        let zones = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_deref()).unwrap_or_default();
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = hints.iter().all(|(zone, count)| {
        let has = others.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_some_and(|allocation| has + count <= allocation.maximum)
    });
    fits.then_some(hints)
}

/// Removes the hints of all slices.
fn remove_hints(unchanged: &[Arc<EndpointSlice>], changes: &mut Changes) {
    let has_hints = |slice: &&Arc<EndpointSlice>| {
        slice.endpoints.iter().flatten().any(|endpoint| endpoint.hints.is_some())
    };
    let hinted = unchanged.iter().filter(has_hints).map(|slice| EndpointSlice::clone(slice));
    changes.update.extend(hinted);
    for slice in changes.create.iter_mut().chain(&mut changes.update) {
        for endpoint in slice.endpoints.iter_mut().flatten() {
            endpoint.hints = None;
        }
    }
}

#[cfg(test)]
mod tests;
