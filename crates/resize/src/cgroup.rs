//! Conversions of requests and limits to the values of cgroups, and back.
//!
//! The floors are the kernel's: no less than 2 shares, no less than a millisecond of quota. They make the
//! way there lossy, so the way back is given the value that was meant ([`actual_cpu_request`],
//! [`actual_cpu_limit`]): as long as the cgroup has the setting of that value, that value is the actual one.

/// The fewest cpu shares the kernel accepts.
pub const MIN_SHARES: u64 = 2;
/// The most cpu shares the kernel accepts.
pub const MAX_SHARES: u64 = 262_144;
/// The shares of one core.
pub const SHARES_PER_CPU: u64 = 1024;
/// The default CFS period in microseconds.
pub const DEFAULT_PERIOD: u64 = 100_000;
/// The smallest quota the kernel accepts, in microseconds.
pub const MIN_QUOTA: i64 = 1_000;

const MILLI_PER_CPU: u64 = 1000;
/// The step of the quotas that systemd sets, in thousandths of a core.
const SYSTEMD_STEP: i64 = 10;
const MIN_WEIGHT: u64 = 1;
const MAX_WEIGHT: u64 = 10_000;

/// Shares for a cpu request in thousandths of a core. No request is the smallest share.
///
/// ```
/// use plumb_resize::cgroup::shares;
///
/// assert_eq!(shares(500), 512);
/// assert_eq!(shares(0), 2);
/// ```
pub fn shares(milli: i64) -> u64 {
    let milli = u64::try_from(milli).unwrap_or(0);
    (milli.saturating_mul(SHARES_PER_CPU) / MILLI_PER_CPU).clamp(MIN_SHARES, MAX_SHARES)
}

/// The cpu request for shares, in millicores.
pub fn milli_of_shares(shares: u64) -> i64 {
    let milli = shares.min(MAX_SHARES).saturating_mul(MILLI_PER_CPU).div_ceil(SHARES_PER_CPU);
    i64::try_from(milli).unwrap_or(i64::MAX)
}

/// The quota in microseconds per `period` for a cpu limit in thousandths of a core; `None` is unlimited.
///
/// ```
/// use plumb_resize::cgroup::{DEFAULT_PERIOD, quota};
///
/// assert_eq!(quota(Some(650), DEFAULT_PERIOD), Some(65_000));
/// assert_eq!(quota(Some(5), DEFAULT_PERIOD), Some(1_000));
/// assert_eq!(quota(None, DEFAULT_PERIOD), None);
/// ```
pub fn quota(milli: Option<i64>, period: u64) -> Option<i64> {
    let milli = milli.filter(|milli| *milli > 0)?;
    let quota = i128::from(milli) * i128::from(period) / i128::from(MILLI_PER_CPU);
    Some(i64::try_from(quota).unwrap_or(i64::MAX).max(MIN_QUOTA))
}

/// The cpu limit for a quota, in millicores; `None` is unlimited.
pub fn milli_of_quota(quota: i64, period: u64) -> Option<i64> {
    if quota <= 0 || period == 0 {
        return None;
    }
    let milli = i128::from(quota) * i128::from(MILLI_PER_CPU) / i128::from(period);
    Some(i64::try_from(milli).unwrap_or(i64::MAX))
}

/// The memory limit in bytes as a cgroup takes it; `None` is unlimited. Zero is no limit.
pub fn memory_limit(bytes: Option<i64>) -> Option<i64> {
    bytes.filter(|bytes| *bytes > 0)
}

/// The swap limit of cgroup v2 for a limit of memory and swap together, as cgroup v1 and the CRI have it; -1 is unlimited.
///
/// ```
/// use plumb_resize::cgroup::swap_limit;
///
/// assert_eq!(swap_limit(64, 80), 16);
/// assert_eq!(swap_limit(64, 32), 0);
/// assert_eq!(swap_limit(-1, 80), -1);
/// assert_eq!(swap_limit(64, -1), -1);
/// ```
pub fn swap_limit(memory: i64, memory_and_swap: i64) -> i64 {
    if memory < 0 || memory_and_swap < 0 { -1 } else { (memory_and_swap - memory).max(0) }
}

/// How a cgroup v2 weight was made from shares. Two formulas are in use, so a reader of a weight must know
/// which one the writer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightScale {
    /// A straight line from 2 shares to 262144: the kubelet's, for pod cgroups.
    Linear,
    /// A curve on which 1024 shares are 100: newer OCI runtimes', for containers.
    Quadratic,
}

impl WeightScale {
    /// The weight for shares.
    ///
    /// ```
    /// use plumb_resize::cgroup::WeightScale;
    ///
    /// assert_eq!(WeightScale::Linear.weight(1024), 39);
    /// assert_eq!(WeightScale::Quadratic.weight(1024), 100);
    /// ```
    pub fn weight(self, shares: u64) -> u64 {
        let shares = shares.clamp(MIN_SHARES, MAX_SHARES);
        match self {
            Self::Linear => {
                MIN_WEIGHT + (shares - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT) / (MAX_SHARES - MIN_SHARES)
            }
            Self::Quadratic => quadratic_weight(shares),
        }
    }

