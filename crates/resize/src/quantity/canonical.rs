use std::cmp::Ordering;
use std::fmt;

use super::{Format, NANOS_PER_UNIT, Quantity};

/// Suffixes from billionths up, a factor of 1000 apart.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Where in them one stands, without a suffix.
const UNIT: usize = 3;
/// Suffixes from one up, a factor of 1024 apart.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Below this magnitude, binary notation is written as decimal.
const BINARY_FLOOR: u128 = 1024 * NANOS_PER_UNIT.unsigned_abs();
/// Above this, binary notation would be capped when read back.
pub(super) const BINARY_CEILING: u128 = i64::MAX.unsigned_abs() as u128 * NANOS_PER_UNIT.unsigned_abs();

/// The canonical form: no fraction, no loss, the largest suffix of the format that allows both.
///
/// A binary amount with a fraction, closer to zero than 1024, or beyond 2⁶³−1 is written in decimal.
///
/// ```
/// use plumb_resize::{Format, Quantity};
///
/// let amount = Quantity::from_units(1_500_000);
/// assert_eq!(amount.to_string(), "1500k");
/// assert_eq!(amount.with_format(Format::DecimalExponent).to_string(), "1500e3");
/// assert_eq!(amount.with_format(Format::BinarySi).to_string(), "1500000");
/// ```
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_none() && f.precision().is_none() {
            return self.write_canonical(f);
        }
        // The number and its suffix are padded as one text.
        let mut text = String::new();
        self.write_canonical(&mut text)?;
        f.pad(&text)
    }
}

impl Quantity {
    fn write_canonical(self, out: &mut impl fmt::Write) -> fmt::Result {
        if self.is_zero() {
            return out.write_str("0");
        }
        if let Some((amount, suffix)) = self.in_binary() {
            return write!(out, "{amount}{suffix}");
        }
        let (amount, thousands) = self.in_thousands();
        match self.format {
            Format::DecimalSi | Format::BinarySi => write!(out, "{amount}{}", DECIMAL[thousands]),
            Format::DecimalExponent => match thousands.cmp(&UNIT) {
                Ordering::Less => write!(out, "{amount}e-{}", 3 * (UNIT - thousands)),
                Ordering::Equal => write!(out, "{amount}"),
                Ordering::Greater => write!(out, "{amount}e{}", 3 * (thousands - UNIT)),
            },
        }
    }

    /// The amount and its binary suffix, if this quantity is to be written with one.
    fn in_binary(self) -> Option<(i128, &'static str)> {
        let magnitude = self.nanos.unsigned_abs();
        let fits = self.format == Format::BinarySi
            && (BINARY_FLOOR..=BINARY_CEILING).contains(&magnitude)
            && self.nanos % NANOS_PER_UNIT == 0;
        fits.then(|| {
            let units = self.nanos / NANOS_PER_UNIT;
            // Below the ceiling there are at most 62 trailing zeros, so the step is at most that of Ei.
            let step = units.trailing_zeros() / 10;
            (units >> (10 * step), BINARY[step as usize])
        })
    }

    /// The amount without its factors of 1000, and how many were taken out of the billionths.
    fn in_thousands(self) -> (i128, usize) {
        let most = match self.format {
            Format::DecimalSi | Format::BinarySi => DECIMAL.len() - 1,
            Format::DecimalExponent => usize::MAX,
        };
        let (mut amount, mut thousands) = (self.nanos, 0);
        // Zero is divisible for ever; it is written before it comes here.
        while thousands < most && amount != 0 && amount % 1000 == 0 {
            amount /= 1000;
            thousands += 1;
        }
        (amount, thousands)
    }
}
