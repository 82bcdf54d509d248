//! Conversions between the objects of the API and the types of the engine.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use plumb_resize::Quantity;
use plumb_resize::resource::PerResource;
use plumb_vpa_api::{
    self, BucketWeights, ContainerResourcePolicy, ContainerScalingMode, RecommendedContainerResources,
    VerticalPodAutoscalerCheckpointStatus, VerticalPodAutoscalerSpec, read_resources, resource_list,
};

use super::amount::float;
use super::checkpoint::{CHECKPOINT_VERSION, CheckpointError, CheckpointStatus};
use super::estimate::{ContainerRecommendation, VpaSettings};
use super::histogram::{HistogramCheckpoint, HistogramCheckpointError};
use super::policy::{ContainerPolicy, ResourcePolicy, ScalingMode, integer_cpu_containers};
use super::time::Time;

impl VpaSettings {
    /// The settings in the spec and the annotations of a VPA. Without `per_vpa_config`, the gate `PerVPAConfig`, its
    /// OOM and memory settings do not count.
    pub fn from_api(
        spec: &VerticalPodAutoscalerSpec,
        annotations: &BTreeMap<String, String>,
        per_vpa_config: bool,
    ) -> Self {
        let policies = spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let containers = policies.map(|policy| ContainerPolicy::from_api(policy, per_vpa_config)).collect();
        let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Self {
            policy: ResourcePolicy { containers },
            integer_cpu: integer_cpu_containers(annotations).map(str::to_owned).collect(),
            ceilings: Vec::new(),
            update_mode: spec.update_policy.as_ref().and_then(|policy| policy.update_mode.clone()),
        }
    }
}

impl ContainerPolicy {
    fn from_api(policy: &ContainerResourcePolicy, per_vpa_config: bool) -> Self {
        // To the thousandth, as upstream reads them.
        let thousandths = |quantity: &Option<ApiQuantity>| {
            let read = Quantity::try_from(quantity.as_ref()?).ok()?;
            Some(float(read.saturating_milli()) / 1_000.0)
        };
        let mut parsed = Self::new(&policy.container_name);
        parsed.mode = match policy.mode {
            Some(ContainerScalingMode::Off) => ScalingMode::Off,
            Some(_) | None => ScalingMode::Auto,
        };
        parsed.min_allowed = read_resources(&policy.min_allowed);
        parsed.max_allowed = read_resources(&policy.max_allowed);
        parsed.controlled = PerResource::of(|resource| policy.controls(resource.name()));
        if per_vpa_config {
            parsed.oom_bump_up_ratio = thousandths(&policy.oom_bump_up_ratio);
            parsed.oom_min_bump_up_bytes = thousandths(&policy.oom_min_bump_up);
            let seconds = policy.memory_aggregation_interval_seconds;
            parsed.memory_interval = seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|&seconds| seconds > 0)
                .map(Duration::from_secs);
            parsed.memory_interval_count =
                policy.memory_aggregation_interval_count.filter(|&count| count > 0);
        }
        parsed
    }
}

impl From<&ContainerRecommendation> for RecommendedContainerResources {
    fn from(recommendation: &ContainerRecommendation) -> Self {
        Self {
            container_name: recommendation.container.clone(),
            target: resource_list(&recommendation.target),
            lower_bound: resource_list(&recommendation.lower_bound),
            upper_bound: resource_list(&recommendation.upper_bound),
            uncapped_target: resource_list(&recommendation.uncapped_target),
        }
    }
}

impl ContainerRecommendation {
    /// Reads an entry of a status. A quantity that cannot be read counts as absent.
    pub fn from_api(recommended: &RecommendedContainerResources) -> Self {
        Self {
            container: recommended.container_name.clone(),
            target: read_resources(&recommended.target),
            lower_bound: read_resources(&recommended.lower_bound),
            upper_bound: read_resources(&recommended.upper_bound),
            uncapped_target: read_resources(&recommended.uncapped_target),
        }
    }
}

impl CheckpointStatus {
    /// Reads the status of a checkpoint. Its version is checked first: in another one all other fields may have other
    /// meanings.
    pub fn from_api(status: &VerticalPodAutoscalerCheckpointStatus) -> Result<Self, CheckpointError> {
        let version = status.version.as_deref().unwrap_or_default();
        if version != CHECKPOINT_VERSION {
            return Err(CheckpointError::Version(version.to_owned()));
        }
        Ok(Self {
            version: Cow::Borrowed(CHECKPOINT_VERSION),
            cpu_histogram: histogram(&status.cpu_histogram).map_err(CheckpointError::Cpu)?,
            memory_histogram: histogram(&status.memory_histogram).map_err(CheckpointError::Memory)?,
            first_sample_start: time(status.first_sample_start.as_ref()).map_err(CheckpointError::Time)?,
            last_sample_start: time(status.last_sample_start.as_ref()).map_err(CheckpointError::Time)?,
            total_samples_count: status.total_samples_count,
        })
    }

    /// The status to be written at a time.
    pub fn to_api(&self, now: Time) -> VerticalPodAutoscalerCheckpointStatus {
        let histogram = |histogram: &HistogramCheckpoint| plumb_vpa_api::HistogramCheckpoint {
            reference_timestamp: api_time(histogram.reference_timestamp),
            bucket_weights: BucketWeights::Weights(histogram.bucket_weights.clone()),
            total_weight: histogram.total_weight,
        };
        VerticalPodAutoscalerCheckpointStatus {
            last_update_time: api_time(now),
            version: Some(self.version.to_string()),
            cpu_histogram: histogram(&self.cpu_histogram),
            memory_histogram: histogram(&self.memory_histogram),
            first_sample_start: api_time(self.first_sample_start),
            last_sample_start: api_time(self.last_sample_start),
            total_samples_count: self.total_samples_count,
        }
    }
}

fn histogram(
    histogram: &plumb_vpa_api::HistogramCheckpoint,
) -> Result<HistogramCheckpoint, HistogramCheckpointError> {
    let bucket_weights = match &histogram.bucket_weights {
        BucketWeights::Weights(weights) => weights.clone(),
        BucketWeights::Malformed(reason) => return Err(HistogramCheckpointError::Malformed(reason.clone())),
    };
    Ok(HistogramCheckpoint {
        reference_timestamp: time(histogram.reference_timestamp.as_ref())
            .map_err(HistogramCheckpointError::Time)?,
        bucket_weights,
        total_weight: histogram.total_weight,
    })
}

fn time(time: Option<&ApiTime>) -> Result<Time, super::time::TimeOutOfRange> {
    Time::from_api(time.map(|time| time.0))
}

fn api_time(time: Time) -> Option<ApiTime> {
    time.timestamp().map(ApiTime)
}
