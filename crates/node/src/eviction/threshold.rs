//! Eviction thresholds, with the flags and messages of the kubelet.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use plumb_go::duration::DurationError;
use plumb_resize::quantity::{Quantity, QuantityError};

use super::signal::Signal;

/// A percentage in thousandths of a percent.
const WHOLE: u32 = 100_000;

/// An amount of a resource: absolute, or a part of its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Absolute.
    Quantity(Quantity),
    /// In thousandths of a percent of the capacity.
    Percentage(u32),
}

impl Amount {
    /// The amount, given the capacity. A part of it is written with binary suffixes, whatever the resource, as by the kubelet.
    pub fn of(self, capacity: i64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percentage(part) => {
                let amount = i128::from(capacity) * i128::from(part) / i128::from(WHOLE);
                Quantity::from_bytes(i64::try_from(amount).unwrap_or(i64::MAX))
            }
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Percentage(part) if part % 1000 == 0 => write!(f, "{}%", part / 1000),
            Self::Percentage(part) => {
                let decimals = format!("{:03}", part % 1000);
                write!(f, "{}.{}%", part / 1000, decimals.trim_end_matches('0'))
            }
        }
    }
}

/// An eviction threshold: it is met while less than its value is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// What is compared.
    pub signal: Signal,
    /// With what.
    pub value: Amount,
    /// How long it is met before pods are evicted; zero for a hard threshold.
    pub grace_period: Duration,
    /// How much more than the value is reclaimed once it was met.
    pub minimum_reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether pods are evicted at once.
    pub fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }
}

/// Why a flag about thresholds is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// A part of the flag has no separator.
    #[error("malformed pair, expect string{0}string")]
    Malformed(char),
    /// There is no such signal.
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    /// A percentage is no number.
    #[error("parsing {0:?}: invalid syntax")]
    Percentage(String),
    /// A percentage is negative.
    #[error("eviction percentage threshold {0} must be >= 0%: {1}")]
    Negative(Signal, String),
    /// A percentage is above 100.
    #[error("eviction percentage threshold {0} must be <= 100%: {1}")]
    AboveAll(Signal, String),
    /// A quantity is not positive.
    #[error("eviction threshold {0} must be positive: {1}")]
    NotPositive(Signal, Quantity),
    /// A quantity cannot be read.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A grace period cannot be read.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A grace period is negative.
    #[error("invalid eviction grace period specified: {0}, must be a positive value")]
    NegativeGracePeriod(String),
    /// A minimum reclaim in percent is not positive.
    #[error("eviction percentage minimum reclaim {0} must be positive: {1}")]
    NoReclaim(Signal, String),
    /// A minimum reclaim is negative.
    #[error("negative eviction minimum reclaim specified for {0}")]
    NegativeReclaim(Signal),
    /// A soft threshold has no grace period.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGracePeriod(Signal),
}

/// The value of `--eviction-hard` and of `--eviction-soft`, such as `memory.available<100Mi,nodefs.available<10%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds(pub BTreeMap<Signal, Amount>);

impl Thresholds {
    /// The hard thresholds of the kubelet.
    pub const DEFAULT: &'static str = "imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%";
}

impl Default for Thresholds {
    fn default() -> Self {
        let binary = Quantity::from_bytes(100 << 20);
        Self(BTreeMap::from([
            (Signal::MemoryAvailable, Amount::Quantity(binary)),
            (Signal::NodeFsAvailable, Amount::Percentage(10_000)),
            (Signal::NodeFsInodesFree, Amount::Percentage(5_000)),
            (Signal::ImageFsAvailable, Amount::Percentage(15_000)),
            (Signal::ImageFsInodesFree, Amount::Percentage(5_000)),
        ]))
    }
}

impl FromStr for Thresholds {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let mut thresholds = BTreeMap::new();
        for (signal, value) in pairs(text, '<')? {
            match threshold(signal, value)? {
                Some(value) => thresholds.insert(signal, value),
                None => thresholds.remove(&signal),
            };
        }
        Ok(Self(thresholds))
    }
}

