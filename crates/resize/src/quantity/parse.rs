use std::borrow::Cow;
use std::str::FromStr;

use super::arithmetic::signed;
use super::canonical::BINARY_CEILING;
use super::{Format, NANOS_PER_UNIT, Operation, Quantity, QuantityError};

/// Decimal places of a billionth.
const NANO_PLACES: i64 = 9;
/// The digits the Go type holds in its 64-bit form.
const WORD_DIGITS: usize = 18;

impl Quantity {
    /// Reads a quantity from bytes of any kind.
    ///
    /// Digits beyond a billionth are rounded away from zero, so that a small request is not zero. White space is not
    /// skipped; the conversion from the API's type does that.
    ///
    /// ```
    /// use plumb_resize::{Format, Quantity, QuantityError};
    ///
    /// let memory = Quantity::parse(b"256Mi")?;
    /// assert_eq!(memory.format(), Format::BinarySi);
    /// assert_eq!(Quantity::parse(b"0.1n")?.to_string(), "1n");
    /// assert_eq!(Quantity::parse(b"5 Mi"), Err(QuantityError::FormatWrong));
    /// # Ok::<(), QuantityError>(())
    /// ```
    pub fn parse(text: &[u8]) -> Result<Self, QuantityError> {
        Notation::of(text)?.quantity()
    }

    /// The text the API server writes back for a quantity it was sent.
    ///
    /// It leaves a text alone that its fast path takes for canonical, which includes some that are not: `1.234` and
    /// `12E3` stay, `0.5` becomes `500m`. White space around the text is dropped, as its decoder does.
    ///
    /// ```
    /// use plumb_resize::Quantity;
    ///
    /// assert_eq!(Quantity::wire_form("1.234")?, "1.234");
    /// assert_eq!(Quantity::wire_form("0.5")?, "500m");
    /// assert_eq!(Quantity::wire_form("1024Mi")?, "1Gi");
    /// # Ok::<(), plumb_resize::QuantityError>(())
    /// ```
    pub fn wire_form(text: &str) -> Result<Cow<'_, str>, QuantityError> {
        let text = text.trim();
        let notation = Notation::of(text.as_bytes())?;
        let quantity = notation.quantity()?;
        Ok(if notation.passes_for_canonical() {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(quantity.to_string())
        })
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
    }
}

/// A quantity taken apart, its digits still text.
struct Notation<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a [u8],
    /// Digits after the point.
    fraction: &'a [u8],
    /// Whether any digit was there at all, zeros included.
    numeric: bool,
    suffix: Suffix,
}

#[derive(Clone, Copy)]
enum Suffix {
    /// A power of ten.
    Decimal { exponent: i64, format: Format },
    /// A power of two.
    Binary { exponent: u32 },
}

