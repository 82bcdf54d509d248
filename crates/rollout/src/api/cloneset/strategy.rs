//! How pods are updated: pace, order, and whether in place.

#![expect(clippy::doc_markdown, reason = "comments are the descriptions in the definition")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// How pods are updated. `v1beta1` writes `type` and `rollingUpdate`, `v1alpha1` all other fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::pace_rules("type")))]
pub struct UpdateStrategy {
    /// RollingUpdate or OnDelete; in v1alpha1 ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["RollingUpdate", "OnDelete", "ReCreate", "InPlaceIfPossible", "InPlaceOnly"]))]
    pub type_: Option<String>,
    /// How a rolling update proceeds, as v1beta1 writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// How a rolling update proceeds, as v1alpha1 writes it.
    #[serde(flatten)]
    pub pace: Pace,
}

/// How a rolling update proceeds, as v1beta1 writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::pace_rules("podUpdatePolicy")))]
pub struct RollingUpdate {
    /// ReCreate, InPlaceIfPossible or InPlaceOnly; ReCreate if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"]))]
    pub pod_update_policy: Option<String>,
    /// The fields that both versions have.
    #[serde(flatten)]
    pub pace: Pace,
}

/// Pace and order of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pace {
    /// How many pods stay at an old revision; a percentage is rounded up. 0 if absent.
    #[serde(
        default,
        deserialize_with = "schema::read_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub partition: Option<IntOrString>,
    /// How many pods may be unavailable; a percentage is rounded up, or down if pods may surge. 20% if absent.
    #[serde(
        default,
        deserialize_with = "schema::read_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// The maximum number of pods above the replicas; a percentage is rounded up. 0 if absent.
    #[serde(
        default,
        deserialize_with = "schema::read_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// Whether the update is paused: the controller updates no further pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Which pods are updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
    /// Labels by which the pods that have them are spread over the whole update.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scatter_strategy: Vec<ScatterTerm>,
    /// How pods are updated in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
}

/// Which pods are updated first: by weight or by order, not both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.orderPriority) && size(self.orderPriority) > 0 \
             && has(self.weightPriority) && size(self.weightPriority) > 0)",
    "message": "only one of orderPriority and weightPriority can be used",
}]))]
pub struct PriorityStrategy {
    /// Pods are updated by the number at the end of the value of a label, the larger first. Pods with an earlier key come
    /// first, those with none of the keys before all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_priority: Vec<OrderTerm>,
    /// Pods are updated by the sum of the weights that match them, the larger first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_priority: Vec<WeightTerm>,
}

/// A label that pods are ordered by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderTerm {
    /// The key of the label.
    #[schemars(length(min = 1))]
    pub ordered_key: String,
}

/// A weight of the pods that a selector matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightTerm {
    /// The weight.
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// The pods that have the weight.
    #[schemars(schema_with = "schema::label_selector")]
    pub match_selector: LabelSelector,
}

/// A label whose pods are spread over the whole update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScatterTerm {
    /// The key of the label.
    #[schemars(length(min = 1))]
    pub key: String,
    /// Its value.
    #[schemars(length(min = 1))]
    pub value: String,
}

/// How pods are updated in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// For how many seconds a pod is not ready before its images are changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i32>,
    /// Accepted, and not used: images are not downloaded in advance.
    #[serde(
        default,
        deserialize_with = "schema::read_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_string")]
    pub image_pre_download_parallelism: Option<IntOrString>,
    /// Accepted, and not used: images are not downloaded in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_download_timeout_seconds: Option<i32>,
    /// Accepted, and not used: images are not downloaded in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_download_min_updated_ready_pods: Option<i32>,
}