/// The value of a threshold; `None` if it is switched off.
fn threshold(signal: Signal, value: &str) -> Result<Option<Amount>, ThresholdError> {
    if matches!(value, "0%" | "100%") {
        return Ok(None);
    }
    if let Some(percentage) = percentage(value)? {
        return match u32::try_from(percentage) {
            Err(_) if percentage < 0 => Err(ThresholdError::Negative(signal, value.to_owned())),
            Ok(part) if part <= WHOLE => Ok(Some(Amount::Percentage(part))),
            _ => Err(ThresholdError::AboveAll(signal, value.to_owned())),
        };
    }
    let quantity: Quantity = value.parse()?;
    if quantity.is_positive() {
        Ok(Some(Amount::Quantity(quantity)))
    } else {
        Err(ThresholdError::NotPositive(signal, quantity))
    }
}

/// The value of `--eviction-soft-grace-period`, such as `memory.available=1m30s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoftGracePeriods(pub BTreeMap<Signal, Duration>);

impl FromStr for SoftGracePeriods {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let read = |(signal, value): (Signal, &str)| {
            let nanoseconds = plumb_go::duration::parse(value)?;
            let nanoseconds = u64::try_from(nanoseconds)
                .map_err(|_| ThresholdError::NegativeGracePeriod(value.to_owned()))?;
            Ok((signal, Duration::from_nanos(nanoseconds)))
        };
        pairs(text, '=')?.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// The value of `--eviction-minimum-reclaim`, such as `imagefs.available=2Gi`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinimumReclaims(pub BTreeMap<Signal, Amount>);

impl FromStr for MinimumReclaims {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let read = |(signal, value): (Signal, &str)| {
            let amount = if let Some(percentage) = percentage(value)? {
                let part = u32::try_from(percentage).ok().filter(|part| *part > 0);
                let part = part.ok_or_else(|| ThresholdError::NoReclaim(signal, value.to_owned()))?;
                Amount::Percentage(part)
            } else {
                let quantity: Quantity = value.parse()?;
                if quantity.is_negative() {
                    return Err(ThresholdError::NegativeReclaim(signal));
                }
                Amount::Quantity(quantity)
            };
            Ok((signal, amount))
        };
        pairs(text, '=')?.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// The pairs of a flag. Of several with one name the last one counts, since upstream reads them into a map.
fn pairs(text: &str, separator: char) -> Result<Vec<(Signal, &str)>, ThresholdError> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| {
        let (name, value) = part.split_once(separator).ok_or(ThresholdError::Malformed(separator))?;
        let name = name.trim();
        let signal = Signal::named(name).ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
        Ok((signal, value.trim()))
    });
    pairs.collect()
}

/// A percentage in thousandths of a percent; `None` if the value is no percentage.
fn percentage(value: &str) -> Result<Option<i64>, ThresholdError> {
    let Some(number) = value.strip_suffix('%') else { return Ok(None) };
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let invalid = || ThresholdError::Percentage(number.to_owned());
    let quantity: Quantity = number.parse().ok().filter(|_| is_decimal).ok_or_else(invalid)?;
    Ok(Some(quantity.saturating_milli()))
}

