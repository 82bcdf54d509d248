//! How large containers can be: by nodes and by quotas. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use plumb_controller_runtime::pods::has_ended;
use plumb_resize::Quantity;
use plumb_resize::list::{self, ResourceList};
use plumb_resize::resource::{PerResource, Resource};

/// The most that a node which pods can be scheduled to has allocatable, resource by resource.
pub fn largest(nodes: &[Arc<Node>]) -> Option<PerResource<Option<Quantity>>> {
    let is_schedulable =
        |node: &&Arc<Node>| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true));
    let allocatable = nodes.iter().filter(is_schedulable).filter_map(|node| {
        let status = node.status.as_ref()?;
        ResourceList::read(status.allocatable.as_ref()).ok()
    });
    allocatable
        .map(|of| PerResource::of(|resource| of.get(resource.name())))
        .reduce(|one, other| PerResource::of(|resource| one[resource].max(other[resource])))
}

/// How much each of a VPA's pods can request, so that all of them together fit the quotas beside the other pods of the
/// namespace. Pods that have ended count for no quota, and quotas with scopes count some pods only: both are left out.
pub fn left_by_quotas(quotas: &[Arc<ResourceQuota>], own: &[Arc<Pod>]) -> PerResource<Option<Quantity>> {
    let own: Vec<&Pod> = own.iter().map(|pod| &**pod).filter(|pod| !has_ended(pod)).collect();
    let replicas = i64::try_from(own.len().max(1)).unwrap_or(i64::MAX);
    let requested = PerResource::of(|resource| {
        own.iter().map(|pod| requested(pod, resource)).fold(0_i64, i64::saturating_add)
    });
    let amount = |resource, quantity| list::amount_of(resource, quantity).ok();
    let left = |quota: &ResourceQuota, resource: Resource| {
        let spec =
            quota.spec.as_ref().filter(|spec| spec.scopes.is_none() && spec.scope_selector.is_none())?;
        let read = |of: Option<&_>| {
            let of = ResourceList::read(of).ok()?;
            // Both names are the same quota.
            let of = of.get(&format!("requests.{}", resource.name())).or_else(|| of.get(resource.name()));
            amount(resource, of?)
        };
        let hard = read(spec.hard.as_ref())?;
        let used = quota.status.as_ref().and_then(|status| read(status.used.as_ref())).unwrap_or_default();
        let others = used.saturating_sub(requested[resource]).max(0);
        Some(hard.saturating_sub(others).max(0) / replicas)
    };
    PerResource::of(|resource| {
        let least = quotas.iter().filter_map(|quota| left(quota, resource)).min()?;
        Some(list::quantity_of(resource, least))
    })
}

fn requested(pod: &Pod, resource: Resource) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let request = |requests: Option<&_>| list::declared(requests).ok().and_then(|of| of[resource]);
    containers
        .filter_map(|of| request(of.resources.as_ref().and_then(|resources| resources.requests.as_ref())))
        .fold(0, i64::saturating_add)
}
