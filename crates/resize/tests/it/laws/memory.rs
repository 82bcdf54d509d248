//! Lowering a memory limit, whatever the container does meanwhile.

use std::time::Duration;

use plumb_resize::memory::{Lowering, LoweringStep};
use proptest::collection::vec;
use proptest::prelude::*;

const MIB: i64 = 1 << 20;
/// The least that is kept between usage and the limit.
const LEAST_MARGIN: i64 = MIB;

fn bytes() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..4096 * MIB, 1 => (0..4096i64).prop_map(|mib| mib * MIB), 1 => 0..i64::MAX]
}

fn lowering() -> impl Strategy<Value = Lowering> {
    let limit = prop_oneof![1 => Just(None), 6 => bytes().prop_map(Some)];
    let page = prop_oneof![Just(4096), Just(65_536)];
    (limit, bytes(), bytes(), 0u32..100, page).prop_map(|(limit, target, usage, stalled, page)| Lowering {
        limit,
        target,
        usage,
        stalled,
        page,
    })
}

/// Carries out what comes next, and counts attempts that brought nothing.
fn carry_out(now: Lowering) -> Lowering {
    match now.next() {
        LoweringStep::Done => now,
        LoweringStep::Set(limit) => Lowering { limit: Some(limit), stalled: 0, ..now },
        LoweringStep::Reclaim(_) | LoweringStep::Wait(_) => {
            Lowering { stalled: now.stalled.saturating_add(1), ..now }
        }
    }
}

proptest! {
    #[test]
    fn no_step_can_kill_and_none_raises(now in lowering()) {
        match now.next() {
            LoweringStep::Done => prop_assert!(now.limit.is_some_and(|limit| limit <= now.target) || now.target == i64::MAX),
            LoweringStep::Set(limit) => {
                prop_assert!(limit >= now.usage.saturating_add(LEAST_MARGIN), "never below usage plus a margin");
                prop_assert_eq!(limit, now.target, "the target, or what was applied before: nothing in between");
                prop_assert!(now.limit.is_none_or(|current| limit < current), "never up, never the same again");
            }
            LoweringStep::Reclaim(surplus) => prop_assert!(surplus > 0),
            LoweringStep::Wait(pause) => {
                prop_assert!(pause >= Duration::from_millis(100) && pause <= Duration::from_secs(10));
            }
        }
    }

    #[test]
    fn the_margin_is_kept_within_bounds(now in lowering()) {
        let margin = now.lowest_safe() - now.usage;
        prop_assert!(margin >= LEAST_MARGIN || now.lowest_safe() == i64::MAX);
        prop_assert!(margin <= 64 * MIB + now.page);
    }

    #[test]
    fn it_arrives_as_soon_as_usage_allows_whatever_usage_did_before(
        start in lowering(), usages in vec(bytes(), 0..40), spare in 0..64 * MIB,
    ) {
        let target = start.target.max(128 * MIB);
        let mut now = Lowering { target, ..start };
        for usage in usages {
            now = carry_out(Lowering { usage, ..now });
            prop_assert!(now.limit.is_none_or(|limit| start.limit.is_none_or(|start| limit <= start)));
        }
        // From here on the target fits: half of it is free.
        now.usage = (target / 2 - spare).max(0);
        prop_assert!(now.lowest_safe() <= target);
        now = carry_out(now);
        prop_assert_eq!(now.next(), LoweringStep::Done);
    }

    #[test]
    fn while_usage_stays_too_high_reclaim_and_wait_alternate(now in lowering()) {
        let mut now = now;
        if matches!(now.next(), LoweringStep::Set(_) | LoweringStep::Done) {
            return Ok(());
        }
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let first = now.next();
            now = carry_out(now);
            let second = now.next();
            now = carry_out(now);
            prop_assert!(matches!((first, second), (LoweringStep::Reclaim(_), LoweringStep::Wait(_)) | (LoweringStep::Wait(_), LoweringStep::Reclaim(_))));
            if let (LoweringStep::Wait(pause), _) | (_, LoweringStep::Wait(pause)) = (first, second) {
                prop_assert!(pause >= longest, "never more hurried");
                longest = pause;
            }
        }
    }
}
