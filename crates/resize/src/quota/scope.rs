//! Scopes: which of the things that a quota could count it does count.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, PodAffinityTerm, ScopedResourceSelectorRequirement, WeightedPodAffinityTerm,
};

use super::{Counted, Item};
use crate::qos::QosClass;

/// Whether something is in a scope. Only pods and claims have any.
pub(super) fn holds(scope: &ScopedResourceSelectorRequirement, counted: &Counted<'_>) -> bool {
    match counted.item {
        Item::Pod(pod) => pod_is_in(scope, pod),
        Item::Claim(claim) if scope.scope_name == "VolumeAttributesClass" => {
            selects(scope, &volume_attributes_classes(claim))
        }
        _ => false,
    }
}

fn pod_is_in(scope: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    match scope.scope_name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
            selects(scope, &class.filter(|class| !class.is_empty()).into_iter().collect::<Vec<_>>())
        }
        "CrossNamespacePodAffinity" => {
            let affinity = spec.and_then(|spec| spec.affinity.as_ref());
            let (pod, anti) = affinity
                .map(|all| (all.pod_affinity.as_ref(), all.pod_anti_affinity.as_ref()))
                .unwrap_or_default();
            pod.is_some_and(|affinity| {
                crosses(
                    affinity.required_during_scheduling_ignored_during_execution.as_deref(),
                    affinity.preferred_during_scheduling_ignored_during_execution.as_deref(),
                )
            }) || anti.is_some_and(|affinity| {
                crosses(
                    affinity.required_during_scheduling_ignored_during_execution.as_deref(),
                    affinity.preferred_during_scheduling_ignored_during_execution.as_deref(),
                )
            })
        }
        _ => false,
    }
}

/// Whether a pod ends by itself after a while.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    deadline.is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Pod) -> bool {
    QosClass::of_pod(pod) == Ok(QosClass::BestEffort)
}

fn selects(scope: &ScopedResourceSelectorRequirement, found: &[&str]) -> bool {
    let listed = || scope.values.iter().flatten();
    match scope.operator.as_str() {
        "In" => listed().any(|value| found.contains(&value.as_str())),
        "NotIn" => found.is_empty() || found.iter().any(|class| listed().all(|value| value != class)),
        "Exists" => !found.is_empty(),
        "DoesNotExist" => found.is_empty(),
        _ => false,
    }
}

fn volume_attributes_classes(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let target = status
        .and_then(|status| status.modify_volume_status.as_ref())
        .and_then(|status| status.target_volume_attributes_class_name.as_deref());
    [wanted, current, target].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn crosses(required: Option<&[PodAffinityTerm]>, preferred: Option<&[WeightedPodAffinityTerm]>) -> bool {
    let preferred = preferred.into_iter().flatten().map(|weighted| &weighted.pod_affinity_term);
    required.into_iter().flatten().chain(preferred).any(|term| {
        term.namespaces.as_ref().is_some_and(|names| !names.is_empty()) || term.namespace_selector.is_some()
    })
}
