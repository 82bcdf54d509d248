//! The containers of one workload without a cluster: for history from files and from Prometheus.
//!
//! ```
//! use plumb_recommender::{
//!     AggregationConfig, AggregationSettings, EstimationSettings, Sample, Time, VpaSettings, Workload,
//! };
//! use plumb_resize::resource::Resource;
//!
//! let config = AggregationConfig::new(AggregationSettings::default())?;
//! let mut workload = Workload::new(&config, VpaSettings::default());
//! let start = Time::from_unix_seconds(1_767_225_600);
//! workload.add_sample("app", Sample::from_base_units(start, Resource::Cpu, 0.1)?)?;
//! workload.add_sample("app", Sample::from_base_units(start, Resource::Memory, 1e8)?)?;
//!
//! let recommended = workload.recommend(&EstimationSettings::default());
//! assert_eq!(recommended[0].target.cpu.map(|cpu| cpu.to_string()).as_deref(), Some("126m"));
//! assert_eq!(recommended[0].target.memory.map(|memory| memory.to_string()).as_deref(), Some("250Mi"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::aggregate::Aggregate;
use super::config::AggregationConfig;
use super::container::ContainerState;
use super::estimate::{self, ContainerExplanation, ContainerRecommendation, EstimationSettings, VpaSettings};
use super::policy::MemorySettings;
use super::sample::{Discarded, Sample};
use super::time::Time;

/// The usage of one workload's containers, as if one VPA selected all its pods.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    config: &'a AggregationConfig,
    vpa: VpaSettings,
    /// Ordered by name.
    containers: Vec<WorkloadContainer>,
}

#[derive(Clone, Debug)]
struct WorkloadContainer {
    name: Box<str>,
    settings: MemorySettings,
    aggregate: Aggregate,
    /// Ordered by the name of the pod.
    pods: Vec<(Box<str>, ContainerState)>,
}

impl<'a> Workload<'a> {
    /// A workload without samples.
    pub fn new(config: &'a AggregationConfig, vpa: VpaSettings) -> Self {
        Self { config, vpa, containers: Vec::new() }
    }

    /// Counts a sample of a container, which needs no other introduction.
    pub fn add_sample(&mut self, container: &str, sample: Sample) -> Result<(), Discarded> {
        self.add_pod_sample("", container, sample)
    }

    /// Counts a sample of a container of one of several pods. Samples of one pod have to come in order.
    pub fn add_pod_sample(&mut self, pod: &str, container: &str, sample: Sample) -> Result<(), Discarded> {
        let config = self.config;
        let WorkloadContainer { settings, aggregate, pods, .. } = self.container(container);
        state(pods, pod).add_sample(config, settings, aggregate, sample)
    }

    /// Counts an OOM kill of a container that had this memory request, in bytes.
    pub fn record_oom(&mut self, container: &str, at: Time, requested: i64) -> Result<(), Discarded> {
        self.record_pod_oom("", container, at, requested)
    }

    /// Counts an OOM kill of a container of one of several pods.
    pub fn record_pod_oom(
        &mut self,
        pod: &str,
        container: &str,
        at: Time,
        requested: i64,
    ) -> Result<(), Discarded> {
        let config = self.config;
        let WorkloadContainer { settings, aggregate, pods, .. } = self.container(container);
        state(pods, pod).record_oom(config, settings, aggregate, at, requested)
    }

    /// The aggregates by container, in the order of their names.
    pub fn aggregates(&self) -> impl Iterator<Item = (&str, &Aggregate)> {
        self.containers.iter().map(|container| (&*container.name, &container.aggregate))
    }

    /// What the samples so far give.
    pub fn recommend(&self, settings: &EstimationSettings) -> Vec<ContainerRecommendation> {
        estimate::recommend(self.config, settings, &self.vpa, self.aggregates())
    }

    /// Why [`recommend`](Self::recommend) gives that.
    pub fn explain(&self, settings: &EstimationSettings) -> Vec<ContainerExplanation> {
        estimate::explain(self.config, settings, &self.vpa, self.aggregates())
    }

    fn container(&mut self, name: &str) -> &mut WorkloadContainer {
        let at = self.containers.binary_search_by(|container| (*container.name).cmp(name));
        let at = at.unwrap_or_else(|at| {
            let policy = self.vpa.policy.for_container(name);
            let container = WorkloadContainer {
                name: name.into(),
                settings: MemorySettings::new(&self.config.settings, policy),
                aggregate: Aggregate::new(self.config),
                pods: Vec::new(),
            };
            self.containers.insert(at, container);
            at
        });
        &mut self.containers[at]
    }
}

fn state<'a>(pods: &'a mut Vec<(Box<str>, ContainerState)>, pod: &str) -> &'a mut ContainerState {
    let at = pods.binary_search_by(|(name, _)| (**name).cmp(pod)).unwrap_or_else(|at| {
        pods.insert(at, (pod.into(), ContainerState::default()));
        at
    });
    &mut pods[at].1
}
