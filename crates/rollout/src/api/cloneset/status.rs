//! The observed state of a `CloneSet`.

#![expect(clippy::doc_markdown, reason = "comments are the descriptions in the definition")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;

/// The observed state of a `CloneSet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetStatus {
    /// The generation that the controller has observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of pods.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// How many of them are available. A pod that is resized without a restart is.
    #[serde(default)]
    pub available_replicas: i32,
    /// How many of them are at the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// How many of them are at the update revision and ready.
    #[serde(default)]
    pub updated_ready_replicas: i32,
    /// How many of them are at the update revision and available, and their update is complete.
    #[serde(default)]
    pub updated_available_replicas: i32,
    /// The desired number of pods at the update revision: the replicas without the partition.
    #[serde(default)]
    pub expected_updated_replicas: i32,
    /// The revision of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The last revision that all pods were at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The number of collisions of the names of revisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The conditions of the `CloneSet`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<CloneSetCondition>,
    /// How far the rollout of other resources is, as the annotation rollout.plumb.dev/status of other workloads has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub in_place_rollout: Option<Value>,
    /// The selector as text, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

impl CloneSetStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&CloneSetCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// A condition of a `CloneSet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetCondition {
    /// The type of the condition: FailedScale, FailedUpdate, Progressing or InPlaceResizing.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// When it was updated last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub last_update_time: Option<Time>,
    /// When its status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub last_transition_time: Option<Time>,
    /// The reason, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
