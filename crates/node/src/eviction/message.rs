//! The messages of evictions, with the words of the kubelet.

use plumb_resize::quantity::Quantity;

use super::candidate::{Candidate, ContainerUsage};
use super::signal::{PressureCondition, StarvedResource};
use crate::ephemeral_storage;

/// Why a pod is evicted under pressure: the resource, the threshold with what is available, and the containers that use more than
/// they request.
pub(super) fn low_on_resource(
    candidate: &Candidate,
    resource: StarvedResource,
    threshold: Option<(Quantity, Quantity)>,
) -> String {
    let name = resource.name();
    let threshold = threshold
        .map(|(value, available)| format!("Threshold quantity: {value}, available: {available}. "))
        .unwrap_or_default();
    let mut message = format!("The node was low on resource: {name}. {threshold}");
    let Some(usage) = &candidate.usage else { return message };
    let larger = |kind: &str, of: &str, used: Quantity, request: &str| {
        format!("{kind} {of} was using {used}, request is {request}, has larger consumption of {name}. ")
    };
    if resource == StarvedResource::Memory {
        let spec = candidate.pod.spec.as_ref();
        let own = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get(name));
        if let Some(request) = own {
            message.push_str(&larger("Pod", candidate.name(), bytes(usage.memory), &request.0));
        }
    }
    for measured in &usage.containers {
        let Some(container) = candidate.containers().find(|container| container.name == measured.name) else {
            continue;
        };
        let Some(used) = used(measured, resource) else { continue };
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let request = requests.and_then(|requests| requests.get(listed(resource)?));
        let request: Quantity = request.and_then(|amount| amount.0.parse().ok()).unwrap_or(Quantity::ZERO);
        if used > request {
            message.push_str(&larger("Container", &measured.name, used, &request.to_string()));
        }
    }
    message
}

/// The name of a resource in requests.
fn listed(resource: StarvedResource) -> Option<&'static str> {
    match resource {
        StarvedResource::Memory => Some("memory"),
        StarvedResource::EphemeralStorage => Some(ephemeral_storage::NAME),
        StarvedResource::Inodes | StarvedResource::Pids => None,
    }
}

/// What a container uses of a resource that containers request.
fn used(measured: &ContainerUsage, resource: StarvedResource) -> Option<Quantity> {
    match resource {
        StarvedResource::Memory => measured.memory.map(bytes),
        StarvedResource::EphemeralStorage => {
            Some(bytes(measured.writable_layer?.bytes.saturating_add(measured.logs?.bytes)))
        }
        StarvedResource::Inodes | StarvedResource::Pids => None,
    }
}

/// An amount of memory or of storage.
pub(super) fn bytes(bytes: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Why a pod is not admitted under pressure.
pub(super) fn had_condition(conditions: impl IntoIterator<Item = PressureCondition>) -> String {
    let names: Vec<&str> = conditions.into_iter().map(PressureCondition::name).collect();
    format!("The node had condition: [{}]. ", names.join(" "))
}
