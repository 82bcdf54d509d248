//! How many seats each priority level has: nominally by its shares, and from time to time adjusted to the demand, since levels lend
//! seats that they do not need.

use std::time::Duration;

/// How often the limits of levels are adjusted.
pub const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// How much of the smoothed demand remains after a period: its half-life is five minutes.
const SMOOTHING: f64 = 0.977;
/// The least target of a level, so that no level has a target of zero.
const LEAST_TARGET: f64 = 0.001;

/// The seats that a level could use, over time.
#[derive(Debug)]
pub(crate) struct DemandIntegrator {
    since: Duration,
    last: Duration,
    seats: f64,
    sum: f64,
    sum_of_squares: f64,
    max: f64,
}

/// The demand of a level in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// The length of the period.
    pub duration: Duration,
    /// The average over time.
    pub average: f64,
    /// The standard deviation over time.
    pub deviation: f64,
    /// The maximum.
    pub high_watermark: f64,
}

impl DemandIntegrator {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, last: now, seats: 0.0, sum: 0.0, sum_of_squares: 0.0, max: 0.0 }
    }

    pub(crate) fn set(&mut self, now: Duration, seats: u32) {
        self.advance(now);
        self.seats = f64::from(seats);
        self.max = self.max.max(self.seats);
    }

    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.sum += self.seats * elapsed;
        self.sum_of_squares += self.seats * self.seats * elapsed;
    }

    pub(crate) fn reset(&mut self, now: Duration) -> Demand {
        self.advance(now);
        let duration = self.last.saturating_sub(self.since);
        let seconds = duration.as_secs_f64();
        let mut demand = Demand { duration, high_watermark: self.max, ..Demand::default() };
        if seconds > 0.0 {
            demand.average = self.sum / seconds;
            // Rounding may lead below zero.
            demand.deviation =
                (self.sum_of_squares / seconds - demand.average * demand.average).max(0.0).sqrt();
        }
        *self = Self { seats: self.seats, max: self.seats, ..Self::new(self.last) };
        demand
    }
}

/// The demand of a level over several periods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandStats {
    /// That of the last period.
    pub last: Demand,
    /// The average plus the standard deviation, which rises at once and falls slowly.
    pub smoothed: f64,
}

impl DemandStats {
    /// Adds a period.
    pub fn update(&mut self, demand: Demand) {
        if demand.duration.is_zero() {
            self.last.high_watermark = demand.high_watermark;
            return;
        }
        let envelope = demand.average + demand.deviation;
        self.last = demand;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// The limits of a level, in seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatLimits {
    /// By its shares.
    pub nominal: u32,
    /// The nominal limit without the seats that it may lend.
    pub lower: u32,
    /// The nominal limit with the seats that it may borrow.
    pub upper: u32,
}

/// A level in the adjustment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Borrower {
    /// Whether the level has no limit. It then occupies what it needs, and the others share the rest.
    pub is_exempt: bool,
    /// The limits.
    pub limits: SeatLimits,
    /// The present limit.
    pub current: u32,
    /// Its demand.
    pub demand: DemandStats,
}

/// The result of an adjustment.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustment {
    /// The limit of each level.
    pub limits: Vec<u32>,
    /// The target of each level that the limits were made from.
    pub targets: Vec<f64>,
    /// The part of its target that each level gets, unless a bound keeps it from that; zero if the bounds alone decide.
    pub fair_fraction: f64,
}

/// Adjusts the limits of all levels to their demand, as upstream's `updateBorrowing`.
pub fn adjust(levels: &[Borrower]) -> Adjustment {
    let total: u32 = levels.iter().map(|level| level.limits.nominal).sum();
    let least = |level: &Borrower| {
        let watermark = rounded(level.demand.last.high_watermark);
        let wanted = if level.is_exempt { watermark } else { watermark.min(level.limits.nominal) };
        wanted.max(level.limits.lower)
    };
    let exempt: u32 = levels.iter().filter(|level| level.is_exempt).map(least).sum();
    let limited = || levels.iter().filter(|level| !level.is_exempt);
    let lower_sum: u32 = limited().map(|level| level.limits.lower).sum();
    let least_sum: u32 = limited().map(least).sum();
    let remaining = total.saturating_sub(exempt);
    let target = |level: &Borrower| f64::from(least(level)).max(level.demand.smoothed);
    let mut fair_fraction = 0.0;
    let limits_of_limited: Vec<u32> = if remaining <= lower_sum {
        limited().map(|level| level.limits.lower).collect()
    } else if remaining <= least_sum {
        let part = f64::from(remaining - lower_sum) / f64::from(least_sum - lower_sum);
        let scaled = |level: &Borrower| {
            let lower = level.limits.lower;
            lower + rounded(f64::from(least(level) - lower) * part)
        };
        limited().map(scaled).collect()
    } else {
        let class = |level: &Borrower| Class {
            target: target(level),
            lower: f64::from(least(level)),
            upper: f64::from(level.limits.upper),
        };
        let classes: Vec<Class> = limited().map(class).collect();
        // Upstream passes the whole total, too: seats of exempt requests are not taken from the others here.
        match allocate(f64::from(total), &classes) {
            Some((parts, fraction)) => {
                fair_fraction = fraction;
                parts.into_iter().map(rounded).collect()
            }
            None => limited().map(|level| level.current).collect(),
        }
    };
    let mut limits_of_limited = limits_of_limited.into_iter();
    let limits = levels.iter().map(|level| {
        if level.is_exempt { least(level) } else { limits_of_limited.next().unwrap_or(level.current) }
    });
    Adjustment { limits: limits.collect(), targets: levels.iter().map(target).collect(), fair_fraction }
}

/// A class in an allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// What it would like to have.
    pub target: f64,
    /// What it has at least.
    pub lower: f64,
    /// What it has at most.
    pub upper: f64,
}

/// Divides a sum among classes, such that each gets the same fraction of its target, or the bound that keeps it from that. Returns the
/// parts and the fraction; `None` if the bounds do not allow the sum.
pub fn allocate(sum: f64, classes: &[Class]) -> Option<(Vec<f64>, f64)> {
    let target = |class: &Class| class.target.max(LEAST_TARGET);
    let part = |class: &Class, fraction: f64| (fraction * target(class)).min(class.upper).max(class.lower);
    let total = |fraction: f64| classes.iter().map(|class| part(class, fraction)).sum::<f64>();
    let parts = |fraction: f64| (classes.iter().map(|class| part(class, fraction)).collect(), fraction);
    // The total is a function of the fraction that never falls, linear between the fractions at which a bound of some class is met.
    let mut turns: Vec<f64> =
        classes.iter().flat_map(|class| [class.lower / target(class), class.upper / target(class)]).collect();
    turns.sort_by(f64::total_cmp);
    let (first, last) = (*turns.first()?, *turns.last()?);
    let slack = 1e-7;
    if total(first) > sum + slack || total(last) < sum - slack {
        return None;
    }
    let above = turns.partition_point(|turn| total(*turn) < sum);
    if above == 0 {
        return Some(parts(first));
    }
    let (low, high) = (turns[above - 1], turns.get(above).copied().unwrap_or(last));
    let (from, to) = (total(low), total(high));
    let fraction = if to > from { low + (high - low) * (sum - from) / (to - from) } else { high };
    Some(parts(fraction.min(high)))
}

/// The nearest number of seats.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
pub(crate) fn rounded(seats: f64) -> u32 {
    seats.round().clamp(0.0, f64::from(u32::MAX)) as u32
}
