//! Explanations of recommendations.
//!
//! An explanation runs the same steps as the recommendation and records them; a recommendation alone makes no record.

use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};

use super::super::aggregate::Aggregate;
use super::super::config::AggregationConfig;
use super::super::time::Time;
use super::bound::{self, Bound, BoundSteps};
use super::finish::Limit;
use super::{Container, EstimationSettings, VpaSettings, each_container};

/// Where the recommendation for a container comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerExplanation {
    /// The container.
    pub container: String,
    /// How many CPU samples there are.
    pub samples: u64,
    /// When the first was taken; unset if there is none.
    pub first_sample: Time,
    /// When the last was taken; unset if there is none.
    pub last_sample: Time,
    /// Cpu and memory; none for a resource that the VPA does not control.
    pub resources: PerResource<Option<ResourceExplanation>>,
}

/// Where the recommendation for one resource comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceExplanation {
    /// How much history there is, in units of the confidence interval; see [`BoundSteps`] for its effect.
    pub confidence: f64,
    /// The histogram: the buckets that have weight, in order.
    pub histogram: Vec<BucketWeight>,
    /// Target, lower and upper bound.
    pub bounds: [BoundExplanation; 3],
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketWeight {
    /// The smallest value in it, in cores or bytes.
    pub start: f64,
    /// The smallest value beyond it.
    pub end: f64,
    /// Its part of the whole weight, between 0 and 1.
    pub share: f64,
}

/// Where one amount comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundExplanation {
    /// Which amount.
    pub bound: Bound,
    /// How it was estimated.
    pub steps: BoundSteps,
    /// Whether it was rounded up to whole cores.
    pub whole_cores: bool,
    /// The amount after rounding, before any limit.
    pub uncapped: Quantity,
    /// The limits that changed it, in the order in which they did.
    pub limits: Vec<Limit>,
    /// The recommendation.
    pub recommended: Quantity,
}

/// Explains what [`recommend`](super::recommend) returns for the same arguments, container by container.
pub fn explain<'a>(
    config: &'a AggregationConfig,
    settings: &'a EstimationSettings,
    vpa: &'a VpaSettings,
    containers: impl IntoIterator<Item = (&'a str, &'a Aggregate)>,
) -> Vec<ContainerExplanation> {
    each_container(config, settings, vpa, containers, |container, aggregate, minimum| ContainerExplanation {
        container: container.name.to_owned(),
        samples: aggregate.samples(),
        first_sample: aggregate.first_sample(),
        last_sample: aggregate.last_sample(),
        resources: PerResource::of(|resource| {
            container.controls(resource).then(|| container.explain(aggregate, resource, minimum[resource]))
        }),
    })
}

impl Container<'_> {
    fn explain(&self, aggregate: &Aggregate, resource: Resource, minimum: i64) -> ResourceExplanation {
        let options = &self.config.histogram(resource).buckets;
        let histogram = aggregate.usage(resource).histogram();
        let bucket = |(bucket, weight)| BucketWeight {
            start: options.start(bucket),
            end: options.end(bucket),
            share: weight / histogram.total_weight(),
        };
        ResourceExplanation {
            confidence: bound::confidence(aggregate, self.settings.confidence_interval[resource]),
            histogram: histogram.weights().map(bucket).collect(),
            bounds: Bound::ALL.map(|bound| {
                let steps = self.steps(aggregate, resource, bound, minimum);
                let uncapped = self.written(resource, steps.amount);
                let mut limits = Vec::new();
                let recommended = self.capped(resource, uncapped, |limit| limits.push(limit));
                let whole_cores = resource == Resource::Cpu && self.whole_cores();
                BoundExplanation { bound, steps, whole_cores, uncapped, limits, recommended }
            }),
        }
    }
}
