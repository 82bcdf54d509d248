//! To the kernel and back.

use plumb_resize::cgroup::{
    DEFAULT_PERIOD, MAX_SHARES, MIN_QUOTA, MIN_SHARES, WeightScale, actual_cpu_limit, actual_cpu_request,
    actual_memory_limit, milli_of_quota, milli_of_shares, quota, shares,
};
use proptest::prelude::*;

fn scales() -> impl Strategy<Value = WeightScale> {
    prop_oneof![Just(WeightScale::Linear), Just(WeightScale::Quadratic)]
}

fn milli() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..300_000i64, 1 => any::<i64>()]
}

proptest! {
    #[test]
    fn shares_are_in_range_rise_with_the_request_and_come_back(a in milli(), b in milli()) {
        prop_assert!((MIN_SHARES..=MAX_SHARES).contains(&shares(a)));
        prop_assert!(a > b || shares(a) <= shares(b));
        if (2..=256_000).contains(&a) {
            prop_assert_eq!(milli_of_shares(shares(a)), a);
        }
        prop_assert_eq!(shares(milli_of_shares(shares(a))), shares(a));
    }

    #[test]
    fn quotas_have_a_floor_and_come_back(limit in 1..i64::MAX / 1_000, period in 1_000u64..1_000_000) {
        let written = quota(Some(limit), period).unwrap();
        prop_assert!(written >= MIN_QUOTA);
        if limit >= 10 {
            prop_assert_eq!(milli_of_quota(quota(Some(limit), DEFAULT_PERIOD).unwrap(), DEFAULT_PERIOD), Some(limit));
        }
        prop_assert_eq!(quota(None, period), None);
    }

    #[test]
    fn weights_rise_with_shares_and_come_back(scale in scales(), a in 0..400_000u64, b in 0..400_000u64) {
        let weight = scale.weight(a);
        prop_assert!((1..=10_000).contains(&weight));
        prop_assert!(a > b || weight <= scale.weight(b));
        let fewest = scale.shares(weight);
        prop_assert_eq!(scale.weight(fewest), weight);
        prop_assert!(fewest == MIN_SHARES || scale.weight(fewest - 1) < weight, "the fewest that have it");
    }

    #[test]
    fn written_values_are_actual_until_another_process_writes(
        milli in prop::option::of(milli()), bytes in prop::option::of(0..i64::MAX),
        period in 1_000u64..1_000_000, page in prop_oneof![Just(4096i64), Just(65_536)],
    ) {
        prop_assert_eq!(actual_cpu_request(shares(milli.unwrap_or(0)), milli), milli);
        prop_assert_eq!(actual_cpu_limit(quota(milli, period), period, milli), milli);
        let kept = bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes - bytes % page);
        prop_assert_eq!(actual_memory_limit(kept, page, bytes), bytes);
    }
}