impl<'a> Notation<'a> {
    fn of(text: &'a [u8]) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::FormatWrong);
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits(rest),
            _ => (&[][..], rest),
        };
        Ok(Self {
            negative,
            whole: without_leading_zeros(whole),
            fraction,
            numeric: !(whole.is_empty() && fraction.is_empty()),
            suffix: Suffix::of(rest)?,
        })
    }

    fn quantity(&self) -> Result<Quantity, QuantityError> {
        // The Go type reads a missing number as zero on its quick path, and only misses it on the other.
        if !self.numeric && !self.fits_word() {
            return Err(QuantityError::Numeric);
        }
        let (magnitude, format) = match self.suffix {
            Suffix::Decimal { exponent, format } => (self.decimal_nanos(exponent), format),
            Suffix::Binary { exponent } => {
                let nanos = self.binary_nanos(exponent);
                let format = if nanos > 0 && nanos < NANOS_PER_UNIT.unsigned_abs() {
                    Format::DecimalSi
                } else {
                    Format::BinarySi
                };
                (Some(nanos), format)
            }
        };
        let nanos = magnitude
            .and_then(|nanos| signed(self.negative, nanos))
            .ok_or(QuantityError::Overflow(Operation::Parse))?;
        Ok(Quantity { nanos, format })
    }

    /// The digits, moved by a power of ten; `None` if there are too many.
    fn decimal_nanos(&self, exponent: i64) -> Option<u128> {
        let digits = self.whole.len() + self.fraction.len();
        // Where the billionths end, counted in digits from the left.
        let end = exponent.saturating_add(NANO_PLACES).saturating_add_unsigned(self.whole.len() as u64);
        let kept = usize::try_from(end.max(0)).unwrap_or(usize::MAX);

        let mut nanos = 0u128;
        for digit in self.digits().take(kept) {
            nanos = nanos.checked_mul(10)?.checked_add(u128::from(digit))?;
        }
        if nanos != 0 && kept > digits {
            let places = u32::try_from(kept - digits).ok()?;
            nanos = nanos.checked_mul(10u128.checked_pow(places)?)?;
        }
        if kept < digits && self.digits().skip(kept).any(|digit| digit != 0) {
            nanos = nanos.checked_add(1)?;
        }
        Some(nanos)
    }

    /// The digits times a power of two, capped.
    fn binary_nanos(&self, exponent: u32) -> u128 {
        let unit = NANOS_PER_UNIT.unsigned_abs() << exponent;
        // Past the cap the remaining digits do not matter, and below it no value here reaches 2^128.
        let whole =
            values(self.whole).fold(0, |sum, digit| (sum * 10 + u128::from(digit)).min(BINARY_CEILING));
        let Some(whole) = whole.checked_mul(unit) else { return BINARY_CEILING };
        // From the last digit up, rounding up at each: rounding a sum of a whole number and a part, then dividing
        // by a whole number and rounding again, is the same as rounding once at the end.
        let fraction =
            values(self.fraction).rfold(0, |below, digit| (u128::from(digit) * unit + below).div_ceil(10));
        whole.saturating_add(fraction).min(BINARY_CEILING)
    }

    /// Whether the Go type holds this as a 64-bit number with a power of ten, by its own estimate.
    fn fits_word(&self) -> bool {
        let whole = self.whole.len().max(1);
        match self.suffix {
            Suffix::Decimal { exponent, .. } => {
                whole + self.fraction.len() <= WORD_DIGITS && self.scale(exponent) >= -NANO_PLACES
            }
            Suffix::Binary { exponent } => {
                // It counts three digits for each factor of 1024 and allows fourteen in all.
                self.fraction.is_empty() && whole + exponent as usize * 3 / 10 <= 14
            }
        }
    }

    /// Whether the API server would write this text back as it is.
    fn passes_for_canonical(&self) -> bool {
        if !self.fits_word() {
            return false;
        }
        match self.suffix {
            Suffix::Decimal { exponent, .. } => {
                let trailing_zeros = self.digits().rev().take(3).filter(|&digit| digit == 0).count();
                !self.whole.is_empty() && self.scale(exponent) % 3 == 0 && trailing_zeros < 3
            }
            Suffix::Binary { .. } => {
                // 1000 is a multiple of 8, so the last three digits decide.
                let last = &self.whole[self.whole.len().saturating_sub(3)..];
                values(last).fold(0, |sum, digit| sum * 10 + u32::from(digit)) % 8 != 0
            }
        }
    }

    /// The power of ten of the last digit.
    fn scale(&self, exponent: i64) -> i64 {
        exponent.saturating_sub_unsigned(self.fraction.len() as u64)
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> {
        values(self.whole).chain(values(self.fraction))
    }
}

impl Suffix {
    fn of(text: &[u8]) -> Result<Self, QuantityError> {
        let decimal = |exponent| Ok(Self::Decimal { exponent, format: Format::DecimalSi });
        let binary = |exponent| Ok(Self::Binary { exponent });
        match text {
            b"" => decimal(0),
            b"n" => decimal(-9),
            b"u" => decimal(-6),
            b"m" => decimal(-3),
            b"k" => decimal(3),
            b"M" => decimal(6),
            b"G" => decimal(9),
            b"T" => decimal(12),
            b"P" => decimal(15),
            b"E" => decimal(18),
            b"Ki" => binary(10),
            b"Mi" => binary(20),
            b"Gi" => binary(30),
            b"Ti" => binary(40),
            b"Pi" => binary(50),
            b"Ei" => binary(60),
            _ if !has_suffix_shape(text) => Err(QuantityError::FormatWrong),
            [b'e' | b'E', exponent @ ..] => str::from_utf8(exponent)
                .ok()
                .and_then(|exponent| exponent.parse().ok())
                .map(|exponent| Self::Decimal { exponent, format: Format::DecimalExponent })
                .ok_or(QuantityError::Suffix),
            _ => Err(QuantityError::Suffix),
        }
    }
}

/// Letters that occur in suffixes, a sign, digits: each part may be missing.
fn has_suffix_shape(text: &[u8]) -> bool {
    let letters = text.iter().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let ([b'+' | b'-', number @ ..] | number) = &text[letters..];
    number.iter().all(u8::is_ascii_digit)
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(digits)
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

fn values(digits: &[u8]) -> impl DoubleEndedIterator<Item = u8> {
    digits.iter().map(|digit| digit - b'0')
}