    /// The fewest shares that have this weight. Neighbouring shares share a weight, so this is the inverse of
    /// [`weight`](Self::weight) only up to that.
    pub fn shares(self, weight: u64) -> u64 {
        let weight = weight.clamp(MIN_WEIGHT, MAX_WEIGHT);
        // The weight never falls as shares rise, so the first one to reach it is found by halving.
        let (mut low, mut high) = (MIN_SHARES, MAX_SHARES);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.weight(middle) < weight {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are below 2^18 and the result is clamped to 1..=10000 before the cast"
)]
fn quadratic_weight(shares: u64) -> u64 {
    if shares >= MAX_SHARES {
        return MAX_WEIGHT;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    10f64.powf(exponent).ceil().clamp(MIN_WEIGHT as f64, MAX_WEIGHT as f64) as u64
}

/// The actual CPU request, given the shares that were read back and the request that was last written.
///
/// ```
/// use plumb_resize::cgroup::{actual_cpu_request, shares};
///
/// // One millicore and two have the same shares.
/// assert_eq!(actual_cpu_request(shares(1), Some(1)), Some(1));
/// assert_eq!(actual_cpu_request(512, Some(650)), Some(500));
/// ```
pub fn actual_cpu_request(read: u64, written: Option<i64>) -> Option<i64> {
    if shares(written.unwrap_or(0)) == read { written } else { Some(milli_of_shares(read)) }
}

/// The actual CPU limit, given the quota that was read back (`None`: unlimited) and the limit that was last
/// written. A runtime that sets the quota through systemd has it rounded up to a hundredth of a core.
///
/// ```
/// use plumb_resize::cgroup::{DEFAULT_PERIOD, actual_cpu_limit};
///
/// assert_eq!(actual_cpu_limit(Some(66_000), DEFAULT_PERIOD, Some(655)), Some(655));
/// assert_eq!(actual_cpu_limit(Some(67_000), DEFAULT_PERIOD, Some(655)), Some(670));
/// ```
pub fn actual_cpu_limit(read: Option<i64>, period: u64, written: Option<i64>) -> Option<i64> {
    let meant = quota(written, period);
    let systemd = || {
        let milli = milli_of_quota(meant?, period)?;
        quota(Some(milli.checked_add(SYSTEMD_STEP - 1)? / SYSTEMD_STEP * SYSTEMD_STEP), period)
    };
    if meant == read || (read.is_some() && systemd() == read) {
        return written;
    }
    read.and_then(|read| milli_of_quota(read, period))
}

/// The actual memory limit, given the one that was read back and the one that was last written. The kernel
/// rounds down to whole pages.
pub fn actual_memory_limit(read: Option<i64>, page: i64, written: Option<i64>) -> Option<i64> {
    let pages = |bytes: i64| if page > 0 { bytes - bytes % page } else { bytes };
    if memory_limit(written).map(pages) == read.map(pages) { written } else { read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_a_floor_and_a_ceiling() {
        let table = [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (i64::MAX, 262_144), (-5, 2)];
        for (milli, expected) in table {
            assert_eq!(shares(milli), expected, "{milli}m");
        }
    }

    #[test]
    fn a_quota_is_at_least_a_millisecond() {
        let table = [
            (None, None),
            (Some(0), None),
            (Some(1), Some(1_000)),
            (Some(10), Some(1_000)),
            (Some(11), Some(1_100)),
            (Some(3950), Some(395_000)),
            (Some(i64::MAX), Some(i64::MAX)),
        ];
        for (milli, expected) in table {
            assert_eq!(quota(milli, DEFAULT_PERIOD), expected, "{milli:?}");
        }
    }

    #[test]
    fn weights_follow_the_formula_of_their_writer() {
        let table = [(2, 1, 1), (102, 4, 17), (512, 20, 59), (1024, 39, 100), (262_144, 10_000, 10_000)];
        for (shares, linear, quadratic) in table {
            assert_eq!(WeightScale::Linear.weight(shares), linear, "{shares}");
            assert_eq!(WeightScale::Quadratic.weight(shares), quadratic, "{shares}");
        }
    }

    #[test]
    fn the_shares_of_a_weight_have_that_weight() {
        for scale in [WeightScale::Linear, WeightScale::Quadratic] {
            for shares in (MIN_SHARES..=MAX_SHARES).step_by(997) {
                let weight = scale.weight(shares);
                assert_eq!(scale.weight(scale.shares(weight)), weight, "{scale:?} {shares}");
                assert!(scale.shares(weight) <= shares);
            }
        }
    }

    #[test]
    fn written_values_are_actual_as_long_as_no_other_process_wrote() {
        for milli in 0..5_000 {
            assert_eq!(actual_cpu_request(shares(milli), Some(milli)), Some(milli));
            let limit = Some(milli).filter(|milli| *milli > 0);
            assert_eq!(actual_cpu_limit(quota(limit, DEFAULT_PERIOD), DEFAULT_PERIOD, limit), limit);
        }
        assert_eq!(actual_memory_limit(Some(4096 * 3), 4096, Some(4096 * 3 + 17)), Some(4096 * 3 + 17));
    }

    #[test]
    fn another_hand_shows() {
        assert_eq!(actual_cpu_request(1024, Some(500)), Some(1000));
        assert_eq!(actual_cpu_limit(None, DEFAULT_PERIOD, Some(500)), None);
        assert_eq!(actual_cpu_limit(Some(25_000), DEFAULT_PERIOD, Some(500)), Some(250));
        assert_eq!(actual_memory_limit(Some(8192), 4096, Some(4096)), Some(8192));
    }
}
