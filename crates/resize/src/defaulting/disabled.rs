//! Fields that the API server drops while a feature gate is off.

use k8s_openapi::api::core::v1::{ContainerResizePolicy, Pod, PodSpec, PodStatus};

use crate::pod::containers;
use crate::rules::Rules;

/// Drops the fields of features that are switched off from a pod that is created or changed, unless `stored`
/// has them already: pods that use a feature keep its fields when the gate is switched off.
pub fn drop_disabled(stored: Option<&Pod>, new: &mut Pod, rules: &Rules) {
    let in_use = stored.and_then(|pod| pod.spec.as_ref()).is_some_and(has_policies);
    if !rules.resize && !in_use {
        new.spec.iter_mut().flat_map(policies).for_each(|own| *own = None);
        new.status.iter_mut().for_each(drop_container_values);
    }
    let whole_in_use = stored
        .and_then(|pod| pod.status.as_ref())
        .is_some_and(|status| status.resources.is_some() || status.allocated_resources.is_some());
    let whole_allowed = rules.resize && rules.resize_pod_level;
    if let (false, Some(status)) = (whole_allowed || whole_in_use, &mut new.status) {
        status.resources = None;
        status.allocated_resources = None;
    }
}

/// Whether any container that can be resized has a resize policy.
fn has_policies(spec: &PodSpec) -> bool {
    containers(spec).any(|(_, container)| container.resize_policy.as_ref().is_some_and(|own| !own.is_empty()))
}

fn policies(spec: &mut PodSpec) -> impl Iterator<Item = &mut Option<Vec<ContainerResizePolicy>>> {
    let init = spec.init_containers.iter_mut().flatten();
    let ephemeral = spec.ephemeral_containers.iter_mut().flatten();
    let all = init.chain(&mut spec.containers).map(|container| &mut container.resize_policy);
    all.chain(ephemeral.map(|container| &mut container.resize_policy))
}

fn drop_container_values(status: &mut PodStatus) {
    status.resize = None;
    let lists = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        container.resources = None;
        container.allocated_resources = None;
    }
}
