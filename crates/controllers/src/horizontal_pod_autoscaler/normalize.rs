//! From the replicas that metrics ask for to those that the target gets: stabilization, limits of speed, minimum and maximum.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Without a behavior, replicas at most double, or become four.
const SCALE_UP_FACTOR: i64 = 2;
const SCALE_UP_MINIMUM: i64 = 4;

/// What the controller remembers of an autoscaler. Times are of a monotonic clock: a wall clock that is set makes no
/// recommendation older. It is lost with the process, as upstream's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What the metrics asked for.
    recommendations: Vec<Remembered>,
    /// By how many replicas the target was scaled up, and down.
    scaled_up: Vec<Remembered>,
    scaled_down: Vec<Remembered>,
}

/// A number of replicas at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remembered {
    replicas: i32,
    at: Duration,
}

impl Remembered {
    fn age(self, now: Duration) -> Duration {
        now.saturating_sub(self.at)
    }
}

impl History {
    /// A history with recommendations and changes of replicas that were recorded before, each with its time.
    pub fn from_records(
        recommendations: impl IntoIterator<Item = (i32, Duration)>,
        scaled_up: impl IntoIterator<Item = (i32, Duration)>,
        scaled_down: impl IntoIterator<Item = (i32, Duration)>,
    ) -> Self {
        let remembered = |(replicas, at)| Remembered { replicas, at };
        Self {
            recommendations: recommendations.into_iter().map(remembered).collect(),
            scaled_up: scaled_up.into_iter().map(remembered).collect(),
            scaled_down: scaled_down.into_iter().map(remembered).collect(),
        }
    }

    /// The first recommendation is what the target has when it is observed first: a controller that has just started does not
    /// scale it down at once.
    pub(super) fn begin(&mut self, replicas: i32, now: Duration) {
        if self.recommendations.is_empty() {
            self.recommendations.push(Remembered { replicas, at: now });
        }
    }

    /// Remembers that the target was scaled. Only behaviors read it.
    pub(super) fn scaled(
        &mut self,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        from: i32,
        to: i32,
        now: Duration,
    ) {
        let Some(behavior) = behavior else { return };
        let (events, rules) = if to > from {
            (&mut self.scaled_up, Rules::up(behavior.scale_up.as_ref()))
        } else {
            (&mut self.scaled_down, Rules::down(behavior.scale_down.as_ref(), Duration::ZERO))
        };
        let longest = rules.policies.iter().map(period).max().unwrap_or_default();
        let replicas = to.abs_diff(from).try_into().unwrap_or(i32::MAX);
        remember(events, Remembered { replicas, at: now }, longest);
    }

    fn recommend(&mut self, replicas: i32, now: Duration, remembered_for: Duration) {
        remember(&mut self.recommendations, Remembered { replicas, at: now }, remembered_for);
    }

    /// How many more replicas there are than a while ago, by what this controller did.
    fn change_within(&self, period: Duration, now: Duration) -> i32 {
        let sum = |events: &[Remembered]| {
            let recent = events.iter().filter(|event| event.age(now) < period);
            recent.fold(0_i32, |sum, event| sum.saturating_add(event.replicas))
        };
        sum(&self.scaled_up).saturating_sub(sum(&self.scaled_down))
    }
}

/// Adds an entry in the place of the last one that is too old, as upstream: so many are kept as there once were at a time.
fn remember(entries: &mut Vec<Remembered>, new: Remembered, keep_for: Duration) {
    match entries.iter_mut().rfind(|entry| entry.age(new.at) > keep_for) {
        Some(old) => *old = new,
        None => entries.push(new),
    }
}

/// The replicas that metrics ask for, and what bounds them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The replicas in the spec of the scale.
    pub current: i32,
    /// `minReplicas`.
    pub min: i32,
    /// `maxReplicas`.
    pub max: i32,
    /// `behavior`.
    pub behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    /// The window of scaling down where no behavior has one.
    pub downscale_window: Duration,
}

