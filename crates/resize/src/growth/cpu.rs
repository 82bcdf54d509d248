//! When a CPU limit grows, and by how much.

use std::time::Duration;

use crate::qos::QosClass;
use crate::resource::Requirements;

/// Throttling is measured again after this long while a container is throttled, and after the longer one while it is not.
const SAMPLE: Duration = Duration::from_secs(1);
const CALM_SAMPLE: Duration = Duration::from_secs(5);
/// Readings that are closer say nothing: the kernel accounts by periods of a tenth of a second.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(300);
/// Hysteresis: from a tenth of the limit on, a sample counts as throttled, and below a fiftieth the count starts again. A sample
/// between them changes nothing.
const THROTTLED_PART: i64 = 10;
const CALM_PART: i64 = 50;
/// A limit grows after this many throttled samples: a burst that is shorter is what a limit is for.
const THROTTLED_SAMPLES: u32 = 3;
/// A limit grows by a quarter at least, and by no less than what a quota can be changed by.
const LEAST_PART: i64 = 4;
const STEP: i64 = 10;
/// By how much a limit can grow at once, however small it is; larger ones double at most: a container that waited has more
/// runnable threads than it needs to keep up.
const LEAST_DOUBLING: i64 = 500;
/// Idle CPU of less than this part of the limit is not worth a resize.
const LEAST_GAIN_PART: i64 = 10;

/// Counters of a container's `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// CPU time, in nanoseconds.
    pub used_nanos: u64,
    /// The time for which it had to wait because of its limit, in nanoseconds, summed over CPUs.
    pub throttled_nanos: u64,
}

/// What a container used and what its limit withheld from it, between two readings, in thousandths of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// The CPU that it used.
    pub used: i64,
    /// The CPU that it had to wait for.
    pub throttled: i64,
}

impl CpuSample {
    /// The sample between two readings; none if they are too close, or if the counters started again.
    pub fn between(before: CpuReading, now: CpuReading, elapsed: Duration) -> Option<Self> {
        let rate = |before: u64, now: u64| {
            let milli = u128::from(now.checked_sub(before)?) * 1000 / elapsed.as_nanos().max(1);
            Some(i64::try_from(milli).unwrap_or(i64::MAX))
        };
        if elapsed < SHORTEST_SAMPLE {
            return None;
        }
        Some(Self {
            used: rate(before.used_nanos, now.used_nanos)?,
            throttled: rate(before.throttled_nanos, now.throttled_nanos)?,
        })
    }
}

/// How often a container was found throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    samples: u32,
}

impl Throttled {
    /// Counts a sample of a container with this limit.
    pub fn observe(&mut self, sample: CpuSample, limit: i64) {
        if sample.throttled >= (limit / THROTTLED_PART).max(1) {
            self.samples = self.samples.saturating_add(1);
        } else if sample.throttled <= limit / CALM_PART {
            self.samples = 0;
        }
    }

    /// Whether it was throttled for long enough that its limit may grow.
    pub fn is_lasting(self) -> bool {
        self.samples >= THROTTLED_SAMPLES
    }
}

/// A container whose throttling was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottlingGrowth {
    /// The limit that is applied.
    pub limit: i64,
    /// The limit in the spec.
    pub desired: i64,
    /// The last sample, which [`Throttled::observe`] has counted.
    pub sample: CpuSample,
    /// How often it was throttled.
    pub throttled: Throttled,
    /// The maximum of the limit.
    pub maximum: i64,
    /// The CPU that no process of the node uses.
    pub idle: i64,
    /// The CPU that no pod requests, if the request grows with the limit.
    pub free: Option<i64>,
}

/// What a node does about a container whose throttling was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottlingDecision {
    /// Measure again after this long.
    SampleAgain(Duration),
    /// Request this limit.
    Grow(i64),
    /// The limit is at its maximum.
    AtMaximum,
    /// The node has no idle CPU: a higher limit would take from others what they use.
    NodeIsBusy,
    /// All CPU of the node is requested.
    NodeIsFull,
}

impl ThrottlingGrowth {
    /// Decides what the node does.
    ///
    /// ```
    /// use plumb_resize::growth::{CpuSample, Throttled, ThrottlingDecision, ThrottlingGrowth};
    ///
    /// let (limit, sample) = (1000, CpuSample { used: 1000, throttled: 600 });
    /// let mut throttled = Throttled::default();
    /// for _ in 0..3 {
    ///     throttled.observe(sample, limit);
    /// }
    /// let now = ThrottlingGrowth { limit, desired: limit, sample, throttled, maximum: 4000, idle: 3000, free: None };
    /// assert_eq!(now.decide(), ThrottlingDecision::Grow(1600));
    /// assert_eq!(ThrottlingGrowth { idle: 0, ..now }.decide(), ThrottlingDecision::NodeIsBusy);
    /// ```
    pub fn decide(self) -> ThrottlingDecision {
        if self.desired > self.limit {
            return ThrottlingDecision::SampleAgain(SAMPLE);
        }
        if !self.throttled.is_lasting() {
            let is_calm = self.throttled == Throttled::default();
            return ThrottlingDecision::SampleAgain(if is_calm { CALM_SAMPLE } else { SAMPLE });
        }
        if self.maximum <= self.limit {
            return ThrottlingDecision::AtMaximum;
        }
        let needed = self.sample.used.saturating_add(self.sample.throttled);
        let least = self.limit.saturating_add((self.limit / LEAST_PART).max(STEP));
        let most = self.limit.saturating_add(self.limit.max(LEAST_DOUBLING));
        let wanted = round_up(needed.max(least).min(most)).min(self.maximum);
        let gain = (self.limit / LEAST_GAIN_PART).max(STEP);
        let within = |available: i64| {
            let possible = wanted.min(self.limit.saturating_add(available.max(0)));
            (possible == wanted || possible >= self.limit.saturating_add(gain)).then_some(possible)
        };
        let Some(by_idle) = within(self.idle) else { return ThrottlingDecision::NodeIsBusy };
        let Some(by_free) = within(self.free.unwrap_or(i64::MAX)) else {
            return ThrottlingDecision::NodeIsFull;
        };
        ThrottlingDecision::Grow(by_idle.min(by_free))
    }
}

fn round_up(milli: i64) -> i64 {
    milli.checked_add(STEP - 1).map_or(milli, |up| up - up % STEP)
}

/// The resources of a container whose CPU limit grows. Its request stays, as what grows is CPU that is idle, which the kernel
/// takes back by weight once others use it; but a Guaranteed pod must stay Guaranteed.
pub fn grown_cpu(from: Requirements, limit: i64, class: QosClass) -> Requirements {
    let mut to = from;
    to.limits.cpu = Some(limit);
    if class == QosClass::Guaranteed {
        to.requests.cpu = Some(limit);
    }
    to
}
