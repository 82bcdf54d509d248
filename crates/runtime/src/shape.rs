//! Usage over time: of `plumb load`, and of containers of the virtual runtime.

use std::str::FromStr;
use std::time::Duration;

use plumb_resize::quantity::{Quantity, QuantityError};

/// The course of usage between a base and a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The base, always.
    #[default]
    Constant,
    /// From the base to the peak and back, once in a period.
    Sine,
    /// Straight from the base to the peak in one period, and there it stays.
    Ramp,
    /// The base, and the peak for the first tenth of every period.
    Spike,
    /// From the base on and on, by the distance to the peak in every period.
    Leak,
}

impl Shape {
    /// Where between base (0) and peak (1) it is after this time.
    pub fn level(self, elapsed: Duration, period: Duration) -> f64 {
        if period.is_zero() {
            return 0.0;
        }
        let periods = elapsed.as_secs_f64() / period.as_secs_f64();
        match self {
            Self::Constant => 0.0,
            Self::Sine => (1.0 - (periods * std::f64::consts::TAU).cos()) / 2.0,
            Self::Ramp => periods.min(1.0),
            Self::Spike => f64::from(u8::from(periods.fract() < 0.1)),
            Self::Leak => periods,
        }
    }

    /// When, at `from` or later, it is first at this level or above.
    pub fn reaches(self, level: f64, from: Duration, period: Duration) -> Option<Duration> {
        if self.level(from, period) >= level {
            return Some(from);
        }
        if period.is_zero() {
            return None;
        }
        let periods = from.as_secs_f64() / period.as_secs_f64();
        let at = match self {
            Self::Constant => return None,
            Self::Ramp | Self::Spike | Self::Sine if level > 1.0 => return None,
            Self::Ramp | Self::Leak => level,
            Self::Spike => periods.floor() + 1.0,
            Self::Sine => {
                // On its way up it is there once in a period, at this part of it.
                let part = (1.0 - 2.0 * level).acos() / std::f64::consts::TAU;
                let same = periods.floor() + part;
                if same >= periods { same } else { same + 1.0 }
            }
        };
        // A nanosecond late rather than early: then it is there.
        let at = Duration::try_from_secs_f64(at * period.as_secs_f64()).ok()?;
        Some(at.max(from) + Duration::from_nanos(1))
    }

    /// The usage after this time, between `base` and `peak`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "usage is far below 2^53, and casts from floats saturate"
    )]
    pub fn usage(self, base: u64, peak: u64, elapsed: Duration, period: Duration) -> u64 {
        let (base, peak) = (base as f64, peak as f64);
        (base + (peak - base) * self.level(elapsed, period)).max(0.0).round() as u64
    }
}

/// Why the description of a workload is invalid: the arguments of `plumb load`, or the model of a virtual container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is no such shape.
    #[error("unknown shape {0:?}: constant, sine, ramp, spike or leak")]
    Shape(String),
    /// It is no duration.
    #[error("{0:?} is not a time such as 90s or 5m")]
    Duration(String),
    /// It is no quantity.
    #[error("{text:?}: {error}")]
    Quantity {
        /// The text.
        text: String,
        /// Why.
        error: QuantityError,
    },
    /// The quantity is negative.
    #[error("{0:?} is below zero")]
    Negative(String),
    /// It is no exit code.
    #[error("{0:?} is not an exit code")]
    ExitCode(String),
    /// A model has no such word.
    #[error("a model with the unknown word {0:?}")]
    Word(String),
    /// There is no such option.
    #[error("unknown option {0:?}")]
    Option(String),
    /// The option has no value.
    #[error("{0} needs a value")]
    NoValue(String),
}

/// An amount of CPU in thousandths of a core.
pub(crate) fn milli(text: &str) -> Result<u64, LoadError> {
    amount(text, Quantity::saturating_milli)
}

/// An amount of memory in bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, LoadError> {
    amount(text, Quantity::saturating_units)
}

fn amount(text: &str, number: impl Fn(Quantity) -> i64) -> Result<u64, LoadError> {
    let quantity = text.parse::<Quantity>();
    let quantity = quantity.map_err(|error| LoadError::Quantity { text: text.to_owned(), error })?;
    u64::try_from(number(quantity)).map_err(|_| LoadError::Negative(text.to_owned()))
}

impl FromStr for Shape {
    type Err = LoadError;

    fn from_str(name: &str) -> Result<Self, LoadError> {
        Ok(match name {
            "constant" => Self::Constant,
            "sine" => Self::Sine,
            "ramp" => Self::Ramp,
            "spike" => Self::Spike,
            "leak" => Self::Leak,
            other => return Err(LoadError::Shape(other.to_owned())),
        })
    }
}

/// A Go duration such as `90s` or `1h30m`, or a plain number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, LoadError> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let nanos = if is_plain {
        plumb_go::duration::parse(&format!("{text}s"))
    } else {
        plumb_go::duration::parse(text)
    };
    let nanos = nanos.ok().and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| LoadError::Duration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_goes_its_way() {
        let s = Duration::from_secs;
        let table = [
            (Shape::Constant, 5, 100),
            (Shape::Sine, 0, 100),
            (Shape::Sine, 5, 300),
            (Shape::Sine, 10, 100),
            (Shape::Ramp, 5, 200),
            (Shape::Ramp, 99, 300),
            (Shape::Spike, 10, 300),
            (Shape::Spike, 12, 100),
            (Shape::Leak, 30, 700),
        ];
        for (shape, at, usage) in table {
            assert_eq!(shape.usage(100, 300, s(at), s(10)), usage, "{shape:?} at {at}");
        }
    }

    #[test]
    fn levels_are_reached_when_they_are() {
        let s = Duration::from_secs;
        for shape in [Shape::Sine, Shape::Ramp, Shape::Spike, Shape::Leak] {
            for from in [0, 3, 7, 12, 25] {
                for tenth in 1..=10 {
                    let level = f64::from(tenth) / 10.0 - 0.001;
                    let Some(at) = shape.reaches(level, s(from), s(10)) else { continue };
                    assert!(shape.level(at, s(10)) >= level - 1e-6, "{shape:?} {from} {level}: {at:?}");
                    let mut before = s(from);
                    while before + Duration::from_millis(10) < at {
                        assert!(
                            shape.level(before, s(10)) < level,
                            "{shape:?} {from} {level}: {before:?} < {at:?}"
                        );
                        before += Duration::from_millis(7);
                    }
                }
            }
        }
        assert_eq!(Shape::Constant.reaches(0.5, s(0), s(10)), None);
        assert_eq!(Shape::Sine.reaches(1.5, s(0), s(10)), None);
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in
            [("250ms", 250), ("1.5s", 1500), ("2m", 120_000), ("1m30s", 90_000), ("7", 7000), ("0.5", 500)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis));
        }
        for text in ["1d", "x", "", ".", "-1s", "1.2.3", "99999999999"] {
            assert_eq!(duration(text), Err(LoadError::Duration(text.to_owned())));
        }
    }
}
