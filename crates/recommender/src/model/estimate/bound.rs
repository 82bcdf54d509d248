//! One bound of one resource: percentile, margin, confidence, minimum.

use std::time::Duration;

use plumb_resize::resource::{PerResource, Resource};

use super::super::aggregate::Aggregate;
use super::super::amount::{self, float};
use super::super::float::powi;
use super::super::time::nanos;
use super::{Container, EstimationSettings, Percentiles};

const MINUTE: i64 = 60_000_000_000;

/// One of the three amounts that are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// What the container should request.
    Target,
    /// Below this a request is too small.
    Lower,
    /// Above this a request is too large.
    Upper,
}

impl Bound {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Target, Self::Lower, Self::Upper];

    fn percentile(self, of: Percentiles) -> f64 {
        match self {
            Self::Target => of.target,
            Self::Lower => of.lower,
            Self::Upper => of.upper,
        }
    }

    /// The multiplier for a confidence in units of the confidence interval (a day of history at a sample a
    /// minute gives 1 per day): the upper bound is three times as high with half a day, twice with a day and 1.14
    /// times with a week; the lower bound 0.6 times as high with five minutes and 0.95 times with an hour.
    fn confidence_multiplier(self, confidence: f64) -> f64 {
        match self {
            Self::Target => 1.0,
            Self::Lower => powi(1.0 + 0.001 / confidence, -2),
            Self::Upper => 1.0 + 1.0 / confidence,
        }
    }
}

/// How an amount came about, in the order of the steps. Amounts are millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundSteps {
    /// The percentile asked for, between 0 and 1.
    pub percentile: f64,
    /// Usage at that percentile.
    pub usage: i64,
    /// With the safety margin.
    pub with_margin: i64,
    /// What the confidence multiplies it by; 1 for the target.
    pub confidence_multiplier: f64,
    /// With the confidence multiplier.
    pub with_confidence: i64,
    /// The container's share of the minimum of a pod.
    pub minimum: i64,
    /// The larger of the last two.
    pub amount: i64,
}

impl Container<'_> {
    /// Estimates one bound.
    pub(super) fn steps(
        &self,
        aggregate: &Aggregate,
        resource: Resource,
        bound: Bound,
        minimum: i64,
    ) -> BoundSteps {
        let percentile = bound.percentile(self.percentiles(resource));
        let units = aggregate.usage(resource).percentile(self.config.histogram(resource), percentile);
        let usage = amount::from_base_units(resource, units);
        let with_margin = usage.saturating_add(amount::scaled(usage, self.settings.safety_margin_fraction));
        let (confidence_multiplier, with_confidence) = match bound {
            Bound::Target => (1.0, with_margin),
            Bound::Lower | Bound::Upper => {
                let confidence = confidence(aggregate, self.settings.confidence_interval[resource]);
                let multiplier = bound.confidence_multiplier(confidence);
                (multiplier, amount::scaled(with_margin, multiplier))
            }
        };
        BoundSteps {
            percentile,
            usage,
            with_margin,
            confidence_multiplier,
            with_confidence,
            minimum,
            amount: with_confidence.max(minimum),
        }
    }
}

/// How much history there is, in units of the interval: the smaller of the time it spans and of its samples at
/// one a minute.
pub(super) fn confidence(aggregate: &Aggregate, interval: Duration) -> f64 {
    let interval = nanos(interval).max(1);
    let span = aggregate.last_sample().nanos_since(aggregate.first_sample());
    let lifespan = float(span) / float(interval);
    let minutes = float(interval / MINUTE) + float(interval % MINUTE) / float(MINUTE);
    #[allow(clippy::cast_precision_loss)] // As upstream converts an int.
    let samples = aggregate.samples() as f64 / minutes;
    lifespan.min(samples)
}

/// What each of so many containers gets at least.
pub(super) fn minimum(settings: &EstimationSettings, containers: usize) -> PerResource<i64> {
    #[allow(clippy::cast_precision_loss)] // A handful.
    let share = 1.0 / containers.max(1) as f64;
    PerResource::new(
        amount::scaled(
            amount::from_base_units(Resource::Cpu, settings.pod_min_cpu_millicores * 0.001),
            share,
        ),
        amount::scaled(
            amount::from_base_units(Resource::Memory, settings.pod_min_memory_mb * 1024.0 * 1024.0),
            share,
        ),
    )
}