/// All thresholds of a node.
pub fn combine(
    hard: &Thresholds,
    soft: &Thresholds,
    grace_periods: &SoftGracePeriods,
    reclaims: &MinimumReclaims,
) -> Result<Vec<Threshold>, ThresholdError> {
    let new = |signal: Signal, value: Amount, grace_period: Duration| Threshold {
        signal,
        value,
        grace_period,
        minimum_reclaim: reclaims.0.get(&signal).copied(),
    };
    let mut thresholds: Vec<Threshold> =
        hard.0.iter().map(|(signal, value)| new(*signal, *value, Duration::ZERO)).collect();
    for (signal, value) in &soft.0 {
        let grace_period = grace_periods.0.get(signal).ok_or(ThresholdError::NoGracePeriod(*signal))?;
        thresholds.push(new(*signal, *value, *grace_period));
    }
    Ok(thresholds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_kubelet() {
        assert_eq!(Thresholds::DEFAULT.parse(), Ok(Thresholds::default()));
    }

    #[test]
    fn thresholds_are_read_as_by_the_kubelet() {
        let read = |text: &str| {
            text.parse::<Thresholds>().map(|Thresholds(all)| {
                let all = all.iter().map(|(signal, value)| format!("{signal}<{value}"));
                all.collect::<Vec<_>>().join(",")
            })
        };
        for (text, expected) in [
            ("", ""),
            ("memory.available<1.5Gi", "memory.available<1536Mi"),
            (" nodefs.available < 7.5% ,pid.available<100", "nodefs.available<7.5%,pid.available<100"),
            ("memory.available<0%", ""),
            ("memory.available<1Gi,memory.available<100%", ""),
            ("memory.available<1Gi,memory.available<2Gi", "memory.available<2Gi"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("memory.available", "malformed pair, expect string<string"),
            ("mem.available<1Gi", "unsupported eviction signal mem.available"),
            ("memory.available<-1%", "eviction percentage threshold memory.available must be >= 0%: -1%"),
            ("memory.available<101%", "eviction percentage threshold memory.available must be <= 100%: 101%"),
            ("memory.available<1Gi%", "parsing \"1Gi\": invalid syntax"),
            ("memory.available<0", "eviction threshold memory.available must be positive: 0"),
            ("memory.available<-1Mi", "eviction threshold memory.available must be positive: -1Mi"),
            (
                "memory.available<x",
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_soft_threshold_needs_a_grace_period_and_a_minimum_reclaim_is_of_its_signal() {
        let hard = "memory.available<100Mi".parse().unwrap();
        let soft = "memory.available<1Gi,nodefs.available<20%".parse().unwrap();
        let periods = |text: &str| text.parse::<SoftGracePeriods>();
        let reclaims = |text: &str| text.parse::<MinimumReclaims>();
        let missing = periods("memory.available=90s").unwrap();
        let error = combine(&hard, &soft, &missing, &MinimumReclaims::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "grace period must be specified for the soft eviction threshold nodefs.available"
        );
        let all = combine(
            &hard,
            &soft,
            &periods("memory.available=90s,nodefs.available=1h").unwrap(),
            &reclaims("memory.available=50Mi").unwrap(),
        );
        let found = all.unwrap().into_iter().map(|threshold| {
            let reclaim = threshold.minimum_reclaim.map(|amount| amount.to_string());
            (threshold.signal.name(), threshold.grace_period.as_secs(), reclaim)
        });
        let reclaim = Some("50Mi".to_owned());
        let expected = [
            ("memory.available", 0, reclaim.clone()),
            ("memory.available", 90, reclaim),
            ("nodefs.available", 3600, None),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        for (text, expected) in [
            ("memory.available", "malformed pair, expect string=string"),
            (
                "memory.available=-1s",
                "invalid eviction grace period specified: -1s, must be a positive value",
            ),
        ] {
            assert_eq!(periods(text).unwrap_err().to_string(), expected);
        }
        for (text, expected) in [
            (
                "memory.available=0%",
                "eviction percentage minimum reclaim memory.available must be positive: 0%",
            ),
            ("memory.available=-1", "negative eviction minimum reclaim specified for memory.available"),
            ("x=1", "unsupported eviction signal x"),
        ] {
            assert_eq!(reclaims(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_percentage_is_of_the_capacity() {
        let of = |text: &str, capacity: i64| {
            let Thresholds(all) = format!("nodefs.available<{text}").parse().unwrap();
            all[&Signal::NodeFsAvailable].of(capacity).to_string()
        };
        assert_eq!(of("10%", 100 << 30), "10Gi");
        assert_eq!(of("0.5%", 1000), "5");
        assert_eq!(of("1Gi", 7), "1Gi");
    }
}
