//! The status of a `VerticalPodAutoscaler`: what is recommended, and whether that can be relied on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResourceList;
use super::schema::{self, string_enum};

/// The recommendation, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerStatus {
    /// The last recommendation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<RecommendedPodResources>,
    /// The conditions of the recommendation, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VerticalPodAutoscalerCondition>,
    /// The metadata.generation that the recommender has acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// What is recommended for the containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommendedPodResources {
    /// One entry for each container that is scaled, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_recommendations: Vec<RecommendedContainerResources>,
}

/// The recommendation for one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommendedContainerResources {
    /// Name of the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub container_name: String,
    /// The recommended requests, within the limits of the policy.
    #[serde(deserialize_with = "schema::read_resource_list")]
    #[schemars(schema_with = "schema::resource_list")]
    pub target: ResourceList,
    /// Requests under this are likely too little; an updater acts on them.
    #[serde(
        default,
        skip_serializing_if = "ResourceList::is_empty",
        deserialize_with = "schema::read_resource_list"
    )]
    #[schemars(schema_with = "schema::resource_list")]
    pub lower_bound: ResourceList,
    /// Requests over this are likely wasted; an updater acts on them.
    #[serde(
        default,
        skip_serializing_if = "ResourceList::is_empty",
        deserialize_with = "schema::read_resource_list"
    )]
    #[schemars(schema_with = "schema::resource_list")]
    pub upper_bound: ResourceList,
    /// The target without the limits of the policy, for information only.
    #[serde(
        default,
        skip_serializing_if = "ResourceList::is_empty",
        deserialize_with = "schema::read_resource_list"
    )]
    #[schemars(schema_with = "schema::resource_list")]
    pub uncapped_target: ResourceList,
}

/// A condition of a recommendation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    pub type_: ConditionType,
    /// Whether it holds: True, False or Unknown.
    #[schemars(with = "String")]
    pub status: ConditionStatus,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// The reason, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The metadata.generation that the condition is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

string_enum! {
    /// What a condition is about.
    ConditionType {
        /// Whether a recommendation has been computed.
        RecommendationProvided,
        /// Whether the history is too short to rely on.
        LowConfidence,
        /// Whether no pod matches.
        NoPodsMatched,
        /// Whether history is still being loaded.
        FetchingHistory,
        /// Whether the object uses something that is deprecated.
        ConfigDeprecated,
        /// Whether the object asks for something that is not supported.
        ConfigUnsupported,
        /// Whether the recommendation includes OOM kills. Upstream has no such condition.
        OOMKillsCounted,
    }
}

string_enum! {
    /// Whether a condition holds.
    ConditionStatus {
        /// It does.
        True,
        /// It does not.
        False,
        /// It is not known.
        Unknown,
    }
}

/// The reason of the condition [`ConfigUnsupported`](ConditionType::ConfigUnsupported) where the cluster does not serve
/// `pods/resize`. The updater writes it; the recommender writes the condition with other reasons.
pub const RESIZE_NOT_SERVED: &str = "ResizeNotServed";

/// The message of the condition [`OOMKillsCounted`](ConditionType::OOMKillsCounted), but for the time at its end.
const KILLS_COUNTED: &str = "The recommendation includes OOM kills until ";

/// The message of the condition [`OOMKillsCounted`](ConditionType::OOMKillsCounted) of a recommendation that includes OOM
/// kills up to this time. [`VerticalPodAutoscalerStatus::kills_counted_until`] reads it.
pub fn kills_counted_message(until: Timestamp) -> String {
    format!("{KILLS_COUNTED}{until}")
}

impl VerticalPodAutoscalerStatus {
    /// The latest OOM kill that the recommendation includes, if the recommender reports that.
    pub fn kills_counted_until(&self) -> Option<Timestamp> {
        let condition = self.condition(&ConditionType::OOMKillsCounted)?;
        condition.message.as_deref()?.strip_prefix(KILLS_COUNTED)?.parse().ok()
    }

    /// The condition of this type, if there is one.
    pub fn condition(&self, type_: &ConditionType) -> Option<&VerticalPodAutoscalerCondition> {
        self.conditions.iter().find(|condition| condition.type_ == *type_)
    }
}
