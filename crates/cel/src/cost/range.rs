//! Ranges of sizes and costs.

/// The minimum and the maximum of a size or a cost. Arithmetic saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies a number by a factor and rounds up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "upstream computes with doubles; the cast saturates"
)]
pub(super) fn scaled(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).ceil() as u64
}

/// Multiplies a number by a factor and rounds down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "upstream computes with doubles; the cast saturates"
)]
pub(super) fn truncated(number: u64, factor: f64) -> u64 {
    (number as f64 * factor) as u64
}
