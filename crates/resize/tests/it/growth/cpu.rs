//! Growth of CPU limits.

use std::time::Duration;

use plumb_resize::growth::{
    CpuReading, CpuSample, GrowthBounds, Throttled, ThrottlingDecision, ThrottlingGrowth, check, grown_cpu,
};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Declared, PerResource, Requirements, Resource};
use proptest::prelude::*;

use super::{MIB, pair};

const PLENTY: i64 = 1 << 40;

fn throttled(samples: u32, limit: i64) -> Throttled {
    let mut throttled = Throttled::default();
    for _ in 0..samples {
        throttled.observe(CpuSample { used: limit, throttled: limit }, limit);
    }
    throttled
}

/// A container with a limit of a core that was throttled for three samples, on a node with plenty left.
fn of(used: i64, withheld: i64) -> ThrottlingGrowth {
    let limit = 1000;
    ThrottlingGrowth {
        limit,
        desired: limit,
        sample: CpuSample { used, throttled: withheld },
        throttled: throttled(3, limit),
        maximum: 8000,
        idle: PLENTY,
        free: None,
    }
}

#[test]
fn a_cpu_limit_grows_by_what_was_withheld_within_its_maximum_and_what_the_node_has_left() {
    use ThrottlingDecision::{AtMaximum, Grow, NodeIsBusy, NodeIsFull, SampleAgain};
    let now = of(1000, 600);
    let again = |seconds| SampleAgain(Duration::from_secs(seconds));
    for (what, growth, expected) in [
        ("what it used and what was withheld", now, Grow(1600)),
        ("a quarter at least", of(1000, 100), Grow(1250)),
        ("double at most", of(1000, 5000), Grow(2000)),
        (
            "a small limit by half a core at most",
            ThrottlingGrowth { limit: 100, desired: 100, ..of(100, 900) },
            Grow(600),
        ),
        ("in steps of a hundredth of a core", of(1000, 603), Grow(1610)),
        ("throttled once", ThrottlingGrowth { throttled: throttled(1, 1000), ..now }, again(1)),
        ("not throttled", ThrottlingGrowth { throttled: throttled(0, 1000), ..now }, again(5)),
        ("a limit that is being raised already", ThrottlingGrowth { desired: 1200, ..now }, again(1)),
        ("a limit that is being lowered", ThrottlingGrowth { desired: 500, ..now }, Grow(1600)),
        ("the maximum is near", ThrottlingGrowth { maximum: 1001, ..now }, Grow(1001)),
        ("at the maximum", ThrottlingGrowth { maximum: 1000, ..now }, AtMaximum),
        ("some idle CPU", ThrottlingGrowth { idle: 150, ..now }, Grow(1150)),
        ("too little idle CPU", ThrottlingGrowth { idle: 99, ..now }, NodeIsBusy),
        ("no idle CPU", ThrottlingGrowth { idle: -5, ..now }, NodeIsBusy),
        ("requests take what is free", ThrottlingGrowth { free: Some(300), ..now }, Grow(1300)),
        ("nothing is free for a request", ThrottlingGrowth { free: Some(0), ..now }, NodeIsFull),
    ] {
        assert_eq!(growth.decide(), expected, "{what}");
    }
}

#[test]
fn throttling_counts_from_a_tenth_of_the_limit_on_and_is_forgotten_below_a_fiftieth() {
    let mut throttled = Throttled::default();
    let mut observe = |withheld: i64| {
        throttled.observe(CpuSample { used: 900, throttled: withheld }, 1000);
        throttled.is_lasting()
    };
    assert_eq!([100, 100].map(&mut observe), [false, false]);
    // Between the two it neither counts nor is it forgotten.
    assert_eq!([50, 100, 50].map(&mut observe), [false, true, true]);
    assert_eq!([20, 100, 100, 100].map(&mut observe), [false, false, false, true]);
}

