//! When a memory limit grows, and by how much.

use std::time::Duration;

use crate::resource::Requirements;

const MIB: i64 = 1 << 20;
/// The part of the limit that is kept free between it and the upper threshold: an eighth, within these bounds. At 1 GiB/s
/// a program takes 4 ms for the least, about as long as a resize.
const RESERVE_PART: i64 = 8;
const LEAST_RESERVE: i64 = 4 * MIB;
const MOST_RESERVE: i64 = 64 * MIB;
/// A limit grows when usage would reach it sooner than this. Much longer than a resize takes on a busy machine.
const LEAD: Duration = Duration::from_secs(1);
/// Growth lasts for this long at the measured rate, so that a ramp takes few resizes.
const HORIZON_SECONDS: i64 = 5;
/// A limit grows by a quarter at least.
const LEAST_PART: i64 = 4;
/// By how much a limit can grow at once, however small it is; larger ones double at most.
const LEAST_DOUBLING: i64 = 64 * MIB;
/// The first interval between samples of usage, without a measured rate.
const FIRST_SAMPLE: Duration = Duration::from_millis(20);
/// Bounds of the interval between samples.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(50);
const LONGEST_SAMPLE: Duration = Duration::from_secs(5);

/// For how long a container that reached its limit is held, instead of being killed, while the node requests more.
pub const HOLD: Duration = Duration::from_secs(5);

/// The usages at which a container comes near its limit.
///
/// ```
/// use plumb_resize::growth::Thresholds;
///
/// assert_eq!(Thresholds::for_limit(64 << 20), Thresholds { lower: 48 << 20, upper: 56 << 20 });
/// assert_eq!(Thresholds::for_limit(4 << 30), Thresholds { lower: 3968 << 20, upper: 4032 << 20 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// From here to the upper one the rate of growth is measured.
    pub lower: i64,
    /// From here on the limit may have to grow.
    pub upper: i64,
}

impl Thresholds {
    /// The thresholds below a limit.
    pub fn for_limit(limit: i64) -> Self {
        let limit = limit.max(0);
        let reserve = (limit / RESERVE_PART).clamp(LEAST_RESERVE, MOST_RESERVE).min(limit / 4);
        Self { lower: limit - 2 * reserve, upper: limit - reserve }
    }
}

/// A container that is near its memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGrowth {
    /// The limit that is applied.
    pub limit: i64,
    /// The limit in the spec.
    pub desired: i64,
    /// Usage that cannot be reclaimed.
    pub usage: i64,
    /// How fast usage grows, in bytes per second; none if it was measured once only.
    pub rate: Option<i64>,
    /// Whether a process has reached the limit, and is held.
    pub held: bool,
    /// The maximum of the limit.
    pub maximum: i64,
    /// What the node has left.
    pub free: i64,
}

/// What a node does about a container that is near its memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthDecision {
    /// Nothing: usage is below the thresholds, or the limit is being raised already.
    Ignore,
    /// Read the usage again after this long: the limit is far in time.
    SampleAgain(Duration),
    /// Request this limit.
    Grow(i64),
    /// The limit is at its maximum: the kernel kills.
    AtMaximum,
    /// The node has nothing left: the kernel kills.
    NodeIsFull,
}

impl MemoryGrowth {
    /// Decides what the node does.
    ///
    /// ```
    /// use plumb_resize::growth::{GrowthDecision, MemoryGrowth};
    ///
    /// let mib = |n: i64| n << 20;
    /// let (limit, usage) = (mib(64), mib(60));
    /// let rate = Some(mib(10));
    /// let now = MemoryGrowth { limit, desired: limit, usage, rate, held: false, maximum: mib(512), free: mib(999) };
    /// // Five seconds at 10 MiB/s, and the reserve.
    /// assert_eq!(now.decide(), GrowthDecision::Grow(mib(60 + 50 + 8)));
    /// assert_eq!(MemoryGrowth { maximum: limit, ..now }.decide(), GrowthDecision::AtMaximum);
    /// ```
    pub fn decide(self) -> GrowthDecision {
        if self.desired > self.limit {
            return GrowthDecision::Ignore;
        }
        let thresholds = Thresholds::for_limit(self.limit);
        if !self.held {
            if self.usage < thresholds.lower {
                return GrowthDecision::Ignore;
            }
            match self.until_limit() {
                // A sample between the thresholds has the rate measured; usage that reaches the upper one is notified.
                None => return GrowthDecision::SampleAgain(FIRST_SAMPLE),
                Some(left) if left > LEAD => {
                    return GrowthDecision::SampleAgain((left / 2).clamp(SHORTEST_SAMPLE, LONGEST_SAMPLE));
                }
                Some(_) => {}
            }
        }
        if self.maximum <= self.limit {
            return GrowthDecision::AtMaximum;
        }
        let reserve = self.limit - thresholds.upper;
        let needed = self
            .rate
            .unwrap_or(0)
            .max(0)
            .saturating_mul(HORIZON_SECONDS)
            .saturating_add(self.usage + reserve);
        let least = self.limit.saturating_add(self.limit / LEAST_PART);
        let most = self.limit.saturating_add(self.limit.max(LEAST_DOUBLING));
        let wanted = round_up(needed.max(least).min(most)).min(self.maximum);
        let possible = wanted.min(self.limit.saturating_add(self.free.max(0)));
        // Less than this is used up before the resize is actuated.
        if possible < wanted && possible < self.limit.saturating_add(MIB) {
            return GrowthDecision::NodeIsFull;
        }
        GrowthDecision::Grow(possible)
    }

    /// How long until usage reaches the limit, at the measured rate; none without one.
    fn until_limit(self) -> Option<Duration> {
        let rate = self.rate?;
        let left = (self.limit - self.usage).max(0);
        let Ok(rate) = u64::try_from(rate) else { return Some(LONGEST_SAMPLE * 2) };
        let milliseconds = left.unsigned_abs().saturating_mul(1000).checked_div(rate);
        Some(milliseconds.map_or(LONGEST_SAMPLE * 2, Duration::from_millis))
    }
}

fn round_up(bytes: i64) -> i64 {
    bytes.checked_add(MIB - 1).map_or(bytes, |bytes| bytes - bytes % MIB)
}

/// The resources of a container whose memory limit grows. The request grows by as much: the node reserves what the
/// container may use, a Guaranteed pod stays Guaranteed, and quotas count it.
pub fn grown(from: Requirements, limit: i64) -> Requirements {
    let by = from.limits.memory.map_or(0, |before| limit.saturating_sub(before));
    let mut to = from;
    to.limits.memory = Some(limit);
    to.requests.memory = from.requests.memory.map(|request| request.saturating_add(by));
    to
}
