//! `VerticalPodAutoscaler`: which pods are scaled, how, and within which limits.

#![expect(clippy::duplicated_attributes, reason = "printer columns have the same type or priority")]

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{self, string_enum};
use super::{ResourceList, VerticalPodAutoscalerStatus};

/// Which pods are scaled, how, and within which limits.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscaler",
    namespaced,
    doc = "VerticalPodAutoscaler sets the CPU and memory requests of the pods of one workload, from their usage.",
    shortname = "vpa",
    status = "VerticalPodAutoscalerStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.updatePolicy.updateMode"),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.recommendation.containerRecommendations[0].target.cpu"
    ),
    printcolumn(
        name = "Mem",
        type_ = "string",
        json_path = ".status.recommendation.containerRecommendations[0].target.memory"
    ),
    printcolumn(
        name = "Provided",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='RecommendationProvided')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MinReplicas",
        type_ = "integer",
        json_path = ".spec.updatePolicy.minReplicas",
        priority = 1
    ),
    printcolumn(
        name = "OOMSeconds",
        type_ = "integer",
        json_path = ".spec.updatePolicy.evictAfterOOMSeconds",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerSpec {
    /// The workload whose pods are scaled: one of Kubernetes' own, or any with a /scale subresource.
    pub target_ref: CrossVersionObjectReference,
    /// How recommendations are applied; Recreate if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_policy: Option<PodUpdatePolicy>,
    /// Limits of what is recommended, by container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<PodResourcePolicy>,
    /// Which recommender computes the recommendation; the default one if empty. At most one entry is supported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommenders: Vec<VerticalPodAutoscalerRecommenderSelector>,
    /// The start-up boost of containers whose policy has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

/// A workload in the namespace of the object that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct CrossVersionObjectReference {
    /// Group and version of the workload, such as apps/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the workload, such as Deployment.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

/// How recommendations are applied to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodUpdatePolicy {
    /// When and how recommendations are applied; Recreate if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_mode: Option<UpdateMode>,
    /// How many replicas must be alive before the updater evicts one of them; overrides its --min-replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_147_483_647))]
    pub min_replicas: Option<i32>,
    /// The conditions that must all hold before the updater evicts a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_requirements: Vec<EvictionRequirement>,
    /// A container that is OOM-killed within this many seconds of its start makes its pod a candidate for an update;
    /// overrides the updater's --evict-after-oom-threshold.
    #[serde(default, rename = "evictAfterOOMSeconds", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub evict_after_oom_seconds: Option<i32>,
}

string_enum! {
    /// When and how recommendations are applied.
    UpdateMode {
        /// Never: recommendations are only reported.
        Off,
        /// When a pod is created.
        Initial,
        /// When a pod is created, and by evicting pods.
        Recreate,
        /// When a pod is created, and in place; pods that cannot be resized are evicted.
        InPlaceOrRecreate,
        /// When a pod is created, and in place; no pod is evicted.
        InPlace,
        /// Deprecated: the same as `InPlaceOrRecreate`, or `Recreate` if the updater is configured so.
        Auto,
    }
}

/// One condition for evicting a pod: at least one of the resources must change in the required direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequirement {
    /// Names of resources, such as cpu and memory.
    pub resources: Vec<String>,
    /// How the target must relate to the request of at least one of these resources.
    pub change_requirement: EvictionChangeRequirement,
}

string_enum! {
    /// How a target must relate to the request.
    EvictionChangeRequirement {
        /// The target is higher than the request.
        TargetHigherThanRequests,
        /// The target is lower than the request.
        TargetLowerThanRequests,
    }
}

/// Limits of what is recommended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodResourcePolicy {
    /// Policies of containers. The one named "*" is for containers without a policy of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_policies: Vec<ContainerResourcePolicy>,
}

/// The policy of one container: what is recommended, and within which limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourcePolicy {
    /// Name of the container, or "*" for those without a policy of their own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub container_name: String,
    /// Whether the container is scaled; Auto if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ContainerScalingMode>,
    /// The least that is recommended.
    #[serde(
        default,
        skip_serializing_if = "ResourceList::is_empty",
        deserialize_with = "schema::read_resource_list"
    )]
    #[schemars(schema_with = "schema::resource_list")]
    pub min_allowed: ResourceList,
    /// The most that is recommended.
    #[serde(
        default,
        skip_serializing_if = "ResourceList::is_empty",
        deserialize_with = "schema::read_resource_list"
    )]
    #[schemars(schema_with = "schema::resource_list")]
    pub max_allowed: ResourceList,
    /// The resources that are recommended and applied; cpu and memory if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlled_resources: Option<Vec<String>>,
    /// Whether limits change in proportion to requests; they do if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlled_values: Option<ContainerControlledValues>,
    /// By which factor memory is raised after an OOM kill, at least 1; overrides the recommender's --oom-bump-up-ratio.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schema::read_quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub oom_bump_up_ratio: Option<Quantity>,
    /// By how much memory is raised at least after an OOM kill; overrides the recommender's --oom-min-bump-up-bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schema::read_quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub oom_min_bump_up: Option<Quantity>,
    /// Length in seconds of the interval whose memory peak is one sample; overrides the recommender's
    /// --memory-aggregation-interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub memory_aggregation_interval_seconds: Option<i32>,
    /// How many such intervals make up the history; overrides the recommender's --memory-aggregation-interval-count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_aggregation_interval_count: Option<i64>,
    /// The start-up boost of this container; replaces that of the whole pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

string_enum! {
    /// Whether a container is scaled.
    ContainerScalingMode {
        /// It is.
        Auto,
        /// It is not, and nothing is recommended for it.
        Off,
    }
}

string_enum! {
    /// Which values of a container are scaled.
    ContainerControlledValues {
        /// Requests, and limits in proportion to them.
        RequestsAndLimits,
        /// Requests alone.
        RequestsOnly,
    }
}

/// A recommender, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerticalPodAutoscalerRecommenderSelector {
    /// Name of the recommender, as its --recommender-name says.
    pub name: String,
}

/// What containers get in addition while they start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartupBoost {
    /// The boost of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<GenericStartupBoost>,
}

/// How much of a resource is added at start, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(self.type == 'Factor') == has(self.factor)",
        "message": "factor is required when type is Factor and forbidden otherwise",
    },
    {
        "rule": "(self.type == 'Quantity') == has(self.quantity)",
        "message": "quantity is required when type is Quantity and forbidden otherwise",
    },
]))]
pub struct GenericStartupBoost {
    /// Whether the boost is a multiple of the request or an amount in addition to it.
    #[serde(rename = "type")]
    pub type_: StartupBoostType,
    /// By how much the request is multiplied, for type Factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub factor: Option<i32>,
    /// How much is added to the request, for type Quantity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schema::read_quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub quantity: Option<Quantity>,
    /// For how many seconds after the pod became ready the boost lasts; until it is ready if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub duration_seconds: Option<i32>,
}

string_enum! {
    /// How a boost is computed.
    StartupBoostType {
        /// The request times a factor.
        Factor,
        /// The request plus a quantity.
        Quantity,
    }
}
