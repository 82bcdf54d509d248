use super::{NANOS_PER_MILLI, NANOS_PER_UNIT, Operation, Quantity, QuantityError};

impl Quantity {
    /// The value in thousandths, rounded away from zero.
    ///
    /// ```
    /// use plumb_resize::Quantity;
    ///
    /// assert_eq!("650m".parse::<Quantity>()?.milli(), Ok(650));
    /// assert_eq!("1u".parse::<Quantity>()?.milli(), Ok(1));
    /// assert!("10P".parse::<Quantity>()?.milli().is_err());
    /// # Ok::<(), plumb_resize::QuantityError>(())
    /// ```
    pub fn milli(self) -> Result<i64, QuantityError> {
        i64::try_from(away_from_zero(self.nanos, NANOS_PER_MILLI))
            .map_err(|_| QuantityError::Overflow(Operation::Milli))
    }

    /// The value in whole units, rounded away from zero; for memory, its bytes.
    ///
    /// ```
    /// use plumb_resize::Quantity;
    ///
    /// assert_eq!("256Mi".parse::<Quantity>()?.units(), Ok(268_435_456));
    /// assert_eq!("-1.1".parse::<Quantity>()?.units(), Ok(-2));
    /// # Ok::<(), plumb_resize::QuantityError>(())
    /// ```
    pub fn units(self) -> Result<i64, QuantityError> {
        i64::try_from(away_from_zero(self.nanos, NANOS_PER_UNIT))
            .map_err(|_| QuantityError::Overflow(Operation::Units))
    }

    /// [`milli`](Self::milli), clamped to the range of `i64`: for output and comparisons, not for sums.
    pub fn saturating_milli(self) -> i64 {
        self.milli().unwrap_or(self.nearest_end())
    }

    /// [`units`](Self::units), clamped to the range of `i64`: for output and comparisons, not for sums.
    pub fn saturating_units(self) -> i64 {
        self.units().unwrap_or(self.nearest_end())
    }

    const fn nearest_end(self) -> i64 {
        if self.is_negative() { i64::MIN } else { i64::MAX }
    }

    /// The sum, in the format of `self`; when `self` is zero, in that of `other`.
    ///
    /// ```
    /// use plumb_resize::Quantity;
    ///
    /// let used = Quantity::ZERO.checked_add("1Gi".parse()?)?;
    /// assert_eq!(used.checked_add("512Mi".parse()?)?.to_string(), "1536Mi");
    /// # Ok::<(), plumb_resize::QuantityError>(())
    /// ```
    pub fn checked_add(self, other: Self) -> Result<Self, QuantityError> {
        self.joined(other, self.nanos.checked_add(other.nanos), Operation::Add)
    }

    /// [`checked_add`](Self::checked_add), held to the largest quantities there are: a sum that is only
    /// compared with what there is stays too large for it.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let ends = Self { nanos: self.nanos.saturating_add(other.nanos), ..self };
        self.checked_add(other).unwrap_or(ends)
    }

    /// The difference, in the format of `self`; when `self` is zero, in that of `other`.
    pub fn checked_sub(self, other: Self) -> Result<Self, QuantityError> {
        self.joined(other, self.nanos.checked_sub(other.nanos), Operation::Sub)
    }

    /// The product with a whole number, in the same format.
    pub fn checked_mul(self, factor: i64) -> Result<Self, QuantityError> {
        let nanos =
            self.nanos.checked_mul(i128::from(factor)).ok_or(QuantityError::Overflow(Operation::Mul))?;
        Ok(Self { nanos, ..self })
    }

    /// The product with a fraction, in the same format, rounded away from zero to a whole billionth.
    ///
    /// Only the result has to fit; intermediate values may be larger.
    ///
    /// ```
    /// use plumb_resize::Quantity;
    ///
    /// let target = Quantity::from_milli(500).checked_scale(115, 100)?;
    /// assert_eq!(target.to_string(), "575m");
    /// # Ok::<(), plumb_resize::QuantityError>(())
    /// ```
    pub fn checked_scale(self, numerator: i64, denominator: i64) -> Result<Self, QuantityError> {
        if denominator == 0 {
            return Err(QuantityError::ZeroDenominator);
        }
        let magnitude = self.nanos.unsigned_abs();
        let by = u128::from(numerator.unsigned_abs());
        let of = u128::from(denominator.unsigned_abs());
        // Dividing first avoids an overflow of the product: the remainder is below 2^63, as is the numerator, and the
        // whole part alone overflows only where the result does.
        let rest = ((magnitude % of) * by).div_ceil(of);
        let negative = self.is_negative() ^ (numerator < 0) ^ (denominator < 0);
        let nanos = (magnitude / of)
            .checked_mul(by)
            .and_then(|whole| whole.checked_add(rest))
            .and_then(|scaled| signed(negative, scaled))
            .ok_or(QuantityError::Overflow(Operation::Scale))?;
        Ok(Self { nanos, ..self })
    }

    fn joined(self, other: Self, nanos: Option<i128>, operation: Operation) -> Result<Self, QuantityError> {
        let nanos = nanos.ok_or(QuantityError::Overflow(operation))?;
        let format = if self.is_zero() { other.format } else { self.format };
        Ok(Self { nanos, format })
    }
}

/// A magnitude with a sign, if that fits.
pub(super) const fn signed(negative: bool, magnitude: u128) -> Option<i128> {
    if negative { 0i128.checked_sub_unsigned(magnitude) } else { 0i128.checked_add_unsigned(magnitude) }
}

const fn away_from_zero(nanos: i128, unit: i128) -> i128 {
    nanos / unit + (nanos % unit).signum()
}