#[test]
fn a_sample_is_the_difference_of_two_readings_that_are_not_too_close() {
    let reading = |used: u64, throttled: u64| CpuReading {
        used_nanos: used * 1_000_000,
        throttled_nanos: throttled * 1_000_000,
    };
    let between = |before, now, millis| CpuSample::between(before, now, Duration::from_millis(millis));
    let (before, now) = (reading(100, 10), reading(600, 2010));
    assert_eq!(between(before, now, 1000), Some(CpuSample { used: 500, throttled: 2000 }));
    assert_eq!(between(before, now, 500), Some(CpuSample { used: 1000, throttled: 4000 }));
    assert_eq!(between(before, now, 299), None, "too close");
    assert_eq!(between(now, before, 1000), None, "the counters started again");
}

#[test]
fn the_request_of_a_container_grows_with_its_cpu_limit_only_if_the_pod_is_guaranteed() {
    let memory = MIB;
    let burstable =
        Requirements { requests: Declared::both(100, memory), limits: Declared::both(200, memory) };
    let grown = grown_cpu(burstable, 400, QosClass::Burstable);
    assert_eq!((grown.requests, grown.limits), (burstable.requests, Declared::both(400, memory)));
    let guaranteed = Requirements::equal(100, memory);
    assert_eq!(grown_cpu(guaranteed, 400, QosClass::Guaranteed), Requirements::equal(400, memory));
}

fn growth() -> impl Strategy<Value = ThrottlingGrowth> {
    let milli = || prop_oneof![4 => 0..64_000i64, 1 => 0..i64::MAX];
    let left = || prop_oneof![4 => -10..64_000i64, 1 => any::<i64>()];
    (milli(), milli(), milli(), milli(), milli(), 0..5u32, left(), prop::option::of(left())).prop_map(
        |(limit, desired, used, withheld, maximum, samples, idle, free)| ThrottlingGrowth {
            limit: limit.max(1),
            desired,
            sample: CpuSample { used, throttled: withheld },
            throttled: throttled(samples, limit.max(1)),
            maximum,
            idle,
            free,
        },
    )
}

proptest! {
    #[test]
    fn what_a_node_requests_of_cpu_is_upward_within_all_bounds_and_admitted(growth in growth()) {
        if let ThrottlingDecision::Grow(to) = growth.decide() {
            prop_assert!(growth.throttled.is_lasting());
            prop_assert!(to > growth.limit && to <= growth.maximum, "{to}");
            prop_assert!(to - growth.limit <= growth.idle, "{to}");
            prop_assert!(growth.free.is_none_or(|free| to - growth.limit <= free), "{to}");
            let (shape, mut old) = pair();
            old.containers[0] = Requirements::equal(growth.limit, MIB);
            let bounds = PerResource::new(Some(GrowthBounds::all(Resource::Cpu, growth.maximum)), None);
            for class in [QosClass::Guaranteed, QosClass::Burstable] {
                let mut new = old.clone();
                new.containers[0] = grown_cpu(old.containers[0], to, class);
                prop_assert_eq!(check(&shape, &old, &new, &bounds), Ok(()));
            }
        }
    }

    /// A program that can use a constant amount of CPU gets it in few resizes, and then its limit stays.
    #[test]
    fn a_constant_demand_is_met_in_few_resizes_and_growth_ends(
        demand in 1..64_000i64,
        start in 10..64_000i64,
        noise in prop::collection::vec(0..20i64, 60),
    ) {
        let (mut limit, mut throttled, mut resizes) = (start, Throttled::default(), 0u32);
        for noise in noise {
            // Up to a fiftieth of the limit is noise, as of the start of a period.
            let wanted = demand.max(1);
            let sample = CpuSample {
                used: wanted.min(limit),
                throttled: (wanted - limit).max(0) + limit * noise / 1000,
            };
            throttled.observe(sample, limit);
            let growth = ThrottlingGrowth {
                limit, desired: limit, sample, throttled, maximum: i64::MAX, idle: i64::MAX, free: None,
            };
            if let ThrottlingDecision::Grow(to) = growth.decide() {
                prop_assert!(wanted > limit, "{limit} is enough for {wanted}");
                (limit, throttled, resizes) = (to, Throttled::default(), resizes + 1);
            }
        }
        prop_assert!(limit >= demand - limit / 10 - 1, "{limit} for {demand}");
        prop_assert!(limit <= start.max(demand + demand / 4 + 20), "{limit} for {demand} from {start}");
        prop_assert!(resizes <= 10, "{resizes}");
    }
}
