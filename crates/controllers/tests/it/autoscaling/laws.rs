//! What holds for every decision.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use plumb_controllers::horizontal_pod_autoscaler::normalize::{Bounds, History, normalize};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn rules() -> impl Strategy<Value = HPAScalingRules> {
    let policy = (prop::bool::ANY, 1..100_i32, 1..300_i32).prop_map(|(is_percent, value, period_seconds)| {
        let type_ = if is_percent { "Percent" } else { "Pods" }.to_owned();
        HPAScalingPolicy { period_seconds, type_, value }
    });
    let select = prop_oneof![Just("Max"), Just("Min"), Just("Disabled")];
    (vec(policy, 1..4), select, option::of(0..600_i32)).prop_map(|(policies, select, window)| {
        HPAScalingRules {
            policies: Some(policies),
            select_policy: Some(select.to_owned()),
            stabilization_window_seconds: window,
            tolerance: None,
        }
    })
}

fn behavior() -> impl Strategy<Value = Option<HorizontalPodAutoscalerBehavior>> {
    let both = (rules(), rules()).prop_map(|(up, down)| HorizontalPodAutoscalerBehavior {
        scale_up: Some(up),
        scale_down: Some(down),
    });
    option::of(both)
}

/// What metrics ask for, one after the other, and how many seconds pass in between.
fn proposals() -> impl Strategy<Value = Vec<(i32, u64)>> {
    vec((0..60_i32, 1..200_u64), 1..40)
}

/// The most or fewest replicas that the most generous policy allows from this number.
fn fastest(rules: &HPAScalingRules, from: i32, up: bool) -> i64 {
    let from = i64::from(from);
    let each = rules.policies.iter().flatten().map(|policy| {
        let value = i64::from(policy.value);
        match (&*policy.type_, up) {
            // Floating-point numbers may be rounded to the next one.
            ("Percent", true) => (from * (100 + value) + 99) / 100 + 1,
            ("Percent", false) => from * (100 - value) / 100 - 1,
            (_, true) => from + value,
            (_, false) => from - value,
        }
    });
    if up { each.max().unwrap_or(from) } else { each.min().unwrap_or(from) }
}

proptest! {
    #[test]
    fn replicas_stay_within_their_bounds_and_speed(
        behavior in behavior(),
        min in 1..10_i32,
        more in 0..40_i32,
        proposals in proposals(),
    ) {
        let max = min + more;
        let mut history = History::default();
        let mut now = Duration::from_hours(1);
        let mut current = min;
        for (desired, wait) in proposals {
            let downscale_window = Duration::from_mins(5);
            let bounds = Bounds { current, min, max, behavior: behavior.as_ref(), downscale_window };
            let normalized = normalize(desired, &bounds, &mut history, now);
            let next = normalized.replicas;
            prop_assert!((min..=max).contains(&next), "{next} of {min} to {max}");
            match &behavior {
                None => prop_assert!(next <= (2 * current).max(4)),
                Some(behavior) => {
                    let up = behavior.scale_up.as_ref().unwrap();
                    let down = behavior.scale_down.as_ref().unwrap();
                    prop_assert!(i64::from(next) <= fastest(up, current, true).max(current.into()));
                    prop_assert!(i64::from(next) >= fastest(down, current, false).min(current.into()));
                    let is_off = |rules: &HPAScalingRules| rules.select_policy.as_deref() == Some("Disabled");
                    prop_assert!(!is_off(up) || next <= current);
                    prop_assert!(!is_off(down) || next >= current);
                }
            }
            current = next;
            now += Duration::from_secs(wait);
        }
    }

    /// Nothing that was asked for within the window of scaling down is undercut.
    #[test]
    fn a_target_is_not_scaled_down_below_a_recent_recommendation(proposals in proposals()) {
        let mut history = History::default();
        let mut now = Duration::from_hours(1);
        let mut current = 1;
        let mut asked: Vec<(i32, Duration)> = Vec::new();
        for (desired, wait) in proposals {
            let window = Duration::from_mins(5);
            let bounds = Bounds { current, min: 1, max: 100, behavior: None, downscale_window: window };
            let next = normalize(desired, &bounds, &mut history, now).replicas;
            asked.push((desired, now));
            let recent = asked.iter().filter(|(_, at)| now.saturating_sub(*at) <= window);
            let highest = recent.map(|(desired, _)| *desired).max().unwrap();
            prop_assert!(next >= highest.min(current).max(1));
            current = next;
            now += Duration::from_secs(wait);
        }
    }

    /// A higher proposal never makes fewer replicas.
    #[test]
    fn replicas_grow_with_what_metrics_ask_for(
        behavior in behavior(),
        before in vec((0..60_i32, 1..200_u64), 0..10),
        current in 1..40_i32,
        desired in 0..60_i32,
        more in 0..20_i32,
    ) {
        let mut now = Duration::from_hours(1);
        let downscale_window = Duration::from_mins(5);
        let bounds = Bounds { current, min: 1, max: 50, behavior: behavior.as_ref(), downscale_window };
        let mut history = History::default();
        for (desired, wait) in before {
            normalize(desired, &bounds, &mut history, now);
            now += Duration::from_secs(wait);
        }
        let fewer = normalize(desired, &bounds, &mut history.clone(), now).replicas;
        let greater = normalize(desired + more, &bounds, &mut history, now).replicas;
        prop_assert!(fewer <= greater, "{fewer} for {desired}, {greater} for {more} more");
    }
}
