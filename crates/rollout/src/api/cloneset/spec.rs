//! The desired state of the `CloneSet`.

#![expect(clippy::duplicated_attributes, reason = "printer columns have the same type or priority")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CloneSetStatus, Lifecycle, UpdateStrategy, schema};

/// The desired state of the `CloneSet`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "CloneSet",
    namespaced,
    doc = "CloneSet runs a number of equal pods and updates them in place or by recreating them, as OpenKruise does.",
    shortname = "clone",
    status = "CloneSetStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn(name = "DESIRED", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "UPDATED", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "UPDATED_READY", type_ = "integer", json_path = ".status.updatedReadyReplicas"),
    printcolumn(
        name = "UPDATED_AVAILABLE",
        type_ = "integer",
        json_path = ".status.updatedAvailableReplicas"
    ),
    printcolumn(name = "READY", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "TOTAL", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "CONTAINERS",
        type_ = "string",
        json_path = ".spec.template.spec.containers[*].name",
        priority = 1
    ),
    printcolumn(
        name = "IMAGES",
        type_ = "string",
        json_path = ".spec.template.spec.containers[*].image",
        priority = 1
    ),
    printcolumn(name = "SELECTOR", type_ = "string", json_path = ".status.labelSelector", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.progressDeadlineSeconds) || self.progressDeadlineSeconds == 2147483647 \
                 || self.progressDeadlineSeconds > (has(self.minReadySeconds) ? self.minReadySeconds : 0)",
        "message": "progressDeadlineSeconds must be greater than minReadySeconds",
    },
]))]
pub struct CloneSetSpec {
    /// The desired number of pods; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Selects the pods of the set. It must match the labels of the template.
    #[schemars(schema_with = "schema::workload_selector")]
    pub selector: LabelSelector,
    /// The template of the pods.
    #[serde(default)]
    #[schemars(schema_with = "schema::template")]
    pub template: Value,
    /// Claims that each pod has one of. They are deleted with the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::any_objects")]
    pub volume_claim_templates: Vec<Value>,
    /// How pods are created and deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// How pods are updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// The number of old revisions to keep; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// For how many seconds a pod has to be ready to be available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Hooks that hold pods before they are deleted, updated or available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// For how many seconds an update may make no progress before the condition Progressing is False. Never if absent or
    /// 2147483647.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub progress_deadline_seconds: Option<i32>,
}

/// How pods are created and deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods to delete. The controller removes the names of deleted pods from the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub pods_to_delete: Vec<String>,
    /// How many pods may be unavailable for further ones to be created; a percentage is rounded up. No limit if absent.
    #[serde(
        default,
        deserialize_with = "schema::read_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// Whether a new pod reuses the claims of a deleted one, as v1beta1 writes it; false if absent.
    #[serde(default, rename = "enablePVCReuse", skip_serializing_if = "Option::is_none")]
    pub enable_pvc_reuse: Option<bool>,
    /// The opposite, as v1alpha1 writes it.
    #[serde(default, rename = "disablePVCReuse", skip_serializing_if = "Option::is_none")]
    pub disable_pvc_reuse: Option<bool>,
    /// Whether pods that are held before their deletion are not counted as replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_preparing_delete: Option<bool>,
}
