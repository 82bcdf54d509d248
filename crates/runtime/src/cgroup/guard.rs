//! A memory limit that was lowered a moment ago.
//!
//! A process that grows just then would be killed for what was legal when it began. So for a while after a limit went
//! down nothing is killed for it: v1 switches the OOM killer off, and a process that runs into the limit is held still;
//! v2 throttles a group from a mark below the limit on. If what the group cannot give up reaches that mark, the limit
//! that was applied before is restored. Page cache does not count: the kernel reclaims it instead of killing.
//!
//! ```text
//!   keep Before ▸ guard ▸ set ─┬─ nothing happens for a while ─▶ release
//!                              └─ is cornered ─────────────────▶ restore, release
//! ```
//!
//! The caller has to keep [`Before`] where it outlives a crash: a group that stays guarded is held still for good.

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::group::Group;
use super::layout::Version;
use super::{v1, v2};
use crate::types::LinuxResources;

/// Between the mark and the limit there is a sixteenth of the limit, but within these bounds: as much as a program
/// takes while we wake up, and no more than it takes to notice.
const RESERVE_SHIFT: u32 = 4;
const LEAST_RESERVE: u64 = 4 << 20;
const MOST_RESERVE: u64 = 64 << 20;

/// What a group had before its limit went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// The memory limit; -1 is none.
    pub limit: i64,
    /// From where on it was slowed down; -1 is never, and v1 has no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<i64>,
}

impl Before {
    /// Whether a limit is lower than what there was.
    pub fn is_above(&self, limit: i64) -> bool {
        bound(limit) < bound(self.limit)
    }
}

fn bound(limit: i64) -> i64 {
    if limit < 0 { i64::MAX } else { limit }
}

/// At which usage a group is about to run into its limit, given what it uses now. What is left between usage and
/// limit is never all reserved, or nobody could be near their limit in peace.
fn mark(limit: u64, usage: u64) -> u64 {
    let reserve = (limit >> RESERVE_SHIFT).clamp(LEAST_RESERVE, MOST_RESERVE);
    limit.saturating_sub(reserve.min(limit.saturating_sub(usage) / 2))
}

impl Group {
    /// What is in force and would be lost by another limit.
    pub fn before_lowering(&self) -> Result<Before> {
        match self.version() {
            Version::V1 => v1::before_lowering(self),
            Version::V2 => v2::before_lowering(self),
        }
    }

    /// Sees to it that nobody is killed for a limit that is about to go down to this; answers the usage at which
    /// they are about to run into it.
    pub fn guard(&self, limit: i64) -> Result<u64> {
        let Ok(limit) = u64::try_from(limit) else { return Ok(u64::MAX) };
        let mark = mark(limit, self.unreclaimable()?);
        match self.version() {
            Version::V1 => v1::put_killer_off(self, true)?,
            Version::V2 => v2::slow_down(self, mark)?,
        }
        Ok(mark)
    }

    /// Whether what is in it has reached the mark, or has run into the limit.
    pub fn is_cornered(&self, mark: u64) -> Result<bool> {
        let stuck = match self.version() {
            Version::V1 => v1::is_stuck(self)?,
            // There whoever is over the mark crawls, but is never stuck.
            Version::V2 => false,
        };
        Ok(stuck || self.unreclaimable()? >= mark)
    }

    /// Sets the limit to what was applied before. It stays guarded until it is released.
    pub fn restore(&self, before: &Before) -> Result<()> {
        self.set(&LinuxResources { memory_limit: Some(before.limit), ..LinuxResources::default() })
    }

    /// Guards no longer: from now on the limit is the limit.
    pub fn release(&self, before: &Before) -> Result<()> {
        match (self.version(), before.high) {
            (Version::V1, _) => v1::put_killer_off(self, false),
            (Version::V2, Some(high)) => {
                self.set(&LinuxResources { memory_high: Some(high), ..LinuxResources::default() })
            }
            (Version::V2, None) => Ok(()),
        }
    }

    /// The same where what there was before is not known. Plumb sets neither for any other purpose.
    pub fn release_unrecorded(&self) -> Result<()> {
        match self.version() {
            Version::V1 => v1::put_killer_off(self, false),
            Version::V2 => v2::throttle_never(self),
        }
    }

    /// The most that it has ever used, page cache included, where the kernel says so.
    pub fn peak(&self) -> Result<Option<u64>> {
        match self.version() {
            Version::V1 => v1::peak(self),
            Version::V2 => v2::peak(self),
        }
    }

    /// What it uses without page cache: what the kernel cannot reclaim without swap.
    fn unreclaimable(&self) -> Result<u64> {
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
            assert_eq!(mark(limit * MIB, usage * MIB), expected * MIB, "{what}");
        }
    }

    #[test]
    fn no_limit_is_above_every_other() {
        let before = |limit| Before { limit, high: None };
        assert!(before(-1).is_above(i64::MAX - 1));
        assert!(before(2).is_above(1));
        assert!(!before(2).is_above(2));
        assert!(!before(2).is_above(-1));
        assert!(!before(-1).is_above(-1));
    }
}
