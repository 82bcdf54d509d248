//! Growth under memory pressure of the pods of a VPA: the opt-in of the VPA, carried to its pods when they are created.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plumb_resize::growth::{GrowthBounds, MEMORY_PRESSURE_GROWTH};
use plumb_resize::list::declared;
use plumb_vpa_api::{
    ContainerControlledValues, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerSpec,
};

/// How far the memory limits of a new pod may grow because its VPA has opted in: each container up to its `maxAllowed`. None if it
/// has not, in a mode that does not resize running pods, and if the pod has bounds of its own.
pub(crate) fn bounds(pod: &Pod, vpa: &VerticalPodAutoscaler) -> Option<GrowthBounds> {
    let is_resized = matches!(vpa.spec.update_mode(), UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
    let has_opted_in = vpa.annotations().get(MEMORY_PRESSURE_GROWTH).is_some_and(|value| value == "true");
    if !is_resized || !has_opted_in || pod.annotations().contains_key(MEMORY_PRESSURE_GROWTH) {
        return None;
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| &container.name);
    let named: BTreeMap<String, i64> =
        containers.filter_map(|name| Some((name.clone(), maximum(&vpa.spec, name)?))).collect();
    (!named.is_empty()).then_some(GrowthBounds::Named(named))
}

/// The `maxAllowed` of a container whose memory limit the VPA controls.
fn maximum(spec: &VerticalPodAutoscalerSpec, container: &str) -> Option<i64> {
    let policy = spec.container_policy(container)?;
    let has_limits = policy.controlled_values() == ContainerControlledValues::RequestsAndLimits;
    if !policy.scales() || !policy.controls("memory") || !has_limits {
        return None;
    }
    declared(Some(&policy.max_allowed)).ok()?.memory.filter(|maximum| *maximum > 0)
}
