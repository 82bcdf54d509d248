//! Lowering a memory limit without an OOM kill.
//!
//! The kernel kills when a limit is set below what cannot be reclaimed, and a limit just above usage kills a
//! container that grows a moment later. So a limit is either at its target or where it was before, never in
//! between: it is set to the target once usage leaves a margin below it. Until then the node asks the kernel to
//! reclaim, and reads the usage again after a backoff.

use std::time::Duration;

/// The minimal margin between usage and the limit; the maximum is [`MAX_MARGIN`].
const MIN_MARGIN: i64 = 1 << 20;
const MAX_MARGIN: i64 = 64 << 20;
/// The part of usage that is kept free above it, within those bounds: one in 32.
const MARGIN_SHIFT: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A memory limit that is to be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lowering {
    /// The limit that is applied; `None` is unlimited.
    pub limit: Option<i64>,
    /// The target limit.
    pub target: i64,
    /// How much is used and cannot be given up at once: the working set.
    pub usage: i64,
    /// How many attempts in a row found too much in use.
    pub stalled: u32,
    /// The size of the kernel's pages, the grain of memory limits.
    pub page: i64,
}

/// The next step of lowering a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoweringStep {
    /// The target is applied.
    Done,
    /// Set the limit to this, which is the target: usage leaves a margin below it.
    Set(i64),
    /// Have the kernel reclaim this many bytes, then read the usage again.
    Reclaim(i64),
    /// Look again after this long.
    Wait(Duration),
}

impl Lowering {
    /// Decides what to do next.
    ///
    /// ```
    /// use plumb_resize::memory::{Lowering, LoweringStep};
    ///
    /// let mib = |n: i64| n << 20;
    /// let now = Lowering { limit: Some(mib(512)), target: mib(256), usage: mib(100), stalled: 0, page: 4096 };
    /// assert_eq!(now.next(), LoweringStep::Set(mib(256)));
    /// // Too much is in use: the limit stays as it is, and the kernel has to reclaim.
    /// let full = Lowering { usage: mib(320), ..now };
    /// assert_eq!(full.next(), LoweringStep::Reclaim(mib(74)));
    /// ```
    pub fn next(self) -> LoweringStep {
        let limit = self.limit.unwrap_or(i64::MAX);
        if limit <= self.target {
            return LoweringStep::Done;
        }
        let lowest = self.lowest_safe();
        if lowest <= self.target {
            return LoweringStep::Set(self.target);
        }
        let surplus = lowest.saturating_sub(self.target);
        if self.stalled.is_multiple_of(2) {
            LoweringStep::Reclaim(surplus)
        } else {
            LoweringStep::Wait(self.wait())
        }
    }

    /// The lowest limit that leaves a margin above the usage.
    pub fn lowest_safe(self) -> i64 {
        let usage = self.usage.max(0);
        let margin = (usage >> MARGIN_SHIFT).clamp(MIN_MARGIN, MAX_MARGIN);
        round_up(usage.saturating_add(margin), self.page.max(1))
    }

    /// Doubles with every second failed attempt (the one in between reclaims), up to a ceiling.
    fn wait(self) -> Duration {
        let doublings = (self.stalled / 2).min(16);
        FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT)
    }
}

fn round_up(bytes: i64, page: i64) -> i64 {
    bytes.checked_add(page - 1).map_or(i64::MAX, |bytes| bytes - bytes % page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn at(limit: i64, target: i64, usage: i64) -> Lowering {
        let page = 4096;
        Lowering { limit: Some(limit * MIB), target: target * MIB, usage: usage * MIB, stalled: 0, page }
    }

    #[test]
    fn nothing_is_left_to_do_at_or_below_the_target() {
        assert_eq!(at(256, 256, 300).next(), LoweringStep::Done);
        assert_eq!(at(128, 256, 1).next(), LoweringStep::Done);
    }

    #[test]
    fn a_first_limit_is_lowered_from_infinity() {
        assert_eq!(Lowering { limit: None, ..at(0, 256, 10) }.next(), LoweringStep::Set(256 * MIB));
    }

    #[test]
    fn near_usage_it_reclaims_and_waits_in_turns_ever_longer() {
        let full = Lowering { limit: Some(330 * MIB), ..at(330, 256, 320) };
        assert_eq!(full.lowest_safe(), 330 * MIB);
        assert_eq!(full.next(), LoweringStep::Reclaim(74 * MIB));
        let waits: Vec<LoweringStep> =
            [1, 3, 5, 31].map(|stalled| Lowering { stalled, ..full }.next()).to_vec();
        let milliseconds = [100, 200, 400, 10_000];
        assert_eq!(waits, milliseconds.map(|ms| LoweringStep::Wait(Duration::from_millis(ms))).to_vec());
    }

    #[test]
    fn a_limit_stays_as_it_is_until_usage_leaves_a_margin_below_the_target() {
        // The limit is far above usage: it is not moved to just above usage, where growth would be killed.
        assert_eq!(at(128, 40, 66).next(), LoweringStep::Reclaim(28 * MIB + MIB / 16));
        assert_eq!(at(128, 40, 39).next(), LoweringStep::Reclaim(39 * MIB / 32 - MIB));
        assert_eq!(at(128, 40, 38).next(), LoweringStep::Set(40 * MIB));
    }

    #[test]
    fn the_lowest_safe_limit_is_in_whole_pages_of_the_kernel() {
        for page in [4096, 16_384, 65_536] {
            let lowest = Lowering { usage: 100 * MIB + 1, page, ..at(330, 256, 0) }.lowest_safe();
            assert_eq!(lowest % page, 0);
            let margin = lowest - 100 * MIB - (100 * MIB) / 32;
            assert!((1..=page).contains(&margin), "{margin} with pages of {page}");
        }
    }

    #[test]
    fn a_limit_below_usage_is_never_raised_nor_lowered() {
        assert_eq!(at(300, 256, 320).next(), LoweringStep::Reclaim(74 * MIB));
    }
}