/// The replicas of the target, and why it is not what the metrics ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalized {
    /// How many.
    pub replicas: i32,
    /// Reason and message of the condition `AbleToScale`, which is true.
    pub stabilized: (&'static str, &'static str),
    /// Whether a bound holds them back: the condition `ScalingLimited`.
    pub is_limited: bool,
    /// Reason and message of that condition.
    pub limited: (&'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN_RANGE: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// Stabilizes and bounds the replicas that metrics ask for.
pub fn normalize(desired: i32, bounds: &Bounds<'_>, history: &mut History, now: Duration) -> Normalized {
    let Some(behavior) = bounds.behavior else {
        let stabilized = stabilize_down(desired, bounds.downscale_window, history, now);
        let reason = if stabilized == desired { READY } else { DOWN_STABILIZED };
        let (replicas, limited) = limit(stabilized, bounds);
        return Normalized { replicas, stabilized: reason, is_limited: replicas != stabilized, limited };
    };
    let up = Rules::up(behavior.scale_up.as_ref());
    let down = Rules::down(behavior.scale_down.as_ref(), bounds.downscale_window);
    let stabilized = stabilize(desired, bounds.current, (&up, &down), history, now);
    let reason = match stabilized == desired {
        true => READY,
        false if desired >= bounds.current => UP_STABILIZED,
        false => DOWN_STABILIZED,
    };
    let (replicas, limited) = limit_by_policies(stabilized, bounds, (&up, &down), history, now);
    Normalized { replicas, stabilized: reason, is_limited: replicas != stabilized, limited }
}

/// The highest recommendation of the window.
fn stabilize_down(desired: i32, window: Duration, history: &mut History, now: Duration) -> i32 {
    let recent = history.recommendations.iter().filter(|one| one.age(now) <= window);
    let highest = recent.map(|one| one.replicas).fold(desired, i32::max);
    history.recommend(desired, now, window);
    highest
}

/// Between the lowest recommendation of the window of scaling up and the highest of that of scaling down.
fn stabilize(
    desired: i32,
    current: i32,
    (up, down): (&Rules<'_>, &Rules<'_>),
    history: &mut History,
    now: Duration,
) -> i32 {
    let within = |window: Duration| {
        let recent = history.recommendations.iter().filter(move |one| one.age(now) < window);
        recent.map(|one| one.replicas)
    };
    let lowest = within(up.window).fold(desired, i32::min);
    let highest = within(down.window).fold(desired, i32::max);
    history.recommend(desired, now, up.window.max(down.window));
    current.max(lowest).min(highest)
}

fn limit(desired: i32, bounds: &Bounds<'_>) -> (i32, (&'static str, &'static str)) {
    let fastest = (SCALE_UP_FACTOR * i64::from(bounds.current)).max(SCALE_UP_MINIMUM);
    let fastest = i32::try_from(fastest).unwrap_or(i32::MAX);
    if desired < bounds.min {
        (bounds.min, TOO_FEW)
    } else if desired > bounds.max.min(fastest) {
        (bounds.max.min(fastest), if bounds.max > fastest { UP_LIMIT } else { TOO_MANY })
    } else {
        (desired, WITHIN_RANGE)
    }
}

fn limit_by_policies(
    desired: i32,
    bounds: &Bounds<'_>,
    (up, down): (&Rules<'_>, &Rules<'_>),
    history: &History,
    now: Duration,
) -> (i32, (&'static str, &'static str)) {
    let current = bounds.current;
    if desired > current {
        // No change is due until the changes of the period are older than it.
        let fastest = up.highest(current, history, now).max(current);
        let (most, reason) = if bounds.max > fastest { (fastest, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
        if desired > most {
            return (most, reason);
        }
    } else if desired < current {
        let fastest = down.lowest(current, history, now).min(current);
        let (least, reason) =
            if bounds.min < fastest { (fastest, DOWN_LIMIT) } else { (bounds.min, TOO_FEW) };
        if desired < least {
            return (least, reason);
        }
    }
    (desired, WITHIN_RANGE)
}

/// The rules of a direction. The API server sets the default policies.
struct Rules<'a> {
    window: Duration,
    policies: &'a [HPAScalingPolicy],
    select: &'a str,
}

impl<'a> Rules<'a> {
    fn up(rules: Option<&'a HPAScalingRules>) -> Self {
        Self::new(rules, Duration::ZERO)
    }

    fn down(rules: Option<&'a HPAScalingRules>, window: Duration) -> Self {
        Self::new(rules, window)
    }

    fn new(rules: Option<&'a HPAScalingRules>, window: Duration) -> Self {
        let given = rules.and_then(|rules| rules.stabilization_window_seconds);
        Self {
            window: given.map_or(window, seconds),
            policies: rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default(),
            select: rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max"),
        }
    }

    /// The most replicas that the policies allow. Without policies there is no limit.
    fn highest(&self, current: i32, history: &History, now: Duration) -> i32 {
        let proposals = self.policies.iter().map(|policy| {
            let start = i64::from(current) - i64::from(history.change_within(period(policy), now));
            let value = i64::from(policy.value);
            match &*policy.type_ {
                // Rounded up: a percentage of few replicas has to add one.
                "Percent" => percent(start, value + 100, true),
                _ => start + value,
            }
        });
        self.select(current, proposals, i32::MAX, "Min")
    }

    /// The fewest replicas that the policies allow.
    fn lowest(&self, current: i32, history: &History, now: Duration) -> i32 {
        let proposals = self.policies.iter().map(|policy| {
            let start = i64::from(current) - i64::from(history.change_within(period(policy), now));
            let value = i64::from(policy.value);
            match &*policy.type_ {
                "Percent" => percent(start, 100 - value, false),
                _ => start - value,
            }
        });
        self.select(current, proposals, i32::MIN, "Max")
    }

    /// The proposal of the policy that is selected: the lowest one where `lowest_if` is selected, otherwise the highest one.
    fn select(&self, current: i32, proposals: impl Iterator<Item = i64>, none: i32, lowest_if: &str) -> i32 {
        let proposal = match self.select {
            "Disabled" => return current,
            select if select == lowest_if => proposals.min(),
            _ => proposals.max(),
        };
        proposal.map_or(none, |proposal| {
            i32::try_from(proposal).unwrap_or(if proposal < 0 { i32::MIN } else { i32::MAX })
        })
    }
}

/// A share of some replicas, as float64 upstream rounds it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a number of replicas and a percentage have 32 bits each, and the product is rounded as upstream's"
)]
fn percent(replicas: i64, percent: i64, up: bool) -> i64 {
    let share = replicas as f64 * (1.0 + (percent - 100) as f64 / 100.0);
    if up { share.ceil() as i64 } else { share as i64 }
}

fn period(policy: &HPAScalingPolicy) -> Duration {
    seconds(policy.period_seconds)
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
