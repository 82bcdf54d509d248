//! Guarding a memory limit that was lowered a moment ago.
//!
//! A process that grows at that moment would be OOM killed for an allocation that was within the limit when it began.
//! So for a while after a limit was lowered it causes no OOM kill: v1 disables the OOM killer, and a process that
//! reaches the limit sleeps; v2 throttles the cgroup from a threshold below the limit on (`memory.high`). If
//! unreclaimable memory reaches that threshold, the limit that was applied before is restored. Page cache does not
//! count: the kernel reclaims it instead of killing.
//!
//! ```text
//!   record AppliedLimit ▸ guard ▸ set ─┬─ the window is over ─▶ release
//!                                      └─ is_near_limit ──────▶ restore, release
//! ```
//!
//! The caller has to record [`AppliedLimit`] on disk: a cgroup that stays guarded after a crash sleeps forever.

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::group::Group;
use super::layout::Version;
use super::{v1, v2};
use crate::types::LinuxResources;

/// The reserve between the threshold and the limit is a sixteenth of the limit, within these bounds: as much as a
/// program may allocate while we wake up, and no more than is needed for that.
const RESERVE_SHIFT: u32 = 4;
const LEAST_RESERVE: u64 = 4 << 20;
const MOST_RESERVE: u64 = 64 << 20;

/// The memory settings that are applied to a cgroup, to be restored later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedLimit {
    /// The memory limit; -1 is none.
    pub limit: i64,
    /// `memory.high`; -1 is unlimited, and v1 does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<i64>,
}

impl AppliedLimit {
    /// Whether this limit is above another one.
    pub fn is_above(&self, limit: i64) -> bool {
        bound(limit) < bound(self.limit)
    }
}

fn bound(limit: i64) -> i64 {
    if limit < 0 { i64::MAX } else { limit }
}

/// The usage at which a cgroup is near its limit, given its current usage. At most half of what is left between usage
/// and limit is reserved, so that a container may run near its limit.
fn threshold(limit: u64, usage: u64) -> u64 {
    let reserve = (limit >> RESERVE_SHIFT).clamp(LEAST_RESERVE, MOST_RESERVE);
    limit.saturating_sub(reserve.min(limit.saturating_sub(usage) / 2))
}

impl Group {
    /// The memory settings that are applied now and that lowering the limit would lose.
    pub fn applied_limit(&self) -> Result<AppliedLimit> {
        match self.version() {
            Version::V1 => v1::applied_limit(self),
            Version::V2 => v2::applied_limit(self),
        }
    }

    /// Prevents OOM kills by a limit that is about to be lowered to this; returns the usage at which the cgroup is near
    /// that limit.
    pub fn guard(&self, limit: i64) -> Result<u64> {
        let Ok(limit) = u64::try_from(limit) else { return Ok(u64::MAX) };
        let threshold = threshold(limit, self.unreclaimable()?);
        match self.version() {
            Version::V1 => v1::disable_oom_killer(self, true)?,
            Version::V2 => v2::throttle_above(self, threshold)?,
        }
        Ok(threshold)
    }

    /// Whether its unreclaimable memory has reached the threshold, or a process has reached the limit.
    pub fn is_near_limit(&self, threshold: u64) -> Result<bool> {
        let stuck = match self.version() {
            Version::V1 => v1::is_stuck(self)?,
            // V2 throttles processes above the threshold, but they never sleep for good.
            Version::V2 => false,
        };
        Ok(stuck || self.unreclaimable()? >= threshold)
    }

    /// Sets the limit to what was applied before. It stays guarded until it is released.
    pub fn restore(&self, before: &AppliedLimit) -> Result<()> {
        self.set(&LinuxResources { memory_limit: Some(before.limit), ..LinuxResources::default() })
    }

    /// Ends the guard: from now on the limit is enforced.
    pub fn release(&self, before: &AppliedLimit) -> Result<()> {
        match (self.version(), before.high) {
            (Version::V1, _) => v1::disable_oom_killer(self, false),
            (Version::V2, Some(high)) => {
                self.set(&LinuxResources { memory_high: Some(high), ..LinuxResources::default() })
            }
            (Version::V2, None) => Ok(()),
        }
    }

    /// The same if the settings before are unknown. Plumb uses neither for any other purpose.
    pub fn release_unrecorded(&self) -> Result<()> {
        match self.version() {
            Version::V1 => v1::disable_oom_killer(self, false),
            Version::V2 => v2::throttle_never(self),
        }
    }

    /// Its peak usage, page cache included, where the kernel records it.
    pub fn peak(&self) -> Result<Option<u64>> {
        match self.version() {
            Version::V1 => v1::peak(self),
            Version::V2 => v2::peak(self),
        }
    }

    /// Its usage without page cache: what the kernel cannot reclaim without swap.
    pub(super) fn unreclaimable(&self) -> Result<u64> {
        match self.version() {
            Version::V1 => v1::unreclaimable(self),
            Version::V2 => v2::unreclaimable(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_mark_is_below_the_limit_and_above_what_is_used() {
        let table = [
            ("far away", 256, 10, 240),
            ("a small limit", 32, 10, 28),
            ("near it", 64, 60, 62),
            ("at it", 64, 64, 64),
            ("beyond it", 64, 70, 64),
            ("a large limit", 4096, 10, 4032),
        ];
        for (what, limit, usage, expected) in table {
            assert_eq!(threshold(limit * MIB, usage * MIB), expected * MIB, "{what}");
        }
    }

    #[test]
    fn no_limit_is_above_every_other() {
        let before = |limit| AppliedLimit { limit, high: None };
        assert!(before(-1).is_above(i64::MAX - 1));
        assert!(before(2).is_above(1));
        assert!(!before(2).is_above(2));
        assert!(!before(2).is_above(-1));
        assert!(!before(-1).is_above(-1));
    }
}
