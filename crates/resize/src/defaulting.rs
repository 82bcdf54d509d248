//! Defaults that the API server sets when a pod is created or updated.

mod disabled;

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, ContainerStatus, Pod, PodSpec};

pub use disabled::drop_disabled;

use crate::accounting::{container_sum, pod_level_resource};
use crate::aggregate::Role;
use crate::list::{BadQuantity, WireList};
use crate::pod::{RestartPolicy, containers, init_role};
use crate::resource::{Resource, is_huge_pages};
use crate::rules::Rules;

/// Sets the defaults of a pod: a request for every limit, pod-level values, and, depending on the rules, the resize
/// policies. Runs on every decode of a pod, so on the body of a resize too.
pub fn default_pod(pod: &mut Pod, rules: &Rules) -> Result<(), BadQuantity> {
    let Some(spec) = &mut pod.spec else { return Ok(()) };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        default_requests(container);
    }
    default_pod_level(spec)?;
    if rules.default_policies {
        let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| init_role(c) == Role::Sidecar);
        sidecars.chain(&mut spec.containers).for_each(default_policies);
    }
    Ok(())
}

/// Restores the fields that a client that predates the feature dropped in an update: policies and allocations are not
/// that client's to remove.
///
/// To be called before [`default_pod`], which would take a policy that was left out for one that was never
/// there.
pub fn copy_back(stored: &Pod, updated: &mut Pod, rules: &Rules) {
    if !rules.copy_back {
        return;
    }
    if let (Some(old), Some(new)) = (&stored.spec, &mut updated.spec) {
        let old: Vec<&Container> = containers(old).map(|(_, container)| container).collect();
        for container in new.init_containers.iter_mut().flatten().chain(&mut new.containers) {
            if container.resize_policy.as_ref().is_none_or(Vec::is_empty)
                && let Some(old) = old.iter().find(|old| old.name == container.name)
            {
                container.resize_policy.clone_from(&old.resize_policy);
            }
        }
    }
    if let (Some(old), Some(new)) = (&stored.status, &mut updated.status) {
        copy_allocations(old.container_statuses.as_deref(), new.container_statuses.as_deref_mut());
        copy_allocations(old.init_container_statuses.as_deref(), new.init_container_statuses.as_deref_mut());
        let has_pod_level = updated.spec.as_ref().is_some_and(|spec| spec.resources.is_some());
        if has_pod_level && new.allocated_resources.is_none() {
            new.allocated_resources.clone_from(&old.allocated_resources);
        }
    }
}

/// Sets the allocated resources of a new pod to its requests, per container and for the pod as a whole. Does nothing
/// if the rules leave allocation to the node.
pub fn allocate_at_creation(pod: &mut Pod, rules: &Rules) {
    if !rules.allocate_at_creation {
        return;
    }
    let Some(spec) = &pod.spec else { return };
    let allocated = |container: &Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        ..ContainerStatus::default()
    };
    let main = spec.containers.iter().map(allocated).collect();
    let sidecars: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| init_role(c) == Role::Sidecar)
        .map(allocated)
        .collect();
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.clone());
    let status = pod.status.get_or_insert_default();
    status.allocated_resources = whole;
    status.container_statuses = Some(main);
    status.init_container_statuses = (!sidecars.is_empty()).then_some(sidecars);
}

fn default_requests(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    if let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
}

fn default_policies(container: &mut Container) {
    let policies = container.resize_policy.get_or_insert_default();
    for resource in Resource::ALL {
        if !policies.iter().any(|policy| policy.resource_name == resource.name()) {
            policies.push(ContainerResizePolicy {
                resource_name: resource.name().to_owned(),
                restart_policy: RestartPolicy::NotRequired.name().to_owned(),
            });
        }
    }
}

/// Pod-level requests that are not given follow from the containers, else from the pod's limits; limits on
/// huge pages add up from the containers, since they cannot be over-committed.
fn default_pod_level(spec: &mut PodSpec) -> Result<(), BadQuantity> {
    let Some(pod) = &spec.resources else { return Ok(()) };
    let given = |list: &Option<WireList>| list.as_ref().is_some_and(|list| !list.is_empty());
    if !given(&pod.requests) && !given(&pod.limits) {
        return Ok(());
    }
    let requests = container_sum(spec, |resources| resources.requests.as_ref())?.to_wire();
    let limits = container_sum(spec, |resources| resources.limits.as_ref())?.to_wire();
    let Some(pod) = &mut spec.resources else { return Ok(()) };

    let requested = |name: &String| pod.requests.as_ref().is_some_and(|list| list.contains_key(name));
    let huge: Vec<_> =
        limits.into_iter().filter(|(name, _)| is_huge_pages(name) && !requested(name)).collect();
    for (name, limit) in huge {
        pod.limits.get_or_insert_default().entry(name).or_insert(limit);
    }

    let Some(limits) = pod.limits.as_ref().filter(|limits| !limits.is_empty()) else { return Ok(()) };
    let mut defaults: WireList = limits
        .iter()
        .filter(|(name, _)| pod_level_resource(name))
        .map(|(n, q)| (n.clone(), q.clone()))
        .collect();
    // The sum of the containers' requests precedes the pod's limit, and both apply only where the pod has no request.
    defaults.extend(requests.into_iter().filter(|(name, _)| Resource::named(name).is_some()));
    defaults.extend(pod.requests.take().unwrap_or_default());
    pod.requests = (!defaults.is_empty()).then_some(defaults);
    Ok(())
}

fn copy_allocations(old: Option<&[ContainerStatus]>, new: Option<&mut [ContainerStatus]>) {
    for status in new.into_iter().flatten().filter(|status| status.allocated_resources.is_none()) {
        if let Some(old) = old.into_iter().flatten().find(|old| old.name == status.name) {
            status.allocated_resources.clone_from(&old.allocated_resources);
        }
    }
}
