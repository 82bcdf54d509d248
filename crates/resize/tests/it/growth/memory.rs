//! Growth of memory limits.

use std::time::Duration;

use plumb_resize::growth::{GrowthBounds, GrowthDecision, MemoryGrowth, Thresholds, check, grown};
use plumb_resize::resource::{PerResource, Requirements, Resource};
use proptest::prelude::*;

use super::{MIB, pair};

const PLENTY: i64 = 1 << 40;

/// A container with a limit of 64 MiB that may grow to 1 GiB, on a node with plenty left.
fn near(usage: i64, rate: Option<i64>) -> MemoryGrowth {
    let (limit, usage) = (64 * MIB, usage * MIB);
    let rate = rate.map(|rate| rate * MIB);
    MemoryGrowth { limit, desired: limit, usage, rate, held: false, maximum: 1024 * MIB, free: PLENTY }
}

#[test]
fn a_limit_grows_when_usage_would_reach_it_within_a_second_and_for_some_seconds() {
    let held = |growth: MemoryGrowth| MemoryGrowth { held: true, ..growth };
    let millis = |ms| GrowthDecision::SampleAgain(Duration::from_millis(ms));
    let grow = |mib: i64| GrowthDecision::Grow(mib * MIB);
    for (what, growth, expected) in [
        ("far below", near(40, Some(1000)), GrowthDecision::Ignore),
        ("at the lower threshold, seen once", near(48, None), millis(20)),
        ("a slow leak far from the limit", near(56, Some(1)), millis(4000)),
        ("a steady program near its limit", near(63, Some(0)), millis(5000)),
        ("a program that frees memory", near(60, Some(-10)), millis(5000)),
        ("a slow leak close to the limit", near(63, Some(2)), grow(81)),
        ("a ramp", near(57, Some(20)), grow(128)),
        ("a moderate ramp", near(57, Some(8)), grow(57 + 40 + 8)),
        ("a fast ramp: it doubles", near(50, Some(1024)), grow(128)),
        ("held before a rate was measured", held(near(64, None)), grow(80)),
        ("held with page cache around", held(near(30, None)), grow(80)),
    ] {
        assert_eq!(growth.decide(), expected, "{what}");
    }
}

#[test]
fn a_limit_grows_within_its_maximum_and_what_the_node_has_left() {
    let ramp = near(60, Some(100));
    let grow = |mib: i64| GrowthDecision::Grow(mib * MIB);
    for (what, growth, expected) in [
        ("the maximum is near", MemoryGrowth { maximum: 70 * MIB, ..ramp }, grow(70)),
        ("at the maximum", MemoryGrowth { maximum: 64 * MIB, ..ramp }, GrowthDecision::AtMaximum),
        ("above the maximum", MemoryGrowth { maximum: 10 * MIB, ..ramp }, GrowthDecision::AtMaximum),
        ("the node has little left", MemoryGrowth { free: 5 * MIB, ..ramp }, grow(69)),
        ("the node has nothing left", MemoryGrowth { free: 1000, ..ramp }, GrowthDecision::NodeIsFull),
        ("the node is overcommitted", MemoryGrowth { free: -MIB, ..ramp }, GrowthDecision::NodeIsFull),
        ("it is being raised already", MemoryGrowth { desired: 80 * MIB, ..ramp }, GrowthDecision::Ignore),
        ("it is being lowered", MemoryGrowth { desired: 32 * MIB, ..ramp }, grow(128)),
    ] {
        assert_eq!(growth.decide(), expected, "{what}");
    }
}

fn growth() -> impl Strategy<Value = MemoryGrowth> {
    let bytes = || prop_oneof![4 => 0..4096 * MIB, 1 => 0..i64::MAX];
    let rate = prop::option::of(prop_oneof![4 => -1024 * MIB..4096 * MIB, 1 => any::<i64>()]);
    let free = prop_oneof![4 => -MIB..4096 * MIB, 1 => any::<i64>()];
    (bytes(), bytes(), bytes(), rate, any::<bool>(), bytes(), free).prop_map(
        |(limit, desired, usage, rate, held, maximum, free)| MemoryGrowth {
            limit: limit.max(1),
            desired,
            usage,
            rate,
            held,
            maximum,
            free,
        },
    )
}

proptest! {
    #[test]
    fn what_a_node_requests_is_upward_within_all_bounds_and_admitted(growth in growth()) {
        if let GrowthDecision::Grow(to) = growth.decide() {
            prop_assert!(to > growth.limit && to <= growth.maximum, "{to}");
            prop_assert!(to - growth.limit <= growth.free, "{to}");
            let (shape, mut old) = pair();
            old.containers[0] = Requirements::equal(100, growth.limit);
            let mut new = old.clone();
            new.containers[0] = grown(old.containers[0], to);
            let bounds = PerResource::new(None, Some(GrowthBounds::all(Resource::Memory, growth.maximum)));
            prop_assert_eq!(check(&shape, &old, &new, &bounds), Ok(()));
        }
    }

    #[test]
    fn a_held_container_is_never_left_without_a_decision(growth in growth()) {
        let held = MemoryGrowth { held: true, desired: growth.limit, ..growth };
        prop_assert!(!matches!(held.decide(), GrowthDecision::Ignore | GrowthDecision::SampleAgain(_)));
    }

    #[test]
    fn thresholds_are_in_order_below_the_limit(limit in 4096..i64::MAX) {
        let Thresholds { lower, upper } = Thresholds::for_limit(limit);
        prop_assert!(0 < lower && lower < upper && upper < limit);
    }

    /// Time is in milliseconds; a resize takes ten of them.
    #[test]
    fn a_ramp_of_any_rate_never_reaches_its_limit_for_long_and_takes_few_resizes(
        rate in 10 * MIB..1024 * MIB,
        limit in 32i64..1024,
    ) {
        const TARGET: i64 = 8 << 30;
        let (mut limit, mut usage) = (limit * MIB, 10 * MIB);
        let (mut resizes, mut held, mut applied, mut due) = (0u32, 0u32, None, 0i64);
        for now in 0..1_000_000i64 {
            if applied.is_some_and(|(at, _)| at <= now) {
                limit = applied.take().map_or(limit, |(_, to)| to);
                resizes += 1;
            }
            let is_held = usage >= limit;
            held += u32::from(is_held);
            usage = (usage + rate / 1000).min(limit);
            if usage >= TARGET {
                break;
            }
            if applied.is_some() || now < due && !is_held {
                continue;
            }
            let rate = Some(rate);
            let (desired, held) = (limit, is_held);
            let at = MemoryGrowth { limit, desired, usage, rate, held, maximum: i64::MAX, free: i64::MAX };
            match at.decide() {
                GrowthDecision::Grow(to) => applied = Some((now + 10, to)),
                GrowthDecision::SampleAgain(after) => due = now + i64::try_from(after.as_millis()).unwrap(),
                other => prop_assert_eq!(other, GrowthDecision::Ignore),
            }
        }
        prop_assert!(usage >= TARGET, "{} MiB", usage / MIB);
        // Doublings up to what lasts for five seconds, and then one for each five seconds.
        let steady = u32::try_from(TARGET / rate / 4).unwrap() + 10;
        prop_assert!(resizes <= steady, "{resizes} resizes, {steady}");
        prop_assert!(held <= 10 * 10, "held for {held} ms");
    }
}
