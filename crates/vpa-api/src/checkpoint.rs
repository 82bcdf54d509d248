//! `VerticalPodAutoscalerCheckpoint`: the recommender's state of one container, as it survives restarts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
pub use super::schema::BucketWeights;

/// The container that has the state.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscalerCheckpoint",
    namespaced,
    doc = "VerticalPodAutoscalerCheckpoint is the recommender's state of one container, from which it continues after a restart.",
    shortname = "vpacheckpoint",
    status = "VerticalPodAutoscalerCheckpointStatus",
    derive = "PartialEq",
    derive = "Default"
)]
// The schema does not require a spec. Read through an `Option`, an object without one does not make its LIST unreadable.
#[serde(rename_all = "camelCase", from = "Option<SpecFields>")]
pub struct VerticalPodAutoscalerCheckpointSpec {
    /// Name of the autoscaler object, in the same namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vpa_object_name: String,
    /// Name of the container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
}

/// The fields of [`VerticalPodAutoscalerCheckpointSpec`], as they are read.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SpecFields {
    /// Name of the autoscaler object, in the same namespace.
    #[serde(default)]
    vpa_object_name: Option<String>,
    /// Name of the container.
    #[serde(default)]
    container_name: Option<String>,
}

impl From<Option<SpecFields>> for VerticalPodAutoscalerCheckpointSpec {
    fn from(fields: Option<SpecFields>) -> Self {
        fields.map_or_else(Self::default, |fields| Self {
            vpa_object_name: fields.vpa_object_name.unwrap_or_default(),
            container_name: fields.container_name.unwrap_or_default(),
        })
    }
}

/// The state itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerCheckpointStatus {
    /// When the checkpoint was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub last_update_time: Option<Time>,
    /// Version of the format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// CPU used.
    #[serde(default)]
    pub cpu_histogram: HistogramCheckpoint,
    /// Peaks of memory used.
    #[serde(default)]
    pub memory_histogram: HistogramCheckpoint,
    /// Time of the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub first_sample_start: Option<Time>,
    /// Time of the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub last_sample_start: Option<Time>,
    /// How many CPU samples there were.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub total_samples_count: i64,
}

/// A histogram with decaying weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistogramCheckpoint {
    /// The time at which a sample has the weight 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_date_time")]
    pub reference_timestamp: Option<Time>,
    /// Weights by the index of the bucket, scaled so that the heaviest bucket has the weight 10000.
    #[serde(default, skip_serializing_if = "BucketWeights::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub bucket_weights: BucketWeights,
    /// The sum of all weights before scaling.
    #[serde(default)]
    #[schemars(schema_with = "schema::number")]
    pub total_weight: f64,
}
