//! Amounts of a resource, as Kubernetes writes them: `650m`, `256Mi`, `12e6`.
//!
//! A [`Quantity`] is a whole number of billionths in an `i128`, and the [`Format`] it was written in. It is
//! `Copy`, never allocates to be read, and no operation on it wraps around: a result that does not fit is a
//! [`QuantityError`].
//!
//! ```
//! use plumb_resize::Quantity;
//!
//! let request: Quantity = "0.65".parse()?;
//! let limit: Quantity = "1.5Gi".parse()?;
//!
//! assert_eq!(request.to_string(), "650m");
//! assert_eq!(limit.to_string(), "1536Mi");
//! assert_eq!(limit.units()?, 1_610_612_736);
//! # Ok::<(), plumb_resize::QuantityError>(())
//! ```
//!
//! # Where this type and the Go one part
//!
//! The texts read, their values, and the texts written are those of `k8s.io/apimachinery`'s `Quantity`,
//! oddities included (a lone `+` or `k` reads as zero). The differences are at the far ends:
//!
//! - The range is that of `i128` billionths, about ±1.7 × 10²⁹. Beyond it reading fails; the Go type goes on to
//!   arbitrary size. As there, a binary suffix caps at 2⁶³−1.
//! - Exponents have their full value. The Go type keeps its low 32 bits, so that `1e4294967299` is 1000 there and
//!   out of range here.
//! - Written text always reads back to the same value. The Go type drops the suffix from 1000E on (it writes
//!   `1`), and writes binary amounts over 2⁶³−1 that it would cap when reading; here the first is `1000E` and
//!   the second is written in decimal.
//! - A whole or milli value that does not fit an `i64` is an error rather than zero or a wrapped number, and
//!   a negative one is always rounded away from zero.

mod api;
mod arithmetic;
mod canonical;
mod error;
mod parse;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub use error::{Operation, QuantityError};

/// Billionths in one unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Billionths in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// An amount of a resource: cores of CPU, bytes of memory, a count of anything else.
///
/// Two quantities are equal when their values are: `1Ki` and `1024` differ only in [`format`](Self::format),
/// which decides how [`Display`](std::fmt::Display) writes them.
///
/// ```
/// use plumb_resize::Quantity;
///
/// assert_eq!("1Ki".parse(), Ok(Quantity::from_units(1024)));
/// assert_eq!(Quantity::from_bytes(1024).to_string(), "1Ki");
/// assert_eq!(Quantity::from_units(1024).to_string(), "1024");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes a [`Quantity`] is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of 1000 by letter: `650m`, `4`, `12M`.
    #[default]
    DecimalSi,
    /// Powers of 1024 by letter: `256Mi`.
    BinarySi,
    /// Powers of 1000 by number: `12e6`.
    DecimalExponent,
}

impl Quantity {
    /// Zero, in decimal notation.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A number of billionths, in decimal notation: the unit of measured CPU usage.
    pub const fn from_nano(nano: i64) -> Self {
        Self { nanos: nano as i128, format: Format::DecimalSi }
    }

    /// A number of thousandths, in decimal notation: the unit of CPU.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format: Format::DecimalSi }
    }

    /// A number of whole units, in decimal notation.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format: Format::DecimalSi }
    }

    /// A number of whole units, in binary notation: the unit of memory.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self::from_units(bytes).with_format(Format::BinarySi)
    }

    /// How this quantity is written.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same value, written in another way.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whether the value is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the value is above zero.
    pub const fn is_positive(self) -> bool {
        self.nanos > 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}
