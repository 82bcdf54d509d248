//! Lifecycle hooks: what holds a pod before it is deleted or updated, and before it counts as available.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::finalizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hooks of a `CloneSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Holds a pod before it is deleted, for as long as it has any of the labels or finalizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_delete: Option<LifecycleHook>,
    /// Holds a pod before it is updated in place, for as long as it has any of the labels or finalizers, and afterwards
    /// until it has all of them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<LifecycleHook>,
    /// Holds a new pod until it has all of the labels and finalizers; only then it is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_normal: Option<LifecycleHook>,
}

/// Labels and finalizers by which other controllers hold pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHook {
    /// Labels with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_handler: BTreeMap<String, String>,
    /// Finalizers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers_handler: Vec<String>,
    /// Whether a pod that is held before its deletion or update is not ready meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mark_pod_not_ready: bool,
}

impl LifecycleHook {
    /// Whether a pod has any of the labels or finalizers.
    pub fn holds(&self, pod: &Pod) -> bool {
        self.finalizers_handler.iter().any(|name| finalizer::has(&pod.metadata, name))
            || self.labels_handler.iter().any(|(key, value)| label(pod, key) == Some(value))
    }

    /// Whether a pod has all of the labels and finalizers.
    pub fn is_complete(&self, pod: &Pod) -> bool {
        self.finalizers_handler.iter().all(|name| finalizer::has(&pod.metadata, name))
            && self.labels_handler.iter().all(|(key, value)| label(pod, key) == Some(value))
    }
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a String> {
    pod.metadata.labels.as_ref()?.get(key)
}
