//! From usage to recommendation.
//!
//! For each container and resource there are three bounds: target, lower and upper. Each is
//!
//! ```text
//! percentile of the histogram         90, 50 and 95 unless set otherwise
//!   + 15 %                            safety margin
//!   × confidence multiplier           lower and upper only: little history widens the range
//!   at least the minimum              25m and 250Mi per pod, divided by its containers
//!   rounded up                        to multiples, or to whole cores, if asked for
//!   at least minAllowed, at most maxAllowed
//! ```
//!
//! Amounts are whole millicores or bytes after every step, and at most [`MAX_AMOUNT`](crate::MAX_AMOUNT), as
//! upstream's are. The uncapped target is the target before the last line.

mod bound;
mod explain;
mod finish;

use std::time::Duration;

use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};

pub use bound::{Bound, BoundSteps};
pub use explain::{BoundExplanation, BucketWeight, ContainerExplanation, ResourceExplanation, explain};
pub use finish::{Ceiling, CeilingSource, Limit};

use super::aggregate::Aggregate;
use super::config::AggregationConfig;
use super::policy::{ContainerPolicy, ResourcePolicy};
pub use plumb_vpa_api::Resources;
use plumb_vpa_api::UpdateMode;

/// How recommendations are made of aggregates: upstream's flags with their defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimationSettings {
    /// The fraction added to every percentile (`--recommendation-margin-fraction`).
    pub safety_margin_fraction: f64,
    /// `--pod-recommendation-min-cpu-millicores`.
    pub pod_min_cpu_millicores: f64,
    /// `--pod-recommendation-min-memory-mb`, in MiB in spite of its name.
    pub pod_min_memory_mb: f64,
    /// `--target-cpu-percentile` and the like.
    pub percentiles: PerResource<Percentiles>,
    /// How much history gives full confidence (`--confidence-interval-cpu`, `-memory`).
    pub confidence_interval: PerResource<Duration>,
    /// The multiple to which amounts are rounded up (`--round-cpu-millicores`, `--round-memory-bytes`).
    /// 1 and values that are not positive do not round.
    pub round_up_to: PerResource<i64>,
    /// Writes memory with two decimals of the largest unit (`--humanize-memory`, deprecated).
    pub humanize_memory: bool,
    /// Whether annotations may request whole cores (`--cpu-integer-post-processor-enabled`).
    pub integer_cpu: bool,
    /// The maximum of containers without `maxAllowed` (`--container-recommendation-max-allowed-cpu`, `-memory`).
    pub max_allowed: PerResource<Option<Quantity>>,
}

impl Default for EstimationSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            safety_margin_fraction: 0.15,
            pod_min_cpu_millicores: 25.0,
            pod_min_memory_mb: 250.0,
            percentiles: PerResource::default(),
            confidence_interval: PerResource::new(DAY, DAY),
            round_up_to: PerResource::new(1, 1),
            humanize_memory: false,
            integer_cpu: false,
            max_allowed: PerResource::default(),
        }
    }
}

/// Which percentile of usage each bound starts from, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// For the target.
    pub target: f64,
    /// For the lower bound.
    pub lower: f64,
    /// For the upper bound.
    pub upper: f64,
}

impl Default for Percentiles {
    fn default() -> Self {
        Self { target: 0.9, lower: 0.5, upper: 0.95 }
    }
}

/// The settings of one VPA.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaSettings {
    /// Its `spec.resourcePolicy`.
    pub policy: ResourcePolicy,
    /// The containers that its annotations want whole cores for; see
    /// [`integer_cpu_containers`](crate::integer_cpu_containers).
    pub integer_cpu: Vec<String>,
    /// Maximums that come from elsewhere than the policy and the flags. Upstream has none.
    pub ceilings: Vec<Ceiling>,
    /// How recommendations are applied, for metrics; it changes no number.
    pub update_mode: Option<UpdateMode>,
}

/// The recommendation for one container: an entry of `status.recommendation.containerRecommendations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRecommendation {
    /// `containerName`.
    pub container: String,
    /// `target`.
    pub target: Resources,
    /// `lowerBound`.
    pub lower_bound: Resources,
    /// `upperBound`.
    pub upper_bound: Resources,
    /// `uncappedTarget`.
    pub uncapped_target: Resources,
}

/// Recommends resources for the containers of one VPA, in the order of their names.
///
/// Each container comes with its aggregate. Containers with mode Off are left out, and do not count when the
/// minimum of a pod is divided by its containers.
pub fn recommend<'a>(
    config: &'a AggregationConfig,
    settings: &'a EstimationSettings,
    vpa: &'a VpaSettings,
    containers: impl IntoIterator<Item = (&'a str, &'a Aggregate)>,
) -> Vec<ContainerRecommendation> {
    each_container(config, settings, vpa, containers, Container::recommend)
}

/// The result of `of` for each container with a recommendation, its aggregate and its minimum, in the order of their
/// names.
fn each_container<'a, T>(
    config: &'a AggregationConfig,
    settings: &'a EstimationSettings,
    vpa: &'a VpaSettings,
    containers: impl IntoIterator<Item = (&'a str, &'a Aggregate)>,
    of: impl Fn(&Container<'a>, &Aggregate, PerResource<i64>) -> T,
) -> Vec<T> {
    let mut scaled: Vec<_> = containers.into_iter().filter(|(name, _)| vpa.policy.scales(name)).collect();
    scaled.sort_unstable_by_key(|&(name, _)| name);
    let minimum = bound::minimum(settings, scaled.len());
    let container = |name| Container { config, settings, vpa, policy: vpa.policy.for_container(name), name };
    scaled.into_iter().map(|(name, aggregate)| of(&container(name), aggregate, minimum)).collect()
}

/// One container with all settings for its recommendation.
struct Container<'a> {
    config: &'a AggregationConfig,
    settings: &'a EstimationSettings,
    vpa: &'a VpaSettings,
    policy: Option<&'a ContainerPolicy>,
    name: &'a str,
}

impl Container<'_> {
    fn recommend(&self, aggregate: &Aggregate, minimum: PerResource<i64>) -> ContainerRecommendation {
        let mut recommendation = ContainerRecommendation {
            container: self.name.to_owned(),
            target: Resources::default(),
            lower_bound: Resources::default(),
            upper_bound: Resources::default(),
            uncapped_target: Resources::default(),
        };
        for resource in Resource::ALL.into_iter().filter(|&resource| self.controls(resource)) {
            let estimate = |bound| self.steps(aggregate, resource, bound, minimum[resource]).amount;
            let target = self.written(resource, estimate(Bound::Target));
            recommendation.uncapped_target[resource] = Some(target);
            recommendation.target[resource] = Some(self.capped(resource, target, |_| {}));
            for bound in [Bound::Lower, Bound::Upper] {
                let written = self.written(resource, estimate(bound));
                let list = match bound {
                    Bound::Lower => &mut recommendation.lower_bound,
                    Bound::Target | Bound::Upper => &mut recommendation.upper_bound,
                };
                list[resource] = Some(self.capped(resource, written, |_| {}));
            }
        }
        recommendation
    }

    fn controls(&self, resource: Resource) -> bool {
        self.policy.is_none_or(|policy| policy.controlled[resource])
    }

    fn percentiles(&self, resource: Resource) -> Percentiles {
        let own = self.policy.and_then(|policy| policy.percentiles[resource]);
        own.unwrap_or(self.settings.percentiles[resource])
    }
}
