//! The version before `v1`. It is not served, but clusters may have it in `status.storedVersions`, so that the
//! definitions have to name it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::{ContainerScalingMode, CrossVersionObjectReference, ResourceList, VerticalPodAutoscalerStatus};

/// Which pods are scaled, and within which limits.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1beta2",
    kind = "VerticalPodAutoscaler",
    namespaced,
    doc = "VerticalPodAutoscaler sets the CPU and memory requests of the pods of one workload, from their usage.",
    shortname = "vpa",
    status = "VerticalPodAutoscalerStatus",
    served = false,
    storage = false,
    deprecated = "autoscaling.k8s.io/v1beta2 API is deprecated"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    /// The workload whose pods are scaled.
    target_ref: CrossVersionObjectReference,
    /// How recommendations are applied.
    update_policy: Option<UpdatePolicy>,
    /// Limits of what is recommended, by container.
    resource_policy: Option<ResourcePolicy>,
}

/// How recommendations are applied to pods.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UpdatePolicy {
    /// When recommendations are applied.
    update_mode: Option<Mode>,
}

/// When recommendations are applied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum Mode {
    Off,
    Initial,
    Recreate,
    Auto,
}

/// Limits of what is recommended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourcePolicy {
    /// Policies of containers.
    container_policies: Option<Vec<ContainerPolicy>>,
}

/// Limits of what is recommended for one container.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ContainerPolicy {
    /// Name of the container, or "*" for those without a policy of their own.
    container_name: Option<String>,
    /// Whether the container is scaled.
    mode: Option<ContainerScalingMode>,
    /// The least that is recommended.
    #[serde(default)]
    #[schemars(schema_with = "schema::resource_list")]
    min_allowed: ResourceList,
    /// The most that is recommended.
    #[serde(default)]
    #[schemars(schema_with = "schema::resource_list")]
    max_allowed: ResourceList,
}
