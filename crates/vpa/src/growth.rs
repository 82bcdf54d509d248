//! Growth by the node of the pods of a VPA: the opt-in of the VPA, carried to its pods.
//!
//! The admission webhook writes the bounds to new pods, and the updater to those that run when the VPA has changed. A pod names
//! in [`GROWTH_BOUNDS_FROM_VPA`] the resources whose bounds a VPA wrote; bounds of its own stay.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plumb_resize::growth::{GROWTH_BOUNDS_FROM_VPA, GrowthBounds, annotation};
use plumb_resize::list::declared;
use plumb_resize::resource::Resource;
use plumb_vpa_api::{
    ContainerControlledValues, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerSpec,
};

/// The annotations about growth that a pod of a VPA must change: their new values, or none for those to remove. Each container
/// may grow up to its `maxAllowed`, if the VPA has opted in and its mode resizes running pods.
pub fn annotation_changes(pod: &Pod, vpa: &VerticalPodAutoscaler) -> BTreeMap<&'static str, Option<String>> {
    let current = |name: &str| pod.annotations().get(name).map(String::as_str);
    let marked = current(GROWTH_BOUNDS_FROM_VPA);
    // Most VPAs do not opt in, and this is called for each of their pods.
    let opts_in = |resource| vpa.annotations().contains_key(annotation(resource));
    if marked.is_none() && !Resource::ALL.into_iter().any(opts_in) {
        return BTreeMap::new();
    }
    let is_from_vpa = |resource: Resource| {
        marked.is_some_and(|marked| marked.split(',').any(|name| name.trim() == resource.name()))
    };
    let mut from_vpa = Vec::new();
    let mut wanted = BTreeMap::new();
    for resource in Resource::ALL {
        let name = annotation(resource);
        if current(name).is_some() && !is_from_vpa(resource) {
            continue;
        }
        let bounds = bounds(pod, vpa, resource);
        if bounds.is_some() {
            from_vpa.push(resource.name());
        }
        wanted.insert(name, bounds.map(|bounds| bounds.to_string()));
    }
    wanted.insert(GROWTH_BOUNDS_FROM_VPA, (!from_vpa.is_empty()).then(|| from_vpa.join(",")));
    wanted.retain(|name, value| current(name) != value.as_deref());
    wanted
}

/// How far the limits of a pod's containers may grow by its VPA.
fn bounds(pod: &Pod, vpa: &VerticalPodAutoscaler, resource: Resource) -> Option<GrowthBounds> {
    let is_resized = matches!(vpa.spec.update_mode(), UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
    let has_opted_in = vpa.annotations().get(annotation(resource)).is_some_and(|value| value == "true");
    if !is_resized || !has_opted_in {
        return None;
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| &container.name);
    let named: BTreeMap<String, i64> =
        containers.filter_map(|name| Some((name.clone(), maximum(&vpa.spec, name, resource)?))).collect();
    (!named.is_empty()).then(|| GrowthBounds::named(resource, named))
}

/// The `maxAllowed` of a container whose limit the VPA controls.
fn maximum(spec: &VerticalPodAutoscalerSpec, container: &str, resource: Resource) -> Option<i64> {
    let policy = spec.container_policy(container)?;
    let has_limits = policy.controlled_values() == ContainerControlledValues::RequestsAndLimits;
    if !policy.scales() || !policy.controls(resource.name()) || !has_limits {
        return None;
    }
    declared(Some(&policy.max_allowed)).ok()?[resource].filter(|maximum| *maximum > 0)
}
