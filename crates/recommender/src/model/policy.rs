//! The parts of a VPA's spec and annotations that change a recommendation.

use std::time::Duration;

use plumb_resize::Quantity;
use plumb_resize::resource::PerResource;
use plumb_vpa_api::DEFAULT_CONTAINER_POLICY;

use super::config::AggregationSettings;
use super::estimate::Percentiles;

/// The annotation `vpa-post-processor.kubernetes.io/<container>_integerCPU: "true"`.
const POST_PROCESSOR_PREFIX: &str = "vpa-post-processor.kubernetes.io/";
const INTEGER_CPU_SUFFIX: &str = "_integerCPU";

/// `spec.resourcePolicy.containerPolicies`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourcePolicy {
    /// In the order of the object.
    pub containers: Vec<ContainerPolicy>,
}

impl ResourcePolicy {
    /// The policy of a container: the first with its name, else the last for `*`.
    pub fn for_container(&self, name: &str) -> Option<&ContainerPolicy> {
        let own = self.containers.iter().find(|policy| policy.container == name);
        own.or_else(|| self.containers.iter().rfind(|policy| policy.container == DEFAULT_CONTAINER_POLICY))
    }

    /// Whether a container is scaled at all: its mode is not Off.
    pub fn scales(&self, name: &str) -> bool {
        self.for_container(name).is_none_or(|policy| policy.mode == ScalingMode::Auto)
    }
}

/// One entry of `containerPolicies`.
///
/// The fields of the gate `PerVPAConfig` are absent here while the gate is off.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerPolicy {
    /// `containerName`, or [`DEFAULT_CONTAINER_POLICY`].
    pub container: String,
    /// `mode`.
    pub mode: ScalingMode,
    /// `minAllowed`; zero is ignored.
    pub min_allowed: PerResource<Option<Quantity>>,
    /// `maxAllowed`; zero is ignored, and hides the global maximum.
    pub max_allowed: PerResource<Option<Quantity>>,
    /// `controlledResources`: both unless given.
    pub controlled: PerResource<bool>,
    /// `oomBumpUpRatio`.
    pub oom_bump_up_ratio: Option<f64>,
    /// `oomMinBumpUp`, in bytes.
    pub oom_min_bump_up_bytes: Option<f64>,
    /// `memoryAggregationIntervalSeconds`.
    pub memory_interval: Option<Duration>,
    /// `memoryAggregationIntervalCount`.
    pub memory_interval_count: Option<i64>,
    /// Percentiles in place of those of the flags. Not in upstream's API.
    pub percentiles: PerResource<Option<Percentiles>>,
}

impl ContainerPolicy {
    /// A policy without effect.
    pub fn new(container: &str) -> Self {
        Self {
            container: container.to_owned(),
            mode: ScalingMode::Auto,
            min_allowed: PerResource::default(),
            max_allowed: PerResource::default(),
            controlled: PerResource::new(true, true),
            oom_bump_up_ratio: None,
            oom_min_bump_up_bytes: None,
            memory_interval: None,
            memory_interval_count: None,
            percentiles: PerResource::default(),
        }
    }
}

/// Whether a container is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScalingMode {
    /// The container gets recommendations.
    #[default]
    Auto,
    /// The container is left out.
    Off,
}

/// The aggregation settings of one container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemorySettings {
    /// The window of which a container contributes one memory peak.
    pub interval: Duration,
    /// How many such windows without samples an aggregate survives.
    pub interval_count: i64,
    /// By what factor memory is raised after an OOM kill.
    pub oom_bump_up_ratio: f64,
    /// By how many bytes memory is raised at least after an OOM kill.
    pub oom_min_bump_up_bytes: f64,
}

impl MemorySettings {
    /// The settings of the flags, overridden by those of a container's policy.
    pub fn new(settings: &AggregationSettings, policy: Option<&ContainerPolicy>) -> Self {
        let own = |of: fn(&ContainerPolicy) -> Option<f64>| policy.and_then(of);
        Self {
            interval: policy.and_then(|p| p.memory_interval).unwrap_or(settings.memory_interval),
            interval_count: policy
                .and_then(|p| p.memory_interval_count)
                .unwrap_or(settings.memory_interval_count),
            oom_bump_up_ratio: own(|p| p.oom_bump_up_ratio).unwrap_or(settings.oom_bump_up_ratio),
            oom_min_bump_up_bytes: own(|p| p.oom_min_bump_up_bytes).unwrap_or(settings.oom_min_bump_up_bytes),
        }
    }

    /// For how long after its last sample an aggregate counts.
    pub fn window_length(&self) -> Duration {
        let count = u32::try_from(self.interval_count.max(0)).unwrap_or(u32::MAX);
        self.interval.saturating_mul(count)
    }
}

/// The containers with whole cores, by the annotations of a VPA.
pub fn integer_cpu_containers<'a>(
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = &'a str> {
    annotations.into_iter().filter(|&(_, value)| value == "true").filter_map(|(key, _)| {
        key.strip_prefix(POST_PROCESSOR_PREFIX)?
            .strip_suffix(INTEGER_CPU_SUFFIX)
            .filter(|container| !container.is_empty())
    })
}
